"""A real Bootstrap service on a real port, spoken to through the generated stubs: this is the contract's test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import grpc
import pytest

from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.serving import Server, ServerSettings
from interlock_bootstrap.serve import add_bootstrap
from interlock_bootstrap.servicer import BootstrapServicer
from interlock_bootstrap.settings import BootstrapSettings


@dataclass(frozen=True)
class Service:
    """A running Bootstrap service."""

    stub: BootstrapServiceStub
    servicer: BootstrapServicer
    server: Server
    address: str


StartService = Callable[..., Awaitable[Service]]


@pytest.fixture
async def start_service() -> AsyncIterator[StartService]:
    """Starts services with settings of their own; stops them afterwards."""
    running: list[tuple[Server, grpc.aio.Channel]] = []

    async def start(**settings: object) -> Service:
        server = Server(ServerSettings(port=0))
        servicer = add_bootstrap(server, BootstrapSettings(**settings))
        address = f"127.0.0.1:{await server.start()}"
        channel = grpc.aio.insecure_channel(address)
        running.append((server, channel))
        return Service(BootstrapServiceStub(channel), servicer, server, address)

    yield start
    for server, channel in running:
        await channel.close()
        await server.stop(0)


@pytest.fixture
async def service(start_service: StartService) -> Service:
    return await start_service()


@pytest.fixture
async def stub(service: Service) -> BootstrapServiceStub:
    return service.stub
