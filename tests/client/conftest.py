"""Every test that takes `face` holds for the synchronous and the asynchronous clients alike."""

import asyncio
from collections.abc import Iterator

import pytest

from client.scripted import AsyncFace, Face, SyncFace


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for all: grpc.aio hands late events of a loop that was closed to the next one, which fails."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        yield runner


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Face:
    return SyncFace() if request.param == "sync" else AsyncFace(runner)
