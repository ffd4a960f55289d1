"""A store of every backend."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bootstrap.stores.backends import Backend, Opened, OpenStore, backends, opening
from interlock_bootstrap.stores import Store


@pytest.fixture(params=backends(), ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param


@pytest.fixture
async def open_store(backend: Backend, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens stores upon the same state, empty at first."""
    async with opening(backend, tmp_path) as open_store:
        yield open_store


@pytest.fixture
async def opened(open_store: OpenStore) -> Opened:
    return await open_store()


@pytest.fixture
def store(opened: Opened) -> Store:
    return opened.store
