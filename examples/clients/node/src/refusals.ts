/** Refusals: a gRPC status with `ErrorInfo`, whose reason programs decide by, and typed details. */

import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema } from "@interlock/protos/google/rpc";

/** What a step was told that it should not have been. */
export class NotAsToldError extends Error {
  override readonly name = "NotAsToldError";
}

/** Fails the step unless `condition` holds. */
export function expect(condition: boolean, otherwise: string): asserts condition {
  if (!condition) throw new NotAsToldError(otherwise);
}

/** The reason of a refusal, or undefined where the status comes from the transport. */
export function reasonOf(error: ConnectError): string | undefined {
  return error.findDetails(ErrorInfoSchema).find((info) => info.domain === "interlock")?.reason;
}

/** The refusal that a call must end with. */
export async function refusalOf(call: Promise<unknown>, code: Code, reason: string): Promise<ConnectError> {
  try {
    await call;
  } catch (error) {
    const refusal = ConnectError.from(error);
    const told = `${Code[refusal.code]} ${reasonOf(refusal) ?? "without a reason"}`;
    expect(refusal.code === code && reasonOf(refusal) === reason, `refused with ${told}: ${refusal.rawMessage}`);
    return refusal;
  }
  throw new NotAsToldError(`was not refused with ${reason}`);
}

/** A typed detail of a refusal. */
export function detailOf<Desc extends DescMessage>(refusal: ConnectError, schema: Desc): MessageShape<Desc> {
  const [detail] = refusal.findDetails(schema);
  expect(detail !== undefined, `the refusal has no ${schema.name}`);
  return detail;
}
