"""Handing frames to the transport, one at a time, and no longer than the reader may take."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from interlock.reasons import Reason
from interlock.serving import Refusal

Write = Callable[[bytes], Awaitable[None]]
"""Hands one frame, the bytes of a `PatchFrame`, to the transport, when the reader has room for it."""


class FrameWriter:
    """The answers of one call.

    A write that the reader's flow control blocks for the stall timeout ends the call. What the call holds is freed at
    once; only that frame and the status stay with the transport until the reader reads on or goes away.
    """

    def __init__(self, write: Write, stall_timeout: float) -> None:
        self._write = write
        self._stall_timeout = stall_timeout
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Write]:
        """Wait for the turn to write; first come, first served. Gives what writes one frame.

        Raises:
            Refusal: STALLED, from writing.
        """
        async with self._lock:
            yield self._write_in_time

    async def write(self, frame: bytes) -> None:
        """Write one frame in its turn.

        Raises:
            Refusal: STALLED.
        """
        async with self.turn() as write:
            await write(frame)

    async def _write_in_time(self, frame: bytes) -> None:
        try:
            async with asyncio.timeout(self._stall_timeout):
                await self._write(frame)
        except TimeoutError:
            raise Refusal(
                Reason.STALLED,
                f"a frame could not be sent for {self._stall_timeout:g} s, for its reader did not read; "
                "read while you write, or read faster",
            ) from None
