"""What a caller of the Preprocess service sends and checks, written against the proto alone."""

import asyncio
import io
import threading
from collections.abc import AsyncIterable, Callable, Iterator
from dataclasses import dataclass, field

import google_crc32c
import numpy as np
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status
from PIL import Image

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, DecodeOptions, VisionProfile, decode, plan
from interlock.vision.kernels import reference

PROFILE = PROFILES[DEFAULT_PROFILE_NAME]


def picture_file(seed: int, width: int, height: int, file_format: str = "PNG") -> bytes:
    """A picture of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, file_format)
    return file.getvalue()


def flat_file(width: int, height: int, blue: int = 90) -> bytes:
    """A picture of one colour: a small file, and patches as large as any other's."""
    file = io.BytesIO()
    Image.new("RGB", (width, height), (10, 200, blue)).save(file, "PNG")
    return file.getvalue()


def reference_patches(data: bytes, profile: VisionProfile = PROFILE, options: DecodeOptions | None = None) -> bytes:
    """The patch buffer that a picture file must give."""
    rgb = decode(data, options).rgb
    geometry = plan(rgb.shape[1], rgb.shape[0], profile)
    return reference.resize_patchify(rgb, geometry, profile).tobytes()


def begin(image_id: str, total_bytes: int, kind: int = pb.SOURCE_KIND_ENCODED, **fields) -> pb.PreprocessImagesRequest:
    return pb.PreprocessImagesRequest(
        begin=pb.ImageBegin(image_id=image_id, kind=kind, total_bytes=total_bytes, **fields)
    )


def part(image_id: str, offset: int, data: bytes) -> pb.PreprocessImagesRequest:
    return pb.PreprocessImagesRequest(data=pb.ImageData(image_id=image_id, offset=offset, data=data))


def end(image_id: str) -> pb.PreprocessImagesRequest:
    return pb.PreprocessImagesRequest(end=pb.ImageEnd(image_id=image_id))


def cancel(image_id: str) -> pb.PreprocessImagesRequest:
    return pb.PreprocessImagesRequest(cancel=pb.ImageCancel(image_id=image_id))


def whole(image_id: str, data: bytes, *, part_bytes: int = 1 << 20, **fields) -> Iterator[pb.PreprocessImagesRequest]:
    """All steps of one picture."""
    yield begin(image_id, len(data), **fields)
    for offset in range(0, len(data), part_bytes):
        yield part(image_id, offset, data[offset : offset + part_bytes])
    yield end(image_id)


@dataclass
class Answer:
    """What one picture was answered with."""

    asked: bool = False
    """Its source was asked for."""
    header: pb.PatchHeader | None = None
    buffer: bytearray = field(default_factory=bytearray)
    chunk_sizes: list[int] = field(default_factory=list)
    trailer: pb.PatchTrailer | None = None
    error: pb.ImageError | None = None

    @property
    def ended(self) -> bool:
        return self.trailer is not None or self.error is not None

    def take(self, frame: pb.PatchFrame) -> None:
        """Check that the frame fits to those before it."""
        assert not self.ended, "a frame after the last one"
        match frame.WhichOneof("frame"):
            case "source_needed":
                assert self.header is None
                assert not self.asked
                self.asked = True
            case "header":
                assert self.header is None
                assert frame.header.dtype == pb.PATCH_DTYPE_BF16
                self.header = frame.header
            case "chunk":
                assert self.header is not None
                patch_bytes = self.header.patch_size**2 * 6
                assert frame.chunk.first_patch * patch_bytes == len(self.buffer)
                assert len(frame.chunk.data) % patch_bytes == 0
                assert 0 < len(frame.chunk.data) <= 1 << 20
                self.buffer += frame.chunk.data
                self.chunk_sizes.append(len(frame.chunk.data))
            case "trailer":
                assert self.header is not None
                assert len(self.buffer) == self.header.total_bytes
                assert google_crc32c.value(bytes(self.buffer)) == frame.trailer.crc32c
                self.trailer = frame.trailer
            case "error":
                self.error = frame.error
            case other:
                raise AssertionError(f"a frame {other} for a picture")

    @property
    def patches(self) -> bytes:
        assert self.trailer is not None, self.error
        return bytes(self.buffer)

    @property
    def fault(self) -> tuple[str, str]:
        """Reason and field."""
        assert self.error is not None
        assert self.error.code != 0
        assert self.error.message
        return self.error.reason, self.error.field


async def next_answers(frames: AsyncIterable[pb.PatchFrame], count: int | None = None) -> dict[str, Answer]:
    """Read frames until `count` pictures have their last one; None: until the call ends."""
    answers: dict[str, Answer] = {}
    if count == 0:
        return answers
    async for frame in frames:
        if frame.HasField("settings"):
            assert not answers, "the settings are the first frame"
            continue
        answers.setdefault(frame.image_id, Answer()).take(frame)
        if count is not None and sum(answer.ended for answer in answers.values()) == count:
            break
    return answers


async def answers_to(stub, steps) -> dict[str, Answer]:
    """Send all steps on one stream while reading, close it, and give all answers."""
    call = stub.PreprocessImages(timeout=60)

    async def send() -> None:
        for step in steps:
            await call.write(step)
        await call.done_writing()

    _, answers = await asyncio.gather(send(), next_answers(call))
    return answers


@dataclass(frozen=True)
class Status:
    """A status with what its details say."""

    code: int
    reason: str
    fields: tuple[str, ...]
    retries: bool


def status_of(error: aio.AioRpcError) -> Status:
    status = rpc_status.from_call(error)
    assert status is not None, error
    info, bad_request, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), False
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(bad_request)
        retry |= detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR)
    return Status(status.code, info.reason, tuple(violation.field for violation in bad_request.field_violations), retry)


async def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for a condition that another task or thread brings about."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.005)


class Gate:
    """Holds the server's threads at a point until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.reached = 0
        self.passed = 0

    def open(self) -> None:
        self._open.set()

    def wait(self) -> None:
        self.reached += 1
        assert self._open.wait(60), "the gate was never opened"
        self.passed += 1
