/** What all steps share: the clients, and the values of a small group of two prefill ranks. */

import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { createClient, type Client } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import {
  BootstrapService,
  RegisterRouteRequestSchema,
  type RegisterRouteRequest,
  type Route,
} from "@interlock/protos/bootstrap/v1";
import { PoolName } from "@interlock/protos/kv/v1";
import { PreprocessService } from "@interlock/protos/preprocess/v1";

/** A call that takes longer fails: none of this is slow. Streams that stay open say so with `timeoutMs: 0`. */
const TIMEOUT_MS = 10_000;

export interface Story {
  bootstrap: Client<typeof BootstrapService>;
  preprocess: Client<typeof PreprocessService>;
  /** Folder with `expected.json` and its pictures. */
  pictures: string;
  /** Tells that this program waits for something to be done to the services. */
  waiting: (step: string, event: string) => void;
}

/** A client of each service. Connections are made by the first call, and made anew after a loss. */
export function clients(bootstrap: string, preprocess: string): Pick<Story, "bootstrap" | "preprocess"> {
  const transport = (address: string) =>
    createGrpcTransport({ baseUrl: `http://${address}`, defaultTimeoutMs: TIMEOUT_MS });
  return {
    bootstrap: createClient(BootstrapService, transport(bootstrap)),
    preprocess: createClient(PreprocessService, transport(preprocess)),
  };
}

/** Unix time in nanoseconds: what instances and incarnations are ordered by. */
export function unixNanoseconds(): bigint {
  return BigInt(Date.now()) * 1_000_000n;
}

/** One launch of a group of two data-parallel ranks, in a group that nobody else uses. */
export class Launch {
  readonly group: string;
  readonly instance = { id: randomUUID(), startedAt: unixNanoseconds() };

  constructor(step: string) {
    this.group = `node-${step}-${this.instance.id.slice(0, 8)}`;
  }

  /** Asks to register the rank `dp`, with what `differing` says instead of what its group shares. */
  rank(
    dp: number,
    expectedRevision?: bigint,
    differing: Partial<Pick<Route, "incarnation" | "pageSize" | "kvCacheDtype">> = {},
  ): RegisterRouteRequest {
    return create(RegisterRouteRequestSchema, {
      group: this.group,
      instance: this.instance,
      ...(expectedRevision !== undefined && { expectedRevision }),
      route: {
        key: { dp, cp: 0, tp: 0, pp: 0 },
        incarnation: this.instance.startedAt,
        sizes: { dp: 2, cp: 1, tp: 1, pp: 1 },
        rankIp: "127.0.0.1",
        rankPort: 9000 + dp,
        pageSize: 64,
        kvCacheDtype: "bfloat16",
        pools: [PoolName.KV, PoolName.SWA],
        ...differing,
      },
    });
  }
}

/** A ready group of two ranks, and the revision at which it became ready. */
export async function readyGroup({ bootstrap }: Story, step: string): Promise<{ launch: Launch; revision: bigint }> {
  const launch = new Launch(step);
  await bootstrap.registerRoute(launch.rank(0));
  const { revision } = await bootstrap.registerRoute(launch.rank(1));
  return { launch, revision };
}
