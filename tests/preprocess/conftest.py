"""A real Preprocess server on a port of its own, and a stub to call it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import grpc
import pytest

from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from interlock.serving import Server, ServerSettings
from interlock.vision import kernels
from interlock_preprocess import PreprocessService, PreprocessSettings, add_preprocess, pictures, work
from interlock_preprocess.counters import Counters
from preprocess.callers import Gate


@dataclass(frozen=True)
class Running:
    """A running server, and a connection to it."""

    address: str
    server: Server
    service: PreprocessService
    stub: PreprocessServiceStub

    @property
    def counters(self) -> Counters:
        return self.service.counters


Serve = Callable[..., Awaitable[Running]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts a server with the given `PreprocessSettings`."""
    async with AsyncExitStack() as stack:

        async def start(**settings: object) -> Running:
            server = Server(ServerSettings(host="127.0.0.1", port=0))
            service = add_preprocess(server, PreprocessSettings(**settings))
            address = f"127.0.0.1:{await server.start()}"
            stack.push_async_callback(service.close)
            stack.push_async_callback(server.stop, 0)
            options = [("grpc.max_receive_message_length", 4 << 20), ("grpc.use_local_subchannel_pool", 1)]
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options))
            return Running(address, server, service, PreprocessServiceStub(channel))

        yield start


@pytest.fixture
async def running(serve: Serve) -> Running:
    """A server with the default settings."""
    return await serve()


@pytest.fixture
def decode_gate(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Holds every decode before it begins; all are decoded as a whole."""
    gate = Gate()

    def pixels(request, data):
        gate.wait()
        return pictures.pixels(request, data)

    monkeypatch.setattr(work, "pixels", pixels)
    monkeypatch.setattr(work, "growing_pixels", lambda request, data: None)
    yield gate
    gate.open()


@pytest.fixture
def kernel_gate(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Holds every kernel before each of its checkpoints. Ask for it before the server is started."""
    gate = Gate()
    kernel = kernels.get()

    def resize_patchify(rgb, plan, profile, out, *, checkpoint, **options):
        def held_checkpoint(rows_done: int) -> None:
            gate.wait()
            checkpoint(rows_done)

        return kernel.resize_patchify(rgb, plan, profile, out, checkpoint=held_checkpoint, **options)

    monkeypatch.setattr(kernels, "get", lambda name: kernels.Kernel("held", resize_patchify))
    yield gate
    gate.open()
