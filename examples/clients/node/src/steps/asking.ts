/** What decode servers and routers ask: whether they fit, who serves a room, and for how long they wait. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { DecodeServerSchema } from "@interlock/protos/bootstrap/v1";
import { expect, NotAsToldError } from "../refusals.js";
import { readyGroup, type Story } from "../story.js";

/** A decode server that fits, and one that does not, with every field in which it does not. */
export async function compatibility(story: Story): Promise<string> {
  const { launch } = await readyGroup(story, "compatibility");
  const fitting: MessageInitShape<typeof DecodeServerSchema> = {
    pageSize: 64,
    kvCacheDtype: "bfloat16",
    sizes: { dp: 1, cp: 1, tp: 1, pp: 1 },
  };
  const check = async (decodeServer: MessageInitShape<typeof DecodeServerSchema>) => {
    const answer = await story.bootstrap.checkCompatibility({ group: launch.group, decodeServer });
    expect(answer.ready, "the group is not ready");
    return answer.incompatibilities;
  };

  const none = await check(fitting);
  expect(none.length === 0, `a decode server that fits was told ${none.map(({ message }) => message).join("; ")}`);
  const found = (await check({ ...fitting, pageSize: 128, kvCacheDtype: "fp8_e4m3" }))
    .map(({ field, prefillValue, decodeValue }) => `${field} ${prefillValue}, not ${decodeValue}`)
    .sort()
    .join("; ");
  expect(found === "kv_cache_dtype bfloat16, not fp8_e4m3; page_size 64, not 128", `other violations: ${found}`);
  return `one fits; the other is told ${found}`;
}

/** Rooms of the whole uint64 come back as they were: JavaScript's numbers would round every one of these. */
export async function rooms(story: Story): Promise<string> {
  const { launch } = await readyGroup(story, "rooms");
  const { group } = launch;
  const large = [2n ** 53n + 1n, 2n ** 63n, 2n ** 64n - 1n];
  const assignments = large.map((room, index) => ({ room, dpRank: index % 2 }));
  const { registered } = await story.bootstrap.registerDpRanks({ group, assignments });
  expect(registered === large.length, `${registered} rooms are new, not ${large.length}`);

  const unknown = 2n ** 53n;
  const answer = await story.bootstrap.queryDpRanks({ group, rooms: [...large, unknown] });
  const found = new Map(answer.assignments.map(({ room, dpRank }) => [room, dpRank]));
  const exact = assignments.every(({ room, dpRank }) => found.get(room) === dpRank);
  expect(exact && found.size === large.length, `the rooms came back as ${[...found.keys()].join(", ")}`);
  return `${large.join(", ")} came back; ${unknown} is unknown`;
}

/** A call that waits for a revision that does not come ends when it said it would. */
export async function deadline(story: Story): Promise<string> {
  const { launch, revision } = await readyGroup(story, "deadline");
  const timeoutMs = 300;
  const started = performance.now();
  try {
    await story.bootstrap.getPrefillServerInfo({ group: launch.group, minRevision: revision + 1n }, { timeoutMs });
  } catch (error) {
    const ended = ConnectError.from(error);
    const waited = Math.round(performance.now() - started);
    expect(ended.code === Code.DeadlineExceeded, `ended with ${ended.message}`);
    expect(waited >= timeoutMs / 2 && waited < 10 * timeoutMs, `ended after ${waited} ms`);
    return `revision ${revision + 1n} did not come in ${timeoutMs} ms`;
  }
  throw new NotAsToldError("the call was answered");
}
