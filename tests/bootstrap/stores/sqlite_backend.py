"""The SQLite store in the conformance suite."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bootstrap.stores.backends import Backend, MakeStore
from interlock_bootstrap.stores.sqlite import SqliteStore


@asynccontextmanager
async def state(folder: Path) -> AsyncIterator[MakeStore]:
    yield lambda watch_buffer: SqliteStore(folder, watch_buffer, room_ttl=300.0)


BACKEND = Backend("sqlite", state, durable=True, shared=False)
