/** Registers the one rank of a group, and reads what a decode server needs to know of it. Shown in docs/clients.md. */

import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { BootstrapService } from "@interlock/protos/bootstrap/v1";

const address = process.argv[2];
const now = BigInt(Date.now()) * 1_000_000n;

// ten lines
const transport = createGrpcTransport({ baseUrl: `http://${address}`, defaultTimeoutMs: 10_000 });
const bootstrap = createClient(BootstrapService, transport);
const group = "prefill-a";
const instance = { id: `launch-${now}`, startedAt: now };
const sizes = { dp: 1, cp: 1, tp: 1, pp: 1 };
const route = { key: {}, incarnation: now, sizes, rankIp: "::1", rankPort: 9000, pageSize: 64 };
const registered = await bootstrap.registerRoute({ group, instance, route });
const ready = await bootstrap.getPrefillServerInfo({ group, minRevision: registered.revision });
console.log(`ready at revision ${ready.revision}: ${ready.info?.pageSize} tokens a page`);
// that is all
