"""Chunks and parts, read and written past protobuf, are what protobuf reads and writes."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.client._internal.frames import Chunk, part_step, read_frame, write_step
from interlock.preprocess.v1 import preprocess_pb2 as pb

IDS = st.text(max_size=60)
UINT32 = st.integers(0, 2**32 - 1)
BYTES = st.binary(max_size=300)


@given(IDS, UINT32, BYTES)
def test_a_chunk_is_read_as_protobuf_writes_it(image_id: str, first_patch: int, data: bytes) -> None:
    message = pb.PatchFrame(image_id=image_id, chunk=pb.PatchChunk(first_patch=first_patch, data=data))
    frame = read_frame(message.SerializeToString())
    assert isinstance(frame, Chunk)
    assert (frame.image_id, frame.first_patch, bytes(frame.data)) == (image_id, first_patch, data)


def test_the_data_of_a_chunk_is_not_copied() -> None:
    received = pb.PatchFrame(image_id="a", chunk=pb.PatchChunk(first_patch=1, data=b"x" * 1000)).SerializeToString()
    assert read_frame(received).data.obj is received


@pytest.mark.parametrize(
    "frame",
    [
        pb.PatchFrame(settings=pb.StreamSettings(max_images_in_flight=3)),
        pb.PatchFrame(image_id="a", header=pb.PatchHeader(total_bytes=7)),
        pb.PatchFrame(image_id="a", trailer=pb.PatchTrailer(crc32c=7)),
        pb.PatchFrame(image_id="a", error=pb.ImageError(code=3)),
        pb.PatchFrame(image_id="a", source_needed=pb.SourceNeeded()),
        pb.PatchFrame(image_id="a"),
        pb.PatchFrame(),
    ],
)
def test_other_frames_are_messages(frame: pb.PatchFrame) -> None:
    assert read_frame(frame.SerializeToString()) == frame


CHUNK = pb.PatchFrame(chunk=pb.PatchChunk(first_patch=5, data=b"data")).SerializeToString()
NAME = pb.PatchFrame(image_id="a").SerializeToString()


@pytest.mark.parametrize(
    "data",
    [
        CHUNK + NAME,
        NAME + CHUNK + NAME,
        NAME + CHUNK + b"\xf8\x06\x01",  # a field of tomorrow
        NAME + pb.PatchFrame(chunk=pb.PatchChunk(first_patch=5)).SerializeToString() + b"\x22\x06\x12\x04data",
        NAME + b"\x22\x08\x12\x04data\x08\x05",
        NAME + b"\x22\x89\x80\x00\x08\x85\x00\x12\x04data",
    ],
    ids=["id last", "id twice", "unknown field", "in two pieces", "fields turned round", "long numbers"],
)
def test_a_chunk_written_otherwise_is_the_same_chunk(data: bytes) -> None:
    frame = read_frame(data)
    assert isinstance(frame, Chunk)
    assert (frame.image_id, frame.first_patch, bytes(frame.data)) == ("a", 5, b"data")


@settings(max_examples=1000)
@given(st.binary(max_size=40) | st.builds(lambda cut, tail: (NAME + CHUNK)[:cut] + tail, st.integers(0, 15), BYTES))
def test_any_bytes_are_read_as_protobuf_reads_them(data: bytes) -> None:
    try:
        expected = pb.PatchFrame.FromString(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            read_frame(data)
        return
    frame = read_frame(data)
    if isinstance(frame, Chunk):
        assert (frame.image_id, frame.first_patch) == (expected.image_id, expected.chunk.first_patch)
        assert bytes(frame.data) == expected.chunk.data
    else:
        assert frame == expected
        assert not frame.HasField("chunk")


@given(IDS, st.integers(0, 2**64 - 1), BYTES)
def test_a_part_is_written_as_protobuf_writes_it(image_id: str, offset: int, data: bytes) -> None:
    message = pb.PreprocessImagesRequest(data=pb.ImageData(image_id=image_id, offset=offset, data=data))
    written = part_step(image_id, offset, memoryview(data))
    assert pb.PreprocessImagesRequest.FromString(written) == message
    assert write_step(written) is written
    assert write_step(message) == message.SerializeToString()
