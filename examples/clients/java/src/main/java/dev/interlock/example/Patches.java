package dev.interlock.example;

import static dev.interlock.example.NotAsExpectedException.expect;

import com.google.protobuf.ByteString;
import dev.interlock.preprocess.v1.PatchChunk;
import dev.interlock.preprocess.v1.PatchDtype;
import dev.interlock.preprocess.v1.PatchFrame;
import dev.interlock.preprocess.v1.PatchHeader;
import dev.interlock.preprocess.v1.PatchTrailer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32C;

/** One picture's patch buffer, put together from its frames. It is whole only after the trailer. */
final class Patches {
  private PatchHeader header = PatchHeader.getDefaultInstance();
  private byte[] data = {};
  private int length;
  private boolean whole;

  PatchHeader header() {
    return header;
  }

  byte[] data() {
    return data;
  }

  boolean isWhole() {
    return whole;
  }

  /** Takes in one frame of the picture: a header, chunks, a trailer. */
  void add(PatchFrame frame) throws NotAsExpectedException {
    switch (frame.getFrameCase()) {
      case HEADER -> begin(frame.getHeader());
      case CHUNK -> append(frame.getChunk());
      case TRAILER -> end(frame.getTrailer());
      default -> throw new NotAsExpectedException("no frame of a picture: " + frame);
    }
  }

  private void begin(PatchHeader header) throws NotAsExpectedException {
    expect(
        header.getDtype() == PatchDtype.PATCH_DTYPE_BF16,
        "the numbers are " + header.getDtypeValue());
    this.header = header;
    this.data = new byte[Math.toIntExact(header.getTotalBytes())];
  }

  private void append(PatchChunk chunk) throws NotAsExpectedException {
    long patchBytes = 3L * header.getPatchSize() * header.getPatchSize() * Short.BYTES;
    long first = Integer.toUnsignedLong(chunk.getFirstPatch()) * patchBytes;
    ByteString bytes = chunk.getData();
    expect(first == length, "a chunk begins at byte " + first + ", and " + length + " came");
    expect(
        bytes.size() <= data.length - length,
        "more bytes come than the " + data.length + " of the header");
    bytes.copyTo(data, length);
    length += bytes.size();
  }

  private void end(PatchTrailer trailer) throws NotAsExpectedException {
    expect(length == data.length, length + " bytes came of " + data.length);
    long crc = Integer.toUnsignedLong(trailer.getCrc32C());
    expect(
        crc32c(data) == crc,
        "the CRC-32C is %08x, and the trailer says %08x".formatted(crc32c(data), crc));
    whole = true;
  }

  static long crc32c(byte[] data) {
    CRC32C crc = new CRC32C();
    crc.update(data);
    return crc.getValue();
  }

  /** Reads bf16 numbers, little-endian: the upper halves of floats. */
  static float[] floats(byte[] data, int count) {
    ByteBuffer buffer = ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN);
    float[] numbers = new float[count];
    for (int i = 0; i < count; i++) {
      numbers[i] = Float.intBitsToFloat(buffer.getShort() << 16);
    }
    return numbers;
  }
}
