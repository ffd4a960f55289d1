"""Clients of the Bootstrap service: the stubs of grpc.aio, all in one loop.

Each has a connection of its own, as a process of its own would, and connects with its first call.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import grpc

from benchmarks.topology.ranks import Addresses, Launch
from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.topology import RankKey

if TYPE_CHECKING:
    from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceAsyncStub

_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]
"""Else all channels to one address share one connection."""

_WHOLE_TIMEOUT = 300.0
"""Seconds after which a call that was not answered is a failure."""


@asynccontextmanager
async def connected(address: str, clients: int) -> AsyncIterator[list["BootstrapServiceAsyncStub"]]:
    """Clients; the connections end with the block."""
    async with AsyncExitStack() as stack:
        yield [
            BootstrapServiceStub(await stack.enter_async_context(grpc.aio.insecure_channel(address, _OPTIONS)))
            for _ in range(clients)
        ]


async def register(address: str, group: str, launch: Launch, clients: int, *, connect_first: bool = False) -> float:
    """Registers every rank, one after another from each client. Seconds until the last is acknowledged.

    `connect_first`: connections are made before, and not counted.
    """
    requests = list(launch.register_requests(group))
    start = time.perf_counter()
    async with connected(address, clients) as stubs:
        if connect_first:
            await _connect(stubs)
            start = time.perf_counter()
        await _register_all(stubs, requests)
        return time.perf_counter() - start


async def register_and_watch(
    address: str, group: str, launch: Launch, clients: int, watchers: int, *, connect_first: bool = False
) -> tuple[float, list[Addresses]]:
    """Ranks register, as by `register`, while others follow, who have their watch open before.

    Returns:
        Seconds from the first registration until the last watcher knows every rank, and what the watchers know.
    """
    requests = list(launch.register_requests(group))
    async with connected(address, watchers) as watching, connected(address, clients) as stubs:
        if connect_first:
            await _connect(stubs)
        following = [asyncio.Event() for _ in watching]
        async with asyncio.TaskGroup() as tasks:
            watches = [
                tasks.create_task(_watch_until_complete(stub, group, begun))
                for stub, begun in zip(watching, following, strict=True)
            ]
            for begun in following:
                await begun.wait()
            start = time.perf_counter()
            tasks.create_task(_register_all(stubs, requests))
        return time.perf_counter() - start, [watch.result() for watch in watches]


async def _connect(stubs: Sequence["BootstrapServiceAsyncStub"]) -> None:
    await asyncio.gather(*(stub.ListGroups(bootstrap_pb2.ListGroupsRequest(page_size=1)) for stub in stubs))


async def _watch_until_complete(stub: "BootstrapServiceAsyncStub", group: str, begun: asyncio.Event) -> Addresses:
    """Follows a group until every rank has registered; `begun` tells that it does."""
    addresses: Addresses = {}
    call = stub.WatchTopology(bootstrap_pb2.WatchTopologyRequest(group=group), timeout=_WHOLE_TIMEOUT)
    async for message in call:
        begun.set()
        if message.HasField("snapshot"):
            state, routes = message.snapshot.state, list(message.snapshot.routes)
        else:
            state = message.change.state
            registered = (event for event in message.change.events if event.HasField("route_registered"))
            routes = [event.route_registered.route for event in registered]
        for route in routes:
            key = route.key
            addresses[RankKey(key.dp, key.cp, key.tp, key.pp)] = route.rank_ip, route.rank_port
        if message.last and state.ready:
            break
    call.cancel()
    return addresses


async def register_rooms(address: str, group: str, batches: Sequence[Mapping[int, int]], clients: int) -> float:
    """Registers rooms in batches. Seconds until the last is acknowledged."""
    requests = [
        bootstrap_pb2.RegisterDpRanksRequest(
            group=group,
            assignments=[bootstrap_pb2.RoomAssignment(room=room, dp_rank=rank) for room, rank in dp_ranks.items()],
        )
        for dp_ranks in batches
    ]
    start = time.perf_counter()
    async with connected(address, clients) as stubs:
        waiting = iter(requests)

        async def client(stub: "BootstrapServiceAsyncStub") -> None:
            for request in waiting:
                await stub.RegisterDpRanks(request, timeout=_WHOLE_TIMEOUT)

        await asyncio.gather(*map(client, stubs))
        return time.perf_counter() - start


async def query_rooms(address: str, group: str, batches: Sequence[Sequence[int]]) -> tuple[float, dict[int, int]]:
    """Asks for rooms in batches, one after another. Seconds, and what is known of them."""
    found: dict[int, int] = {}
    start = time.perf_counter()
    async with connected(address, 1) as (stub,):
        for rooms in batches:
            answer = await stub.QueryDpRanks(
                bootstrap_pb2.QueryDpRanksRequest(group=group, rooms=rooms), timeout=_WHOLE_TIMEOUT
            )
            found |= {assignment.room: assignment.dp_rank for assignment in answer.assignments}
        return time.perf_counter() - start, found


async def _register_all(
    stubs: Sequence["BootstrapServiceAsyncStub"], requests: Iterable[bootstrap_pb2.RegisterRouteRequest]
) -> None:
    waiting = iter(requests)

    async def client(stub: "BootstrapServiceAsyncStub") -> None:
        for request in waiting:
            await stub.RegisterRoute(request, timeout=_WHOLE_TIMEOUT)

    await asyncio.gather(*map(client, stubs))
