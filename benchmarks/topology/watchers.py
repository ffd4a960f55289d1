"""Thousands of watchers who have nothing to see: what they cost, and when the last of them hears of an event."""

import asyncio
import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.report import Report
from benchmarks.topology import our_clients
from benchmarks.topology.ranks import Launch
from benchmarks.topology.servers import OurServer, our_server
from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.topology import ParallelSizes

if TYPE_CHECKING:
    from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceAsyncStub

CONNECTIONS = 100
SIZES = ParallelSizes(dp=4, cp=2, tp=8, pp=8)

_GROUP = "watched"


def measure(runner: asyncio.Runner, report: Report, watchers: int, rounds: int) -> None:
    """Adds rows. Times include what all those clients need, who share one thread."""
    with our_server("--store", "memory") as server:
        memory, connecting, event = runner.run(_follow(server, watchers, rounds))
    row = {"size": f"{watchers} over {CONNECTIONS} connections, {SIZES.product} ranks", "store": "memory"}
    report.rows += [
        {"what": "memory of an idle watcher", **row, "rounds": 1, "unit": "KiB", "ours": memory / watchers / 1024},
        {"what": "watchers connect, have a snapshot", **row, "rounds": 1, "unit": "s", "ours": connecting},
        {"what": "event, until the last watcher has it", **row, "rounds": rounds, "unit": "s", "ours": event},
    ]


async def _follow(server: OurServer, watchers: int, rounds: int) -> tuple[float, float, float]:
    """Bytes of all watchers, seconds until all follow, median of seconds from a call to the last watcher's message."""
    launch = Launch.now(SIZES)
    await our_clients.register(server.address, _GROUP, launch, CONNECTIONS)
    before = server.resident_bytes()
    told: asyncio.Queue[int] = asyncio.Queue()

    async def follow(stub: "BootstrapServiceAsyncStub") -> None:
        async for message in stub.WatchTopology(bootstrap_pb2.WatchTopologyRequest(group=_GROUP)):
            if message.last and not message.HasField("progress"):
                told.put_nowait(message.revision)

    async def seconds_until_all_are_told(since: float) -> float:
        revisions = {await told.get() for _ in range(watchers)}
        if len(revisions) != 1:
            raise SystemExit(f"watchers were told of the revisions {sorted(revisions)} in place of one")
        return time.perf_counter() - since

    async with our_clients.connected(server.address, CONNECTIONS) as stubs:
        start = time.perf_counter()
        following = [asyncio.create_task(follow(stubs[number % CONNECTIONS])) for number in range(watchers)]
        connecting = await seconds_until_all_are_told(start)
        memory = server.resident_bytes() - before
        events = []
        for life in range(1, rounds + 1):
            request = next(launch.register_requests(_GROUP))
            request.route.incarnation += life
            start = time.perf_counter()
            await stubs[0].RegisterRoute(request)
            events.append(await seconds_until_all_are_told(start))
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    return memory, connecting, statistics.median(events)
