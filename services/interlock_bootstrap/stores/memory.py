"""The memory store: for tests and trials. A restart forgets everything."""

from collections.abc import Mapping, Sequence

from interlock.topology import Topology
from interlock_bootstrap.commits import CommitWatch
from interlock_bootstrap.stores import Lease, StoreListener
from interlock_bootstrap.stores.copies import Copies


class MemoryStore:
    """Keeps the topologies in this process; see `Store`."""

    keeps_leases = False

    def __init__(self, watch_buffer: int) -> None:
        """`watch_buffer`: commits that one watch may fall behind before it loses them."""
        self._copies = Copies(watch_buffer)
        self._listener: StoreListener | None = None

    async def start(self, listener: StoreListener) -> None:
        self._listener = listener

    async def close(self) -> None:
        pass

    async def load(self, group: str, *, fresh: bool = False) -> Topology:
        return self._copies.current(group)

    async def compare_and_swap(self, before: Topology, after: Topology) -> bool:
        if not self._copies.still(before):
            return False
        if after is not before:
            self._copies.put(after)
        return True

    def watch(self, group: str) -> CommitWatch:
        return self._copies.watch(group)

    async def groups(self, after: str, limit: int) -> list[Topology]:
        return self._copies.page(after, limit)

    async def group_count(self) -> int:
        return len(self._copies)

    def end_watches(self) -> None:
        self._copies.end_watches()

    async def renew(self, group: str, leases: Sequence[Lease]) -> list[int]:
        raise NotImplementedError("this store keeps no leases")

    async def register_rooms(self, group: str, epoch: int, dp_ranks: Mapping[int, int]) -> tuple[int, int]:
        assert self._listener is not None
        return self._listener.rooms_committed(group, epoch, dp_ranks)
