/** Pictures: one by one, many on a stream, one that is damaged, one that is not wanted any more. */

import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { SourceKind, type PreprocessImagesRequestSchema, type ProfileSelectorSchema } from "@interlock/protos/preprocess/v1";
import { float32sOfBfloat16 } from "../bfloat16.js";
import { PatchReader, type Outcome, type Patches } from "../patches.js";
import { expect } from "../refusals.js";
import type { Story } from "../story.js";

type Step = MessageInitShape<typeof PreprocessImagesRequestSchema>;

interface ExpectedPicture {
  file: string;
  profile: string;
  patches_sha256: string;
  crc32c: number;
  grid_width: number;
  grid_height: number;
  first_values: number[];
}

interface Expected {
  pictures: ExpectedPicture[];
  damaged: { file: string; reason: string }[];
}

/** Errors of pictures carry the number of a gRPC status code. */
const INVALID_ARGUMENT: number = Code.InvalidArgument;

/** A part of a picture on a stream. Small here, so that there are several; about 1 MiB is a good size. */
const PART_BYTES = 4096;

/** Every picture of the folder gives the patches that the reference gives, byte for byte. */
export async function picture({ preprocess, pictures }: Story): Promise<string> {
  const expected = (await expectedOf(pictures)).pictures;
  let bytes = 0;
  for (const picture of expected) {
    const reader = new PatchReader();
    let outcome: Outcome | undefined;
    const request = {
      imageId: picture.file,
      source: { case: "encoded", value: await readFile(join(pictures, picture.file)) },
      profile: byName(picture.profile),
    } as const;
    for await (const frame of preprocess.preprocessImage(request)) {
      expect(outcome === undefined, `${picture.file} has a frame after its last`);
      outcome = reader.read(frame);
    }
    bytes += checked(picture, outcome).data.length;
  }
  return `${expected.length} pictures, ${bytes} bytes: CRC-32C, SHA-256 and first numbers are right`;
}

/** One damaged picture fails, with reason and field; those before and after it on the same stream are served. */
export async function neighbours({ preprocess, pictures }: Story): Promise<string> {
  const expected = await expectedOf(pictures);
  const [before, after] = expected.pictures;
  const [damaged] = expected.damaged;
  expect(before !== undefined && after !== undefined && damaged !== undefined, "the folder has too few pictures");

  const steps = (await Promise.all([before, damaged, after].map((picture) => stepsOf(picture, pictures)))).flat();
  const outcomes = await outcomesOf(preprocess.preprocessImages(sent(steps)));
  checked(before, outcomes.get(before.file));
  checked(after, outcomes.get(after.file));
  const outcome = outcomes.get(damaged.file);
  expect(outcome !== undefined && "error" in outcome, `${damaged.file} did not fail`);
  const { code, reason, field } = outcome.error;
  expect(code === INVALID_ARGUMENT, `${damaged.file} failed with code ${code}`);
  expect(reason === damaged.reason, `${damaged.file} failed with ${reason}, not ${damaged.reason}`);
  expect(field !== "", `the refusal of ${damaged.file} names no field`);
  return `${damaged.file} failed with ${reason} in ${field}; ${before.file} and ${after.file} were served`;
}

/** A picture is cancelled in the middle of its parts; the next one on the stream is served. */
export async function cancel({ preprocess, pictures }: Story): Promise<string> {
  const [unwanted, wanted] = (await expectedOf(pictures)).pictures;
  expect(unwanted !== undefined && wanted !== undefined, "the folder has too few pictures");

  const [begin, firstPart] = await stepsOf(unwanted, pictures);
  expect(begin !== undefined && firstPart !== undefined, `${unwanted.file} has no parts`);
  const cancelled: Step = { step: { case: "cancel", value: { imageId: unwanted.file } } };
  const steps = [begin, firstPart, cancelled, ...(await stepsOf(wanted, pictures))];
  const outcomes = await outcomesOf(preprocess.preprocessImages(sent(steps)));
  checked(wanted, outcomes.get(wanted.file));
  const outcome = outcomes.get(unwanted.file);
  expect(outcome !== undefined && "error" in outcome, `${unwanted.file} was served`);
  expect(outcome.error.reason === "CANCELLED", `${unwanted.file} ended with ${outcome.error.reason}`);
  return `${unwanted.file} ended with CANCELLED, ${wanted.file} was served`;
}

async function expectedOf(folder: string): Promise<Expected> {
  return JSON.parse(await readFile(join(folder, "expected.json"), "utf8")) as Expected;
}

function byName(profile: string): MessageInitShape<typeof ProfileSelectorSchema> {
  return { profile: { case: "name", value: profile } };
}

/** All that is sent of one picture. */
async function stepsOf({ file, profile }: { file: string; profile?: string }, folder: string): Promise<Step[]> {
  const source = await readFile(join(folder, file));
  const begin = {
    imageId: file,
    kind: SourceKind.ENCODED,
    totalBytes: BigInt(source.length),
    ...(profile !== undefined && { profile: byName(profile) }),
  };
  const steps: Step[] = [{ step: { case: "begin", value: begin } }];
  for (let offset = 0; offset < source.length; offset += PART_BYTES) {
    const data = source.subarray(offset, offset + PART_BYTES);
    steps.push({ step: { case: "data", value: { imageId: file, offset: BigInt(offset), data } } });
  }
  steps.push({ step: { case: "end", value: { imageId: file } } });
  return steps;
}

/** Steps as a stream. Three small pictures are within any credits; whoever sends many waits for `settings` first. */
function sent(steps: Step[]): AsyncIterable<Step> {
  return Readable.from(steps);
}

/** How each picture of a stream ended, by its id. Frames of different pictures may interleave. */
async function outcomesOf(frames: ReturnType<Story["preprocess"]["preprocessImages"]>): Promise<Map<string, Outcome>> {
  const readers = new Map<string, PatchReader>();
  const outcomes = new Map<string, Outcome>();
  for await (const frame of frames) {
    if (frame.frame.case === "settings") continue;
    const reader = readers.get(frame.imageId) ?? new PatchReader();
    readers.set(frame.imageId, reader);
    const outcome = reader.read(frame);
    if (outcome) {
      expect(!outcomes.has(frame.imageId), `${frame.imageId} ended twice`);
      outcomes.set(frame.imageId, outcome);
    }
  }
  return outcomes;
}

/** The patches, if they are what the reference gives for this picture. */
function checked(expected: ExpectedPicture, outcome: Outcome | undefined): Patches {
  const { file } = expected;
  expect(outcome !== undefined, `${file} has no last frame`);
  expect("patches" in outcome, `${file} failed: ${"error" in outcome ? outcome.error.message : ""}`);
  const { header, data, crc32c } = outcome.patches;
  expect(header.plan?.gridWidth === expected.grid_width, `${file} is ${header.plan?.gridWidth} patches wide`);
  expect(header.plan.gridHeight === expected.grid_height, `${file} is ${header.plan.gridHeight} patches high`);
  expect(crc32c === expected.crc32c, `${file} has CRC-32C ${crc32c}`);
  const sha256 = createHash("sha256").update(data).digest("hex");
  expect(sha256 === expected.patches_sha256, `${file} has SHA-256 ${sha256}`);
  const first = float32sOfBfloat16(data.subarray(0, 2 * expected.first_values.length));
  const same = expected.first_values.every((value, index) => value === first[index]);
  expect(same, `${file} begins with ${first.join(", ")}`);
  return outcome.patches;
}
