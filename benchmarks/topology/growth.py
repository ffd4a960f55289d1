"""How costs grow with the size of a group."""

import asyncio
import math
import statistics
from functools import partial

from benchmarks.report import Goal, Report, median_readings
from benchmarks.topology import our_clients
from benchmarks.topology.ranks import Launch
from benchmarks.topology.servers import our_server, sqlite_flags
from interlock.topology import ParallelSizes

SIZES = (
    ParallelSizes(dp=4, cp=1, tp=4, pp=4),
    ParallelSizes(dp=4, cp=2, tp=8, pp=8),
    ParallelSizes(dp=8, cp=2, tp=16, pp=8),
    ParallelSizes(dp=16, cp=4, tp=16, pp=8),
)

_CLIENTS = 64


def measure(runner: asyncio.Runner, report: Report, rounds: int, quick: bool) -> None:
    """Adds rows and a goal: groups register from end to end, unwatched and with one watcher who is told of each row.

    Connections are made before: they cost the same for every group. A quick run ends at 2,048 ranks.
    """
    sizes_of_groups = SIZES[:-1] if quick else SIZES
    groups = iter(range(1_000_000))

    def register(address: str, sizes: ParallelSizes) -> float:
        group, launch = f"growth-{next(groups)}", Launch.now(sizes)
        return runner.run(our_clients.register(address, group, launch, _CLIENTS, connect_first=True))

    def watch(address: str, sizes: ParallelSizes) -> float:
        group, launch = f"growth-{next(groups)}", Launch.now(sizes)
        watched = our_clients.register_and_watch(address, group, launch, _CLIENTS, watchers=1, connect_first=True)
        seconds, known = runner.run(watched)
        if known != [launch.addresses]:
            raise SystemExit("the watcher ended with other addresses than the ranks registered")
        return seconds

    exponents = []
    for what, seconds_of in (("registration", register), ("registration, watched", watch)):
        with sqlite_flags() as flags, our_server(*flags) as server:
            contenders = {str(sizes.product): partial(seconds_of, server.address, sizes) for sizes in sizes_of_groups}
            seconds = {int(ranks): taken for ranks, taken in median_readings(contenders, rounds).items()}
        row = {"what": what, "store": "sqlite", "rounds": rounds, "unit": "ms a rank"}
        report.rows += [
            row | {"size": f"{ranks} ranks, {_CLIENTS} clients", "ours": taken / ranks * 1e3}
            for ranks, taken in seconds.items()
        ]
        exponents.append(_exponent(seconds))
    report.goals.append(Goal("growth_exponent", max(exponents), 1.1, "lower"))


def _exponent(seconds: dict[int, float]) -> float:
    """The power of the number of ranks by which total times grow: the slope of their logarithms."""
    return statistics.linear_regression([*map(math.log, seconds)], [*map(math.log, seconds.values())]).slope
