"""A small client of etcd's v3 API: several endpoints, failover, TLS, user and password.

The kept Python clients of etcd skip events or shadow the package of its descriptors; the few RPCs that the store needs
are told here.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from interlock_bootstrap.stores.etcd.settings import EtcdSettings
from interlock_bootstrap.stores.etcd.v3 import rpc_pb2 as rpc

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
T = TypeVar("T")

Metadata = tuple[tuple[str, str], ...]
Ask = Callable[[grpc.aio.Channel, Metadata], Awaitable[T]]
"""Asks one member something."""

MESSAGE_BYTES = 64 << 20
"""The largest answer taken: a page of a listing has at most 1,000 keys, few of them of more than some KiB."""

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.enable_retries", 0),  # what may be sent again is decided here
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),  # connections of our own: another store in this process has its own fate
]
_HAS_LEADER = ("hasleader", "true")
"""A member that is cut off from the leader refuses at once, instead of letting the call wait."""


class EtcdError(Exception):
    """etcd did not do what it was asked."""


class EtcdUnavailableError(EtcdError):
    """No answer, or none that is final. What was asked may have been done, or may be yet."""


class EtcdFullError(EtcdError):
    """etcd's database has reached its quota. Nothing was done."""


class EtcdRefusedError(EtcdError):
    """etcd refused; it would again. Nothing was done."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class WatchCompactedError(EtcdError):
    """The revision to watch from was compacted away: list anew."""


class _LoginExpiredError(EtcdError):
    """The token is no longer good, or there was none. Nothing was done."""


@dataclass(frozen=True)
class Method(Generic[Q, A]):
    """One RPC of etcd."""

    path: str
    request: type[Q]
    answer: type[A]


RANGE = Method("/etcdserverpb.KV/Range", rpc.RangeRequest, rpc.RangeResponse)
TXN = Method("/etcdserverpb.KV/Txn", rpc.TxnRequest, rpc.TxnResponse)
LEASE_GRANT = Method("/etcdserverpb.Lease/LeaseGrant", rpc.LeaseGrantRequest, rpc.LeaseGrantResponse)
LEASE_REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", rpc.LeaseRevokeRequest, rpc.LeaseRevokeResponse)
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", rpc.AuthenticateRequest, rpc.AuthenticateResponse)
WATCH = Method("/etcdserverpb.Watch/Watch", rpc.WatchRequest, rpc.WatchResponse)
LEASE_KEEP_ALIVE = Method("/etcdserverpb.Lease/LeaseKeepAlive", rpc.LeaseKeepAliveRequest, rpc.LeaseKeepAliveResponse)


class EtcdClient:
    """Speaks to one member at a time, and to the next one when that does not answer."""

    def __init__(self, settings: EtcdSettings) -> None:
        """Opens no connection yet.

        Raises:
            OSError: A TLS file cannot be read.
        """
        self._settings = settings
        self._targets = settings.targets()
        random.shuffle(self._targets)  # so that replicas spread over the members
        credentials = _credentials(settings)
        self._channels = [_channel(target, credentials) for target in self._targets]
        self._at = 0
        self._token: str | None = None
        self._login = asyncio.Lock()

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()

    async def call(self, method: Method[Q, A], request: Q) -> A:
        """Asks until there is an answer, one member after another. Only for what may be done twice.

        Raises:
            EtcdError: A refusal, or no answer within the request timeout.
        """
        deadline = time.monotonic() + self._settings.request_timeout_seconds
        attempts = 0
        while True:
            try:
                return await self.attempt(method, request)
            except EtcdUnavailableError:
                pause = full_jitter(attempts)
                if time.monotonic() + pause >= deadline:
                    raise
                await asyncio.sleep(pause)
                attempts += 1

    async def attempt(self, method: Method[Q, A], request: Q) -> A:
        """Asks one member once.

        Raises:
            EtcdError: A refusal, or no answer within the attempt timeout.
        """
        return await self._with_login(self._unary(method, request))

    async def keep_alive(self, leases: Sequence[int]) -> dict[int, int]:
        """Renews leases, all on one stream to one member.

        Returns:
            The seconds that each has from now on; 0: there is no such lease.

        Raises:
            EtcdError: As `attempt`.
        """

        async def ask(channel: grpc.aio.Channel, metadata: Metadata) -> dict[int, int]:
            call = _stream(LEASE_KEEP_ALIVE, channel, metadata, (rpc.LeaseKeepAliveRequest(id=i) for i in leases))
            try:
                ttls: dict[int, int] = {}
                while len(ttls) < len(leases):
                    async with asyncio.timeout(self._settings.attempt_timeout_seconds):
                        answer = await call.read()
                    if answer is grpc.aio.EOF:
                        raise EtcdUnavailableError("it ended the stream of renewals")
                    ttls[answer.id] = answer.ttl
                return ttls
            finally:
                call.cancel()

        return await self._with_login(ask)

    async def watch(self, first: bytes, end: bytes, start_revision: int) -> "WatchStream":
        """Follows the keys from `first` up to `end`, from the events of `start_revision` on.

        Raises:
            EtcdError: As `attempt`.
        """
        create = rpc.WatchCreateRequest(key=first, range_end=end, start_revision=start_revision, fragment=True)

        async def ask(channel: grpc.aio.Channel, metadata: Metadata) -> WatchStream:
            stream = WatchStream(_stream(WATCH, channel, metadata, None), self._channels.index(channel))
            try:
                async with asyncio.timeout(self._settings.attempt_timeout_seconds):
                    await stream.create(create)
            except BaseException:
                stream.cancel()
                raise
            return stream

        return await self._with_login(ask)

    def turn_from(self, member: int) -> None:
        """Speaks to the next member from now on, if it still is this one that we speak to."""
        if self._at == member:
            self._at = (member + 1) % len(self._channels)

    def _unary(self, method: Method[Q, A], request: Q) -> Ask[A]:
        async def ask(channel: grpc.aio.Channel, metadata: Metadata) -> A:
            multicallable: Any = channel.unary_unary(
                method.path, method.request.SerializeToString, method.answer.FromString
            )
            timeout = self._settings.attempt_timeout_seconds
            answer: A = await multicallable(request, timeout=timeout, metadata=metadata)
            return answer

        return ask

    async def _with_login(self, ask: Ask[T]) -> T:
        """Asks the present member, as the user if there is one; logs in anew when the token is no longer good."""
        if self._settings.user is None:
            return await self._ask(ask, (_HAS_LEADER,))
        token = await self._token_other_than(None)
        try:
            return await self._ask(ask, (_HAS_LEADER, ("token", token)))
        except _LoginExpiredError:
            token = await self._token_other_than(token)
            return await self._ask(ask, (_HAS_LEADER, ("token", token)))

    async def _token_other_than(self, expired: str | None) -> str:
        """The token that calls carry; logs in if there is none or the one there is expired."""
        async with self._login:
            if self._token == expired:
                user, password_file = self._settings.user, self._settings.password_file
                assert user is not None
                assert password_file is not None
                request = rpc.AuthenticateRequest(name=user, password=password_file.read_text().rstrip("\n"))
                answer = await self._ask(self._unary(AUTHENTICATE, request), (_HAS_LEADER,))
                self._token = answer.token
            assert self._token is not None
            return self._token

    async def _ask(self, ask: Ask[T], metadata: Metadata) -> T:
        at = self._at
        try:
            return await ask(self._channels[at], metadata)
        except (grpc.aio.AioRpcError, TimeoutError, EtcdError) as error:
            failure = _failure(error, self._targets[at])
            if isinstance(failure, EtcdUnavailableError):
                self.turn_from(at)
            raise failure from error


class WatchStream:
    """One watch on a stream of its own. Made by `EtcdClient.watch`."""

    def __init__(self, call: Any, member: int) -> None:
        self.member = member
        """Who serves it; see `EtcdClient.turn_from`."""
        self._call = call

    async def create(self, request: rpc.WatchCreateRequest) -> None:
        """Called by the client: begins the watch."""
        await self._call.write(rpc.WatchRequest(create_request=request))
        answer = await self._call.read()
        if answer is grpc.aio.EOF:
            raise EtcdUnavailableError("it ended the watch")
        _check_not_over(answer)

    async def request_progress(self) -> None:
        """Asks for a response that tells how far the watch has come.

        Members before 3.4.25 and 3.5.8 may answer while events up to that revision are still in the queue behind
        (etcd issue 15220): good enough to see that the watch lives, but nothing to resume from.

        Raises:
            EtcdUnavailableError: The watch is over.
        """
        try:
            await self._call.write(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise EtcdUnavailableError(f"the watch is over: {error}") from None

    async def read(self, timeout: float) -> rpc.WatchResponse:
        """The next response, put together if it came in parts.

        Raises:
            WatchCompactedError: Events that were asked for are gone.
            EtcdUnavailableError: The watch is over, or nothing came for `timeout` seconds.
        """
        whole = rpc.WatchResponse()
        try:
            while True:
                async with asyncio.timeout(timeout):
                    part = await self._call.read()
                if part is grpc.aio.EOF:
                    raise EtcdUnavailableError("etcd ended the watch")
                _check_not_over(part)
                whole.MergeFrom(part)
                if not part.fragment:
                    return whole
        except grpc.aio.AioRpcError as error:
            raise EtcdUnavailableError(f"the watch broke: {error.details()}") from None
        except TimeoutError:
            raise EtcdUnavailableError(f"the watch was silent for {timeout:g} s") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise EtcdUnavailableError("the watch was cancelled by a write that took too long") from None

    def cancel(self) -> None:
        self._call.cancel()


def full_jitter(attempts: int) -> float:
    """Seconds to wait before the next attempt: anything up to a bound that doubles, so that many do not meet again."""
    return random.uniform(0, min(1.0, 0.02 * 2 ** min(attempts, 10)))


def _check_not_over(answer: rpc.WatchResponse) -> None:
    if answer.compact_revision:
        raise WatchCompactedError(f"compacted up to {answer.compact_revision}")
    if "permission denied" in answer.cancel_reason:
        raise _LoginExpiredError("etcd refused the watch: permission denied")  # what it says of an old token as well
    if answer.canceled:
        raise EtcdUnavailableError(f"etcd ended the watch: {answer.cancel_reason}")


def _channel(target: str, credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
    if credentials is None:
        return grpc.aio.insecure_channel(target, _CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(target, credentials, _CHANNEL_OPTIONS)


def _credentials(settings: EtcdSettings) -> grpc.ChannelCredentials | None:
    if not settings.tls:
        return None
    files = (settings.ca_file, settings.key_file, settings.cert_file)
    return grpc.ssl_channel_credentials(*(None if file is None else file.read_bytes() for file in files))


def _stream(method: Method[Q, A], channel: grpc.aio.Channel, metadata: Metadata, requests: Iterable[Q] | None) -> Any:
    multicallable: Any = channel.stream_stream(method.path, method.request.SerializeToString, method.answer.FromString)
    return multicallable(requests, metadata=metadata)


_TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.RESOURCE_EXHAUSTED,  # too many requests; a full database is told apart before
    }
)


def _failure(error: grpc.aio.AioRpcError | TimeoutError | EtcdError, target: str) -> EtcdError:
    """What an error of one attempt means."""
    if isinstance(error, EtcdUnavailableError):
        return EtcdUnavailableError(f"etcd at {target}: {error}")
    if isinstance(error, EtcdError):
        return error
    if isinstance(error, TimeoutError):
        return EtcdUnavailableError(f"etcd at {target} does not answer")
    code, message = error.code(), f"etcd at {target}: {error.details()}"
    if code is grpc.StatusCode.UNAUTHENTICATED or "auth store is old" in message or "user name is empty" in message:
        return _LoginExpiredError(message)
    if "database space exceeded" in message:
        return EtcdFullError(message)
    if code in _TRANSIENT:
        return EtcdUnavailableError(message)
    return EtcdRefusedError(code, message)
