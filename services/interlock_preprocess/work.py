"""The work on pictures: a bounded pool of threads, and one picture's life in it.

A picture is queued, measured (its header is read), admitted, decoded, cut into patches, and held until its patches are
handed on. This life belongs to no call: a call that ends only says that it wants the patches no more. Then a queued
picture is skipped, a decode runs to its end and keeps its thread, a kernel stops at its next strip, and only when the
thread has returned is the memory counted as free.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from interlock.reasons import Reason
from interlock.vision import Plan, VisionError, kernels
from interlock_preprocess import memory
from interlock_preprocess.admission import Source
from interlock_preprocess.counters import Counters
from interlock_preprocess.faults import ImageFault
from interlock_preprocess.pictures import PictureRequest, cost_of, decode_source, plan_of
from interlock_preprocess.settings import PreprocessSettings

_log = logging.getLogger(__name__)

_IDLE_SECONDS = 2.0

_T = TypeVar("_T")


class _Stopped(Exception):
    """Ends a thread's work on a picture that nobody wants any more."""


@dataclass(frozen=True)
class Cut:
    """How a picture was decoded and how it is cut into patches."""

    plan: Plan
    width: int
    height: int
    source_format: str


@dataclass(frozen=True)
class Timings:
    """Seconds."""

    queue: float
    decode: float
    kernel: float


class WorkPool:
    """Threads that decode and run the kernel, and the queue before them.

    Args:
        settings: number of threads, kernel.
        counters: where the pool counts; also has the budget of the work.
    """

    def __init__(self, settings: PreprocessSettings, counters: Counters) -> None:
        self.counters = counters
        self.kernel = kernels.get(settings.kernel)
        self.slots = asyncio.Semaphore(settings.worker_threads)
        self._threads = ThreadPoolExecutor(settings.worker_threads, thread_name_prefix="picture")
        self._lives: set[asyncio.Task[None]] = set()
        self._idle_timer: asyncio.TimerHandle | None = None

    def start(self, request: PictureRequest, source: Source, window: asyncio.Semaphore) -> "Work":
        """Queue a picture that has arrived whole. The work now owns `source`.

        Args:
            request: what to make of it.
            source: its bytes.
            window: bounds how many pictures of one stream may have left the queue.
        """
        work = Work(self, request, source, window)
        self.counters.images_held += 1
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        life = asyncio.create_task(work.live(), name="picture")
        self._lives.add(life)
        life.add_done_callback(self._life_ended)
        return work

    def _life_ended(self, life: asyncio.Task[None]) -> None:
        self._lives.discard(life)
        self.counters.images_held -= 1
        if not self._lives:
            self._idle_timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._rest)

    def _rest(self) -> None:
        self._threads.submit(memory.return_freed_memory)

    async def in_thread(self, function: Callable[[], _T]) -> _T:
        """Run `function` in a thread of the pool. The caller holds a slot."""
        self.counters.thread_begins()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function)
        finally:
            self.counters.thread_returned()

    async def close(self) -> None:
        """Wait until every picture was let go and every thread has returned. Start no work after it."""
        while self._lives:
            await asyncio.wait(self._lives)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._threads.shutdown()


class Work:
    """One picture's life. Made by `WorkPool.start`; `let_go` must be called in the end."""

    def __init__(self, pool: WorkPool, request: PictureRequest, source: Source, window: asyncio.Semaphore) -> None:
        self._pool = pool
        self._source = source
        self._window = window
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._wanted = True
        self._let_go = asyncio.Event()
        self._waiter: asyncio.Task[None] | None = None
        self._patches: NDArray[np.uint16] | None = None
        self._rows_done = 0
        self.request = request
        self.fault: ImageFault | None = None
        self.cut: Cut | None = None
        self.timings: Timings | None = None

    # What the call uses

    async def until_cut(self) -> Cut:
        """How the picture is cut, once it is decoded.

        Raises:
            ImageFault: the picture failed or was stopped; so with all that wait.
        """
        await self._until(lambda: self.cut is not None)
        assert self.cut is not None
        return self.cut

    async def until_done(self) -> Timings:
        """The timings, once all patches are there and the thread has returned."""
        await self._until(lambda: self.timings is not None)
        assert self.timings is not None
        return self.timings

    async def patches(self, first: int, last: int) -> bytes:
        """The bytes of the patches `first` to before `last`, once their rows are done."""
        cut = await self.until_cut()
        rows = -(-last // cut.plan.grid_width)
        await self._until(lambda: self._rows_done >= rows)
        assert self._patches is not None
        return self._patches.reshape(-1, self._patches[0, 0].size)[first:last].tobytes()

    def stop(self, fault: ImageFault) -> None:
        """Let the picture fail with `fault`, unless it has failed already, and stop work on it as soon as may be."""
        if self.fault is None:
            self.fault = fault
            self._wanted = False
            self._changed.set()
            if self._waiter is not None:
                self._waiter.cancel()

    def let_go(self) -> None:
        """The patches are handed on, or wanted no more: their memory may go. Doing it twice is harmless."""
        if self.timings is None:
            self.stop(ImageFault(Reason.CANCELLED, "the picture is no longer wanted"))
        self._patches = None
        self._let_go.set()

    async def _until(self, reached: Callable[[], bool]) -> None:
        while True:
            if self.fault is not None:
                raise self.fault
            if reached():
                return
            self._changed.clear()
            await self._changed.wait()

    # The life itself

    async def live(self) -> None:
        """From the queue to the moment when the last of the picture's memory is free. Only the pool runs it."""
        async with AsyncExitStack() as held:
            try:
                await self._work(held)
            except ImageFault as fault:
                self.stop(fault)
            except VisionError as error:
                self.stop(ImageFault.of(error, self.request.prefix))
            except _Stopped:
                pass
            except Exception:
                _log.exception("a picture failed in a way that no picture should")
                self.stop(ImageFault(Reason.INTERNAL, "the server failed at this picture; its log has the cause"))
            finally:
                self._source.drop()
            await self._let_go.wait()

    async def _work(self, held: AsyncExitStack) -> None:
        arrived = perf_counter()
        counters = self._pool.counters
        counters.images_queued += 1
        try:
            await self._wait_for(held.enter_async_context(self._window))
            await self._wait_for(self._pool.slots.acquire())
        finally:
            counters.images_queued -= 1
        try:
            data = self._source.whole()
            cost = await self._pool.in_thread(lambda: cost_of(self.request, data))
            if cost.total_bytes > counters.work.limit:
                raise ImageFault(
                    Reason.SOURCE_TOO_LARGE,
                    f"the picture needs {cost.total_bytes} bytes of memory; this server has {counters.work.limit}",
                )
            grant = await self._wait_for(counters.work.take(cost.total_bytes))
            held.callback(grant.give_back)
            begun = perf_counter()
            decoded, done = await self._pool.in_thread(lambda: self._decode_and_cut(data))
            grant.shrink(cost.patch_bytes)
            self.timings = Timings(queue=begun - arrived, decode=decoded - begun, kernel=done - decoded)
            self._changed.set()
        finally:
            self._pool.slots.release()

    async def _wait_for(self, waiting: "asyncio._CoroutineLike[_T]") -> _T:
        """Wait for `waiting`, unless the picture is stopped before."""
        raise NotImplementedError
