"""The two faces of a stream of pictures: they move what `Conversation` decides, and nothing else.

Frames are read as they come, whatever the caller does meanwhile: a reader that stalls loses its call. What waits for
the caller is bounded by the conversation's window.
"""

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

import grpc
import grpc.aio

from interlock.client._internal.conversation import Conversation
from interlock.client._internal.frames import Frame, Step
from interlock.client._internal.ready_pictures import Item, ReadyPicture, UnreadablePicture
from interlock.client._internal.retry import Attempts, RetryPolicy
from interlock.client._internal.statuses import error_of, raise_if_closed, sending_error_of
from interlock.client.pictures import ImageResult, Picture, Source

_FAREWELL_SECONDS = 1.0
"""How long a server may take to end a stream on which everything is answered, before the call is cancelled."""

if TYPE_CHECKING:
    # grpc's own classes take no type arguments when the program runs.
    _SyncMethod: TypeAlias = grpc.StreamStreamMultiCallable[Step, Frame]
    _AsyncMethod: TypeAlias = grpc.aio.StreamStreamMultiCallable[Step, Frame]
    _AsyncCall: TypeAlias = grpc.aio.StreamStreamCall[Step, Frame]


class PatchStream:
    """Results of many pictures, as they end. Iterate it once; leave the loop at any time.

    Sources are drawn in the thread that iterates, between results. Made by `PreprocessClient.preprocess_many`.
    """

    def __init__(
        self,
        method: "_SyncMethod",
        address: str,
        sources: Iterable[Item],
        ready: Callable[[Source | Picture], ReadyPicture | UnreadablePicture],
        share_memory: Callable[[], None],
        conversation: Conversation,
        policy: RetryPolicy,
        timeout: float | None,
    ) -> None:
        self._method = method
        self._address = address
        self._sources: Iterator[Item] = iter(sources)
        self._ready = ready
        self._share_memory = share_memory
        self._conversation = conversation
        self._attempts = Attempts(policy, timeout)
        # Entered as the lock itself, never as the condition: a signal that raises (Ctrl-C) inside the Python code of
        # `Condition.__enter__` would leave it locked for good.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._driver: threading.Thread | None = None
        self._call: grpc.Call | None = None
        self._failure: BaseException | None = None
        self._iterated = False
        self._closed = False

    def cancel(self, index: int) -> None:
        """Cancel the picture at this position among the sources; its result is then an error of reason CANCELLED.

        Nothing happens if it was not drawn yet or its result is out already. May be called from any thread.
        """
        with self._lock:
            self._conversation.cancel(index)
            self._changed.notify_all()

    def close(self) -> None:
        """End the stream: cancels what is in flight, and ends the threads. Leaving the loop does the same."""
        if sys.is_finalizing():
            return  # the driver is gone, and with it the only key to the locks that it held
        with self._lock:
            self._closed = True
            self._changed.notify_all()
            call, driver = self._call, self._driver
        if call is not None:
            call.cancel()
        if driver is not None:
            driver.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Generator[ImageResult, None, None]:
        if self._iterated:
            raise RuntimeError("a stream of pictures can be iterated only once")
        self._iterated = True
        return self._results()

    def _results(self) -> Generator[ImageResult, None, None]:
        try:
            while True:
                result = self._next_result()
                if result is None:
                    break
                yield result
            if self._driver is not None:
                self._driver.join(_FAREWELL_SECONDS)
        finally:
            self.close()

    def _next_result(self) -> ImageResult | None:
        """Waits for a result and sees to it that sources are drawn meanwhile. None: all are out."""
        while True:
            with self._lock:
                while True:
                    result = self._conversation.take_result()
                    if result is not None:
                        self._changed.notify_all()
                        return result
                    if self._failure is not None:
                        raise self._failure
                    if self._closed or self._conversation.all_answered:
                        return None
                    if self._conversation.wants_source:
                        break
                    self._changed.wait()
            self._draw_source()

    def _draw_source(self) -> None:
        # Outside the lock: a source may take its time, and frames have to be read meanwhile.
        try:
            item = next(self._sources)
        except StopIteration:
            with self._lock:
                self._conversation.end_sources()
                self._changed.notify_all()
            return
        picture = item if isinstance(item, ReadyPicture) else self._ready(item)
        self._share_memory()
        with self._lock:
            self._conversation.add(picture)
            self._changed.notify_all()
            if self._driver is None and self._conversation.has_work and not self._closed:
                self._driver = threading.Thread(target=self._drive, name="interlock-pictures", daemon=True)
                self._driver.start()

    # In the driver's thread

    def _drive(self) -> None:
        try:
            while not self._talk():
                pass
        except BaseException as error:  # handed to the thread that iterates
            with self._lock:
                self._failure = error
        finally:
            with self._lock:
                self._changed.notify_all()

    def _talk(self) -> bool:
        """One call, from its opening to its end. True: no other has to follow."""
        with self._lock:
            if self._closed:
                return True
            self._conversation.stream_opened()
            over = threading.Event()
            self._call = call = self._method(self._steps(over), timeout=self._attempts.time_left())
        try:
            for frame in call:
                with self._lock:
                    if self._conversation.receive(frame):
                        self._attempts.progressed()
                    self._changed.notify_all()
            with self._lock:
                self._conversation.stream_ended()
            return True
        except grpc.RpcError as error:
            if self._closed:
                return True
            pause = self._attempts.pause_after(error_of(error, self._address))
        finally:
            call.cancel()
            with self._lock:
                self._conversation.stream_over()
                over.set()
                self._changed.notify_all()
        with self._lock:
            self._conversation.stream_lost()
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._closed, pause)

    def _steps(self, over: threading.Event) -> Iterator[Step]:
        """What is to be written, for the thread of the transport that writes it."""
        while True:
            with self._lock:
                while True:
                    if self._closed or over.is_set():
                        return
                    step = self._conversation.next_step()
                    if step is not None:
                        break
                    if self._conversation.all_answered:
                        return
                    self._changed.wait(self._conversation.seconds_to_retry)
            yield step


