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

from interlock.preprocess.v1.preprocess_pb2 import ImageBegin, PreprocessImagesRequest
from interlock.reasons import Reason
from interlock.serving import Refusal
from interlock.serving.calls import Context
from interlock_preprocess.admission import Source
from interlock_preprocess.arrivals import Arrival
from interlock_preprocess.callers import call_deadline, caller_scope
from interlock_preprocess.counters import Counters
from interlock_preprocess.delivery import deliver
from interlock_preprocess.destinations import destination_of
from interlock_preprocess.faults import RETRY_DELAY, ImageFault
from interlock_preprocess.frames import error_frame, settings_frame, source_needed_frame
from interlock_preprocess.regions import Regions
from interlock_preprocess.requests import PictureRequest, read_begin
from interlock_preprocess.settings import MAX_ID_BYTES, PreprocessSettings
from interlock_preprocess.sharing import SharedPictures
from interlock_preprocess.subscription import Subscription
from interlock_preprocess.turns import Party
from interlock_preprocess.writer import FrameWriter

_MAX_UNREAD_REFUSALS = 1024
"""Pictures beyond the credits whose error frame waits for the reader. One more ends the call."""

_MAX_ANSWERED_IDS = 4096
"""Ids that are remembered after their last frame, so that parts, `end` or `cancel` of a picture that failed or ended
meanwhile are known as belated and left aside. Far more than a caller that honours the credits has under way."""


class ImageStream:
    """The state of one stream.

    Args:
        settings: credits and timeouts.
        pictures: where patches come from.
        regions: shared memory.
        counters: where the stream counts; also has the budget of the sources.
        draining: set when the server is about to stop.
        context: of the call.
    """

    def __init__(
        self,
        settings: PreprocessSettings,
        pictures: SharedPictures,
        regions: Regions,
        counters: Counters,
        draining: asyncio.Event,
        context: Context,
    ) -> None:
        self._settings = settings
        self._shared = pictures
        self._regions = regions
        self._counters = counters
        self._draining = draining
        self._scope = caller_scope(context)
        self._deadline = call_deadline(context)
        self._writer = FrameWriter(context.write, settings.stall_timeout_seconds)
        self._party = Party(settings.images_started_per_stream)
        self._tasks = asyncio.TaskGroup()
        self._pictures: dict[str, Arrival] = {}
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
                    picture.take_end_of_stream()
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
                if (picture := self._find(step.data.image_id, "data.image_id")) is not None:
                    picture.take_part(step.data)
            case "end":
                if (picture := self._find(step.end.image_id, "end.image_id")) is not None:
                    picture.take_end()
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
        picture = self._pictures[image_id] = Arrival(image_id, self._settings.stall_timeout_seconds)
        self._none_in_flight.clear()
        self._counters.images_in_flight += 1
        try:
            self._admit(picture, begin)
        except ImageFault as fault:
            picture.fail(fault)
        self._tasks.create_task(self._answer(picture))

    def _admit(self, picture: Arrival, begin: ImageBegin) -> None:
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
        if request.region is not None:
            self._regions.check(request.region, self._scope)
        if request.source_sha256 is None:
            picture.expect_parts(self._room_for(request))
        picture.request = request
        self._credited_images += 1
        self._credited_bytes += request.total_bytes
        deadlines = [self._deadline] if self._deadline is not None else []
        if request.timeout is not None:
            deadlines.append(asyncio.get_running_loop().time() + request.timeout)
        if deadlines:
            picture.fail_at(min(deadlines))

    def _room_for(self, request: PictureRequest) -> Source:
        """Memory for a picture that is about to be sent, if it can soon be made.

        Raises:
            ImageFault: OVERLOADED.
        """
        self._shared.check_room(self._party)
        return Source(self._counters.sources, request.total_bytes, retry_delay=self._shared.retry_delay)

    def _find(self, image_id: str, field: str) -> Arrival | None:
        """The picture in flight of that id; None: it had its last frame already."""
        picture = self._pictures.get(image_id)
        if picture is None and image_id not in self._answered:
            raise _stream_fault(field, f"no picture {image_id[:MAX_ID_BYTES]!r} was begun")
        return picture

    # Answers

    async def _answer(self, picture: Arrival) -> None:
        """One picture, from its `begin` to its last frame."""
        try:
            subscription = await self._subscribe(picture)
            send = partial(self._send, picture)
            destination = destination_of(subscription.request, picture.image_id, self._regions, self._scope, send)
            await deliver(subscription, picture.image_id, destination, send, partial(self._send_last, picture))
        except ImageFault as fault:
            picture.drop()
            await self._send_error(picture, fault.with_traceback(None))  # whose frames hold what was dropped
        finally:
            picture.drop()

    async def _subscribe(self, picture: Arrival) -> Subscription:
        """Its patches, from wherever they come: by its hash alone, or from its source when that is whole."""
        if picture.fault is not None:
            raise picture.fault
        request, scope = picture.request, self._scope
        assert request is not None
        if request.source_sha256 is not None:
            key = self._shared.key(request, request.source_sha256, scope)
            if self._shared.knows(key, scope):
                await self._placed(picture)
                if (found := self._shared.find(key, scope, request, self._party)) is not None:
                    picture.subscribed(found)
                    return found
                picture.give_up_place()
            picture.expect_parts(self._room_for(request))
            await self._send(picture, source_needed_frame(picture.image_id))
        source = await picture.until_whole()
        if request.source_sha256 not in (None, source.sha256):
            raise ImageFault(
                Reason.SOURCE_HASH_MISMATCH,
                f"the bytes that came have SHA-256 {source.sha256.hex()}",
                "begin.source_sha256",
            )
        await self._placed(picture)
        key = self._shared.key(request, source.sha256, scope)
        subscription = self._shared.subscribe(key, scope, request, source, self._party)
        picture.subscribed(subscription)
        return subscription

    async def _placed(self, picture: Arrival) -> None:
        self._counters.images_queued += 1
        try:
            await picture.until_placed(self._party)
        finally:
            self._counters.images_queued -= 1

    async def _send_settings(self) -> None:
        await self._writer.write(
            settings_frame(self._settings.max_images_in_flight, self._settings.max_bytes_in_flight)
        )

    async def _send(self, picture: Arrival, frame: bytes) -> None:
        async with self._writer.turn() as write:
            if picture.fault is not None:
                raise picture.fault
            await write(frame)

    async def _send_last(self, picture: Arrival, frame: bytes) -> None:
        async with self._writer.turn() as write:
            if picture.fault is not None:
                raise picture.fault
            self._settle(picture)
            self._counters.images_served += 1
            await write(frame)

    async def _send_error(self, picture: Arrival, fault: ImageFault) -> None:
        async with self._writer.turn() as write:
            self._settle(picture)
            self._counters.images_failed[fault.reason] += 1
            await write(error_frame(picture.image_id, fault.image_error()))

    def _settle(self, picture: Arrival) -> None:
        """The picture's last frame is next. Its id and credits are free before the caller can know of it."""
        del self._pictures[picture.image_id]
        self._counters.images_in_flight -= 1
        if picture.request is not None:
            self._credited_images -= 1
            self._credited_bytes -= picture.request.total_bytes
        self._answered[picture.image_id] = None
        if len(self._answered) > _MAX_ANSWERED_IDS:
            self._answered.popitem(last=False)
        if not self._pictures:
            self._none_in_flight.set()


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
