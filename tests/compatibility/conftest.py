"""Today's services, and the last release's view of them."""

from collections.abc import AsyncIterator

import grpc
import pytest

from compatibility.previous import PreviousClient, PreviousServer
from interlock.serving import Server, ServerSettings
from interlock_bootstrap.serve import add_bootstrap
from interlock_bootstrap.settings import BootstrapSettings
from interlock_preprocess import PreprocessSettings, add_preprocess


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    """A channel to both of today's services, on one port."""
    server = Server(ServerSettings(port=0))
    add_bootstrap(server, BootstrapSettings(store="memory"))
    preprocess = add_preprocess(server, PreprocessSettings())
    address = f"127.0.0.1:{await server.start()}"
    async with grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel
    await server.stop(0)
    await preprocess.close()


@pytest.fixture
def previous_client(channel: grpc.aio.Channel) -> PreviousClient:
    """A client of the last release, at today's server."""
    return PreviousClient(channel)


@pytest.fixture
async def previous_server(channel: grpc.aio.Channel) -> AsyncIterator[str]:
    """Address of a server of the last release."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((PreviousServer(channel),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)
