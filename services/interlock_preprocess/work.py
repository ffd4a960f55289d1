"""The work on pictures: a bounded pool of threads, and one picture's life in it.

A picture waits for its turn, is measured (its header is read), admitted, decoded, and cut into patches. This life
belongs to no call: a call that ends only leaves the patches, and when nobody wants them any more the work ends as
early as may be. Then a queued picture is skipped, a decode runs to its end and keeps its thread, a kernel stops at its
next strip, and only when the thread has returned is the memory counted as free.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import TypeVar

import google_crc32c
import numpy as np

from interlock.reasons import Reason
from interlock.serving.config import SettingsError
from interlock.vision import GrowingPicture, Picture, VisionError, kernels
from interlock_preprocess import memory
from interlock_preprocess.admission import Grant, Source
from interlock_preprocess.counters import Counters
from interlock_preprocess.output import Cut, Making, Output
from interlock_preprocess.pictures import growing_pixels, pixels, work_bytes
from interlock_preprocess.requests import PictureRequest
from interlock_preprocess.settings import MIB, PreprocessSettings
from interlock_preprocess.turns import Turns

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

Keep = Callable[[Output, int], Grant | None]
"""Offers an output of so many bytes to the cache: its memory there, or None if it is not kept."""

Over = Callable[["Work"], None]
"""Says that nobody can join the work any more."""


class _Stopped(Exception):  # noqa: N818 - a way out of a thread, not an error
    """Ends a thread's work on a picture that nobody wants any more."""


class WorkPool:
    """Threads that decode and run the kernel, and the lines before them.

    Args:
        settings: number of threads, kernel, bounds of the lines.
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
        self.turns = Turns(settings.worker_threads, settings.max_queued_images, settings.max_queue_seconds)
        self._thread_count = settings.worker_threads
        self._idle_seconds = settings.memory_idle_seconds
        self._threads = ThreadPoolExecutor(settings.worker_threads, thread_name_prefix="picture")
        self._lives: set[asyncio.Task[None]] = set()
        self._idle_timer: asyncio.TimerHandle | None = None

    def start(self, request: PictureRequest, source: Source, *, over: Over, keep: Keep) -> "Work":
        """Begin the life of a picture that has arrived whole. It waits until its turn stands in a line.

        Args:
            request: what to make of it.
            source: its bytes; the work now owns them.
            over: called with the work when nobody can join it any more; it may be called twice.
            keep: called with the output when it is whole.
        """
        work = Work(self, request, source, over, keep)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        life = asyncio.create_task(work.live(), name="picture")
        self._lives.add(life)
        life.add_done_callback(self._life_ended)
        return work

    def _life_ended(self, life: asyncio.Task[None]) -> None:
        self._lives.discard(life)
        if not self._lives:
            self._rest_soon()

    def _rest_soon(self) -> None:
        self._idle_timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._rest)

    def _rest(self) -> None:
        if self.counters.images_held:  # patches are still being handed on; their memory is to be given back too
            self._rest_soon()
        else:
            self._threads.submit(memory.return_freed_memory)

    @property
    def threads_for_one(self) -> int:
        """Threads that one picture may use: all where no other needs them."""
        return self._thread_count if self.turns.idle else 1

    async def in_thread(self, function: Callable[[], _T]) -> _T:
        """Run `function` in a thread of the pool. The caller's turn has come."""
        self.counters.thread_begins()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function)
        finally:
            self.counters.thread_returned()

    async def close(self) -> None:
        """Wait until every thread has returned. Start no work after it."""
        while self._lives:
            await asyncio.wait(self._lives)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._threads.shutdown()


