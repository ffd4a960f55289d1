package dev.interlock.example;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.ByteString;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import dev.interlock.preprocess.v1.ImageError;
import dev.interlock.preprocess.v1.PatchFrame;
import dev.interlock.preprocess.v1.PatchHeader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Patch buffers against the vectors that clients in every language agree on. */
class PatchesTest {
  private static final Path VECTORS = Path.of("..", "..", "..", "vectors");

  @Test
  void bf16NumbersAreReadExactly() throws Exception {
    JsonObject vectors = load("bf16.json").getAsJsonObject();
    assertFalse(vectors.isEmpty());
    for (String name : vectors.keySet()) {
      JsonObject numbers = vectors.getAsJsonObject(name);
      float[] values = values(numbers);
      assertTrue(values.length > 0);
      // Compares bits: -0 is not 0.
      assertArrayEquals(values, Patches.floats(bytes(numbers), values.length));
    }
  }

  @Test
  void checksumsAreThoseOfTheirBytes() throws Exception {
    for (JsonElement element : load("checksums.json").getAsJsonArray()) {
      JsonObject buffer = element.getAsJsonObject();
      assertEquals(buffer.get("crc32c").getAsLong(), Patches.crc32c(bytes(buffer)));
      assertEquals(buffer.get("sha256").getAsString(), PictureFolder.sha256(bytes(buffer)));
    }
  }

  @Test
  void interleavedFramesArePutTogether() throws Exception {
    JsonObject pictures = load("stream.json").getAsJsonObject().getAsJsonObject("pictures");
    Answers answers = new Answers();
    for (PatchFrame frame : frames()) {
      answers.add(frame);
    }
    Set<String> ids = new HashSet<>(answers.served());
    ids.addAll(answers.failed());
    assertEquals(pictures.keySet(), ids);
    assertEquals(pictures.size(), answers.served().size() + answers.failed().size());
    for (String id : ids) {
      JsonObject picture = pictures.getAsJsonObject(id);
      if (picture.has("error")) {
        assertEquals(json(picture.get("error"), ImageError.newBuilder()), answers.error(id));
        continue;
      }
      Patches patches = answers.patches(id);
      JsonObject expected = picture.getAsJsonObject("patches");
      float[] values = values(expected);
      assertEquals(json(picture.get("header"), PatchHeader.newBuilder()), patches.header());
      assertArrayEquals(bytes(expected), patches.data());
      assertArrayEquals(values, Patches.floats(patches.data(), values.length));
    }
  }

  @Test
  void aFlippedBitIsSeen() throws Exception {
    List<PatchFrame> frames = firstPicture();
    PatchFrame.Builder flipped = frames.get(1).toBuilder();
    byte[] data = flipped.getChunk().getData().toByteArray();
    data[0] ^= 1;
    flipped.getChunkBuilder().setData(ByteString.copyFrom(data));
    frames.set(1, flipped.build());
    assertTrue(fault(frames).startsWith("the CRC-32C is "));
  }

  @Test
  void aLostChunkIsSeen() throws Exception {
    List<PatchFrame> frames = firstPicture();
    frames.remove(1);
    assertEquals("a chunk begins at byte 24, and 0 came", fault(frames));
  }

  @Test
  void aLostLastChunkIsSeen() throws Exception {
    List<PatchFrame> frames = firstPicture();
    frames.remove(frames.size() - 2);
    assertEquals("120 bytes came of 144", fault(frames));
  }

  @Test
  void aChunkTooManyIsSeen() throws Exception {
    List<PatchFrame> frames = firstPicture();
    PatchFrame.Builder surplus = frames.get(1).toBuilder();
    surplus.getChunkBuilder().setFirstPatch(6);
    frames.add(frames.size() - 1, surplus.build());
    assertEquals("more bytes come than the 144 of the header", fault(frames));
  }

  @Test
  void numbersOfAnotherTypeAreRefused() throws Exception {
    List<PatchFrame> frames = firstPicture();
    PatchFrame.Builder other = frames.get(0).toBuilder();
    other.getHeaderBuilder().setDtypeValue(2);
    frames.set(0, other.build());
    assertEquals("the numbers are 2", fault(frames));
  }

  private static String fault(List<PatchFrame> frames) {
    Patches patches = new Patches();
    NotAsExpectedException fault =
        assertThrows(
            NotAsExpectedException.class,
            () -> {
              for (PatchFrame frame : frames) {
                patches.add(frame);
              }
            });
    assertFalse(patches.isWhole());
    return fault.getMessage();
  }

  private static List<PatchFrame> firstPicture() throws Exception {
    List<PatchFrame> frames = frames();
    frames.removeIf(frame -> !frame.getImageId().equals("first"));
    return frames;
  }

  private static List<PatchFrame> frames() throws Exception {
    List<PatchFrame> frames = new ArrayList<>();
    for (JsonElement hex : load("stream.json").getAsJsonObject().getAsJsonArray("frames")) {
      frames.add(PatchFrame.parseFrom(HexFormat.of().parseHex(hex.getAsString())));
    }
    return frames;
  }

  private static byte[] bytes(JsonObject object) {
    return HexFormat.of().parseHex(object.get("hex").getAsString());
  }

  private static float[] values(JsonObject numbers) {
    JsonArray texts = numbers.getAsJsonArray("values");
    float[] values = new float[texts.size()];
    for (int i = 0; i < values.length; i++) {
      values[i] = texts.get(i).getAsFloat();
    }
    return values;
  }

  private static Message json(JsonElement json, Message.Builder builder) throws Exception {
    JsonFormat.parser().merge(json.toString(), builder);
    return builder.build();
  }

  private static JsonElement load(String name) throws Exception {
    return JsonParser.parseString(Files.readString(VECTORS.resolve(name)));
  }
}
