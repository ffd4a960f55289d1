"""The memory store in the conformance suite."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bootstrap.stores.backends import Backend, MakeStore
from interlock_bootstrap.stores.memory import MemoryStore


@asynccontextmanager
async def state(folder: Path) -> AsyncIterator[MakeStore]:
    yield MemoryStore


BACKEND = Backend("memory", state, durable=False, shared=False)
