export * from "../gen/interlock/preprocess/v1/preprocess_pb.js";
export * from "../gen/interlock/preprocess/v1/preprocess_service_pb.js";
