"""Four times as many pictures as the server can make, for a minute: what it refuses, how long the others take, and its
memory.

Callers send at fixed moments, whatever became of those before (an open loop), and do not try again; each picture is
another file. They share the processors with the server, and so have their part in the times.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle
from statistics import quantiles
from time import perf_counter

from benchmarks.report import Goal
from benchmarks.service.bench import Bench
from benchmarks.service.pictures import PHOTO_12MP
from benchmarks.service.server import OurServer, our_server
from interlock.client import AsyncPreprocessClient, RefusedError
from interlock.client._internal.retry import NO_RETRY
from interlock.reasons import Reason

HASH = bool(int(__import__("os").environ.get("HASH", "0")))
SECONDS = float(__import__("os").environ.get("OVERLOAD", "60"))
TIMES_CAPACITY = 4.0
FLAGS = tuple(__import__("os").environ.get("FLAGS", "--max-queue-seconds 0.03").split())
"""How a server is set that is to answer soon or not at all: see docs/running.md."""

_CALLERS = 16
_ALONE = 100
_CAPACITY_SECONDS = 4.0
_SAMPLES_A_SECOND = 5


@dataclass
class Outcome:
    """What became of the pictures that were offered."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    """Seconds of each that was admitted."""
    failures: Counter[str] = field(default_factory=Counter)
    """Others, by reason, or by class where they have none; `refused` with a delay after which to try again."""
    memory: list[float] = field(default_factory=list)
    """MiB of the server, over time."""


def measure(bench: Bench) -> None:
    """Adds rows and goals."""
    with our_server(*FLAGS) as server:
        alone, outcome, capacity = bench.runner.run(_measure(server))
        after = server.resident_mib()
    unloaded, admitted = _percentile(alone, 99), _percentile(outcome.latencies, 99)
    refused = outcome.failures.pop(_REFUSED, 0)
    others = sum(outcome.failures.values())
    offered = refused + others + len(outcome.latencies)
    settled = outcome.memory[len(outcome.memory) // 4 :]
    row = {
        "what": f"overload, {outcome.seconds:.0f} s",
        "picture": PHOTO_12MP.name,
        "capacity a second": capacity,
        "offered": offered / outcome.seconds,
        "made": len(outcome.latencies) / outcome.seconds,
        "refused": refused / outcome.seconds,
        "other failures": ", ".join(f"{count} {reason}" for reason, count in outcome.failures.items()) or "none",
    }
    times = {
        "what": "overload, ms",
        "alone p50": _percentile(alone, 50) * 1e3,
        "alone p99": unloaded * 1e3,
        "admitted p50": _percentile(outcome.latencies, 50) * 1e3,
        "admitted p99": admitted * 1e3,
    }
    memory = {
        "what": "overload, MiB",
        "after a quarter": settled[0],
        "most since": max(settled),
        "at the end": settled[-1],
        "after": after,
    }
    bench.report.rows += [row, times, memory]
    bench.report.goals += [
        Goal("overload_p99_ratio", admitted / unloaded, 2.0, "lower"),
        Goal("overload_other_failures", others, 0.0, "lower"),
        Goal("overload_memory_growth", max(settled) / settled[0], 1.1, "lower"),
    ]


async def _measure(server: OurServer) -> tuple[list[float], Outcome, float]:
    """Times of pictures alone, what became of those that were too many, and pictures a second that can be made."""
    callers = [
        AsyncPreprocessClient(server.address, shared_memory=False, retry=NO_RETRY, hash_first=HASH)
        for _ in range(_CALLERS)
    ]
    try:
        await asyncio.gather(*(caller.list_profiles() for caller in callers))
        alone = [await _seconds(callers[0]) for _ in range(_ALONE + 5)][5:]
        busy = Outcome()
        begun = perf_counter()
        await asyncio.gather(*(_call_until(begun + _CAPACITY_SECONDS, caller, busy) for caller in callers[:4]))
        capacity = len(busy.latencies) / (perf_counter() - begun)
        return alone, await _offer(server, callers, capacity * TIMES_CAPACITY), capacity
    finally:
        await asyncio.gather(*(caller.close() for caller in callers))


async def _call_until(end: float, caller: AsyncPreprocessClient, outcome: Outcome) -> None:
    while perf_counter() < end:
        await _call(caller, outcome)


async def _seconds(caller: AsyncPreprocessClient) -> float:
    (file,) = PHOTO_12MP.distinct(1)
    begun = perf_counter()
    await caller.preprocess(file)
    return perf_counter() - begun


async def _offer(server: OurServer, callers: list[AsyncPreprocessClient], rate: float) -> Outcome:
    """Send pictures at that rate."""
    outcome = Outcome()
    begun = perf_counter()
    sampler = asyncio.create_task(_sample(server, outcome))
    async with asyncio.TaskGroup() as calls:
        for number, caller in enumerate(cycle(callers)):
            pause = begun + number / rate - perf_counter()
            await asyncio.sleep(max(pause, 0))
            if perf_counter() - begun >= SECONDS:
                break
            calls.create_task(_call(caller, outcome))
        outcome.seconds = perf_counter() - begun
    sampler.cancel()
    return outcome


async def _call(caller: AsyncPreprocessClient, outcome: Outcome) -> None:
    try:
        outcome.latencies.append(await _seconds(caller))
    except RefusedError as error:
        with_delay = error.reason == Reason.OVERLOADED and error.retry_delay is not None
        outcome.failures[_REFUSED if with_delay else error.reason or error.code.name] += 1
    except Exception as error:
        outcome.failures[type(error).__name__] += 1


async def _sample(server: OurServer, outcome: Outcome) -> None:
    while True:
        outcome.memory.append(server.resident_mib())
        await asyncio.sleep(1 / _SAMPLES_A_SECOND)


_REFUSED = "refused"


def _percentile(seconds: list[float], hundredth: int) -> float:
    return quantiles(seconds, n=100, method="inclusive")[hundredth - 1]
