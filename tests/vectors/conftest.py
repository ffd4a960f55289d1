"""A fresh pair of real services, as the vectors are to be tried on."""

from collections.abc import AsyncIterator

import grpc
import pytest

from interlock.serving import Server, ServerSettings
from interlock_bootstrap.serve import add_bootstrap
from interlock_bootstrap.settings import BootstrapSettings
from interlock_preprocess import PreprocessSettings, add_preprocess


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    """A channel to both services, on one port."""
    server = Server(ServerSettings(port=0))
    add_bootstrap(server, BootstrapSettings(store="memory"))
    preprocess = add_preprocess(server, PreprocessSettings())
    address = f"127.0.0.1:{await server.start()}"
    async with grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel
    await server.stop(0)
    await preprocess.close()
