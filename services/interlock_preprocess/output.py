"""The patches of one picture: while they are made, while they are handed on, and while the cache keeps them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interlock.vision import Plan, VisionError
from interlock_preprocess.admission import Grant
from interlock_preprocess.counters import Counters


@dataclass(frozen=True)
class Cut:
    """How a picture was decoded and how it is cut into patches."""

    plan: Plan
    width: int
    height: int
    source_format: str


@dataclass(frozen=True)
class Making:
    """How the patches of a picture were made.

    Attributes:
        begun: when the work on it began, by `perf_counter`.
        decode: seconds of decoding.
        kernel: seconds in the kernel.
        crc32c: of the whole buffer.
    """

    begun: float
    decode: float
    kernel: float
    crc32c: int


class Output:
    """The patches of one picture, as far as they are made. Used on the event loop alone.

    It has its memory as long as anyone needs it: the work, those who want the patches, the cache.

    Args:
        counters: counts it while anyone but the cache needs it.
        unwanted: called when nobody wants the patches any more and they are not all there.
    """

    def __init__(self, counters: Counters, unwanted: Callable[[], None]) -> None:
        self._counters = counters
        self._unwanted: Callable[[], None] | None = unwanted
        self._changed = asyncio.Event()
        self._buffer: NDArray[np.uint8] | None = None
        self._grant: Grant | None = None
        self._takers = 0
        self._kept = False
        self.owners: set[str] = set()
        """Scopes of the callers that sent the source, and so may find it by its hash."""
        self.cut: Cut | None = None
        self.rows_done = 0
        self.making: Making | None = None
        """Set when all patches are there."""
        self.failure: VisionError | None = None
        counters.images_held += 1

    # What who wants the patches uses

    def join(self) -> None:
        """One more wants the patches."""
        self._takers += 1
        if self._takers == 1 and self._unwanted is None:  # no work on it holds it any more
            self._counters.images_held += 1

    def leave(self) -> None:
        """One less wants them."""
        self._takers -= 1
        if self._takers:
            return
        if self._unwanted is None:
            self._let_go()
        elif self.making is None:
            self._unwanted()

    @property
    def taken(self) -> bool:
        """Whether anyone wants the patches."""
        return self._takers > 0

    async def change(self) -> None:
        """Wait until something about it has changed."""
        await self._changed.wait()

    def wake(self) -> None:
        """Let all that wait look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def size(self) -> int:
        """Bytes of all patches."""
        assert self._buffer is not None
        return self._buffer.size

    def patches(self, first: int, last: int) -> NDArray[np.uint8]:
        """The bytes from `first` to before `last`, whose rows are done. Not a copy."""
        assert self._buffer is not None
        return self._buffer[first:last]

    # What the work on it uses

    def begin(self, cut: Cut, buffer: NDArray[np.uint8]) -> None:
        """It is known how the picture is cut, and its patches go into `buffer`."""
        self.cut, self._buffer = cut, buffer
        self.wake()

    def advance(self, rows_done: int) -> None:
        """So many rows of patches are final."""
        self.rows_done = rows_done
        self.wake()

    def finish(self, making: Making) -> None:
        """All patches are there."""
        assert self.cut is not None
        self.making, self.rows_done = making, self.cut.plan.grid_height
        self.wake()

    def fail(self, error: VisionError) -> None:
        """There will be no patches."""
        # Without the frames of the error and of what caused it, which hold the picture.
        self.failure = VisionError(error.reason, error.field, str(error))
        self.wake()

    def work_ended(self, grant: Grant | None = None, *, kept: bool = False) -> None:
        """Nothing of the work is left but, if it succeeded, the patches.

        Args:
            grant: the memory of the patches; from now on theirs.
            kept: the cache keeps them.
        """
        self._grant, self._kept = grant, kept
        self._unwanted = None  # it holds the work, and with it what the work held
        if not self._takers:
            self._let_go()

    # What the cache uses

    def drop(self) -> None:
        """The cache keeps them no longer. Nobody wants them now."""
        self._kept = False
        self._free()

    def _let_go(self) -> None:
        self._counters.images_held -= 1
        if not self._kept:
            self._free()

    def _free(self) -> None:
        self._buffer = None
        if self._grant is not None:
            self._grant.give_back()
