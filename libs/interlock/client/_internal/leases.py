"""The registrations that one client keeps, without their I/O: when to renew which, and what an answer means.

A third of a lease's time passes, it is renewed; a third may pass until the answer; the last third is left to try
elsewhere. Whatever happens is found out by renewing: every lease is due when a stream opens, and an answer that a lease
is unknown makes its rank register again. So a server that lost everything, one that was away, and
one that was replaced are all the same case.
"""

import heapq
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence

import grpc

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.client._internal.bootstrap_rpcs import register_route, seconds_of
from interlock.client._internal.retry import LONGEST_RETRY_DELAY, RetryPolicy
from interlock.client.errors import InterlockError, RefusedError, UnexpectedAnswerError
from interlock.client.groups import Registered, RegistrationState
from interlock.topology import Instance, Route

MAX_RENEWALS = 256
"""Leases that one message renews. So it fits into HTTP/2's first window (64 KiB) whatever they are called, and is sent
whole to a server that has stopped reading, whose silence can then be noticed."""

MAX_REGISTERING = 32
"""Ranks that register again at once: a server that just came back has others to answer, too."""

_JITTER = 0.2
"""How much of a third of its time a lease may be renewed early, at random, so that clients do not fall into step."""

_EARLY = 0.25
"""How much of a third of its time a lease may be renewed early to share a message with another one."""

_SHORTEST_INTERVAL = 0.1
_SHORTEST_PATIENCE = 1.0

_FINAL_CODES = frozenset(
    (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED)
)

_LOGGER = logging.getLogger(__name__)


class HeldLease:
    """One registration, as it stands."""

    def __init__(
        self, route: Route, instance: Instance, group: str, lease_ttl: float, on_end: Callable[[], object]
    ) -> None:
        """
        Args:
            route, instance, group, lease_ttl: what is registered.
            on_end: called once, when it is lost or left; must not block.
        """
        self.on_end = on_end
        self.rpc = register_route(route, instance, group, None, lease_ttl)
        self.lease = pb.LeaseRef(
            group=group,
            key=self.rpc.request.route.key,
            instance=self.rpc.request.instance,
            incarnation=route.incarnation,
        )
        self.name = f"rank {route.key} of group {group!r}"
        self.state = RegistrationState.NEW
        self.registered: Registered | None = None
        """What the server said when it registered last."""
        self.error: InterlockError | None = None
        """Why it is recovering or lost."""
        self.third = 0.0
        """A third of the time that the lease was granted, in seconds."""
        self.due = 0.0
        """When to renew it."""
        self.failures = 0
        """Times in a row that it could not be registered again."""


