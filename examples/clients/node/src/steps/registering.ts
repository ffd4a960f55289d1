/** How prefill ranks register: by compare-and-swap, against others, and not at all where they do not fit. */

import { Code } from "@connectrpc/connect";
import { ContractMismatchSchema, RevisionConflictSchema } from "@interlock/protos/bootstrap/v1";
import { detailOf, expect, refusalOf } from "../refusals.js";
import { Launch, readyGroup, type Story } from "../story.js";

/** Two ranks, each from the revision before it. */
export async function register({ bootstrap }: Story): Promise<string> {
  const launch = new Launch("register");
  const first = await bootstrap.registerRoute(launch.rank(0, 0n));
  expect(!first.ready && first.registered === 1 && first.expected === 2, "the first rank is not one of two");
  const second = await bootstrap.registerRoute(launch.rank(1, first.revision));
  expect(second.revision > first.revision, "the revision did not grow");
  expect(second.ready && second.registered === 2, "the group is not ready with both ranks");

  const { info, revision } = await bootstrap.getPrefillServerInfo({ group: launch.group });
  expect(revision === second.revision, `the group stands at revision ${revision}, not ${second.revision}`);
  expect(info?.pageSize === 64 && info.sizes?.dp === 2, "the group's values are not those of its ranks");
  return `two ranks stand at revision ${revision}`;
}

/** Two ranks expect the same revision. The loser goes on from the one that its refusal names. */
export async function race({ bootstrap }: Story): Promise<string> {
  const launch = new Launch("race");
  const winner = await bootstrap.registerRoute(launch.rank(0, 0n));
  const lost = bootstrap.registerRoute(launch.rank(1, 0n));
  const conflict = detailOf(await refusalOf(lost, Code.Aborted, "REVISION_CONFLICT"), RevisionConflictSchema);
  expect(conflict.revision === winner.revision, `the refusal names revision ${conflict.revision}`);
  expect(conflict.instance?.id === launch.instance.id, "the refusal names another instance");
  expect(conflict.standingRoute === undefined, "the refusal shows a route under a key that nobody registered");

  const second = await bootstrap.registerRoute(launch.rank(1, conflict.revision));
  expect(second.ready, "the group is not ready with both ranks");
  return `lost to revision ${conflict.revision}, stands at ${second.revision}`;
}

/** A rank with other values than its group is refused, with every field and both values. */
export async function mismatch(story: Story): Promise<string> {
  const { launch, revision } = await readyGroup(story, "mismatch");
  const misfit = launch.rank(1, undefined, { pageSize: 128, kvCacheDtype: "fp8_e4m3" });
  const refusal = await refusalOf(
    story.bootstrap.registerRoute(misfit),
    Code.FailedPrecondition,
    "CONTRACT_MISMATCH",
  );
  const { mismatches } = detailOf(refusal, ContractMismatchSchema);
  const told = mismatches
    .map(({ field, standingValue, offeredValue }) => `${field}: ${standingValue} stands, ${offeredValue} was offered`)
    .sort()
    .join("; ");
  const due = "kv_cache_dtype: bfloat16 stands, fp8_e4m3 was offered; page_size: 64 stands, 128 was offered";
  expect(told === due, `refused for other differences: ${told}`);

  const after = await story.bootstrap.getPrefillServerInfo({ group: launch.group });
  expect(after.revision === revision, "the refused request left something behind");
  return told;
}
