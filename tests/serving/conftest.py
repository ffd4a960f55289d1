"""A real server on a free port, with whatever servicer a test brings."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import grpc
import pytest

from interlock.bootstrap.v1 import bootstrap_service_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import (
    BootstrapServiceServicer,
    add_BootstrapServiceServicer_to_server,
)
from interlock.serving import Server, ServerSettings

BOOTSTRAP: str = bootstrap_service_pb2.DESCRIPTOR.services_by_name["BootstrapService"].full_name

Serve = Callable[..., Awaitable[tuple[Server, grpc.aio.Channel]]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """`await serve(servicer, **settings)` gives a started server and a channel to it."""
    servers: list[Server] = []
    channels: list[grpc.aio.Channel] = []

    async def start(servicer: BootstrapServiceServicer, **settings: object) -> tuple[Server, grpc.aio.Channel]:
        server = Server(ServerSettings(port=0, **settings))
        server.add(BOOTSTRAP, partial(add_BootstrapServiceServicer_to_server, servicer))
        port = await server.start()
        servers.append(server)
        # A pool of its own: else a second channel to the port would share the first one's connection.
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])
        channels.append(channel)
        return server, channel

    yield start
    for channel in channels:
        await channel.close()
    for server in servers:
        await server.stop(grace=0)


@pytest.fixture
def until_idle() -> Callable[[Server], Awaitable[None]]:
    """`await until_idle(server)` waits until no call runs."""

    async def wait(server: Server) -> None:
        async with asyncio.timeout(20):
            while server.running_calls:  # noqa: ASYNC110 - the server has no event for it, and needs none
                await asyncio.sleep(0.001)

    return wait
