"""When a call is tried again, and how long to wait before. No I/O: the faces sleep."""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from interlock.client.errors import DeadlineError, InterlockError, RefusedError, UnreachableError
from interlock.reasons import Reason

LONGEST_RETRY_DELAY = 30.0
"""A server that asks for a longer pause than this (seconds) is not waited for: the caller decides."""

_STORE_REASONS = frozenset((Reason.STORE_UNAVAILABLE, Reason.STORE_CONTENDED))

_LONGEST_WAIT_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True)
class RetryPolicy:
    """How often a call that found no server is made, and the pauses between.

    The pause before attempt n + 1 is drawn evenly from 0 to min(longest_delay, first_delay * 2**(n - 1)), so that
    many clients that lost the same server do not come back at once ("full jitter").
    """

    attempts: int = 5
    """Attempts in all, the first one included; 1: never try again."""
    first_delay: float = 0.1
    """Longest pause before the second attempt, in seconds."""
    longest_delay: float = 2.0
    """Longest pause before any attempt, in seconds."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts is {self.attempts}; it must be at least 1")
        for name, delay in (("first_delay", self.first_delay), ("longest_delay", self.longest_delay)):
            if not (math.isfinite(delay) and delay >= 0):
                raise ValueError(f"{name} is {delay}; it must be a number of seconds, 0 or more")

    def pause(self, failures: int, draw: Callable[[], float] = random.random) -> float:
        """Seconds to wait after so many failures in a row. `draw` gives a number from 0 to 1."""
        # The exponent is bounded: a watch may fail thousands of times, and 2**1024 is no float.
        return draw() * min(self.longest_delay, self.first_delay * 2.0 ** min(failures - 1, 32))


DEFAULT_RETRY = RetryPolicy()
"""Five attempts within about three seconds."""

NO_RETRY = RetryPolicy(attempts=1)
"""For a call that does harm when it is made twice."""


def check_timeout(timeout: float) -> float:
    """The timeout, if it is one: a finite number of seconds above 0, so that no call can hang for good.

    Raises:
        ValueError: it is not.
    """
    if not (math.isfinite(timeout) and timeout > 0):
        raise ValueError(f"timeout is {timeout}; it must be a finite number of seconds above 0")
    return timeout


_NO_SERVER = frozenset({Reason.DRAINING, Reason.STORE_UNAVAILABLE})


def found_no_server(error: InterlockError) -> bool:
    """Whether the failure says nothing of the request: no server was reached, or it is about to stop, or it is without
    its store, so that whether the change stands is not known; either way the same request may be made again."""
    return isinstance(error, UnreachableError) or (isinstance(error, RefusedError) and error.reason in _NO_SERVER)


def asked_pause(code: grpc.StatusCode, reason: str, retry_delay: float | None) -> float | None:
    """Seconds to wait for a server that is full, or has trouble with its store, and says for how long. None: trying
    again would not help."""
    passing = code is grpc.StatusCode.RESOURCE_EXHAUSTED or reason in _STORE_REASONS
    if passing and retry_delay is not None and retry_delay <= LONGEST_RETRY_DELAY:
        return max(0.0, retry_delay)
    return None


class Attempts:
    """The attempts of one call: how many were made, and how much of its time is left.

    Args:
        policy: how often to try.
        timeout: seconds for all attempts together; None: no bound in time.
        wait_for: refusals with one of these reasons are not counted but waited out until the time is over.
        clock: monotonic seconds.
        draw: a random number from 0 to 1.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        timeout: float | None,
        *,
        wait_for: frozenset[Reason] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._policy = policy
        self._wait_for = wait_for
        self._clock = clock
        self._draw = draw
        self._ends_at = None if timeout is None else clock() + check_timeout(timeout)
        self._failures = 0
        self._endless = False
        self._waits = 0
        self._waited_out: RefusedError | None = None

    def time_left(self) -> float | None:
        """Seconds left for the next attempt. None: no bound."""
        return None if self._ends_at is None else max(0.0, self._ends_at - self._clock())

    def progressed(self) -> None:
        """The call got somewhere: what failed before no longer counts."""
        self._failures = 0

    def never_give_up(self) -> None:
        """From now on a server that cannot be found is looked for until the time is over."""
        self._endless = True

    def pause_after(self, error: InterlockError) -> float:
        """Seconds to wait before the next attempt.

        Raises:
            InterlockError: `error`, if it is to be handed to the caller; or the refusal that was being waited out, if
                time ran out meanwhile, since it tells the caller more.
        """
        if isinstance(error, DeadlineError) and self._waited_out is not None:
            raise self._waited_out from error
        pause = self._pause(error)
        if pause is None:
            raise error
        time_left = self.time_left()
        if time_left is not None and pause >= time_left:
            raise error
        return pause

    def _pause(self, error: InterlockError) -> float | None:
        if isinstance(error, RefusedError) and error.reason in self._wait_for:
            self._waited_out = error
            self._waits += 1
            ceiling = min(_LONGEST_WAIT_BETWEEN_LOOKS, 0.05 * 2.0 ** min(self._waits - 1, 32))
            time_left = self.time_left()
            # Look once more shortly before the end rather than give up a second early.
            return self._draw() * (ceiling if time_left is None else min(ceiling, time_left))
        self._failures += 1
        if found_no_server(error) and self._endless:
            return self._policy.pause(self._failures, self._draw)
        if self._failures >= self._policy.attempts:
            return None
        if found_no_server(error):
            return self._policy.pause(self._failures, self._draw)
        if isinstance(error, RefusedError):
            return asked_pause(error.code, error.reason, error.retry_delay)
        return None
