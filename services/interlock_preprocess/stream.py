"""One `PreprocessImages` stream: what its steps mean, its credits, its ids.

Reading never waits. Each step is taken in at once, and whatever has to wait (for parts, for a thread, for memory, for
the reader of the answers) does so in the task that each picture has from its `begin` to its last frame. What a stream
can hold is bounded by its credits; refusals that its reader has not taken are bounded too.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterable
from functools import partial

import grpc

from interlock.preprocess.v1.preprocess_pb2 import (
    ImageBegin,
    ImageData,
    PreprocessImagesRequest,
)
from interlock.reasons import Reason
from interlock.serving import Refusal
from interlock_preprocess.admission import Source
from interlock_preprocess.counters import Counters
from interlock_preprocess.delivery import deliver
from interlock_preprocess.destinations import Chunks
from interlock_preprocess.faults import RETRY_DELAY, ImageFault
from interlock_preprocess.frames import error_frame, settings_frame
from interlock_preprocess.requests import PictureRequest, read_begin
from interlock_preprocess.settings import MAX_ID_BYTES, MAX_PART_BYTES, PreprocessSettings
from interlock_preprocess.work import Work, WorkPool
from interlock_preprocess.writer import FrameWriter, Write

_MAX_UNREAD_REFUSALS = 1024
"""Pictures beyond the credits whose error frame waits for the reader. One more ends the call."""

_MAX_ANSWERED_IDS = 4096
"""Ids that are remembered after their last frame, so that parts, `end` or `cancel` of a picture that failed or ended
meanwhile are known as belated and left aside. Far more than a caller that honours the credits has under way."""


class _Picture:
    """A picture in flight: from its `begin` to its last frame."""

    def __init__(self, image_id: str) -> None:
        self.image_id = image_id
        self.credit_bytes: int | None = None
        """What it counts against the credits; None: it got none."""
        self.request: PictureRequest | None = None
        self.source: Source | None = None
        self.parts_deadline = 0.0
        """When it stalls if no further part comes, by the clock of the event loop."""
        self.ended = False
        """Whether all its parts and its `end` came."""
        self.work: Work | None = None
        self.fault: ImageFault | None = None
        self.changed = asyncio.Event()
        """Wakes its task while parts are awaited."""

    def fail(self, fault: ImageFault) -> None:
        """Let it fail, unless it has already. It stops costing now; its task sends the error frame in its turn."""
        if self.fault is None:
            self.fault = fault
            self.changed.set()
            if self.work is not None:
                self.work.stop(fault)
            self.drop()

    def drop(self) -> None:
        """Let go of its source and its patches. Doing it twice is harmless."""
        if self.work is not None:
            self.work.let_go()
        elif self.source is not None:
            self.source.drop()


class ImageStream:
    """The state of one stream.

    Args:
        settings: credits and timeouts.
        pool: does the work.
        counters: where the stream counts; also has the budget of the sources.
        draining: set when the server is about to stop.
        write: hands a frame to the transport.
    """

    def __init__(
        self, settings: PreprocessSettings, pool: WorkPool, counters: Counters, draining: asyncio.Event, write: Write
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._counters = counters
        self._draining = draining
        self._writer = FrameWriter(write, settings.stall_timeout_seconds)
        self._window = asyncio.Semaphore(settings.images_started_per_stream)
        self._tasks = asyncio.TaskGroup()
        self._pictures: dict[str, _Picture] = {}
        self._none_in_flight = asyncio.Event()
        self._none_in_flight.set()
        self._answered: OrderedDict[str, None] = OrderedDict()
        self._credited_images = 0
        self._credited_bytes = 0

    async def serve(self, steps: AsyncIterable[PreprocessImagesRequest]) -> None:
        """Take all steps and answer all pictures.

        Raises:
            Refusal: the stream itself is at fault, its reader stalled, or the server stops.
        """
        self._counters.streams_open += 1
        try:
            async with self._tasks:
                await self._send_settings()
                drain = self._tasks.create_task(self._end_when_drained())
                async for step in steps:
                    self._take(step)
                drain.cancel()
                for picture in self._pictures.values():
                    if not picture.ended and picture.fault is None:
                        picture.fail(_too_short(picture, "end"))
        except BaseExceptionGroup as group:
            raise _most_telling(group) from None
        finally:
            self._counters.streams_open -= 1
            self._counters.images_in_flight -= len(self._pictures)
            for picture in self._pictures.values():
                picture.drop()

    async def _end_when_drained(self) -> None:
        await self._draining.wait()
        await self._none_in_flight.wait()
        raise Refusal(Reason.DRAINING, "the server stops; go on at another one", retry_delay=RETRY_DELAY)

    # Steps

    def _take(self, step: PreprocessImagesRequest) -> None:
        match step.WhichOneof("step"):
            case "begin":
                self._begin(step.begin)
            case "data":
                self._receive(step.data)
            case "end":
                self._end(step.end.image_id)
            case "cancel":
                if (picture := self._find(step.cancel.image_id, "cancel.image_id")) is not None:
                    picture.fail(ImageFault(Reason.CANCELLED, "cancelled by its caller"))
            case None:
                raise _stream_fault("step", "a message has no step; set begin, data, end or cancel")

    def _begin(self, begin: ImageBegin) -> None:
        image_id = begin.image_id
        if not 1 <= len(image_id.encode()) <= MAX_ID_BYTES:
            raise _stream_fault("begin.image_id", f"an image id has 1 to {MAX_ID_BYTES} bytes in UTF-8")
        if image_id in self._pictures:
            raise _stream_fault(
                "begin.image_id", f"image id {image_id!r} is in flight; it is free again after its last frame"
            )
        if len(self._pictures) - self._credited_images >= _MAX_UNREAD_REFUSALS:
            raise Refusal(
                Reason.CREDITS_EXCEEDED,
                f"{_MAX_UNREAD_REFUSALS} pictures beyond the credits were refused and the refusals not read; "
                "honour the settings frame",
                retry_delay=RETRY_DELAY,
            )
        self._answered.pop(image_id, None)
        picture = self._pictures[image_id] = _Picture(image_id)
        self._none_in_flight.clear()
        self._counters.images_in_flight += 1
        try:
            self._admit(picture, begin)
        except ImageFault as fault:
            picture.fail(fault)
        self._tasks.create_task(self._answer(picture))

    def _admit(self, picture: _Picture, begin: ImageBegin) -> None:
        if self._draining.is_set():
            raise ImageFault(
                Reason.DRAINING, "the server stops; send the picture to another one", retry_delay=RETRY_DELAY
            )
        request = read_begin(begin, self._settings)
        images, size = self._settings.max_images_in_flight, self._settings.max_bytes_in_flight
        if self._credited_images + 1 > images or self._credited_bytes + request.total_bytes > size:
            raise ImageFault(
                Reason.CREDITS_EXCEEDED,
                f"{self._credited_images} pictures with {self._credited_bytes} bytes are in flight and this one has "
                f"{request.total_bytes}; a stream may have {images} with {size} bytes",
                retry_delay=RETRY_DELAY,
            )
        picture.source = Source(self._counters.sources, request.total_bytes)
        picture.request = request
        picture.credit_bytes = request.total_bytes
        self._credited_images += 1
        self._credited_bytes += request.total_bytes
        self._extend_deadline(picture)

    def _receive(self, part: ImageData) -> None:
        picture = self._find(part.image_id, "data.image_id")
        if picture is None or picture.source is None or picture.fault is not None:
            return  # the rest of a picture that failed
        source, data = picture.source, part.data
        if len(data) > MAX_PART_BYTES:
            picture.fail(
                ImageFault(Reason.INVALID_FIELD, f"a part has {len(data)} bytes; at most {MAX_PART_BYTES}", "data.data")
            )
        elif part.offset != source.received:
            picture.fail(
                ImageFault(
                    Reason.SOURCE_LENGTH_MISMATCH,
                    f"a part begins at {part.offset}; expected {source.received}, where the one before ended",
                    "data.offset",
                )
            )
        elif source.received + len(data) > source.total_bytes or picture.ended:
            picture.fail(
                ImageFault(
                    Reason.SOURCE_LENGTH_MISMATCH,
                    f"the part at {part.offset} ends at {part.offset + len(data)}, after `end` or over the "
                    f"{source.total_bytes} bytes that begin.total_bytes told",
                    "data.data",
                )
            )
        elif data:
            source.append(data)
            self._extend_deadline(picture)

    def _end(self, image_id: str) -> None:
        picture = self._find(image_id, "end.image_id")
        if picture is None or picture.source is None or picture.fault is not None:
            return
        if picture.ended:
            picture.fail(ImageFault(Reason.INVALID_FIELD, "the picture was ended twice", "end.image_id"))
        elif picture.source.received < picture.source.total_bytes:
            picture.fail(_too_short(picture, "begin.total_bytes"))
        else:
            picture.ended = True
            picture.changed.set()

    def _find(self, image_id: str, field: str) -> _Picture | None:
        """The picture in flight of that id; None: it had its last frame already."""
        picture = self._pictures.get(image_id)
        if picture is None and image_id not in self._answered:
            raise _stream_fault(field, f"no picture {image_id[:MAX_ID_BYTES]!r} was begun")
        return picture

    def _extend_deadline(self, picture: _Picture) -> None:
        picture.parts_deadline = asyncio.get_running_loop().time() + self._settings.stall_timeout_seconds

    # Answers

    async def _answer(self, picture: _Picture) -> None:
        """One picture, from its `begin` to its last frame."""
        try:
            picture.work = await self._start_when_whole(picture)
            send = partial(self._send, picture)
            chunks = Chunks(picture.image_id, picture.work.request.patch_bytes, send)
            await deliver(picture.work, picture.image_id, chunks, send, partial(self._send_last, picture))
        except ImageFault as fault:
            picture.drop()
            await self._send_error(picture, fault)
        finally:
            picture.drop()

    async def _start_when_whole(self, picture: _Picture) -> Work:
        now = asyncio.get_running_loop().time
        while True:
            if picture.fault is not None:
                raise picture.fault
            if picture.ended:
                assert picture.request is not None
                assert picture.source is not None
                return self._pool.start(picture.request, picture.source, self._window)
            if now() >= picture.parts_deadline:
                timeout = self._settings.stall_timeout_seconds
                raise ImageFault(Reason.STALLED, f"no part of the picture came for {timeout:g} s", "data")
            picture.changed.clear()
            try:
                async with asyncio.timeout_at(picture.parts_deadline):
                    await picture.changed.wait()
            except TimeoutError:
                pass  # unless parts have moved the deadline

    async def _send_settings(self) -> None:
        await self._writer.write(
            settings_frame(self._settings.max_images_in_flight, self._settings.max_bytes_in_flight)
        )

    async def _send(self, picture: _Picture, frame: bytes) -> None:
        async with self._writer.turn() as write:
            if picture.fault is not None:
                raise picture.fault
            await write(frame)

    async def _send_last(self, picture: _Picture, frame: bytes) -> None:
        async with self._writer.turn() as write:
            if picture.fault is not None:
                raise picture.fault
            self._settle(picture)
            self._counters.images_served += 1
            await write(frame)

    async def _send_error(self, picture: _Picture, fault: ImageFault) -> None:
        async with self._writer.turn() as write:
            self._settle(picture)
            self._counters.images_failed[fault.reason] += 1
            await write(error_frame(picture.image_id, fault.image_error()))

    def _settle(self, picture: _Picture) -> None:
        """The picture's last frame is next. Its id and credits are free before the caller can know of it."""
        del self._pictures[picture.image_id]
        self._counters.images_in_flight -= 1
        if picture.credit_bytes is not None:
            self._credited_images -= 1
            self._credited_bytes -= picture.credit_bytes
        self._answered[picture.image_id] = None
        if len(self._answered) > _MAX_ANSWERED_IDS:
            self._answered.popitem(last=False)
        if not self._pictures:
            self._none_in_flight.set()


def _too_short(picture: _Picture, field: str) -> ImageFault:
    assert picture.source is not None
    received, total = picture.source.received, picture.source.total_bytes
    return ImageFault(
        Reason.SOURCE_LENGTH_MISMATCH,
        f"the picture has {total} bytes, and {received} came before its end or the end of the stream",
        field,
    )


def _stream_fault(field: str, message: str) -> Refusal:
    return Refusal(Reason.INVALID_FIELD, message, violations=[(field, message)])


def _most_telling(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Why the call ends: a refusal, or else what the transport said, or else all of it."""
    for kind in (Refusal, grpc.aio.BaseError):
        found: BaseException | None = group.subgroup(kind)
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        if found is not None:
            return found
    return group