class LeaseBook:
    """What is held, what was asked of the server, and what is to be asked next. One message is under way at a time."""

    def __init__(
        self,
        retry: RetryPolicy,
        patience: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """
        Args:
            retry: the pauses between attempts; there is no last one.
            patience: the longest time, in seconds, that an answer is waited for.
            clock: monotonic seconds.
            draw: a random number from 0 to 1.
        """
        self._retry = retry
        self._patience = patience
        self._clock = clock
        self._draw = draw
        self._held: dict[HeldLease, None] = {}
        self._unknown: deque[HeldLease] = deque()
        """Those to register again."""
        self._registering: set[HeldLease] = set()
        self._sent: Sequence[HeldLease] = ()
        self._sent_at = 0.0
        self._streams_lost = 0
        """In a row."""

    @property
    def empty(self) -> bool:
        """Nothing is held."""
        return not self._held

    def hold(self, held: HeldLease, registered: Registered) -> None:
        """Keeps a registration that was just made."""
        self._held[held] = None
        self._stands(held, registered)

    def release(self, held: HeldLease) -> None:
        """Keeps it no more: it is left by this side, if it was not lost before."""
        if held in self._held:
            self._end(held, RegistrationState.ENDED, None)

    def release_all(self) -> None:
        """Keeps nothing more."""
        for held in list(self._held):
            self.release(held)

    def stream_opened(self) -> None:
        """A stream was opened. Every lease is to be renewed on it at once: who knows what its server knows. It may be
        another one than registered them, also where no stream was lost before."""
        now = self._clock()
        for held in self._renewable():
            held.due = min(held.due, now)

    # What is to be sent

    def next_message(self) -> pb.KeepAliveRequest | None:
        """Leases to renew now. None: none is due, or an answer is still to come."""
        if self._sent:
            return None
        now = self._clock()
        renewable = list(self._renewable())
        if not any(held.due <= now for held in renewable):
            return None
        soon = (held for held in renewable if held.due <= now + held.third * _EARLY)
        self._sent = heapq.nsmallest(MAX_RENEWALS, soon, key=lambda held: held.due)
        self._sent_at = now
        return pb.KeepAliveRequest(leases=[held.lease for held in self._sent])

    def next_registration(self) -> HeldLease | None:
        """A rank to register again now; to be followed by `registered` or `failed`."""
        while self._unknown and len(self._registering) < MAX_REGISTERING:
            held = self._unknown.popleft()
            if held in self._held:
                self._registering.add(held)
                return held
        return None

    def overdue(self) -> bool:
        """The answer to the last message is late: the stream is worth no more."""
        return bool(self._sent) and self._clock() >= self._answer_due()

    def seconds_to_next(self) -> float | None:
        """Seconds until something is due, or overdue. None: nothing will be, unless something else happens."""
        if self._sent:
            moment = self._answer_due()
        else:
            moment = min((held.due for held in self._renewable()), default=float("inf"))
        return None if moment == float("inf") else max(0.0, moment - self._clock())

    def _renewable(self) -> "filter[HeldLease]":
        known = set(self._unknown)
        return filter(lambda held: held not in self._registering and held not in known, self._held)

    def _answer_due(self) -> float:
        shortest = min(held.third for held in self._sent)
        return self._sent_at + min(self._patience, max(_SHORTEST_PATIENCE, shortest))

    # What came of it

    def receive(self, response: pb.KeepAliveResponse) -> None:
        """The answer to the last message.

        Raises:
            UnexpectedAnswerError: it is none.
        """
        sent = self._sent
        if [renewal.lease for renewal in response.renewals] != [held.lease for held in sent] or not sent:
            raise UnexpectedAnswerError("the server answered other leases than were to be renewed")
        self._sent = ()
        self._streams_lost = 0
        early = 1 - _JITTER * self._draw()  # one for all, so that they stay together
        for held, renewal in zip(sent, response.renewals, strict=True):
            if held not in self._held:
                continue
            ttl = seconds_of(renewal.ttl)
            if ttl > 0:
                self._granted(held, ttl, self._sent_at, early)
            else:
                held.state = RegistrationState.RECOVERING
                self._unknown.append(held)

    def registered(self, held: HeldLease, registered: Registered) -> None:
        """A rank is registered again."""
        self._registering.discard(held)
        if held in self._held:
            _LOGGER.info("%s is registered again, at revision %d", held.name, registered.revision)
            self._stands(held, registered)

    def failed(self, held: HeldLease, error: InterlockError) -> None:
        """A rank could not be registered again: for good if it is so refused that time does not mend it."""
        self._registering.discard(held)
        if held not in self._held:
            return
        if isinstance(error, RefusedError) and error.reason and error.code in _FINAL_CODES:
            _LOGGER.error("%s has lost its registration: %s", held.name, error)
            self._end(held, RegistrationState.LOST, error)
            return
        held.failures += 1
        held.error = error
        # Its turn comes by a renewal, which finds the lease unknown, or known after all.
        held.due = self._clock() + self._pause(held.failures, error)

    def stream_lost(self, error: InterlockError) -> float:
        """The stream is over.

        Returns:
            Seconds to wait before the next one is opened.
        """
        self._sent = ()
        self._unknown.clear()
        self._streams_lost += 1
        for held in self._held:
            held.state, held.error = RegistrationState.RECOVERING, error
        if self._held and self._streams_lost == 1:
            _LOGGER.warning("%d registrations have lost their server: %s", len(self._held), error)
        return self._pause(self._streams_lost, error)

    def _pause(self, failures: int, error: InterlockError) -> float:
        asked = error.retry_delay if isinstance(error, RefusedError) else None
        return min(LONGEST_RETRY_DELAY, max(0.0, asked or 0.0)) + self._retry.pause(failures, self._draw)

    def _stands(self, held: HeldLease, registered: Registered) -> None:
        held.registered = registered
        self._granted(held, registered.lease_ttl or 0.0, self._clock(), 1 - _JITTER * self._draw())

    def _granted(self, held: HeldLease, ttl: float, since: float, early: float) -> None:
        held.state, held.error, held.failures = RegistrationState.REGISTERED, None, 0
        held.third = ttl / 3
        held.due = since + max(_SHORTEST_INTERVAL, held.third * early)

    def _end(self, held: HeldLease, state: RegistrationState, error: InterlockError | None) -> None:
        held.error, held.state = error, state  # whoever sees that it is lost must also see why
        del self._held[held]
        held.on_end()
