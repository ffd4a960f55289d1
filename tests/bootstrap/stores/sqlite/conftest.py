"""SQLite stores upon one folder."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bootstrap.stores.backends import Listener
from interlock_bootstrap.stores.sqlite import SqliteStore


@dataclass
class Opener:
    """Opens stores, one at a time; the one before is closed first."""

    folder: Path
    listener: Listener = field(default_factory=Listener)
    _open: SqliteStore | None = None

    @property
    def file(self) -> Path:
        return self.folder / "bootstrap.db"

    @property
    def log(self) -> Path:
        return self.folder / "bootstrap.db-wal"

    async def __call__(self, room_ttl: float = 300.0) -> SqliteStore:
        await self.close()
        self._open = SqliteStore(self.folder, 256, room_ttl)
        self.listener = Listener()
        await self._open.start(self.listener)
        return self._open

    async def close(self) -> None:
        if self._open is not None:
            await self._open.close()


@pytest.fixture
async def open_store(tmp_path: Path) -> AsyncIterator[Opener]:
    """Opens stores upon a folder that is not there at first."""
    opener = Opener(tmp_path / "state")
    yield opener
    await opener.close()


@pytest.fixture
async def store(open_store: Opener) -> SqliteStore:
    return await open_store()
