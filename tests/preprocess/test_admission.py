"""Budgets: whole or not at all, first come first served, nothing lost."""

import asyncio
import random

import pytest

from interlock.reasons import Reason
from interlock_preprocess.admission import Budget, Source
from interlock_preprocess.faults import ImageFault


async def turns() -> None:
    """Let all tasks run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_bytes_are_granted_whole_or_not_at_all():
    budget = Budget(10)
    grant = budget.take_now(6)
    assert grant is not None
    assert budget.take_now(5) is None
    assert budget.taken == 6
    assert budget.take_now(4) is not None
    assert budget.taken == 10


def test_a_grant_shrinks_and_is_given_back_once():
    budget = Budget(10)
    grant = budget.take_now(10)
    grant.shrink(4)
    assert budget.taken == 4
    with pytest.raises(ValueError, match="a grant of 4 bytes cannot grow to 5"):
        grant.shrink(5)
    grant.give_back()
    grant.give_back()
    assert budget.taken == 0


async def test_more_than_the_whole_budget_is_never_waited_for():
    with pytest.raises(ValueError, match="11 bytes are more than the whole budget of 10"):
        await Budget(10).take(11)


async def test_who_waits_is_served_in_turn_and_nobody_overtakes():
    budget = Budget(10)
    first = budget.take_now(8)
    large = asyncio.create_task(budget.take(9))
    small = asyncio.create_task(budget.take(1))
    await turns()
    assert budget.take_now(1) is None
    assert not small.done()
    first.give_back()
    await turns()
    assert large.done()
    assert small.done()
    assert budget.taken == 10


async def test_who_stops_waiting_makes_way():
    budget = Budget(10)
    first = budget.take_now(8)
    large = asyncio.create_task(budget.take(9))
    small = asyncio.create_task(budget.take(2))
    await turns()
    large.cancel()
    await turns()
    assert small.done()
    first.give_back()
    assert budget.taken == 2


async def test_bytes_granted_to_a_task_that_is_cancelled_at_that_moment_are_not_lost():
    budget = Budget(10)
    first = budget.take_now(8)
    waiting = asyncio.create_task(budget.take(5))
    await turns()
    first.give_back()
    waiting.cancel()
    await turns()
    assert waiting.cancelled()
    assert budget.taken == 0


async def test_any_order_of_taking_cancelling_and_giving_back_ends_at_zero_and_never_over_the_limit():
    draw = random.Random(7)
    for _ in range(50):
        budget = Budget(20)

        async def take(budget: Budget, size: int) -> None:
            grant = await budget.take(size)
            try:
                assert budget.taken <= budget.limit
                await turns()
            finally:
                grant.give_back()

        tasks = [asyncio.create_task(take(budget, draw.randint(0, 20))) for _ in range(20)]
        for task in draw.sample(tasks, 10):
            await asyncio.sleep(0)
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} <= {type(None), asyncio.CancelledError}
        assert budget.taken == 0


def test_a_source_takes_its_bytes_as_they_come_and_gives_all_back():
    budget = Budget(1 << 20)
    source = Source(budget, 6)
    source.append(b"abc")
    source.append(b"def")
    assert (source.whole(), source.received) == (b"abcdef", 6)
    assert budget.taken > 6
    source.drop()
    source.drop()
    assert budget.taken == 0


def test_a_source_that_finds_no_room_is_refused_with_a_time_to_try_again():
    budget = Budget(100_000)
    Source(budget, 50_000)
    with pytest.raises(ImageFault, match="no room for 50000 more") as caught:
        Source(budget, 50_000)
    assert caught.value.reason is Reason.OVERLOADED
    assert caught.value.retry_delay == 1.0
