"""Reminders: wake those who have waited for a while with nothing to tell, thousands of them from one timer.

A timer for each watch would be set anew with every message; and all of them woken at once would hold up everybody
else. So one timer goes round through a few sets, and wakes one set at a time.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SETS = 16

Wake = Callable[[], None]


class Reminders:
    """Calls back every follower once a period, as long as it follows."""

    def __init__(self, period: float) -> None:
        """`period`: seconds from one reminder to the next; the first one comes somewhere in the first period."""
        self._pause = period / _SETS
        self._sets: list[set[Wake]] = [set() for _ in range(_SETS)]
        self._turn = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def each_period(self, wake: Wake) -> Iterator[None]:
        """Calls `wake` once a period within the `with` block."""
        smallest = min(self._sets, key=len)
        smallest.add(wake)
        if self._timer is None:
            self._set_timer()
        try:
            yield
        finally:
            smallest.discard(wake)

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._wake_next)

    def _wake_next(self) -> None:
        self._turn = (self._turn + 1) % _SETS
        for wake in self._sets[self._turn]:
            wake()
        if any(self._sets):
            self._set_timer()
        else:
            self._timer = None
