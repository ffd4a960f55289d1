"""The two faces of a `LeaseBook`: they move what it decides over one KeepAlive stream, and nothing else."""

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import grpc
import grpc.aio

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.client._internal.leases import HeldLease, LeaseBook
from interlock.client._internal.retry import RetryPolicy
from interlock.client._internal.statuses import error_of, sending_error_of
from interlock.client.errors import CallCancelledError, DeadlineError, InterlockError, UnreachableError
from interlock.client.groups import Registered

if TYPE_CHECKING:
    # grpc's own classes take no type arguments when the program runs.
    from interlock.bootstrap.v1 import bootstrap_service_pb2_grpc

    _Stub: TypeAlias = bootstrap_service_pb2_grpc.BootstrapServiceStub
    _AsyncStub: TypeAlias = bootstrap_service_pb2_grpc.BootstrapServiceAsyncStub
    _Registering: TypeAlias = grpc.Future[pb.RegisterRouteResponse]
    _AsyncCall: TypeAlias = grpc.aio.StreamStreamCall[pb.KeepAliveRequest, pb.KeepAliveResponse]

_LOGGER = logging.getLogger(__name__)


class _Stream:
    """One KeepAlive call of the synchronous face."""

    call: grpc.Call
    over = False
    late = False
    """An answer did not come in time."""


class LeaseKeeper:
    """Keeps registrations from one thread of its own, which reads; what is sent, grpc's thread for sending draws."""

    def __init__(self, stub: "_Stub", address: str, retry: RetryPolicy, timeout: float) -> None:
        self._stub = stub
        self._address = address
        self._timeout = timeout
        self._book = LeaseBook(retry, timeout)
        # Entered as the lock itself, never as the condition: a signal that raises (Ctrl-C) inside the Python code of
        # `Condition.__enter__` would leave it locked for good.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._stream: _Stream | None = None
        self._registering: dict[HeldLease, _Registering] = {}
        self._process = os.getpid()
        self._closed = False

    @property
    def usable(self) -> bool:
        """Not closed, and not the copy that a fork has: its thread is not there, and its lock may be taken for good."""
        return not self._closed and os.getpid() == self._process

    def hold(self, held: HeldLease, registered: Registered) -> None:
        """Keeps a registration that was just made.

        Raises:
            CallCancelledError: the client was closed.
        """
        with self._lock:
            if self._closed:
                raise CallCancelledError(f"{self._address}: the client was closed")
            self._book.hold(held, registered)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="interlock-leases", daemon=True)
                self._thread.start()

    def release(self, held: HeldLease) -> None:
        """Keeps it no more."""
        with self._lock:
            self._book.release(held)
            registering = self._registering.get(held)
            self._changed.notify_all()
        if registering is not None:
            registering.cancel()

    def close(self) -> None:
        """Leaves all that is held, and ends the thread."""
        if not self.usable:
            return
        with self._lock:
            self._closed = True
            self._book.release_all()
            registering, stream, thread = list(self._registering.values()), self._stream, self._thread
            self._changed.notify_all()
        for call in registering:
            call.cancel()
        if stream is not None:
            stream.call.cancel()
        if thread is not None:
            thread.join()

    # In the keeper's thread

    def _run(self) -> None:
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._closed or not self._book.empty)
                if self._closed:
                    return
                self._book.stream_opened()
                self._stream = stream = _Stream()
                stream.call = call = self._stub.KeepAlive(self._messages(stream))
            try:
                for response in call:
                    with self._lock:
                        self._book.receive(response)
                        self._changed.notify_all()
                error: InterlockError = UnreachableError(f"{self._address}: the server ended KeepAlive")
            except grpc.RpcError as failure:
                error = error_of(failure, self._address)
            except InterlockError as failure:
                error = failure
            except Exception as failure:
                error = _fault(failure)
            call.cancel()
            with self._lock:
                stream.over = True
                pause = self._book.stream_lost(_late(self._address) if stream.late else error)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed, pause)

    # In grpc's thread for sending

    def _messages(self, stream: _Stream) -> Iterator[pb.KeepAliveRequest]:
        while True:
            with self._lock:
                while True:
                    if self._closed or stream.over or self._book.empty:
                        return
                    self._register_unknown()
                    message = self._book.next_message()
                    stream.late = self._book.overdue()
                    if message is not None or stream.late:
                        break
                    self._changed.wait(self._book.seconds_to_next())
            if message is None:
                stream.call.cancel()
                return
            yield message

    def _register_unknown(self) -> None:
        while held := self._book.next_registration():
            self._registering[held] = call = self._stub.RegisterRoute.future(held.rpc.request, timeout=self._timeout)
            call.add_done_callback(partial(self._registered, held))

    # In grpc's thread for answers

    def _registered(self, held: HeldLease, call: "_Registering") -> None:
        outcome: Registered | InterlockError
        try:
            if isinstance(call, grpc.RpcError) and call.code() is not grpc.StatusCode.OK:
                outcome = error_of(call, self._address)
            else:
                outcome = held.rpc.result(call.result())
        except InterlockError as error:
            outcome = error
        with self._lock:
            self._registering.pop(held, None)
            _tell(self._book, held, outcome)
            self._changed.notify_all()


