/** How routers and decode servers follow a group, also over a restart of the server. */

import { setTimeout as sleep } from "node:timers/promises";
import { Code, ConnectError } from "@connectrpc/connect";
import type { RankKey, TopologyEvent, WatchTopologyResponse } from "@interlock/protos/bootstrap/v1";
import { expect, NotAsToldError } from "../refusals.js";
import { readyGroup, unixNanoseconds, type Story } from "../story.js";

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;

/** A restart and what follows take a few seconds. */
const PATIENCE_MS = 50_000;

/** What a watch brings. `resumed`: the connection was lost and the server had nothing new since. */
type News =
  | { kind: "snapshot"; revision: bigint; keys: RankKey[] }
  | { kind: "change"; revision: bigint; events: string[] }
  | { kind: "progress"; revision: bigint; resumed: boolean };

/**
 * Follows a group until `signal` ends it. A lost connection is made again, from the last revision that was told whole:
 * if the group still stands there, the server sends no second snapshot.
 */
async function* follow({ bootstrap }: Story, group: string, signal: AbortSignal): AsyncGenerator<News> {
  let afterRevision: bigint | undefined;
  let pause = FIRST_PAUSE_MS;
  for (;;) {
    let resumed = afterRevision !== undefined;
    let parts: WatchTopologyResponse[] = [];
    const request = { group, ...(afterRevision !== undefined && { afterRevision }) };
    try {
      for await (const message of bootstrap.watchTopology(request, { signal, timeoutMs: 0 })) {
        pause = FIRST_PAUSE_MS;
        parts.push(message);
        if (!message.last) continue;
        afterRevision = message.revision;
        yield newsOf(parts, message.revision, resumed);
        parts = [];
        resumed = false;
      }
    } catch (error) {
      if (signal.aborted || !isLoss(error)) throw error;
    }
    await sleep(pause, undefined, { signal });
    pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
  }
}

/** Whether the server or the connection went away. Node tells a stream of a lost HTTP/2 connection as cancelled. */
function isLoss(error: unknown): boolean {
  return [Code.Unavailable, Code.Canceled].includes(ConnectError.from(error).code);
}

/** A snapshot or change may come in several messages of one revision. */
function newsOf(parts: WatchTopologyResponse[], revision: bigint, resumed: boolean): News {
  const bodies = parts.map(({ body }) => body);
  switch (bodies[0]?.case) {
    case "snapshot": {
      const routes = bodies.flatMap((body) => (body.case === "snapshot" ? body.value.routes : []));
      return { kind: "snapshot", revision, keys: routes.flatMap(({ key }) => key ?? []) };
    }
    case "change": {
      const events = bodies.flatMap((body) => (body.case === "change" ? body.value.events : []));
      return { kind: "change", revision, events: events.map(eventText) };
    }
    default:
      return { kind: "progress", revision, resumed };
  }
}

function eventText({ event }: TopologyEvent): string {
  return event.case ?? "an event of a newer server";
}

/** The watch stays with its group while the server is killed and started again. */
export async function watch(story: Story): Promise<string> {
  const { launch, revision } = await readyGroup(story, "watch");
  const end = new AbortController();
  const timer = setTimeout(() => {
    end.abort(new NotAsToldError("the watch did not bring what was due in time"));
  }, PATIENCE_MS);
  try {
    const news = follow(story, launch.group, end.signal);
    const next = async (): Promise<News> => {
      const result = await news.next();
      expect(result.done !== true, "the watch ended");
      return result.value;
    };

    const snapshot = await next();
    expect(snapshot.kind === "snapshot" && snapshot.keys.length === 2, `began with a ${snapshot.kind}`);
    expect(snapshot.revision === revision, `the snapshot is of revision ${snapshot.revision}, not ${revision}`);

    story.waiting("watch", "restart");
    let resumed = await next();
    while (resumed.kind === "progress" && !resumed.resumed) resumed = await next();
    expect(resumed.kind === "progress", `got a ${resumed.kind} after the restart, though nothing had changed`);
    expect(resumed.revision === revision, `came back to revision ${resumed.revision}, not ${revision}`);

    const restarted = launch.rank(1, undefined, { incarnation: unixNanoseconds() + 1n });
    const registered = await story.bootstrap.registerRoute(restarted);
    let change = await next();
    while (change.kind === "progress" && change.revision < registered.revision) change = await next();
    expect(change.kind === "change", `got a ${change.kind} where a change was due`);
    expect(change.revision === registered.revision, `the change is of revision ${change.revision}`);
    expect(change.events.join() === "routeRegistered", `the change has the events ${change.events.join()}`);
    return `resumed at revision ${revision} without a snapshot, then saw exactly revision ${change.revision}`;
  } finally {
    clearTimeout(timer);
    end.abort();
  }
}
