"""One picture that is only named, by its hash: answered out of the cache, or not at all."""

import tempfile
from hashlib import sha256
from pathlib import Path

import grpc
import pytest
from google.rpc import code_pb2

from interlock.preprocess.v1 import preprocess_pb2 as pb
from preprocess.callers import Answer, Status, picture_file, reference_patches, status_of, until
from preprocess.region_files import patches_there, registered

FILE = picture_file(1, 300, 200)
ENCODED = pb.SOURCE_KIND_ENCODED
NEEDED = Status(code_pb2.NOT_FOUND, "SOURCE_NEEDED", (), False)


def named(file: bytes = FILE, **fields) -> pb.SourceHash:
    values = {"sha256": sha256(file).digest(), "kind": ENCODED, "total_bytes": len(file)}
    return pb.SourceHash(**(values | fields))


async def frames_of(stub, **fields) -> list[pb.PatchFrame]:
    return [frame async for frame in stub.PreprocessImage(pb.PreprocessImageRequest(**fields), timeout=60)]


async def refused(stub, **fields) -> Status:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await frames_of(stub, **fields)
    return status_of(raised.value)


async def test_a_picture_that_was_seen_is_answered_by_its_name(running):
    assert await refused(running.stub, hash=named()) == NEEDED
    await frames_of(running.stub, encoded=FILE)
    answer = Answer()
    for frame in await frames_of(running.stub, hash=named(), image_id="again"):
        assert frame.image_id == "again"
        answer.take(frame)
    assert answer.patches == reference_patches(FILE)
    assert answer.trailer.from_cache
    assert running.counters.images_failed == {}, "to be asked for is no failure"
    await until(lambda: running.counters.at_rest)


async def test_its_patches_may_go_into_shared_memory(serve):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        running = await serve(shared_memory_folder=Path(folder))
        region = await registered(running.stub, Path(folder))
        await frames_of(running.stub, encoded=FILE)
        frames = await frames_of(running.stub, hash=named(), region=region.target())
        assert patches_there(region, region.target(), frames) == reference_patches(FILE)


@pytest.mark.parametrize("fields", [{"total_bytes": len(FILE) + 1}, {"sha256": bytes(32)}])
async def test_another_name_is_another_picture(running, fields):
    await frames_of(running.stub, encoded=FILE)
    assert await refused(running.stub, hash=named(**fields)) == NEEDED


async def test_other_options_make_another_picture(running):
    await frames_of(running.stub, encoded=FILE)
    options = pb.DecodeOptions(exif_orientation=pb.EXIF_ORIENTATION_APPLY)
    assert await refused(running.stub, hash=named(), decode_options=options) == NEEDED
    profile = pb.ProfileSelector(name="deepseek-v4-flash-vision-exp")
    assert await refused(running.stub, hash=named(), profile=profile) == NEEDED


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"sha256": b""}, "hash.sha256"),
        ({"sha256": bytes(31)}, "hash.sha256"),
        ({"kind": pb.SOURCE_KIND_UNSPECIFIED}, "hash.kind"),
        ({"kind": 9}, "hash.kind"),
        ({"width": 5}, "hash.width"),
        ({"height": 5}, "hash.height"),
        ({"kind": pb.SOURCE_KIND_RAW_RGB, "width": 0, "height": 5}, "hash.width"),
    ],
)
async def test_a_name_that_names_nothing_is_refused_with_its_field(running, fields, field):
    assert await refused(running.stub, hash=named(**fields)) == Status(
        code_pb2.INVALID_ARGUMENT, "INVALID_FIELD", (field,), False
    )


async def test_a_name_of_raw_pixels_has_their_size(running):
    source = pb.SourceHash(sha256=bytes(32), kind=pb.SOURCE_KIND_RAW_RGB, width=2, height=2, total_bytes=13)
    assert await refused(running.stub, hash=source) == Status(
        code_pb2.INVALID_ARGUMENT, "SOURCE_LENGTH_MISMATCH", ("hash.total_bytes",), False
    )