class AsyncLeaseKeeper:
    """Keeps registrations by tasks of the event loop."""

    def __init__(self, stub: "_AsyncStub", address: str, retry: RetryPolicy, timeout: float) -> None:
        self._stub = stub
        self._address = address
        self._timeout = timeout
        self._book = LeaseBook(retry, timeout)
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._registering: dict[HeldLease, asyncio.Task[None]] = {}
        self.usable = True
        """Not closed."""

    def hold(self, held: HeldLease, registered: Registered) -> None:
        """Keeps a registration that was just made.

        Raises:
            CallCancelledError: the client was closed.
        """
        if not self.usable:
            raise CallCancelledError(f"{self._address}: the client was closed")
        self._book.hold(held, registered)
        self._notify()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="interlock-leases")

    def release(self, held: HeldLease) -> None:
        """Keeps it no more."""
        self._book.release(held)
        if held in self._registering:
            self._registering[held].cancel()
        self._notify()

    async def close(self) -> None:
        """Leaves all that is held, and ends the tasks."""
        self.usable = False
        self._book.release_all()
        tasks = [*self._registering.values(), *([] if self._task is None else [self._task])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _next_change(self, timeout: float | None = None) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout)

    async def _run(self) -> None:
        while True:
            while self._book.empty:
                await self._next_change()
            error = await self._talk()
            await asyncio.sleep(self._book.stream_lost(error))

    async def _talk(self) -> InterlockError:
        """One call, from its opening to its end; why it ended."""
        self._book.stream_opened()
        call = self._stub.KeepAlive()
        writer = asyncio.create_task(self._write(call))
        try:
            async for response in call:
                self._book.receive(response)
                self._notify()
            error: InterlockError = UnreachableError(f"{self._address}: the server ended KeepAlive")
        except grpc.RpcError as failure:
            error = sending_error_of(failure, self._address)
        except InterlockError as failure:
            error = failure
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            error = CallCancelledError(f"{self._address}: KeepAlive was cancelled")
        except Exception as failure:
            error = _fault(failure)
        finally:
            call.cancel()
            writer.cancel()
            (written,) = await asyncio.gather(writer, return_exceptions=True)
        if isinstance(written, InterlockError):
            return written
        return _fault(written) if isinstance(written, Exception) else error

    async def _write(self, call: "_AsyncCall") -> None:
        try:
            while not self._book.empty:
                self._register_unknown()
                if self._book.overdue():
                    raise _late(self._address)
                message = self._book.next_message()
                if message is None:
                    await self._next_change(self._book.seconds_to_next())
                    continue
                try:
                    async with asyncio.timeout(self._book.seconds_to_next()):
                        await call.write(message)
                except TimeoutError:
                    raise _late(self._address) from None
            await call.done_writing()
        except (grpc.RpcError, asyncio.InvalidStateError):
            # The call is over; whoever reads it learns why.
            return
        except Exception:
            call.cancel()
            raise

    def _register_unknown(self) -> None:
        while held := self._book.next_registration():
            self._registering[held] = task = asyncio.create_task(self._register(held))
            task.add_done_callback(partial(self._end_registering, held))

    def _end_registering(self, held: HeldLease, _: "asyncio.Task[None]") -> None:
        del self._registering[held]

    async def _register(self, held: HeldLease) -> None:
        outcome: Registered | InterlockError
        try:
            outcome = held.rpc.result(await self._stub.RegisterRoute(held.rpc.request, timeout=self._timeout))
        except grpc.RpcError as error:
            outcome = error_of(error, self._address)
        except InterlockError as error:
            outcome = error
        _tell(self._book, held, outcome)
        self._notify()


def _tell(book: LeaseBook, held: HeldLease, outcome: Registered | InterlockError) -> None:
    if isinstance(outcome, InterlockError):
        book.failed(held, outcome)
    else:
        book.registered(held, outcome)


def _late(address: str) -> DeadlineError:
    return DeadlineError(f"{address}: leases were to be renewed, and no answer came in time")


def _fault(failure: Exception) -> InterlockError:
    """A fault of the client itself must not end the renewals without a word."""
    _LOGGER.error("renewing leases failed; it is tried again", exc_info=failure)
    return InterlockError(f"renewing leases failed: {failure!r}")
