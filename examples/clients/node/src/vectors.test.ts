/** What this program makes of bytes, against `vectors/`: see its README for what each file says. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { suite, test } from "node:test";
import { fromBinary, toJson, type JsonValue } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { ContractMismatchSchema, RevisionConflictSchema } from "@interlock/protos/bootstrap/v1";
import { StatusSchema } from "@interlock/protos/google/rpc";
import { ImageErrorSchema, PatchFrameSchema, PatchHeaderSchema } from "@interlock/protos/preprocess/v1";
import { float32sOfBfloat16 } from "./bfloat16.js";
import { crc32c } from "./crc32c.js";
import { PatchesDamagedError, PatchReader, type Outcome } from "./patches.js";
import { detailOf, reasonOf } from "./refusals.js";

const VECTORS = join(process.cwd(), "../../../vectors");

interface Buffers {
  hex: string;
  values: number[];
}

interface Stream {
  frames: string[];
  pictures: Record<string, StreamedPicture>;
}

interface StreamedPicture {
  header?: JsonValue;
  patches?: Buffers & { sha256: string; crc32c: number };
  error?: JsonValue;
}

interface ErrorVector {
  about: string;
  status: string;
  details: { type: string; json: { reason?: string } & JsonValue }[];
}

function read(name: string): unknown {
  return JSON.parse(readFileSync(join(VECTORS, name), "utf8"));
}

function bytes(hex: string): Uint8Array {
  return Buffer.from(hex, "hex");
}

test("checksums.json", () => {
  for (const vector of read("checksums.json") as { about: string; hex: string; sha256: string; crc32c: number }[]) {
    const data = bytes(vector.hex);
    assert.equal(crc32c(data), vector.crc32c, vector.about);
    const half = data.length >> 1;
    assert.equal(crc32c(data.subarray(half), crc32c(data.subarray(0, half))), vector.crc32c, "in two parts");
    assert.equal(createHash("sha256").update(data).digest("hex"), vector.sha256, vector.about);
  }
});

suite("bf16.json", () => {
  for (const [name, { hex, values }] of Object.entries(read("bf16.json") as Record<string, Buffers>)) {
    test(name, () => {
      assert.deepEqual([...float32sOfBfloat16(bytes(hex))], values); // tells -0 from 0
    });
  }
});

suite("stream.json", () => {
  const stream = read("stream.json") as Stream;
  const frames = stream.frames.map((hex) => fromBinary(PatchFrameSchema, bytes(hex)));

  test("each picture comes out of the interleaved frames", () => {
    const readers = new Map(Object.keys(stream.pictures).map((id) => [id, new PatchReader()]));
    const outcomes = new Map<string, Outcome>();
    for (const frame of frames) {
      const outcome = readers.get(frame.imageId)?.read(frame);
      if (outcome) outcomes.set(frame.imageId, outcome);
    }
    for (const [id, expected] of Object.entries(stream.pictures)) {
      const outcome = outcomes.get(id);
      assert.ok(outcome, id);
      if ("error" in outcome) {
        assert.deepEqual(toJson(ImageErrorSchema, outcome.error), expected.error);
        continue;
      }
      const { header, data, crc32c } = outcome.patches;
      assert.deepEqual(toJson(PatchHeaderSchema, header), expected.header);
      assert.ok(expected.patches, `${id} came out`);
      assert.equal(Buffer.from(data).toString("hex"), expected.patches.hex);
      assert.deepEqual([...float32sOfBfloat16(data)], expected.patches.values);
      assert.equal(crc32c, expected.patches.crc32c);
    }
    assert.equal(outcomes.size, Object.keys(stream.pictures).length);
  });

  test("a chunk that is missing, doubled or changed is found", () => {
    const [id] = Object.entries(stream.pictures).find(([, { patches }]) => patches) ?? [];
    const picture = frames.filter(({ imageId, frame }) => imageId === id && frame.case !== "settings");
    const chunk = picture.findIndex(({ frame }) => frame.case === "chunk");
    const changed = structuredClone(picture);
    const { frame } = changed[chunk]!;
    assert.ok(frame.case === "chunk");
    frame.value.data[0]! ^= 1;
    for (const damaged of [
      picture.toSpliced(chunk, 1),
      picture.toSpliced(chunk, 0, picture[chunk]!),
      changed,
      picture.slice(1),
    ]) {
      const reader = new PatchReader();
      assert.throws(() => {
        for (const frame of damaged) reader.read(frame);
      }, PatchesDamagedError);
    }
  });
});

suite("errors.json", () => {
  const reasons = read("reasons.json") as { reason: string; code: number; code_name: string }[];
  const codes = new Map(reasons.map(({ reason, code }) => [reason, code]));

  test("codes have the names that they have here", () => {
    for (const { reason, code, code_name } of reasons) {
      assert.equal(Code[code]?.toUpperCase(), code_name.replaceAll("_", "").replace("CANCELLED", "CANCELED"), reason);
    }
  });

  for (const vector of read("errors.json") as ErrorVector[]) {
    test(vector.about, () => {
      const status = fromBinary(StatusSchema, readFileSync(join(VECTORS, vector.status)));
      const error = new ConnectError(status.message, Code.Unknown);
      error.details = status.details.map(({ typeUrl, value }) => ({ type: typeUrl.split("/").pop()!, value }));
      assert.equal(reasonOf(error), vector.details.find(({ type }) => type === "google.rpc.ErrorInfo")?.json.reason);
      assert.equal(codes.get(reasonOf(error) ?? ""), status.code);
      for (const schema of [ContractMismatchSchema, RevisionConflictSchema]) {
        const detail = vector.details.find(({ type }) => type === schema.typeName);
        if (detail) assert.deepEqual(toJson(schema, detailOf(error, schema)), detail.json);
      }
    });
  }
});