class AsyncPatchStream:
    """Results of many pictures, as they end. Iterate it once; leave the loop at any time.

    Made by `AsyncPreprocessClient.preprocess_many`.
    """

    def __init__(
        self,
        method: "_AsyncMethod",
        address: str,
        sources: Iterable[Item] | AsyncIterable[Item],
        ready: Callable[[Source | Picture], ReadyPicture | UnreadablePicture],
        share_memory: Callable[[], Awaitable[None]],
        conversation: Conversation,
        policy: RetryPolicy,
        timeout: float | None,
    ) -> None:
        self._method = method
        self._address = address
        self._sources = sources
        self._ready = ready
        self._share_memory = share_memory
        self._conversation = conversation
        self._attempts = Attempts(policy, timeout)
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._iterated = False
        self._closed = False

    def cancel(self, index: int) -> None:
        """Cancel the picture at this position among the sources; its result is then an error of reason CANCELLED.

        Nothing happens if it was not drawn yet or its result is out already.
        """
        self._conversation.cancel(index)
        self._notify()

    async def aclose(self) -> None:
        """End the stream and cancel what is in flight. Leaving the loop does the same."""
        self._closed = True
        self._notify()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncGenerator[ImageResult, None]:
        if self._iterated:
            raise RuntimeError("a stream of pictures can be iterated only once")
        self._iterated = True
        # A generator, which the event loop closes when a loop over it is left: the tasks do not refer to it.
        return self._results()

    async def _results(self) -> AsyncGenerator[ImageResult, None]:
        feeder, driver = asyncio.create_task(self._feed()), asyncio.create_task(self._drive())
        self._tasks = [feeder, driver]
        for task in self._tasks:
            task.add_done_callback(lambda _: self._notify())
        try:
            while not self._closed:
                result = self._conversation.take_result()
                if result is not None:
                    self._notify()
                    yield result
                    continue
                for task in self._tasks:
                    if task.done():
                        task.result()
                if self._conversation.all_answered:
                    await asyncio.wait([driver], timeout=_FAREWELL_SECONDS)
                    return
                await self._next_change()
        finally:
            await self.aclose()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _next_change(self, timeout: float | None = None) -> None:
        changed = self._changed
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), timeout)

    async def _feed(self) -> None:
        async with aclosing(_asynchronous(self._sources)) as sources:
            async for item in sources:
                if isinstance(item, ReadyPicture):
                    picture: ReadyPicture | UnreadablePicture = item
                else:
                    picture = await asyncio.to_thread(self._ready, item)
                await self._share_memory()
                self._conversation.add(picture)
                self._notify()
                while not self._conversation.wants_source:
                    await self._next_change()
        self._conversation.end_sources()
        self._notify()

    async def _drive(self) -> None:
        while not self._conversation.has_work:
            if self._conversation.all_answered:
                return
            await self._next_change()
        while True:
            pause = await self._talk()
            if pause is None:
                return
            await asyncio.sleep(pause)

    async def _talk(self) -> float | None:
        """One call, from its opening to its end. Seconds until another has to follow; None: none has to."""
        self._conversation.stream_opened()
        call = self._method(timeout=self._attempts.time_left())
        writer = asyncio.create_task(self._write(call))
        try:
            async for frame in call:
                if self._conversation.receive(frame):
                    self._attempts.progressed()
                self._notify()
            self._conversation.stream_ended()
            return None
        except grpc.RpcError as error:
            pause = self._attempts.pause_after(sending_error_of(error, self._address))
        except asyncio.CancelledError:
            raise_if_closed(self._address)
            raise
        finally:
            call.cancel()
            self._conversation.stream_over()
            writer.cancel()
            (written,) = await asyncio.gather(writer, return_exceptions=True)
            if isinstance(written, Exception):
                raise written
        self._conversation.stream_lost()
        self._notify()
        return pause

    async def _write(self, call: "_AsyncCall") -> None:
        try:
            while True:
                step = self._conversation.next_step()
                if step is not None:
                    await call.write(step)
                elif self._conversation.all_answered:
                    await call.done_writing()
                    return
                else:
                    await self._next_change(self._conversation.seconds_to_retry)
        except (grpc.RpcError, asyncio.InvalidStateError):
            # The call is over; whoever reads it learns why.
            return
        except Exception:
            # Whoever reads must not wait for answers to what was never sent.
            call.cancel()
            raise


async def _asynchronous(
    sources: Iterable[Item] | AsyncIterable[Item],
) -> AsyncGenerator[Item, None]:
    if isinstance(sources, AsyncIterable):
        async for item in sources:
            yield item
    else:
        for item in sources:
            yield item
