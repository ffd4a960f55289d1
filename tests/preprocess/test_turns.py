"""Turns: parties take turns, in bounded lines, and nobody is forgotten."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

import pytest

from interlock.reasons import Reason
from interlock_preprocess.faults import ImageFault
from interlock_preprocess.turns import Party, Turn, Turns


async def ticks() -> None:
    """Let all tasks run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., tuple[Turns, "Started"]]]:
    """Makes turns, and the work that waits for them; what still waits in the end goes."""
    made: list[Started] = []

    def make(**limits: float) -> tuple[Turns, Started]:
        turns = Turns(**{"threads": 1, "max_waiting": 2000, "max_seconds": 60} | limits)
        made.append(Started(turns))
        return turns, made[-1]

    yield make
    for started in made:
        for task in started.tasks.values():
            task.cancel()
        await asyncio.gather(*started.tasks.values(), return_exceptions=True)


class Started:
    """Work that is named, waits for its turn, and is noted when it comes."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.names: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.at_work: deque[Turn] = deque()

    async def line_up(self, name: str, *parties: Party) -> Turn:
        turn = self.turns.turn()

        async def wait() -> None:
            try:
                await turn.come()
                self.names.append(name)
                self.at_work.append(turn)
            except asyncio.CancelledError:
                self.turns.end(turn)

        self.tasks[name] = asyncio.create_task(wait())
        await ticks()
        for party in parties:
            self.turns.line_up(turn, party)
        await ticks()
        return turn

    def end_one(self) -> None:
        """Let the thread that began first return."""
        self.turns.end(self.at_work.popleft())

    async def serve_all(self) -> list[str]:
        """Let threads return until nothing waits; the names in the order of their turns."""
        while self.turns.waiting:
            self.end_one()
            await ticks()
        return self.names


async def test_one_picture_of_one_party_comes_after_one_of_another_with_a_thousand(make):
    _, started = make()
    batch, interactive = Party(1000), Party(1)
    for number in range(1000):
        await started.line_up(f"batch {number}", batch)
    await started.line_up("interactive", interactive)
    order = await started.serve_all()
    assert order.index("interactive") == 2  # after the one at work and the one whose turn it was
    assert [name for name in order if name != "interactive"] == [f"batch {number}" for number in range(1000)]


async def test_parties_take_turns_and_each_is_served_in_its_order(make):
    _, started = make()
    a, b, c = Party(9), Party(9), Party(9)
    for name, party in (("a1", a), ("a2", a), ("a3", a), ("b1", b), ("b2", b), ("c1", c)):
        await started.line_up(name, party)
    assert await started.serve_all() == ["a1", "a2", "b1", "c1", "a3", "b2"]


async def test_work_that_two_parties_want_starts_with_the_first_whose_turn_it_is(make):
    turns, started = make()
    batch, interactive = Party(9), Party(1)
    for number in range(4):
        await started.line_up(f"batch {number}", batch)
    shared = await started.line_up("shared", batch)
    turns.line_up(shared, interactive)
    assert await started.serve_all() == ["batch 0", "batch 1", "shared", "batch 2", "batch 3"]


async def test_work_that_is_given_up_makes_way_whatever_it_has_come_to(make):
    turns, started = make(threads=2)
    party = Party(9)
    for name in ("at work", "at work too", "given up", "next"):
        await started.line_up(name, party)
    started.tasks["given up"].cancel()
    await ticks()
    assert turns.waiting == 1
    started.end_one()
    started.tasks["next"].cancel()  # in the moment in which its turn comes
    await ticks()
    assert started.names == ["at work", "at work too"]
    assert turns.waiting == 0
    await started.line_up("last", party)
    assert started.names[-1] == "last"


async def test_more_than_may_wait_are_refused_with_the_time_that_the_line_takes(make):
    turns, started = make(threads=2, max_waiting=3)
    party = Party(9)
    turns.note_seconds(0.5)
    for number in range(5):
        turns.check_room(party)
        await started.line_up(f"{number}", party)
    with pytest.raises(ImageFault, match="3 pictures wait for a thread") as caught:
        turns.check_room(Party(1))
    assert caught.value.reason is Reason.OVERLOADED
    assert caught.value.retry_delay == (3 + 2) * 0.5 / 2


async def test_a_party_is_refused_for_what_it_would_wait_itself_and_not_for_the_line_of_another(make):
    turns, started = make(max_seconds=1.0)
    batch, interactive = Party(99), Party(1)
    turns.note_seconds(0.1)
    for number in range(12):
        await started.line_up(f"{number}", batch)
    with pytest.raises(ImageFault, match=r"would wait 1\.1 s for a thread; at most 1 s"):
        turns.check_room(batch)
    turns.check_room(interactive)


@pytest.mark.parametrize(("seconds", "delay"), [(0.001, 0.05), (1000.0, 60.0)])
async def test_the_time_to_try_again_is_bounded(seconds, delay):
    turns = Turns(threads=1, max_waiting=1, max_seconds=60)
    turns.note_seconds(seconds)
    assert turns.retry_delay == delay


async def test_the_time_of_a_picture_follows_what_was_measured():
    turns = Turns(threads=1, max_waiting=1, max_seconds=60)
    turns.note_seconds(1.0)
    assert turns.retry_delay == 1.0
    turns.note_seconds(2.0)
    assert turns.retry_delay == pytest.approx(1.2)


async def test_places_are_taken_in_order_and_passed_on():
    party = Party(2)
    places = [party.place() for _ in range(5)]

    def placed() -> list[bool]:
        return [place.take() is False for place in places]

    waiting = [asyncio.create_task(place.taken()) for place in places]
    await ticks()
    assert [task.done() for task in waiting] == [True, True, False, False, False]
    places[2].release()  # gives up waiting
    places[0].release()
    places[0].release()
    await ticks()
    assert [task.done() and not task.cancelled() for task in waiting] == [True, True, False, True, False]
    for place in places:
        place.release()
    assert [party.place().take() for _ in range(2)] == [False, False]  # both are free: taken at once
    last = party.place()
    assert last.take()
