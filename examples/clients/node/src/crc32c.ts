/** CRC-32C (Castagnoli), as the trailer of a picture carries it. Node's zlib has CRC-32 only, another polynomial. */

const POLYNOMIAL = 0x82f63b78; // bits reversed

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let remainder = byte;
  for (let bit = 0; bit < 8; bit++) {
    remainder = remainder & 1 ? (remainder >>> 1) ^ POLYNOMIAL : remainder >>> 1;
  }
  return remainder;
});

/**
 * The checksum of `data`.
 *
 * @param data Bytes to add.
 * @param before Checksum of the bytes before them; 0 at the start.
 */
export function crc32c(data: Uint8Array, before = 0): number {
  let remainder = ~before;
  for (const byte of data) {
    remainder = TABLE[(remainder ^ byte) & 0xff]! ^ (remainder >>> 8);
  }
  return ~remainder >>> 0;
}
