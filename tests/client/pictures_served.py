"""Preprocess servers that answer as a test tells them, frame by frame, with real patches and checksums."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import google_crc32c
import grpc
import numpy as np
from numpy.typing import NDArray

from interlock.preprocess.v1 import preprocess_pb2 as pb

SIDE = 2
GRID_WIDTH = 3
GRID_HEIGHT = 4
PATCHES = GRID_WIDTH * GRID_HEIGHT
PATCH_BYTES = 3 * SIDE * SIDE * 2
TOTAL_BYTES = PATCHES * PATCH_BYTES
SETTINGS = pb.PatchFrame(settings=pb.StreamSettings(max_images_in_flight=4, max_bytes_in_flight=1 << 20))


def patches_of(source: bytes) -> NDArray[np.uint16]:
    """Some patches that only this source has."""
    words = np.arange(TOTAL_BYTES // 2, dtype=np.uint32) * 40503 + google_crc32c.value(source)
    return words.astype(np.uint16).reshape(GRID_HEIGHT, GRID_WIDTH, 3, SIDE, SIDE)


def header(**changes: Any) -> pb.PatchHeader:
    values: dict[str, Any] = {
        "plan": pb.Plan(
            canvas_width=6,
            canvas_height=8,
            resize_width=6,
            resize_height=8,
            grid_width=GRID_WIDTH,
            grid_height=GRID_HEIGHT,
        ),
        "patch_size": SIDE,
        "dtype": pb.PATCH_DTYPE_BF16,
        "total_bytes": TOTAL_BYTES,
        "source_size": pb.ImageSize(width=60, height=80),
        "source_format": "PNG",
    }
    return pb.PatchHeader(**(values | changes))


def trailer(source: bytes, **changes: Any) -> pb.PatchTrailer:
    values: dict[str, Any] = {
        "crc32c": google_crc32c.value(patches_of(source).tobytes()),
        "queue_time": {"nanos": 250_000_000},
        "decode_time": {"nanos": 500_000_000},
        "kernel_time": {"seconds": 1},
        "from_cache": True,
    }
    return pb.PatchTrailer(**(values | changes))


def chunk(source: bytes, first: int, last: int) -> pb.PatchChunk:
    data = patches_of(source).tobytes()
    return pb.PatchChunk(first_patch=first, data=data[first * PATCH_BYTES : last * PATCH_BYTES])


def good_frames(image_id: str, source: bytes) -> list[pb.PatchFrame]:
    return [
        pb.PatchFrame(image_id=image_id, header=header()),
        pb.PatchFrame(image_id=image_id, chunk=chunk(source, 0, 5)),
        pb.PatchFrame(image_id=image_id, chunk=chunk(source, 5, PATCHES)),
        pb.PatchFrame(image_id=image_id, trailer=trailer(source)),
    ]


def error_frame(image_id: str, reason: str, code: int, retry_delay: float | None = None) -> pb.PatchFrame:
    error = pb.ImageError(code=code, reason=reason, message=f"told: {reason}", field="encoded")
    if retry_delay is not None:
        error.retry_delay.FromNanoseconds(int(retry_delay * 1e9))
    return pb.PatchFrame(image_id=image_id, error=error)


Steps = Iterator[pb.PreprocessImagesRequest]

Answer = Callable[[str, bytes], list[pb.PatchFrame]]
"""Frames for a picture that has come whole, by its id on the stream and its source."""


class StreamServer:
    """Serves `PreprocessImages` one picture at a time, and writes down what it saw.

    Args:
        answer: frames for each picture.
        settings: first frame of each stream.
        breaks_after: streams are broken off after so many frames, one number a stream; the last one is used again.
            None: not broken.
        full: no picture is answered before so many are in flight, or all that are left of `total`.
        total: pictures that will come.
    """

    def __init__(
        self,
        answer: Answer = good_frames,
        settings: pb.PatchFrame = SETTINGS,
        breaks_after: tuple[int | None, ...] = (None,),
        full: int = 0,
        total: int = 0,
    ) -> None:
        self.answer = answer
        self.settings = settings
        self.breaks_after = breaks_after
        self.full = full
        self.left = total
        self.streams = 0
        self.begins: list[pb.ImageBegin] = []
        self.parts: list[int] = []
        self.cancels: list[str] = []
        self.in_flight: dict[str, int] = {}
        self.most_in_flight = 0
        self.most_bytes_in_flight = 0
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.half_closed = threading.Event()
        self.hold = threading.Event()
        """Answers wait for this."""
        self.hold.set()

    def __call__(self, steps: Steps, context: grpc.ServicerContext) -> Iterator[pb.PatchFrame]:
        self.streams += 1
        left = self.breaks_after[min(self.streams, len(self.breaks_after)) - 1]
        self.in_flight.clear()
        self.ended.clear()
        context.add_callback(self.ended.set)
        for frame in self._frames(steps, context):
            if left is not None:
                if left == 0:
                    context.abort(grpc.StatusCode.UNAVAILABLE, "connection lost")
                left -= 1
            yield frame

    def _read(self, steps: Steps, taken: "queue.Queue[pb.PreprocessImagesRequest | None]") -> None:
        """Takes every step at once, whatever waits for an answer, as the real service does."""
        with suppress(grpc.RpcError):
            for step in steps:
                if step.HasField("begin"):
                    self.begins.append(step.begin)
                    self.in_flight[step.begin.image_id] = step.begin.total_bytes
                    self.most_in_flight = max(self.most_in_flight, len(self.in_flight))
                    self.most_bytes_in_flight = max(self.most_bytes_in_flight, sum(self.in_flight.values()))
                    self.begun.set()
                taken.put(step)
        taken.put(None)

    def _frames(self, steps: Steps, context: grpc.ServicerContext) -> Iterator[pb.PatchFrame]:
        yield self.settings
        sources: dict[str, bytearray] = {}
        taken: queue.Queue[pb.PreprocessImagesRequest | None] = queue.Queue()
        threading.Thread(target=self._read, args=(steps, taken)).start()
        while (step := taken.get()) is not None:
            match step.WhichOneof("step"):
                case "begin":
                    sources[step.begin.image_id] = bytearray()
                case "data":
                    source = sources[step.data.image_id]
                    assert step.data.offset == len(source)
                    source += step.data.data
                    self.parts.append(len(step.data.data))
                case "cancel":
                    self.cancels.append(step.cancel.image_id)
                    if self.in_flight.pop(step.cancel.image_id, None) is not None:
                        yield error_frame(step.cancel.image_id, "CANCELLED", 1)
                case "end" if step.end.image_id in self.in_flight:
                    while context.is_active() and not self._may_answer():
                        self.hold.wait(0.01)
                    yield from self._answer(step.end.image_id, bytes(sources.pop(step.end.image_id)))
        self.half_closed.set()

    def _may_answer(self) -> bool:
        return self.hold.is_set() and len(self.in_flight) >= min(self.full, self.left)

    def _answer(self, image_id: str, source: bytes) -> Iterator[pb.PatchFrame]:
        self.left -= 1
        for frame in self.answer(image_id, source):
            if frame.WhichOneof("frame") in ("trailer", "error"):
                self.in_flight.pop(image_id, None)
            yield frame
