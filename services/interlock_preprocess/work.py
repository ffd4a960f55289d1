"""The work on pictures: a bounded pool of threads, and one picture's life in it.

A picture is queued, measured (its header is read), admitted, decoded, cut into patches, and held until its patches are
handed on. This life belongs to no call: a call that ends only says that it wants the patches no more. Then a queued
picture is skipped, a decode runs to its end and keeps its thread, a kernel stops at its next strip, and only when the
thread has returned is the memory counted as free.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from interlock.reasons import Reason
from interlock.serving.config import SettingsError
from interlock.vision import Plan, VisionError, kernels
from interlock_preprocess import memory
from interlock_preprocess.admission import Source
from interlock_preprocess.counters import Counters
from interlock_preprocess.faults import ImageFault
from interlock_preprocess.pictures import pixels, work_bytes
from interlock_preprocess.requests import PictureRequest
from interlock_preprocess.settings import PreprocessSettings

_log = logging.getLogger(__name__)

_IDLE_SECONDS = 1.0  # before freed memory is given back

_T = TypeVar("_T")


class _Stopped(Exception):  # noqa: N818 - a way out of a thread, not an error
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

    Raises:
        SettingsError: no such kernel here.
    """

    def __init__(self, settings: PreprocessSettings, counters: Counters) -> None:
        self.counters = counters
        try:
            self.kernel = kernels.get(settings.kernel)
        except ValueError as error:
            raise SettingsError(str(error)) from None
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
        self._interruptible: asyncio.Task[None] | None = None
        self._patches: NDArray[np.uint16] | None = None
        self._rows_done = 0
        self._arrived = perf_counter()
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

    async def patches(self, first: int, last: int) -> NDArray[np.uint8]:
        """The bytes of the patches `first` to before `last`, once their rows are done. Not a copy."""
        cut = await self.until_cut()
        rows = -(-last // cut.plan.grid_width)
        await self._until(lambda: self._rows_done >= rows)
        assert self._patches is not None
        patch_bytes = self.request.patch_bytes
        return self._patches.reshape(-1).view(np.uint8)[first * patch_bytes : last * patch_bytes]

    def stop(self, fault: ImageFault) -> None:
        """Let the picture fail with `fault`, unless it has failed already, and stop work on it as soon as may be."""
        if self.fault is None:
            self.fault = fault.with_traceback(None)  # whose frames would hold the picture
            self._wanted = False
            self._changed.set()
            if self._interruptible is not None:
                self._interruptible.cancel()

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
                self.stop(self.request.fault_of(error))
            except _Stopped:
                pass
            except Exception:
                _log.exception("a picture failed in a way that no picture should")
                self.stop(ImageFault(Reason.INTERNAL, "the server failed at this picture; its log has the cause"))
            finally:
                self._source.drop()
            await self._let_go.wait()

    async def _work(self, held: AsyncExitStack) -> None:
        pool, counters = self._pool, self._pool.counters
        counters.images_queued += 1
        try:
            with self._waiting():
                await held.enter_async_context(self._window)
                await pool.slots.acquire()
        finally:
            counters.images_queued -= 1
        try:
            data = self._source.whole()
            size = await pool.in_thread(lambda: work_bytes(self.request, data))
            if size > counters.work.limit:
                raise ImageFault(
                    Reason.SOURCE_TOO_LARGE,
                    f"the picture may take {size} bytes of memory; this server has {counters.work.limit} for all",
                    self.request.source_field,
                )
            with self._waiting():
                grant = await counters.work.take(size)
            held.callback(grant.give_back)
            self.timings = await pool.in_thread(lambda: self._decode_and_cut(data))
            self._changed.set()
            if self.cut is not None:
                grant.shrink(self.cut.plan.canvas_width * self.cut.plan.canvas_height * 6)
        finally:
            pool.slots.release()

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """A wait that `stop` ends. Elsewhere in its life a picture is never interrupted."""
        if not self._wanted:
            raise _Stopped
        self._interruptible = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if self._wanted:
                raise  # not ours: the event loop is being closed
            raise _Stopped from None
        finally:
            self._interruptible = None

    # In a thread

    def _decode_and_cut(self, data: bytes) -> Timings:
        begun = perf_counter()
        picture = pixels(self.request, data)
        decoded = perf_counter() if self.request.raw_size is None else begun
        profile = self.request.profile
        plan = self.request.plan_for(picture.width, picture.height)
        patches = np.empty((plan.grid_height, plan.grid_width, 3, profile.patch_size, profile.patch_size), np.uint16)
        cut = Cut(plan, picture.width, picture.height, picture.format)
        self._loop.call_soon_threadsafe(self._begin_cutting, cut, patches)
        self._checkpoint(0)
        self._pool.kernel.resize_patchify(picture.rgb, plan, profile, patches, checkpoint=self._checkpoint)
        return Timings(queue=begun - self._arrived, decode=decoded - begun, kernel=perf_counter() - decoded)

    def _checkpoint(self, rows_done: int) -> None:
        if not self._wanted:
            raise _Stopped
        self._loop.call_soon_threadsafe(self._advance, rows_done)

    # Called from that thread, in the event loop

    def _begin_cutting(self, cut: Cut, patches: NDArray[np.uint16]) -> None:
        if self._wanted:
            self.cut, self._patches = cut, patches
            self._changed.set()

    def _advance(self, rows_done: int) -> None:
        self._rows_done = rows_done
        self._changed.set()
