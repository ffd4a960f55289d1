package dev.interlock.example;

import static dev.interlock.example.NotAsExpectedException.expect;

import com.google.protobuf.ByteString;
import com.google.rpc.Code;
import dev.interlock.preprocess.v1.ImageBegin;
import dev.interlock.preprocess.v1.ImageCancel;
import dev.interlock.preprocess.v1.ImageData;
import dev.interlock.preprocess.v1.ImageEnd;
import dev.interlock.preprocess.v1.ImageError;
import dev.interlock.preprocess.v1.PatchFrame;
import dev.interlock.preprocess.v1.PreprocessImageRequest;
import dev.interlock.preprocess.v1.PreprocessImagesRequest;
import dev.interlock.preprocess.v1.PreprocessServiceGrpc;
import dev.interlock.preprocess.v1.ProfileSelector;
import dev.interlock.preprocess.v1.SourceKind;
import io.grpc.Channel;
import io.grpc.stub.StreamObserver;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Pictures: one in a call, several on a stream, one of them damaged or cancelled. */
final class Pictures {
  private static final Duration PATIENCE = Duration.ofSeconds(50);

  /**
   * Small, so that the pictures of the examples come in several parts. About 1 MiB is a good size.
   */
  private static final int PART_BYTES = 1024;

  private final Channel channel;
  private final PictureFolder folder;

  Pictures(Channel channel, Path folder) {
    this.channel = channel;
    this.folder = new PictureFolder(folder);
  }

  String picture() throws Exception {
    PictureFolder.Expectations expectations = folder.expectations();
    long bytes = 0;
    for (PictureFolder.Expected expected : expectations.pictures()) {
      Patches patches = preprocess(folder.read(expected.file()), expected.profile());
      expected.check(patches);
      bytes += patches.data().length;
    }
    return "%d pictures, %d bytes of patches as the reference gives them"
        .formatted(expectations.pictures().size(), bytes);
  }

  /** Sends a picture file in one message and gives its patches. A fault is the call's status. */
  private Patches preprocess(ByteString source, String profile) throws NotAsExpectedException {
    Iterator<PatchFrame> frames =
        PreprocessServiceGrpc.newBlockingStub(channel)
            .withDeadlineAfter(PATIENCE)
            .preprocessImage(
                PreprocessImageRequest.newBuilder()
                    .setEncoded(source)
                    .setProfile(ProfileSelector.newBuilder().setName(profile))
                    .build());
    Patches patches = new Patches();
    while (frames.hasNext()) {
      patches.add(frames.next());
    }
    return patches;
  }

  String neighbours() throws Exception {
    PictureFolder.Expectations expectations = folder.expectations();
    PictureFolder.Expected before = expectations.pictures().get(0);
    PictureFolder.Expected after = expectations.pictures().get(1);
    PictureFolder.Damaged damaged = expectations.damaged().get(0);
    List<PreprocessImagesRequest> requests = new ArrayList<>();
    for (String file : List.of(before.file(), damaged.file(), after.file())) {
      requests.addAll(whole(file, folder.read(file), before.profile()));
    }
    Answers answers = stream(requests);
    before.check(answers.patches(before.file()));
    after.check(answers.patches(after.file()));
    ImageError error = answers.error(damaged.file());
    expect(
        error.getReason().equals(damaged.reason()) && !error.getField().isEmpty(),
        damaged.file() + " did not fail with " + damaged.reason() + " and a field: " + error);
    return error.getReason()
        + ", field "
        + error.getField()
        + "; the pictures before and after it are served";
  }

  String cancel() throws Exception {
    PictureFolder.Expectations expectations = folder.expectations();
    PictureFolder.Expected wanted = expectations.pictures().get(0);
    PictureFolder.Expected unwanted =
        expectations.pictures().get(expectations.pictures().size() - 1);
    ByteString source = folder.read(unwanted.file());
    List<PreprocessImagesRequest> requests = new ArrayList<>();
    requests.add(begin(unwanted.file(), source, unwanted.profile()));
    requests.add(parts(unwanted.file(), source).get(0));
    requests.add(
        PreprocessImagesRequest.newBuilder()
            .setCancel(ImageCancel.newBuilder().setImageId(unwanted.file()))
            .build());
    requests.addAll(whole(wanted.file(), folder.read(wanted.file()), wanted.profile()));
    Answers answers = stream(requests);
    wanted.check(answers.patches(wanted.file()));
    ImageError error = answers.error(unwanted.file());
    expect(
        error.getCode() == Code.CANCELLED_VALUE && error.getReason().equals("CANCELLED"),
        unwanted.file() + " was cancelled, and ended with " + error);
    return unwanted.file()
        + " is "
        + error.getReason()
        + ", "
        + wanted.file()
        + " on the same stream is served";
  }

  /** Runs a stream. The answers are read on another thread than the requests are written on. */
  private Answers stream(List<PreprocessImagesRequest> requests) throws Exception {
    CompletableFuture<Answers> ended = new CompletableFuture<>();
    StreamObserver<PreprocessImagesRequest> call =
        PreprocessServiceGrpc.newStub(channel)
            .withDeadlineAfter(PATIENCE)
            .preprocessImages(
                new StreamObserver<>() {
                  private final Answers answers = new Answers();

                  @Override
                  public void onNext(PatchFrame frame) {
                    try {
                      answers.add(frame);
                    } catch (NotAsExpectedException error) {
                      ended.completeExceptionally(error);
                    }
                  }

                  @Override
                  public void onError(Throwable error) {
                    ended.completeExceptionally(error);
                  }

                  @Override
                  public void onCompleted() {
                    ended.complete(answers);
                  }
                });
    requests.forEach(call::onNext);
    call.onCompleted();
    return ended.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
  }

  /** Announces a picture. */
  private static PreprocessImagesRequest begin(String id, ByteString source, String profile) {
    return PreprocessImagesRequest.newBuilder()
        .setBegin(
            ImageBegin.newBuilder()
                .setImageId(id)
                .setKind(SourceKind.SOURCE_KIND_ENCODED)
                .setTotalBytes(source.size())
                .setProfile(ProfileSelector.newBuilder().setName(profile)))
        .build();
  }

  /** The bytes of a picture, in order. */
  private static List<PreprocessImagesRequest> parts(String id, ByteString source) {
    List<PreprocessImagesRequest> requests = new ArrayList<>();
    for (int offset = 0; offset < source.size(); offset += PART_BYTES) {
      ByteString part = source.substring(offset, Math.min(offset + PART_BYTES, source.size()));
      requests.add(
          PreprocessImagesRequest.newBuilder()
              .setData(ImageData.newBuilder().setImageId(id).setOffset(offset).setData(part))
              .build());
    }
    return requests;
  }

  /** A picture from its begin to its end. */
  private static List<PreprocessImagesRequest> whole(String id, ByteString source, String profile) {
    List<PreprocessImagesRequest> requests = new ArrayList<>();
    requests.add(begin(id, source, profile));
    requests.addAll(parts(id, source));
    requests.add(
        PreprocessImagesRequest.newBuilder().setEnd(ImageEnd.newBuilder().setImageId(id)).build());
    return requests;
  }
}
