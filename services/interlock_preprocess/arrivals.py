"""One picture of a stream, from its `begin` to its last frame: what has come of it, and what it holds."""

import asyncio

from interlock.preprocess.v1.preprocess_pb2 import ImageData
from interlock.reasons import Reason
from interlock_preprocess.admission import Source
from interlock_preprocess.faults import ImageFault, out_of_time
from interlock_preprocess.requests import PictureRequest
from interlock_preprocess.settings import MAX_PART_BYTES
from interlock_preprocess.subscription import Subscription
from interlock_preprocess.turns import Party, Place


class Arrival:
    """A picture in flight. Its steps are taken in at once; its own task waits for them and answers.

    Args:
        image_id: its id on the stream.
        stall_timeout: seconds without a further part after which it fails.
    """

    def __init__(self, image_id: str, stall_timeout: float) -> None:
        self.image_id = image_id
        self.request: PictureRequest | None = None
        """Set when it got credits; its bytes count against them."""
        self.fault: ImageFault | None = None
        self.ended = False
        """Whether all its parts and its `end` came."""
        self._stall_timeout = stall_timeout
        self._clock = asyncio.get_running_loop().time
        self._changed = asyncio.Event()
        self._source: Source | None = None
        self._owns_source = False
        self._stream_ended = False
        self._parts_deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._place: Place | None = None
        self._subscription: Subscription | None = None

    # Its steps

    def expect_parts(self, source: Source) -> None:
        """From now on parts may come, into `source`."""
        self._source, self._owns_source = source, True
        self._extend_deadline()
        if self._stream_ended:
            self.fail(self._too_short("end"))

    def take_part(self, part: ImageData) -> None:
        """Take in a part, or fail."""
        if self.fault is not None:
            return  # the rest of a picture that failed
        source, data = self._source, part.data
        if source is None:
            self.fail(_not_asked("data"))
        elif len(data) > MAX_PART_BYTES:
            self.fail(
                ImageFault(Reason.INVALID_FIELD, f"a part has {len(data)} bytes; at most {MAX_PART_BYTES}", "data.data")
            )
        elif part.offset != source.received:
            self.fail(
                ImageFault(
                    Reason.SOURCE_LENGTH_MISMATCH,
                    f"a part begins at {part.offset}; expected {source.received}, where the one before ended",
                    "data.offset",
                )
            )
        elif source.received + len(data) > source.total_bytes or self.ended:
            self.fail(
                ImageFault(
                    Reason.SOURCE_LENGTH_MISMATCH,
                    f"the part at {part.offset} ends at {part.offset + len(data)}, after `end` or over the "
                    f"{source.total_bytes} bytes that begin.total_bytes told",
                    "data.data",
                )
            )
        elif data:
            source.append(data)
            self._extend_deadline()

    def take_end(self) -> None:
        """All parts came, or it fails."""
        if self.fault is not None:
            return
        source = self._source
        if source is None:
            self.fail(_not_asked("end"))
        elif self.ended:
            self.fail(ImageFault(Reason.INVALID_FIELD, "the picture was ended twice", "end.image_id"))
        elif source.received < source.total_bytes:
            self.fail(self._too_short("begin.total_bytes"))
        else:
            self.ended = True
            self._changed.set()

    def take_end_of_stream(self) -> None:
        """No step comes any more: it fails if one is missing, or turns out to be."""
        self._stream_ended = True
        if self._source is not None and not self.ended:
            self.fail(self._too_short("end"))

    def fail(self, fault: ImageFault) -> None:
        """Let it fail, unless it has already. It stops costing now; its task sends the error frame in its turn."""
        if self.fault is None:
            self.fault = fault
            self._changed.set()
            if self._subscription is not None:
                self._subscription.fail(fault)
            self.drop()

    def fail_at(self, deadline: float) -> None:
        """Let it fail if it is not answered by then, by the clock of the event loop."""
        self._timer = asyncio.get_running_loop().call_at(deadline, lambda: self.fail(out_of_time()))

    def drop(self) -> None:
        """Let go of all that it holds. Doing it twice is harmless."""
        if self._timer is not None:
            self._timer.cancel()
        if self._source is not None and self._owns_source:
            self._source.drop()
        if self._subscription is not None:
            self._subscription.let_go()
        if self._place is not None:
            self._place.release()

    # What its task waits for

    async def until_whole(self) -> Source:
        """Its source, when all parts came.

        Raises:
            ImageFault: it failed, or parts stopped coming.
        """
        while True:
            if self.fault is not None:
                raise self.fault
            if self.ended:
                assert self._source is not None
                return self._source
            if self._clock() >= self._parts_deadline:
                raise ImageFault(Reason.STALLED, f"no part of the picture came for {self._stall_timeout:g} s", "data")
            self._changed.clear()
            try:
                async with asyncio.timeout_at(self._parts_deadline):
                    await self._changed.wait()
            except TimeoutError:
                pass  # unless parts have moved the deadline

    async def until_placed(self, party: Party) -> None:
        """Wait for a place among the pictures of its stream that may be at work. It holds it until it is dropped.

        Raises:
            ImageFault: it failed.
        """
        if self.fault is not None:
            raise self.fault
        self._place = party.place()
        try:
            await self._place.taken()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.fault is None or (task is not None and task.cancelling()):
                raise
        if self.fault is not None:
            raise self.fault

    def give_up_place(self) -> None:
        """Let another picture have its place meanwhile."""
        assert self._place is not None
        self._place.release()

    def subscribed(self, subscription: Subscription) -> None:
        """Its patches are on their way; it lets them go when it is dropped. Its source is not its own any more."""
        self._subscription, self._owns_source = subscription, False

    def _extend_deadline(self) -> None:
        self._parts_deadline = self._clock() + self._stall_timeout

    def _too_short(self, field: str) -> ImageFault:
        assert self._source is not None
        received, total = self._source.received, self._source.total_bytes
        return ImageFault(
            Reason.SOURCE_LENGTH_MISMATCH,
            f"the picture has {total} bytes, and {received} came before its end or the end of the stream",
            field,
        )


def _not_asked(field: str) -> ImageFault:
    return ImageFault(
        Reason.INVALID_FIELD, "a picture that is begun by its hash has no parts before `source_needed`", field
    )
