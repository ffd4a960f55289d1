export * from "../gen/interlock/bootstrap/v1/bootstrap_pb.js";
export * from "../gen/interlock/bootstrap/v1/bootstrap_service_pb.js";
export * from "../gen/interlock/bootstrap/v1/errors_pb.js";
