"""Legal and illegal values: servers answer as `values.json` says, which leaves no field of a request out."""

import json

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import Parse
from google.rpc import code_pb2, error_details_pb2, status_pb2

from interlock.preprocess.v1 import preprocess_pb2 as pp
from vectors.reading import CONTRACT, message_type, read

ENTRIES = read("values.json")
METHODS = {
    f"{service.full_name}/{method.name}": method
    for file in CONTRACT
    for service in file.services_by_name.values()
    for method in service.methods
}
NOT_TRIED = {
    "RegisterRegion": "shared memory",
    "UnregisterRegion": "shared memory",
    "ListRegions": "shared memory",
    "ListProfiles": "has no fields",
}


def test_json_and_bytes_are_one_message():
    with_json = [request for entry in ENTRIES for request in entry["requests"] if "json" in request]
    assert len(with_json) > 800
    for request in with_json:
        message = Parse(json.dumps(request["json"]), message_type(request["type"])())
        assert message.SerializeToString(deterministic=True).hex() == request["hex"]


async def test_servers_answer_as_told(channel):
    for entry in ENTRIES:
        answer = await answered(channel, entry["method"], [bytes.fromhex(one["hex"]) for one in entry["requests"]])
        assert answer == entry["answer"], entry["about"]
        assert entry["legal"] == (answer["code_name"] != "INVALID_ARGUMENT"), entry["about"]


def test_every_method_is_tried_with_good_and_bad_values():
    for name, method in METHODS.items():
        legal = {entry["legal"] for entry in ENTRIES if entry["method"] == name}
        assert legal == (set() if method.name in NOT_TRIED else {True, False}), name


def test_every_field_of_a_request_is_tried():
    tried = {leaf(METHODS[entry["method"]].input_type, entry["field"]) for entry in ENTRIES}
    fields = set()
    for method in METHODS.values():
        if method.name not in NOT_TRIED:
            fields |= set(fields_below(method.input_type))
    untried = {field.split(".v1.")[1] for field in fields - tried}
    assert untried == {
        # They stand for what is in them.
        "PreprocessImagesRequest.begin",
        "PreprocessImagesRequest.data",
        "PreprocessImagesRequest.end",
        "PreprocessImagesRequest.cancel",
        # Shared memory.
        "PreprocessImageRequest.region",
        "ImageBegin.region",
        "RegionTarget.handle",
        "RegionTarget.offset",
        "RegionTarget.size",
        # Depend on what the server has, and on time.
        "ImageBegin.source_sha256",
        "ImageBegin.timeout",
        "PreprocessImageRequest.hash",
        *(f"SourceHash.{field.name}" for field in pp.SourceHash.DESCRIPTOR.fields),
    }


def leaf(request: Descriptor, path: str) -> str:
    """Full name of the field that a path leads to."""
    field = None
    for step in path.split("."):
        descriptor = request if field is None else field.message_type
        field = descriptor.fields_by_name[step.partition("[")[0]]
    assert field is not None
    return field.full_name


def fields_below(descriptor: Descriptor):
    for field in descriptor.fields:
        yield field.full_name
        below = field.message_type
        if below is not None and below.file in CONTRACT and not below.GetOptions().map_entry:
            yield from fields_below(below)


async def answered(channel: grpc.aio.Channel, name: str, requests: list[bytes]) -> dict[str, object]:
    """What a call that sends these bytes is told."""
    method = METHODS[name]
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    call = getattr(channel, kind)(f"/{name}")(stream(requests) if method.client_streaming else requests[0], timeout=30)
    try:
        if not method.server_streaming:
            answer = message_type(method.output_type.full_name).FromString(await call)
            results = answer.results if method.name == "PlanImages" else ()
            return told(next((result.error for result in results if result.HasField("error")), None))
        async for message in call:
            if method.name == "WatchTopology":
                call.cancel()
                return told(None)
            if method.name == "PreprocessImages" and (frame := pp.PatchFrame.FromString(message)).HasField("error"):
                return told(frame.error)
    except grpc.aio.AioRpcError as error:
        status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
        info, faults = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        for detail in status.details:
            detail.Unpack(info)
            detail.Unpack(faults)
        fields = [violation.field for violation in faults.field_violations]
        return {"code_name": code_pb2.Code.Name(status.code), "reason": info.reason, "fields": fields}
    return told(None)


def told(error: pp.ImageError | None) -> dict[str, object]:
    if error is None:
        return {"code_name": "OK", "reason": "", "fields": []}
    fields = [error.field] if error.field else []
    return {"code_name": code_pb2.Code.Name(error.code), "reason": error.reason, "fields": fields}


async def stream(requests: list[bytes]):
    for request in requests:
        yield request
