"""A server killed by SIGKILL with many groups, and started again on what it kept."""

import asyncio
import time
from collections.abc import Callable, Sequence

from benchmarks.report import Report, median_readings
from benchmarks.topology import our_clients
from benchmarks.topology.ranks import Launch
from benchmarks.topology.servers import OurServer, our_server, sqlite_flags
from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.topology import ParallelSizes

GROUPS = 100
SIZES = ParallelSizes(dp=4, cp=2, tp=8, pp=8)

_CLIENTS = 64


def measure(runner: asyncio.Runner, report: Report, rounds: int) -> None:
    """Adds a row, and beside it what a server with nothing to read needs."""
    with sqlite_flags() as flags, sqlite_flags() as no_groups, our_server(*flags) as server:
        for number in range(GROUPS):
            launch = Launch.now(SIZES)
            runner.run(our_clients.register(server.address, f"recovered-{number}", launch, _CLIENTS))
        with our_server(*no_groups) as empty:
            contenders: dict[str, Callable[[], float]] = {
                "recovered": lambda: _restarted(runner, server, GROUPS),
                "empty": lambda: _restarted(runner, empty, 0),
            }
            seconds = median_readings(contenders, rounds)
    for what, size in (("recovered", f"{GROUPS} groups of {SIZES.product} ranks"), ("empty", "no groups")):
        row = {"what": "kill -9 until all groups are served again", "size": size, "store": "sqlite"}
        report.rows.append({**row, "rounds": rounds, "unit": "s", "ours": seconds[what]})


def _restarted(runner: asyncio.Runner, server: OurServer, groups: int) -> float:
    """Seconds from the kill until the server answered what groups it has."""
    start = time.perf_counter()
    server.kill()
    server.start()
    states = runner.run(_states(server.address))
    seconds = time.perf_counter() - start
    if [state.ready for state in states] != [True] * groups:
        raise SystemExit(f"of {groups} groups that were ready {sum(state.ready for state in states)} are")
    return seconds


async def _states(address: str) -> Sequence[bootstrap_pb2.GroupState]:
    async with our_clients.connected(address, 1) as (stub,):
        answer = await stub.ListGroups(bootstrap_pb2.ListGroupsRequest(page_size=GROUPS))
        return answer.groups
