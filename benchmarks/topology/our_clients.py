"""Clients of the Bootstrap service, over gRPC's stubs. Each has a connection of its own, as a process of its own would."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import grpc

from benchmarks.topology.ranks import Addresses, Launch
from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.topology.messages import rank_key_from_message


@asynccontextmanager
async def connected(address: str, clients: int) -> AsyncIterator[list[BootstrapServiceStub]]:
    """Clients that connect when they first call."""
    options = [("grpc.use_local_subchannel_pool", 1)]  # else they would share one connection
    async with AsyncExitStack() as stack:
        yield [
            BootstrapServiceStub(await stack.enter_async_context(grpc.aio.insecure_channel(address, options)))
            for _ in range(clients)
        ]


async def register(
    stubs: Sequence[BootstrapServiceStub], requests: Iterable[bootstrap_pb2.RegisterRouteRequest]
) -> None:
    """Registers ranks one a call; each client takes the next one when its last was acknowledged."""
    waiting = iter(requests)

    async def client(stub: BootstrapServiceStub) -> None:
        for request in waiting:
            await stub.RegisterRoute(request)

    await asyncio.gather(*map(client, stubs))


async def watch_until_complete(stub: BootstrapServiceStub, group: str) -> Addresses:
    """Follows a group until every rank has registered."""
    addresses: Addresses = {}
    call = stub.WatchTopology(bootstrap_pb2.WatchTopologyRequest(group=group))
    async for message in call:
        body = message.snapshot if message.HasField("snapshot") else message.change
        routes = (
            message.snapshot.routes
            if message.HasField("snapshot")
            else [event.route_registered.route for event in message.change.events if event.HasField("route_registered")]
        )
        for route in routes:
            addresses[rank_key_from_message(route.key)] = route.rank_ip, route.rank_port
        if message.last and body.state.ready:
            break
    call.cancel()
    return addresses


async def register_and_watch(address: str, group: str, launch: Launch, ranks: int, watchers: int) -> list[Addresses]:
    """Ranks register from as many connections as `ranks` while others follow; gives what each of these ended with."""
    async with connected(address, ranks) as stubs, connected(address, watchers) as watching:
        async with asyncio.TaskGroup() as group_of_tasks:
            watches = [
                group_of_tasks.create_task(watch_until_complete(stub, group)) for stub in watching
            ]
            await register(stubs, launch.register_requests(group))
        return [watch.result() for watch in watches]
