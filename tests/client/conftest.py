"""Every test that takes `face` holds for the synchronous and the asynchronous clients alike."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from client.preprocess_served import Running, Start
from client.scripted import AsyncFace, Face, SyncFace
from interlock.serving import Server, ServerSettings
from interlock_preprocess import PreprocessService, PreprocessSettings, add_preprocess


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for all: grpc.aio hands late events of a loop that was closed to the next one, which fails."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        yield runner


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Face:
    return SyncFace() if request.param == "sync" else AsyncFace(runner)


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts Preprocess services; stops them afterwards."""
    started: list[tuple[Server, PreprocessService]] = []

    async def start_one(**settings: object) -> Running:
        server = Server(ServerSettings(port=0))
        service = add_preprocess(server, PreprocessSettings(**settings))
        started.append((server, service))
        return Running(f"127.0.0.1:{await server.start()}", service)

    yield start_one
    for server, service in started:
        await server.stop(0)
        await service.close()


@pytest.fixture
async def running(start: Start) -> Running:
    return await start()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory; empty again in the end."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)
        assert list(Path(name).iterdir()) == []