class Work:
    """One picture's life. Made by `WorkPool.start`."""

    def __init__(self, pool: WorkPool, request: PictureRequest, source: Source, over: Over, keep: Keep) -> None:
        self._pool = pool
        self._request = request
        self._source = source
        self._over = over
        self._keep = keep
        self._loop = asyncio.get_running_loop()
        self._wanted = True
        self._interruptible: asyncio.Task[None] | None = None
        self._grant: Grant | None = None
        self.turn = pool.turns.turn()
        self.output = Output(pool.counters, unwanted=self._stop)

    def _stop(self) -> None:
        """Nobody wants the patches."""
        self._wanted = False
        self._over(self)
        if self._interruptible is not None:
            self._interruptible.cancel()

    async def live(self) -> None:
        """From the queue to the moment when nothing is left but the patches. Only the pool runs it."""
        kept = False
        try:
            try:
                await self._begin()
                making = await self._make(self._source.whole())
            finally:
                self._pool.turns.end(self.turn)
            self.output.finish(making)
            kept = self._hand_over()
        except _Stopped:
            pass
        except VisionError as error:
            self.output.fail(error)
        except Exception:
            _log.exception("a picture failed in a way that no picture should")
            self.output.fail(
                VisionError(Reason.INTERNAL, "", "the server failed at this picture; its log has the cause")
            )
        finally:
            self._over(self)
            self._source.drop()
            if self.output.making is None and self._grant is not None:
                self._grant.give_back()
            self.output.work_ended(self._grant, kept=kept)

    async def _begin(self) -> None:
        """Wait for a thread."""
        counters = self._pool.counters
        counters.images_queued += 1
        try:
            with self._waiting():
                await self.turn.come()
        finally:
            counters.images_queued -= 1

    async def _make(self, data: bytes) -> Making:
        """The thread's work: at one go where the memory that the picture takes is free, as it mostly is."""
        pool, budget = self._pool, self._pool.counters.work

        def admit_and_make() -> Making | int:
            size = work_bytes(self._request, data)
            if size > budget.limit:
                raise VisionError(
                    Reason.SOURCE_TOO_LARGE,
                    "encoded",
                    f"the picture may take {size} bytes of memory; this server has {budget.limit} for all",
                )
            self._grant = budget.take_now(size)
            return size if self._grant is None else self._decode_and_cut(data)

        made = await pool.in_thread(admit_and_make)
        if isinstance(made, Making):
            return made
        with self._waiting():
            self._grant = await budget.take(made)
        return await pool.in_thread(lambda: self._decode_and_cut(data))

    def _hand_over(self) -> bool:
        """Only the patches need memory from now on. Whether the cache keeps them, with memory of its own."""
        assert self._grant is not None
        if in_cache := self._keep(self.output, self.output.size):
            self._grant.give_back()
            self._grant = in_cache
            return True
        self._grant.shrink(self.output.size)
        return False

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

    def _decode_and_cut(self, data: bytes) -> Making:
        if not self._wanted:
            raise _Stopped
        begun = perf_counter()
        threads = self._pool.threads_for_one
        growing = growing_pixels(self._request, data) if threads > 1 else None
        if growing is None:
            return self._cut(pixels(self._request, data), threads, begun)
        with growing:
            return self._cut(growing, 1, begun)  # which waits for rows most of its time

    def _cut(self, picture: Picture | GrowingPicture, threads: int, begun: float) -> Making:
        request, output = self._request, self.output
        decode = perf_counter() - begun if request.raw_size is None else 0.0
        profile = request.profile
        plan = request.plan_for(picture.width, picture.height)
        patches = np.empty((plan.grid_height, plan.grid_width, 3, profile.patch_size, profile.patch_size), np.uint16)
        buffer = patches.reshape(-1).view(np.uint8)
        row_bytes = plan.grid_width * request.patch_bytes
        cut = Cut(plan, picture.width, picture.height, picture.format)
        self._loop.call_soon_threadsafe(output.begin, cut, buffer)
        crc32c, summed, told = 0, 0, 0

        def checkpoint(rows_done: int) -> None:
            """Called after each strip: its bytes are summed while they are still in the processor's cache."""
            nonlocal crc32c, summed, told
            if not self._wanted:
                raise _Stopped
            done = rows_done * row_bytes
            crc32c = google_crc32c.extend(crc32c, buffer[summed:done])
            summed = done
            if done // MIB > told:  # waking the event loop is worth it only for a piece that can be sent
                told = done // MIB
                self._loop.call_soon_threadsafe(output.advance, rows_done)

        def rows_ready(rows: int) -> None:
            """Called before rows are read: waits for their decoding, which is what of its time is not the kernel's."""
            nonlocal decode
            if isinstance(picture, GrowingPicture):
                before = perf_counter()
                picture.wait_for(rows)
                decode += perf_counter() - before

        checkpoint(0)
        self._pool.kernel.resize_patchify(
            picture.rgb,
            plan,
            profile,
            patches,
            threads=threads,
            checkpoint=checkpoint,
            rows_ready=rows_ready if isinstance(picture, GrowingPicture) else None,
        )
        seconds = perf_counter() - begun
        self._pool.turns.note_seconds(seconds)
        return Making(begun, decode=decode, kernel=seconds - decode, crc32c=crc32c)
