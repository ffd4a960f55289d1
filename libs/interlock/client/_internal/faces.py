"""How a face makes one call: deadline, retries, errors. The rules are in `retry` and `statuses`, the I/O is here."""

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc
import grpc.aio

from interlock.client._internal.channels import async_channel, check_address, sync_channel
from interlock.client._internal.retry import DEFAULT_RETRY, Attempts, RetryPolicy, check_timeout
from interlock.client._internal.statuses import error_of, raise_if_closed
from interlock.client.credentials import NO_CREDENTIALS, Credentials
from interlock.client.errors import UnexpectedAnswerError
from interlock.reasons import Reason

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_Result = TypeVar("_Result")

NO_REASONS: frozenset[Reason] = frozenset()


@dataclass(frozen=True)
class Rpc(Generic[_Request, _Response, _Result]):
    """One call, without its I/O: what is sent, and how the answer is read."""

    request: _Request
    read: Callable[[_Response], _Result]

    def result(self, response: _Response) -> _Result:
        """What the caller gets.

        Raises:
            UnexpectedAnswerError: the answer is none that the contract allows.
        """
        try:
            return self.read(response)
        except ValueError as error:
            raise UnexpectedAnswerError(f"the answer cannot be read: {error}") from error


class SyncFace:
    """A synchronous client: one channel, usable from many threads.

    Args:
        address: host:port of the service.
        timeout: seconds for a call that is given none of its own.
        retry: how often a call that found no server is made.
        credentials: token and certificates.

    Raises:
        ValueError: the address cannot be one.
        CredentialsError: the credentials cannot be used.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 10.0,
        retry: RetryPolicy = DEFAULT_RETRY,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        self.address = check_address(address)
        self._timeout = check_timeout(timeout)
        self._retry = retry
        self._channel = sync_channel(address, credentials)

    def close(self) -> None:
        """Close the connection; calls and streams that are still open end with an error."""
        if not sys.is_finalizing():  # then the threads of the channel are gone, with whatever locks they held
            self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[_Request, _Response]",
        rpc: Rpc[_Request, _Response, _Result],
        timeout: float | None,
        wait_for: frozenset[Reason] = NO_REASONS,
        retry: RetryPolicy | None = None,
    ) -> _Result:
        attempts = Attempts(retry or self._retry, self._timeout if timeout is None else timeout, wait_for=wait_for)
        while True:
            try:
                return rpc.result(method(rpc.request, timeout=attempts.time_left()))
            except grpc.RpcError as error:
                pause = attempts.pause_after(error_of(error, self.address))
            time.sleep(pause)


class AsyncFace:
    """An asynchronous client: one channel, used from one event loop, that of its first call.

    Args:
        address: host:port of the service.
        timeout: seconds for a call that is given none of its own.
        retry: how often a call that found no server is made.
        credentials: token and certificates.

    Raises:
        ValueError: the address cannot be one.
        CredentialsError: the credentials cannot be used.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 10.0,
        retry: RetryPolicy = DEFAULT_RETRY,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        self.address = check_address(address)
        self._timeout = check_timeout(timeout)
        self._retry = retry
        self._credentials = credentials
        credentials.channel_credentials()

    @cached_property
    def _channel(self) -> Any:
        # Made at the first call: a channel belongs to the event loop that runs while it is made.
        return async_channel(self.address, self._credentials)

    async def close(self) -> None:
        """Close the connection; calls and streams that are still open end with an error."""
        if "_channel" in self.__dict__:
            await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _call(
        self,
        method: "grpc.aio.UnaryUnaryMultiCallable[_Request, _Response]",
        rpc: Rpc[_Request, _Response, _Result],
        timeout: float | None,
        wait_for: frozenset[Reason] = NO_REASONS,
        retry: RetryPolicy | None = None,
    ) -> _Result:
        attempts = Attempts(retry or self._retry, self._timeout if timeout is None else timeout, wait_for=wait_for)
        while True:
            try:
                return rpc.result(await method(rpc.request, timeout=attempts.time_left()))
            except grpc.RpcError as error:
                pause = attempts.pause_after(error_of(error, self.address))
            except asyncio.CancelledError:
                raise_if_closed(self.address)
                raise
            await asyncio.sleep(pause)
