/** Patches, put together from the frames of one picture and checked as they arrive. */

import { PatchDtype, type ImageError, type PatchFrame, type PatchHeader } from "@interlock/protos/preprocess/v1";
import { crc32c } from "./crc32c.js";

/** The frames of a picture do not add up: what came is not what was sent. */
export class PatchesDamagedError extends Error {
  override readonly name = "PatchesDamagedError";
}

/** A whole picture. */
export interface Patches {
  header: PatchHeader;
  /** bfloat16, little-endian, in C order: grid row, grid column, channel, row, column. */
  data: Uint8Array;
  /** CRC-32C of `data`, as the trailer had it and as it was found. */
  crc32c: number;
}

/** How a picture ended. */
export type Outcome = { patches: Patches } | { error: ImageError };

const BYTES_A_NUMBER = 2;
const CHANNELS = 3;

/** Reads the frames of one picture. */
export class PatchReader {
  #header: PatchHeader | undefined;
  #data = new Uint8Array();
  #received = 0;

  /** Takes a frame; gives the outcome with the last one. */
  read({ frame }: PatchFrame): Outcome | undefined {
    switch (frame.case) {
      case "header":
        this.#begin(frame.value);
        return undefined;
      case "chunk":
        this.#add(frame.value.firstPatch, frame.value.data);
        return undefined;
      case "trailer":
        return { patches: this.#whole(frame.value.crc32c) };
      case "error":
        return { error: frame.value };
      default:
        return undefined; // nothing that belongs to the patches
    }
  }

  #begin(header: PatchHeader): void {
    const { gridWidth, gridHeight } = header.plan ?? { gridWidth: 0, gridHeight: 0 };
    const due = gridWidth * gridHeight * bytesOfPatch(header);
    if (header.dtype !== PatchDtype.BF16) throw new PatchesDamagedError(`the numbers are of type ${header.dtype}`);
    if (header.totalBytes !== BigInt(due)) throw new PatchesDamagedError(`${header.totalBytes} bytes, not ${due}`);
    this.#header = header;
    this.#data = new Uint8Array(due);
  }

  #add(firstPatch: number, data: Uint8Array): void {
    if (!this.#header || firstPatch * bytesOfPatch(this.#header) !== this.#received) {
      throw new PatchesDamagedError(`a chunk begins at patch ${firstPatch}, after ${this.#received} bytes`);
    }
    if (this.#received + data.length > this.#data.length) throw new PatchesDamagedError("more bytes than announced");
    this.#data.set(data, this.#received);
    this.#received += data.length;
  }

  #whole(sent: number): Patches {
    if (!this.#header || this.#received !== this.#data.length) {
      throw new PatchesDamagedError(`ended after ${this.#received} of ${this.#data.length} bytes`);
    }
    const found = crc32c(this.#data);
    if (found !== sent) throw new PatchesDamagedError(`the CRC-32C is ${found}, not ${sent}`);
    return { header: this.#header, data: this.#data, crc32c: found };
  }
}

function bytesOfPatch({ patchSize }: PatchHeader): number {
  return CHANNELS * patchSize * patchSize * BYTES_A_NUMBER;
}
