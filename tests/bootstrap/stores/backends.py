"""What the conformance suite runs on: every module `*_backend.py` of this folder brings one backend as `BACKEND`.

A backend that is not ours takes part in the same way: it puts such a module here.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from interlock_bootstrap.rooms import Rooms
from interlock_bootstrap.stores import Store

MakeStore = Callable[[int], Store]
"""Makes a store, not yet started, from the number of commits that a watch may fall behind."""


@dataclass(frozen=True)
class Backend:
    """One kind of store."""

    name: str
    state: Callable[[Path], AbstractAsyncContextManager[MakeStore]]
    """Prepares empty state for one test, in a folder of its own, and gives what makes stores upon that state."""
    durable: bool
    """A store upon the same state has what one before it committed."""
    shared: bool
    """Several stores may be open upon the same state at once: replicas."""


def backends() -> list[Backend]:
    return [
        import_module(f"bootstrap.stores.{module.stem}").BACKEND
        for module in sorted(Path(__file__).parent.glob("*_backend.py"))
    ]


@dataclass
class Listener:
    """Takes what a store tells, as the service does."""

    rooms: Rooms = field(default_factory=lambda: Rooms(10**6, 10**6, 300.0, lambda: 0.0))
    told: list[tuple[str, int, dict[int, int]]] = field(default_factory=list)
    availabilities: list[bool] = field(default_factory=list)

    def rooms_committed(self, group: str, epoch: int, dp_ranks: Mapping[int, int]) -> tuple[int, int]:
        self.told.append((group, epoch, dict(dp_ranks)))
        return self.rooms.put(group, epoch, dp_ranks)

    def availability(self, available: bool) -> None:
        self.availabilities.append(available)


@dataclass
class Opened:
    """A started store, and what it told."""

    store: Store
    listener: Listener


OpenStore = Callable[..., Awaitable[Opened]]


@asynccontextmanager
async def opening(backend: Backend, folder: Path) -> AsyncIterator[OpenStore]:
    """Gives what opens stores upon the same state; those still open at the end are closed."""
    opened: list[Store] = []

    async def open_store(watch_buffer: int = 256) -> Opened:
        listener = Listener()
        store = make_store(watch_buffer)
        opened.append(store)
        await store.start(listener)
        return Opened(store, listener)

    async with backend.state(folder) as make_store:
        try:
            yield open_store
        finally:
            for store in opened:
                await store.close()
