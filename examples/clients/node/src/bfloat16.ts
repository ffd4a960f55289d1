/** bfloat16 is the upper half of a float32, so that every value is exact in JavaScript's numbers. */

/** The numbers of a buffer of little-endian bfloat16, at any byte offset of its memory. */
export function float32sOfBfloat16(data: Uint8Array): Float32Array {
  const words = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const bits = new Uint32Array(data.byteLength / 2);
  for (let index = 0; index < bits.length; index++) {
    bits[index] = words.getUint16(2 * index, true) << 16;
  }
  return new Float32Array(bits.buffer);
}
