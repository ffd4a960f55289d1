"""Reminders: everybody once a period, from one timer, and no timer when nobody listens."""

import asyncio
from contextlib import ExitStack

from interlock_bootstrap.reminders import Reminders


async def test_everybody_is_reminded_again_and_again():
    counts = [0] * 40
    enough = asyncio.Event()
    reminders = Reminders(0.02)

    def reminded(number):
        counts[number] += 1
        if min(counts) >= 3:
            enough.set()

    with ExitStack() as stack:
        for number in range(40):
            stack.enter_context(reminders.each_period(lambda number=number: reminded(number)))
        async with asyncio.timeout(30):
            await enough.wait()
    assert max(counts) - min(counts) <= 1


async def test_who_has_gone_is_not_reminded_and_the_timer_ends_with_the_last():
    reminders = Reminders(0.005)
    again = asyncio.Event()
    gone = 0

    def count():
        nonlocal gone
        gone += 1

    with reminders.each_period(again.set):
        with reminders.each_period(count):
            pass
        async with asyncio.timeout(30):
            for _ in range(3):
                again.clear()
                await again.wait()
    assert gone == 0
    async with asyncio.timeout(30):
        while reminders._timer is not None:  # noqa: ASYNC110 - nobody is told when a timer ends
            await asyncio.sleep(0.001)
    with reminders.each_period(again.set):
        again.clear()
        async with asyncio.timeout(30):
            await again.wait()
