"""One stream of pictures, without its I/O: what to send next, what came, what is finished.

A face asks `next_step` for the next message to write, hands every frame to `receive`, and takes results with
`take_result`. It may be used by one thread at a time; the synchronous face holds a lock around every call.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import grpc

from interlock.client._internal.assembly import PatchAssembly
from interlock.client._internal.frames import Chunk, Frame, Step, part_step
from interlock.client._internal.ready_pictures import ReadyPicture, UnreadablePicture
from interlock.client._internal.regions import SharedMemory
from interlock.client._internal.retry import RetryPolicy, asked_pause
from interlock.client._internal.statuses import image_failed
from interlock.client.errors import (
    ImageFailedError,
    InterlockError,
    PatchesDamagedError,
    UnexpectedAnswerError,
)
from interlock.client.pictures import ImageResult
from interlock.preprocess.v1 import preprocess_pb2
from interlock.reasons import Reason

_Step = preprocess_pb2.PreprocessImagesRequest


@dataclass(eq=False)
class _Image:
    """One picture between its source and its result."""

    index: int
    ready: ReadyPicture
    refusals: int = 0
    not_before: float = 0.0
    cancelled: bool = False
    given_up: bool = False
    """Its result is out; only its last frame is still to come, and until then it uses credits."""
    in_chunks: bool = False
    """Shared memory has failed it."""
    ends_at: float | None = None
    """When it fails, by the clock; None: not sent yet, or never."""
    parts_awaited: bool = False
    """Begun by its hash: nothing of it is sent before the server asks."""
    assembly: PatchAssembly = field(init=False)


class Conversation:
    """All pictures of one stream.

    Args:
        window: pictures between their source and the taking of their result, at the most.
        max_patch_bytes: bytes of one picture's patches, at the most.
        memory: where the server may put them.
        policy: how often a picture that the server has no room for is sent.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        window: int,
        max_patch_bytes: int,
        memory: SharedMemory,
        policy: RetryPolicy,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if window < 1:
            raise ValueError(f"max_in_flight is {window}; it must be at least 1")
        self._window = window
        self._max_patch_bytes = max_patch_bytes
        self._memory = memory
        self._policy = policy
        self._clock = clock
        self._indices = itertools.count()
        self._wire_ids = itertools.count(1)
        self._sources_ended = False
        self._waiting: deque[_Image] = deque()
        self._results: deque[ImageResult] = deque()
        self._settings: preprocess_pb2.StreamSettings | None = None
        self._drained = False
        self._retry_at: float | None = None
        self._in_flight: dict[str, _Image] = {}
        self._sending: Iterator[Step] | None = None
        self._asked_for: deque[str] = deque()
        self._cancels: deque[str] = deque()

    # What the face asks

    @property
    def has_work(self) -> bool:
        """A picture waits to be sent, or for its answer."""
        return bool(self._waiting or self._in_flight)

    @property
    def all_answered(self) -> bool:
        """No source is left, and no picture waits for anything."""
        return self._sources_ended and not self.has_work

    @property
    def wants_source(self) -> bool:
        """There is room for one more picture."""
        if self._sources_ended:
            return False
        awaited = sum(not image.given_up for image in self._in_flight.values())
        return len(self._waiting) + awaited + len(self._results) < self._window

    @property
    def seconds_to_retry(self) -> float | None:
        """How long there is nothing to send unless something changes. None: until something changes."""
        return None if self._retry_at is None else max(0.0, self._retry_at - self._clock())

    def take_result(self) -> ImageResult | None:
        """The next finished picture. None: none is finished now."""
        return self._results.popleft() if self._results else None

    # What the caller does

    def add(self, picture: ReadyPicture | UnreadablePicture) -> None:
        """One more picture."""
        index = next(self._indices)
        if isinstance(picture, UnreadablePicture):
            self._results.append(ImageResult(index, picture.image_id, error=picture.error))
        else:
            self._waiting.append(_Image(index, picture))

    def end_sources(self) -> None:
        """No more pictures come."""
        self._sources_ended = True

    def cancel(self, index: int) -> None:
        """The picture of this index is no longer wanted. Nothing happens if its result is out."""
        for image in self._waiting:
            if image.index == index:
                self._waiting.remove(image)
                self._fail(image, _cancelled())
                return
        for wire_id, image in self._in_flight.items():
            if image.index == index and not (image.cancelled or image.given_up):
                image.cancelled = True
                self._cancels.append(wire_id)

    # What to send

    def next_step(self) -> Step | None:
        """The next message to write. None: nothing now; ask again when something changed."""
        self._retry_at = None
        if self._settings is None:
            return None
        if self._cancels:
            return _Step(cancel=preprocess_pb2.ImageCancel(image_id=self._cancels.popleft()))
        if self._sending is not None:
            step = next(self._sending, None)
            if step is not None:
                return step
            self._sending = None
        while self._asked_for:
            wire_id = self._asked_for.popleft()
            if self._wanted(wire_id):
                self._sending = self._parts(wire_id, self._in_flight[wire_id])
                return next(self._sending)
        image = self._next_to_begin(self._settings)
        if image is None:
            return None
        wire_id = str(next(self._wire_ids))
        place = None if image.in_chunks else self._memory.take(image.ready.most_patch_bytes)
        image.assembly = PatchAssembly(image.ready.image_id, self._max_patch_bytes, place)
        image.parts_awaited = image.ready.begin.HasField("source_sha256")
        self._in_flight[wire_id] = image
        if not image.parts_awaited:
            self._sending = self._parts(wire_id, image)
        begin = image.ready.begin
        begin.image_id = wire_id
        begin.ClearField("region")
        if place is not None:
            begin.region.CopyFrom(place.target())
        if image.ready.timeout is not None:
            now = self._clock()
            if image.ends_at is None:
                image.ends_at = now + image.ready.timeout
            begin.timeout.FromNanoseconds(max(1, round((image.ends_at - now) * 1e9)))
        return _Step(begin=begin)

    def _next_to_begin(self, settings: preprocess_pb2.StreamSettings) -> _Image | None:
        if self._drained:
            return None
        now = self._clock()
        image = next((image for image in self._waiting if image.not_before <= now), None)
        if image is None:
            self._retry_at = min((image.not_before for image in self._waiting), default=None)
            return None
        if self._in_flight:
            # With nothing in flight even a picture beyond the credits is sent: the server says what is wrong with it.
            total_bytes = sum(other.ready.begin.total_bytes for other in self._in_flight.values())
            total_bytes += image.ready.begin.total_bytes
            if len(self._in_flight) >= settings.max_images_in_flight or total_bytes > settings.max_bytes_in_flight:
                return None
        self._waiting.remove(image)
        return image

    def _parts(self, wire_id: str, image: _Image) -> Iterator[Step]:
        """The bytes and the end of a picture, for as long as it is wanted."""
        for offset, data in image.ready.upload.parts():
            if not self._wanted(wire_id):
                return
            yield part_step(wire_id, offset, data)
        if self._wanted(wire_id):
            yield _Step(end=preprocess_pb2.ImageEnd(image_id=wire_id))

    def _wanted(self, wire_id: str) -> bool:
        image = self._in_flight.get(wire_id)
        return image is not None and not (image.cancelled or image.given_up)

    # What came

    def receive(self, frame: Frame) -> bool:
        """Takes one frame. Whether a result came of it.

        Raises:
            UnexpectedAnswerError: the frame fits no picture of this stream.
        """
        kind = "chunk" if isinstance(frame, Chunk) else frame.WhichOneof("frame")
        if isinstance(frame, preprocess_pb2.PatchFrame) and kind == "settings":
            self._settings = frame.settings
            return False
        if self._settings is None:
            raise UnexpectedAnswerError(f"the stream began with a frame of kind {kind}, not with its settings")
        image = self._in_flight.get(frame.image_id)
        if image is None or kind is None:
            raise UnexpectedAnswerError(f"a frame of kind {kind} came for picture {frame.image_id!r}, not in flight")
        if kind == "source_needed":
            self._source_needed(image, frame.image_id)
            return False
        if kind in ("trailer", "error"):
            del self._in_flight[frame.image_id]
        results = len(self._results)
        if not image.given_up:
            if isinstance(frame, preprocess_pb2.PatchFrame) and kind == "error":
                self._refused(image, image_failed(frame.error))
            else:
                self._assemble(image, frame)
        if kind in ("trailer", "error"):
            image.assembly.settled()
        return len(self._results) > results

    def _source_needed(self, image: _Image, wire_id: str) -> None:
        if not image.parts_awaited:
            raise UnexpectedAnswerError(f"the server asked for picture {wire_id!r}, which was sent already")
        image.parts_awaited = False
        self._asked_for.append(wire_id)

    def _assemble(self, image: _Image, frame: Frame) -> None:
        try:
            patches = image.assembly.add(frame)
        except PatchesDamagedError as error:
            self._fail(image, error)
            image.given_up = True
            if frame.image_id in self._in_flight:
                self._cancels.append(frame.image_id)
        else:
            if patches is not None:
                self._results.append(ImageResult(image.index, image.ready.image_id, patches=patches))

    def _refused(self, image: _Image, error: ImageFailedError) -> None:
        if error.reason == Reason.DRAINING and not image.cancelled:
            # This server takes no more; it ends the call when it has answered what it has, and another may follow.
            self._drained = True
            self._waiting.append(image)
            return
        if image.assembly.refused(error.reason, self._memory) and not image.cancelled:
            image.in_chunks = True
            self._waiting.appendleft(image)
            return
        image.refusals += 1
        pause = asked_pause(error.code, error.reason, error.retry_delay)
        if pause is None or image.cancelled or image.refusals >= self._policy.attempts:
            self._fail(image, error)
        else:
            image.not_before = self._clock() + pause + self._policy.pause(image.refusals)
            self._waiting.append(image)

    def _fail(self, image: _Image, error: InterlockError) -> None:
        self._results.append(ImageResult(image.index, image.ready.image_id, error=error))

    # What became of the stream

    def stream_opened(self) -> None:
        """A new call begins, with nothing sent on it yet."""
        self.stream_over()
        self._settings = None
        self._drained = False
        self._in_flight.clear()
        self._sending = None
        self._asked_for.clear()
        self._cancels.clear()

    def stream_over(self) -> None:
        """No more frames come on this call."""
        for image in self._in_flight.values():
            image.assembly.lost()

    def stream_lost(self) -> None:
        """The call broke: pictures without a result go back to those that wait."""
        lost = [image for image in self._in_flight.values() if not image.given_up]
        self.stream_opened()
        for image in reversed(lost):
            if image.cancelled:
                self._fail(image, _cancelled())
            else:
                self._waiting.appendleft(image)

    def stream_ended(self) -> None:
        """The server ended the call in good order.

        Raises:
            UnexpectedAnswerError: pictures are left that it never looked at.
        """
        unanswered = [image for image in self._in_flight.values() if not image.given_up]
        self.stream_opened()
        for image in unanswered:
            try:
                image.assembly.patches()
            except PatchesDamagedError as error:
                self._fail(image, error)
        if not self.all_answered:
            raise UnexpectedAnswerError("the server ended the stream while pictures were still to come")


def _cancelled() -> ImageFailedError:
    return ImageFailedError(Reason.CANCELLED, grpc.StatusCode.CANCELLED, "cancelled before the server took it up")
