"""Rooms: which DP rank serves a request. Many and short-lived, so kept beside the topologies, not in them.

A room belongs to a group's epoch and goes with it, or when its time is over. The number of rooms is bounded; at the
bound the new room is refused, never a live one evicted: its decoder would hang.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, takewhile

from interlock.reasons import Reason
from interlock.serving import Refusal
from interlock_bootstrap.refusals import draining


@dataclass(frozen=True, slots=True)
class _Assignment:
    dp_rank: int
    expires: float


@dataclass
class _Group:
    """The rooms of one group's epoch, the one that expires first in front."""

    epoch: int
    assignments: dict[int, _Assignment]


class RoomWait:
    """Rooms that somebody waits for. Made by `Rooms.wait`."""

    def __init__(self, rooms: Iterable[int]) -> None:
        self.unknown: set[int] = set(rooms)
        """Rooms that nobody assigned yet."""
        self._found: dict[int, int] = {}
        self._ended = False
        self._arrival = asyncio.Event()

    def assign(self, room: int, dp_rank: int) -> None:
        """Called once a room becomes known; later writers do not matter to who waited for the first."""
        if room in self.unknown:
            self.unknown.discard(room)
            self._found[room] = dp_rank
            self._arrival.set()

    async def next(self) -> dict[int, int]:
        """Waits for rooms, and gives the DP rank of each that became known since the call before.

        Raises:
            Refusal: DRAINING: the server is about to stop.
        """
        await self._arrival.wait()
        if self._ended:
            raise draining()
        return self.take()

    def take(self) -> dict[int, int]:
        """As `next`, without waiting."""
        found, self._found = self._found, {}
        self._arrival.clear()
        return found

    def end(self) -> None:
        """The server is about to stop."""
        self._ended = True
        self._arrival.set()


class Rooms:
    """The rooms of all groups."""

    def __init__(self, max_rooms: int, max_awaited_rooms: int, ttl: float, clock: Callable[[], float]) -> None:
        """
        Args:
            max_rooms: Rooms kept at once, over all groups.
            max_awaited_rooms: Rooms waited for at once, counted for each caller.
            ttl: Seconds that a room stays after it was registered last.
            clock: Monotonic time in seconds.
        """
        self._max_rooms = max_rooms
        self._max_awaited_rooms = max_awaited_rooms
        self._ttl = ttl
        self._clock = clock
        self._groups: dict[str, _Group] = {}
        self._count = 0
        self._coming = 0
        self._waits: dict[tuple[str, int], set[RoomWait]] = {}
        self._awaited = 0

    def __len__(self) -> int:
        """Rooms kept now, those included whose time is over and that nobody looked at since."""
        return self._count

    @contextmanager
    def space(self, group: str, epoch: int, rooms: Iterable[int]) -> Iterator[None]:
        """Keeps space for rooms that are being committed; those that are new must fit beside the live ones.

        Raises:
            Refusal: TOO_MANY_ROOMS: they do not.
        """
        kept = self._live(group, epoch)
        new = sum(room not in kept for room in rooms)
        self._check_space(new)
        self._coming += new
        try:
            yield
        finally:
            self._coming -= new

    def put(self, group: str, epoch: int, dp_ranks: Mapping[int, int]) -> tuple[int, int]:
        """Takes in the DP ranks of rooms that were committed, whether or not there is space. Last writer wins.

        Args:
            group: Name of the group.
            epoch: The group's epoch; rooms of an earlier one are gone.
            dp_ranks: DP ranks by room.

        Returns:
            How many rooms were new, and how many had a rank before.
        """
        kept = self._groups.get(group)
        if kept is not None and kept.epoch > epoch:
            return len(dp_ranks), 0  # committed while the next epoch began: they are gone already
        live = self._live(group, epoch)
        if group not in self._groups:
            self._groups[group] = _Group(epoch, live)
        known = len(live)
        expires = self._clock() + self._ttl
        for room, dp_rank in dp_ranks.items():
            live.pop(room, None)  # so that the dict stays in the order of expiry
            live[room] = _Assignment(dp_rank, expires)
            for wait in self._waits.get((group, room), ()):
                wait.assign(room, dp_rank)
        new = len(live) - known
        self._count += new
        return new, len(dp_ranks) - new

    def query(self, group: str, epoch: int, rooms: Iterable[int]) -> dict[int, int]:
        """The DP rank of each room that is known; unknown ones are left out."""
        kept = self._live(group, epoch)
        return {room: kept[room].dp_rank for room in rooms if room in kept}

    @contextmanager
    def wait(self, group: str, epoch: int, rooms: Iterable[int]) -> Iterator[RoomWait]:
        """Follows rooms: those known now come at once, the others as they are registered.

        Raises:
            Refusal: OVERLOADED: too many rooms are waited for already.
        """
        awaited = set(rooms)
        if self._awaited + len(awaited) > self._max_awaited_rooms:
            raise Refusal(
                Reason.OVERLOADED,
                f"callers wait for {self._awaited} rooms already; {len(awaited)} more pass the limit of "
                f"{self._max_awaited_rooms}",
                retry_delay=1.0,
            )
        wait = RoomWait(awaited)
        self._awaited += len(awaited)
        for room in awaited:
            self._waits.setdefault((group, room), set()).add(wait)
        try:
            for room, dp_rank in self.query(group, epoch, awaited).items():
                wait.assign(room, dp_rank)
            yield wait
        finally:
            self._awaited -= len(awaited)
            for room in awaited:
                waits = self._waits[group, room]
                waits.discard(wait)
                if not waits:
                    del self._waits[group, room]

    def end_waits(self) -> None:
        """Ends every wait: the server is about to stop."""
        for wait in set(chain.from_iterable(self._waits.values())):
            wait.end()

    def _live(self, group: str, epoch: int) -> dict[int, _Assignment]:
        """The live rooms of the group's epoch; drops older ones. A dict of its own where there are none."""
        kept = self._groups.get(group)
        if kept is None:
            return {}
        if kept.epoch > epoch:
            return {}  # the caller has yet to learn of the epoch that these belong to
        if kept.epoch < epoch:
            self._count -= len(kept.assignments)
            del self._groups[group]
            return {}
        self._drop_expired(kept)
        return kept.assignments

    def _drop_expired(self, kept: _Group) -> None:
        now = self._clock()
        expired = list(takewhile(lambda room: kept.assignments[room].expires <= now, kept.assignments))
        for room in expired:
            del kept.assignments[room]
        self._count -= len(expired)

    def _check_space(self, new: int) -> None:
        if self._count + self._coming + new > self._max_rooms:
            for kept in self._groups.values():
                self._drop_expired(kept)
        if self._count + self._coming + new > self._max_rooms:
            raise Refusal(
                Reason.TOO_MANY_ROOMS,
                f"{new} new rooms do not fit beside {self._count + self._coming} live ones; this server keeps "
                f"{self._max_rooms}",
                metadata={"max_rooms": str(self._max_rooms)},
                retry_delay=1.0,
            )
