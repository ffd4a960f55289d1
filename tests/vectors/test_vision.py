"""Plans, patches, numbers, checksums and frames: a real server, and the client's own reader, agree with the vectors."""

import hashlib
import struct

import google_crc32c
import grpc
import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from google.rpc import error_details_pb2, status_pb2

from interlock.client._internal.assembly import PatchAssembly
from interlock.client._internal.frames import read_frame
from interlock.preprocess.v1 import preprocess_pb2 as pp
from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from interlock.vision import PROFILES
from vectors.reading import FOLDER, ROOT, read

PATCHES = read("patches.json")


def values(buffer: bytes) -> list[float]:
    """Little-endian bf16, each the upper half of a float32, in plain Python."""
    return [struct.unpack("<f", b"\0\0" + buffer[at : at + 2])[0] for at in range(0, len(buffer), 2)]


@pytest.mark.parametrize("profile", sorted(PROFILES))
async def test_a_server_gives_the_plans(channel, profile):
    document = read(f"plans/{profile}.json")
    request = pp.PlanImagesRequest.FromString((FOLDER / f"plans/{profile}.request.bin").read_bytes())
    assert [(size.width, size.height) for size in request.sizes] == [
        (entry["width"], entry["height"]) for entry in document["plans"]
    ]
    assert len(request.sizes) == 200
    assert request.profile.name == profile

    stub = PreprocessServiceStub(channel)
    response = await stub.PlanImages(request)
    assert response.SerializeToString(deterministic=True) == (FOLDER / f"plans/{profile}.response.bin").read_bytes()
    inline = pp.PlanImagesRequest(profile={"inline": ParseDict(document["profile"], pp.VisionProfile())})
    inline.sizes.MergeFrom(request.sizes)
    assert await stub.PlanImages(inline) == response
    for result, entry in zip(response.results, document["plans"], strict=True):
        assert MessageToDict(result) == {key: entry[key] for key in entry if key not in ("width", "height")}


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_grids_and_tokens_follow_from_the_canvas(profile):
    document = read(f"plans/{profile}.json")
    patch, ratio = document["profile"]["patchSize"], document["profile"]["downsampleRatio"]
    plans = [entry["plan"] for entry in document["plans"] if "plan" in entry]
    assert 100 < len(plans) < 200
    for plan in plans:
        assert plan["gridWidth"] * patch == plan["canvasWidth"]
        assert plan["gridHeight"] * patch == plan["canvasHeight"]
        assert plan["tokenGridWidth"] == -(-plan["gridWidth"] // ratio)
        assert plan["tokenGridHeight"] == -(-plan["gridHeight"] // ratio)
        assert plan["tokenCount"] == plan["tokenGridHeight"] * (plan["tokenGridWidth"] + 1) + 2


@pytest.mark.parametrize("entry", PATCHES, ids=lambda entry: f"{entry['file']} {entry['decode_options']}")
async def test_a_server_gives_the_patches(channel, entry):
    source = (ROOT / entry["file"]).read_bytes()
    assert (len(source), hashlib.sha256(source).hexdigest()) == (entry["bytes"], entry["sha256"])
    request = pp.PreprocessImageRequest(
        encoded=source, decode_options=ParseDict(entry["decode_options"], pp.DecodeOptions())
    )
    call = PreprocessServiceStub(channel).PreprocessImage(request)
    if "refused" in entry:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            _ = [frame async for frame in call]
        status = status_pb2.Status.FromString(dict(refused.value.trailing_metadata())["grpc-status-details-bin"])
        info = error_details_pb2.ErrorInfo()
        assert status.details[0].Unpack(info)
        assert (status.code, info.reason) == (entry["refused"]["code"], entry["refused"]["reason"])
        return
    first, *chunks, last = [frame async for frame in call]
    buffer = b"".join(frame.chunk.data for frame in chunks)
    assert MessageToDict(first.header) == entry["header"]
    assert len(buffer) == int(entry["header"]["totalBytes"])
    assert hashlib.sha256(buffer).hexdigest() == entry["patches"]["sha256"]
    assert google_crc32c.value(buffer) == last.trailer.crc32c == entry["patches"]["crc32c"]
    assert values(buffer[:16]) == entry["patches"]["first_values"]


def test_pictures_of_every_outcome_are_there():
    reasons = {entry["refused"]["reason"] for entry in PATCHES if "refused" in entry}
    assert reasons == {
        "IMAGE_EMPTY",
        "IMAGE_UNRECOGNIZED",
        "IMAGE_TOO_MANY_PIXELS",
        "IMAGE_TRUNCATED",
        "NO_LEGAL_PLAN",
    }
    formats = {entry["header"]["sourceFormat"] for entry in PATCHES if "header" in entry}
    assert formats == {"BMP", "GIF", "PNG", "PPM", "TIFF", "WEBP"}
    assert len([entry for entry in PATCHES if entry["decode_options"]]) > 5


def test_bf16_is_the_upper_half_of_a_float():
    document = read("bf16.json")
    assert len(document["levels"]["values"]) == 256
    for part in document.values():
        buffer = bytes.fromhex(part["hex"])
        assert values(buffer) == part["values"]
        assert [np.signbit(value) for value in values(buffer)] == [np.signbit(value) for value in part["values"]]


def test_checksums():
    entries = read("checksums.json")
    assert {entry["crc32c"] for entry in entries} >= {0, 0xE3069283}
    for entry in entries:
        buffer = bytes.fromhex(entry["hex"])
        assert google_crc32c.value(buffer) == entry["crc32c"], entry["about"]
        assert hashlib.sha256(buffer).hexdigest() == entry["sha256"], entry["about"]


def test_frames_come_to_pictures():
    document = read("stream.json")
    settings, *frames = [pp.PatchFrame.FromString(bytes.fromhex(frame)) for frame in document["frames"]]
    assert settings.WhichOneof("frame") == "settings"
    for image_id, expected in document["pictures"].items():
        own = [frame for frame in frames if frame.image_id == image_id]
        if "error" in expected:
            assert MessageToDict(own[-1].error) == expected["error"]
            continue
        assembly = PatchAssembly(image_id, 1 << 20)
        for frame in own:
            patches = assembly.add(read_frame(frame.SerializeToString()))
        buffer = patches.array.tobytes()
        assert MessageToDict(own[0].header) == expected["header"]
        assert buffer.hex() == expected["patches"]["hex"]
        assert values(buffer) == expected["patches"]["values"]
        assert google_crc32c.value(buffer) == expected["patches"]["crc32c"]
        assert hashlib.sha256(buffer).hexdigest() == expected["patches"]["sha256"]
    ids = [frame.image_id for frame in frames]
    assert ids != sorted(ids, key=ids.index)  # they are interleaved
