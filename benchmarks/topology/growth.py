"""How costs grow with the size of a group."""

import asyncio
import math
import statistics
from collections.abc import Callable

from benchmarks.report import Goal, Report, median_readings
from benchmarks.topology import our_clients
from benchmarks.topology.ranks import Launch
from benchmarks.topology.servers import our_server, sqlite_flags
from interlock.topology import ParallelSizes

CLIENTS = 64
SIZES = (
    ParallelSizes(dp=4, cp=1, tp=4, pp=4),
    ParallelSizes(dp=4, cp=2, tp=8, pp=8),
    ParallelSizes(dp=8, cp=2, tp=16, pp=8),
    ParallelSizes(dp=16, cp=4, tp=16, pp=8),
)


def measure(runner: asyncio.Runner, report: Report, rounds: int) -> None:
    """Adds rows and a goal: whole groups register, without a watcher and with one."""
    numbers = iter(range(1_000_000))

    def register(address: str, sizes: ParallelSizes) -> float:
        return runner.run(our_clients.register(address, f"growth-{next(numbers)}", Launch.now(sizes), CLIENTS))

    def watch(address: str, sizes: ParallelSizes) -> float:
        launch, group = Launch.now(sizes), f"growth-{next(numbers)}"
        seconds, known = runner.run(our_clients.register_and_watch(address, group, launch, CLIENTS, 1))
        if known != [launch.addresses]:
            raise SystemExit("the watcher ended with other addresses than the ranks registered")
        return seconds

    exponents = []
    kinds: dict[str, Callable[[str, ParallelSizes], float]] = {"registration": register, "watch event": watch}
    for what, seconds_of in kinds.items():
        with sqlite_flags() as flags, our_server(*flags) as server:
            contenders = {str(sizes.product): (lambda s=sizes: seconds_of(server.address, s)) for sizes in SIZES}
            seconds = {int(ranks): taken for ranks, taken in median_readings(contenders, rounds).items()}
        for ranks, taken in seconds.items():
            row = {"what": f"{what}, a rank", "size": f"a group of {ranks} ranks", "store": "sqlite"}
            report.rows.append({**row, "rounds": rounds, "unit": "ms", "ours": taken / ranks * 1e3})
        exponents.append(exponent(seconds))
    report.goals.append(Goal("growth_exponent", max(exponents), 1.1, "lower"))


def exponent(seconds: dict[int, float]) -> float:
    """The power of the number of ranks that total times grow by: the slope of their logarithms."""
    return statistics.linear_regression([math.log(ranks) for ranks in seconds], list(map(math.log, seconds.values())))[
        0
    ]
