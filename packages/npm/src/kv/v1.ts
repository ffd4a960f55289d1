export * from "../gen/interlock/kv/v1/pool_name_pb.js";
export * from "../gen/interlock/kv/v1/spec_layout_pb.js";
