// Uses the packed npm package: prints the bytes of one message.
import { create, toBinary } from "@bufbuild/protobuf";
import { RoomAssignmentSchema } from "@interlock/protos/bootstrap/v1";

const assignment = create(RoomAssignmentSchema, { room: 2n ** 64n - 1n, dpRank: 7 });
console.log(Buffer.from(toBinary(RoomAssignmentSchema, assignment)).toString("hex"));
