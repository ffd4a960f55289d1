"""Who gets the next free thread. Parties (streams and calls) take turns, so that the one with a thousand pictures has
no more of the server than the one with a single picture; the pictures of a party come in their order.

A picture that several parties want stands in the line of each, and the first whose turn it is has it started for all.
"""

import asyncio
from collections import OrderedDict, deque

from interlock.reasons import Reason
from interlock_preprocess.faults import ImageFault

_LEAST_DELAY = 0.05
_LONGEST_DELAY = 60.0

_WEIGHT = 0.2
"""Of the newest picture in the average time of one."""


class Place:
    """A picture's place among those of its party that may be at work or hold patches."""

    def __init__(self, party: "Party") -> None:
        self._party = party
        self._taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._released = False

    async def taken(self) -> None:
        """Wait for it.

        Raises:
            CancelledError: it was released instead.
        """
        await self._taken

    def take(self) -> bool:
        """Have it now. False: it was released before."""
        if self._taken.done():
            return False
        self._taken.set_result(None)
        return True

    def release(self) -> None:
        """Give it to the next picture, or wait for it no longer. Doing it twice is harmless."""
        if self._released:
            return
        self._released = True
        self._taken.cancel()
        if not self._taken.cancelled():
            self._party.pass_on()


class Party:
    """One stream or call among all that want pictures made.

    Args:
        places: how many of its pictures may be at work or hold patches that were not handed on; the others wait here.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[Place] = deque()
        self.line: deque[Turn] = deque()
        """Of those pictures, the ones that wait for a thread."""

    def place(self) -> Place:
        """A place for one more picture: taken when those before it have theirs and one is free."""
        place = Place(self)
        if self._free:
            self._free -= 1
            place.take()
        else:
            self._waiting.append(place)
        return place

    def pass_on(self) -> None:
        """A place is free; only places call it."""
        while self._waiting:
            if self._waiting.popleft().take():
                return
        self._free += 1


class Turn:
    """The wait of one piece of work for a thread, and then its hold on it. Made by `Turns.turn`."""

    def __init__(self) -> None:
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def over(self) -> bool:
        """Whether it has come, or is waited for no longer."""
        return self.granted.done()

    async def come(self) -> None:
        """Wait until it has come."""
        await self.granted


class Turns:
    """Threads, and the lines before them.

    Args:
        threads: how many there are.
        max_waiting: work that waits for one at the most.
        max_seconds: how long it may have to wait, as far as can be told.
    """

    def __init__(self, threads: int, max_waiting: int, max_seconds: float) -> None:
        self._threads = threads
        self._free = threads
        self._max_waiting = max_waiting
        self._max_seconds = max_seconds
        self._seconds_each: float | None = None
        self._parties: OrderedDict[Party, None] = OrderedDict()
        """Those with a line; the first is next."""
        self.waiting = 0
        """Work that waits for a thread."""

    @property
    def idle(self) -> bool:
        """Whether one thread at the most is at work, and nothing waits for another."""
        return not self.waiting and self._free >= self._threads - 1

    def check_room(self, party: Party) -> None:
        """Refuse one more picture of this party if it would have to wait too long, or too many wait already.

        Raises:
            ImageFault: OVERLOADED, with the time after which the line should be short enough.
        """
        if self.waiting >= self._max_waiting:
            raise self.overloaded(f"{self.waiting} pictures wait for a thread, as many as may")
        if (seconds := self._seconds_before(party)) > self._max_seconds:
            raise self.overloaded(f"a picture would wait {seconds:.1f} s for a thread; at most {self._max_seconds:g} s")

    def overloaded(self, message: str) -> ImageFault:
        """The fault of a picture that would wait, or waited, for too long."""
        return ImageFault(Reason.OVERLOADED, f"{message}; try again later", retry_delay=self.retry_delay)

    @property
    def retry_delay(self) -> float:
        """Seconds until all that waits now has had its turn, as far as can be told."""
        return min(max(self._seconds(self.waiting + self._threads), _LEAST_DELAY), _LONGEST_DELAY)

    def turn(self) -> Turn:
        """The turn of one more piece of work, which must `end` it, whatever comes of it."""
        self.waiting += 1
        return Turn()

    def line_up(self, turn: Turn, party: Party) -> None:
        """Let work wait in the line of one more party."""
        party.line.append(turn)
        self._parties.setdefault(party)
        self._serve()

    def end(self, turn: Turn) -> None:
        """The work needs a thread no more: the one that it has is free, or it waits no longer. Once for each turn."""
        turn.granted.cancel()
        if turn.granted.cancelled():
            self.waiting -= 1
        else:
            self._free += 1
            self._serve()

    def note_seconds(self, seconds: float) -> None:
        """A picture took a thread for so long."""
        before = self._seconds_each if self._seconds_each is not None else seconds
        self._seconds_each = before + _WEIGHT * (seconds - before)

    def _serve(self) -> None:
        while self._free and self._parties:
            party, _ = self._parties.popitem(last=False)
            turn = _next(party.line)
            if party.line:
                self._parties[party] = None  # at the end: the others first
            if turn is not None:
                self._free -= 1
                self.waiting -= 1
                turn.granted.set_result(None)

    def _seconds_before(self, party: Party) -> float:
        """How long one more picture of this party would wait: for its own line, and as many of every other party."""
        own = len(party.line)
        others = sum(min(len(other.line), own + 1) for other in self._parties if other is not party)
        busy = self._threads - self._free
        return self._seconds(own + others) if busy == self._threads else 0.0

    def _seconds(self, pictures: int) -> float:
        return pictures * (self._seconds_each or 0.0) / self._threads


def _next(line: deque[Turn]) -> Turn | None:
    """The first of the line that still waits."""
    while line:
        turn = line.popleft()
        if not turn.over:
            return turn
    return None
