/** The stubs against `vectors/`, which every language reads: see its README for what each file says. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { suite, test } from "node:test";
import {
  createRegistry,
  equals,
  fromBinary,
  fromJson,
  toBinary,
  toJson,
  type DescMessage,
  type JsonValue,
} from "@bufbuild/protobuf";
import * as bootstrap from "@interlock/protos/bootstrap/v1";
import * as google from "@interlock/protos/google/rpc";
import * as kv from "@interlock/protos/kv/v1";
import * as preprocess from "@interlock/protos/preprocess/v1";

const VECTORS = join(process.cwd(), "../../vectors");

const registry = createRegistry(
  kv.file_interlock_kv_v1_pool_name,
  kv.file_interlock_kv_v1_spec_layout,
  bootstrap.file_interlock_bootstrap_v1_bootstrap_service,
  bootstrap.file_interlock_bootstrap_v1_bootstrap,
  bootstrap.file_interlock_bootstrap_v1_errors,
  preprocess.file_interlock_preprocess_v1_preprocess,
  google.file_google_rpc_error_details,
);

interface MessageVector {
  about: string;
  type: string;
  hex: string;
  json: JsonValue;
  also_hex?: string[];
  also_json?: string[];
  hex_without_unknown_fields?: string;
}

interface ErrorVector {
  about: string;
  status: string;
  code: number;
  message: string;
  details: { type: string; json: JsonValue }[];
}

interface PlanVector {
  width: number;
  height: number;
  plan?: JsonValue;
  error?: { reason: string };
}

interface ValueVector {
  method: string;
  about: string;
  requests: { type: string; hex: string; json?: JsonValue }[];
}

function read(name: string): unknown {
  return JSON.parse(readFileSync(join(VECTORS, name), "utf8"));
}

function schemaOf(type: string): DescMessage {
  const schema = registry.getMessage(type);
  assert.ok(schema, `no message ${type}`);
  return schema;
}

function bytes(hex: string): Uint8Array {
  return Buffer.from(hex, "hex");
}

function hex(data: Uint8Array): string {
  return Buffer.from(data).toString("hex");
}

suite("messages.json", () => {
  for (const vector of read("messages.json") as MessageVector[]) {
    test(`${vector.type}: ${vector.about}`, () => {
      const schema = schemaOf(vector.type);
      const message = fromBinary(schema, bytes(vector.hex));
      assert.deepEqual(toJson(schema, message, { registry }), vector.json);
      assert.equal(hex(toBinary(schema, message)), vector.hex, "read and written again");

      const known = fromJson(schema, vector.json, { registry });
      assert.equal(hex(toBinary(schema, known)), vector.hex_without_unknown_fields ?? vector.hex, "read from JSON");
      for (const also of vector.also_hex ?? []) {
        assert.ok(equals(schema, fromBinary(schema, bytes(also)), message), also);
      }
      for (const also of vector.also_json ?? []) {
        const read = fromJson(schema, JSON.parse(also) as JsonValue, { registry });
        assert.ok(equals(schema, read, known), also);
      }
    });
  }

  test("has every message of the contract", () => {
    const named = new Set((read("messages.json") as MessageVector[]).map(({ type }) => type));
    const missing = [...registry]
      .filter(({ kind, typeName }) => kind === "message" && typeName.startsWith("interlock."))
      .map(({ typeName }) => typeName)
      .filter((typeName) => !named.has(typeName));
    assert.deepEqual(missing, []);
  });
});

test("values.json: every request has the same bytes as its JSON", () => {
  let compared = 0;
  for (const { method, about, requests } of read("values.json") as ValueVector[]) {
    for (const { type, hex: sent, json } of requests) {
      if (json === undefined) continue;
      assert.equal(hex(toBinary(schemaOf(type), fromJson(schemaOf(type), json))), sent, `${method}: ${about}`);
      assert.deepEqual(toJson(schemaOf(type), fromBinary(schemaOf(type), bytes(sent))), json, `${method}: ${about}`);
      compared++;
    }
  }
  assert.ok(compared > 500, `${compared.toString()} requests`);
});

test("pool_names.json: wire strings follow from the names of the enum", () => {
  interface Pool {
    number: number;
    enum_name: string;
    wire_name: string;
  }
  const { pools } = read("pool_names.json") as { pools: Pool[] };
  const prefix = "POOL_NAME_";
  const UNSPECIFIED: number = kv.PoolName.UNSPECIFIED;
  const found = kv.PoolNameSchema.values
    .filter(({ number }) => number !== UNSPECIFIED)
    .map(({ number, name }) => ({ number, enum_name: name, wire_name: name.slice(prefix.length).toLowerCase() }));
  assert.deepEqual(found, pools);
});

suite("plans", () => {
  for (const name of ["deepseek-v4.1", "deepseek-v4-flash-vision-exp"]) {
    test(name, () => {
      const { plans } = read(`plans/${name}.json`) as { plans: PlanVector[] };
      const file = (what: string) => readFileSync(join(VECTORS, `plans/${name}.${what}.bin`));
      const request = fromBinary(preprocess.PlanImagesRequestSchema, file("request"));
      const response = fromBinary(preprocess.PlanImagesResponseSchema, file("response"));
      assert.equal(plans.length, 200);
      assert.deepEqual(
        request.sizes.map(({ width, height }) => ({ width, height })),
        plans.map(({ width, height }) => ({ width, height })),
      );
      const results = response.results.map(({ result }) =>
        result.case === "plan"
          ? { plan: toJson(preprocess.PlanSchema, result.value) }
          : { reason: result.value?.reason },
      );
      assert.deepEqual(
        results,
        plans.map(({ plan, error }) => (plan === undefined ? { reason: error?.reason } : { plan })),
      );
    });
  }
});

suite("errors.json", () => {
  for (const vector of read("errors.json") as ErrorVector[]) {
    test(vector.about, () => {
      const status = fromBinary(google.StatusSchema, readFileSync(join(VECTORS, vector.status)));
      assert.equal(status.code, vector.code);
      assert.equal(status.message, vector.message);
      const details = status.details.map(({ typeUrl, value }) => {
        const type = typeUrl.slice(typeUrl.lastIndexOf("/") + 1);
        return { type, json: toJson(schemaOf(type), fromBinary(schemaOf(type), value)) };
      });
      assert.deepEqual(details, vector.details);
    });
  }
});

test("defaults.json: what an absent field means can be said", () => {
  const vectors = read("defaults.json") as { field: string; absent_means: JsonValue }[];
  assert.notEqual(vectors.length, 0);
  for (const { field, absent_means } of vectors) {
    const dot = field.lastIndexOf(".");
    const said = { [field.slice(dot + 1)]: absent_means };
    assert.doesNotThrow(() => fromJson(schemaOf(field.slice(0, dot)), said), field); // refuses what is not there
  }
});

test("extra_json.json: texts are kept as they are", () => {
  const { texts } = read("extra_json.json") as { texts: { text: string; legal: boolean }[] };
  const extraJson = Object.fromEntries(texts.map(({ text }, index) => [`key${index.toString()}`, text]));
  const layout = fromJson(kv.SpecLayoutSchema, { extraJson });
  const again = fromBinary(kv.SpecLayoutSchema, toBinary(kv.SpecLayoutSchema, layout));
  assert.deepEqual(again.extraJson, extraJson);
});
