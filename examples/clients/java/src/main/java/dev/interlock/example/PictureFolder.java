package dev.interlock.example;

import static dev.interlock.example.NotAsExpectedException.expect;

import com.google.gson.FieldNamingPolicy;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.protobuf.ByteString;
import dev.interlock.preprocess.v1.Plan;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;

/** A folder with pictures, and its expected.json: what must come back. */
record PictureFolder(Path path) {
  private static final Gson GSON =
      new GsonBuilder()
          .setFieldNamingPolicy(FieldNamingPolicy.LOWER_CASE_WITH_UNDERSCORES)
          .create();

  /** What expected.json says. */
  record Expectations(List<Expected> pictures, List<Damaged> damaged) {}

  /** A damaged picture, and the reason it is refused with. */
  record Damaged(String file, String reason) {}

  /** A picture, and its patches. */
  record Expected(
      String file,
      String profile,
      String patchesSha256,
      int gridWidth,
      int gridHeight,
      float[] firstValues) {
    void check(Patches patches) throws NotAsExpectedException {
      Plan plan = patches.header().getPlan();
      float[] first = Patches.floats(patches.data(), firstValues.length);
      String sha256 = sha256(patches.data());
      expect(patches.isWhole(), file + " has no trailer");
      expect(sha256.equals(patchesSha256), file + ": the SHA-256 is " + sha256);
      expect(
          plan.getGridWidth() == gridWidth && plan.getGridHeight() == gridHeight,
          file + ": the grid is " + plan.getGridWidth() + "x" + plan.getGridHeight());
      expect(
          Arrays.equals(first, firstValues),
          file + ": the first numbers are " + Arrays.toString(first));
    }
  }

  Expectations expectations() throws IOException, NotAsExpectedException {
    Expectations expectations =
        GSON.fromJson(Files.readString(path.resolve("expected.json")), Expectations.class);
    expect(
        expectations.pictures().size() >= 2 && !expectations.damaged().isEmpty(),
        "expected.json has not two pictures and a damaged one");
    return expectations;
  }

  ByteString read(String file) throws IOException {
    return ByteString.copyFrom(Files.readAllBytes(path.resolve(file)));
  }

  static String sha256(byte[] data) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
    } catch (NoSuchAlgorithmException error) {
      throw new AssertionError("every Java has SHA-256", error);
    }
  }
}
