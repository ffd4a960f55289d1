"""What one caller has of a picture's patches, however many others want the same."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from interlock_preprocess.faults import ImageFault, out_of_time
from interlock_preprocess.output import Cut, Output
from interlock_preprocess.requests import PictureRequest


@dataclass(frozen=True)
class Summary:
    """What the trailer says. Times in seconds."""

    crc32c: int
    queue: float
    decode: float
    kernel: float
    from_cache: bool


class Subscription:
    """One caller's wish for the patches of a picture. `let_go` must be called in the end.

    Args:
        output: the patches, in the making or made.
        request: what this caller asked; names the fields in its faults.
        from_cache: the patches are all there already.
    """

    def __init__(self, output: Output, request: PictureRequest, *, from_cache: bool) -> None:
        self.request = request
        self._output = output
        self._from_cache = from_cache
        self._arrived = perf_counter()
        self._fault: ImageFault | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._let_go = False
        output.join()

    async def until_cut(self) -> Cut:
        """How the picture is cut, once it is decoded.

        Raises:
            ImageFault: the picture failed, or was stopped for this caller; so with all that wait.
        """
        await self._until(lambda: self._output.cut is not None)
        assert self._output.cut is not None
        return self._output.cut

    async def patches(self, first: int, last: int) -> NDArray[np.uint8]:
        """The bytes of the patches `first` to before `last`, once their rows are done. Not a copy."""
        cut = await self.until_cut()
        rows = -(-last // cut.plan.grid_width)
        await self._until(lambda: self._output.rows_done >= rows)
        size = self.request.patch_bytes
        return self._output.patches(first * size, last * size)

    async def until_done(self) -> Summary:
        """How it was made, once all patches are there."""
        await self._until(lambda: self._output.making is not None)
        making = self._output.making
        assert making is not None
        if self._from_cache:
            return Summary(making.crc32c, 0, 0, 0, from_cache=True)
        queue = max(0.0, making.begun - self._arrived)
        return Summary(making.crc32c, queue, making.decode, making.kernel, from_cache=False)

    def fail(self, fault: ImageFault) -> None:
        """Let it fail for this caller. The others get their patches."""
        if self._fault is None:
            self._fault = fault
            self._output.wake()

    def fail_at(self, deadline: float) -> None:
        """Let it fail if it is not answered by then, by the clock of the event loop."""
        seconds = deadline - asyncio.get_running_loop().time()
        self.after(seconds, lambda: self.fail(out_of_time()))

    def own(self, scope: str) -> None:
        """This caller, of that scope, has the source: from now on its hash is enough."""
        self._output.owners.add(scope)

    def after(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function after that time, unless the patches were let go before."""
        self._timers.append(asyncio.get_running_loop().call_later(seconds, function))

    def let_go(self) -> None:
        """The patches are handed on, or wanted no more. Doing it twice is harmless."""
        if not self._let_go:
            self._let_go = True
            for timer in self._timers:
                timer.cancel()
            self._output.leave()

    async def _until(self, reached: Callable[[], bool]) -> None:
        while True:
            if self._fault is not None:
                raise self._fault
            if (failure := self._output.failure) is not None:
                raise self.request.fault_of(failure)  # the fields at fault are called as in this caller's request
            if reached():
                return
            await self._output.change()
