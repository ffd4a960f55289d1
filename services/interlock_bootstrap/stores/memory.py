"""The memory store: for tests and trials. A restart forgets everything."""

from collections.abc import Mapping, Sequence

from interlock.topology import Topology
from interlock_bootstrap.commits import Commit, CommitFeed, CommitWatch
from interlock_bootstrap.stores import Lease, StoreListener


class MemoryStore:
    """Keeps the topologies in this process; see `Store`."""

    keeps_leases = False

    def __init__(self, watch_buffer: int) -> None:
        """`watch_buffer`: commits that one watch may fall behind before it loses them."""
        self._topologies: dict[str, Topology] = {}
        self._feed = CommitFeed(watch_buffer)
        self._listener: StoreListener | None = None

    async def start(self, listener: StoreListener) -> None:
        self._listener = listener

    async def close(self) -> None:
        pass

    async def load(self, group: str, *, fresh: bool = False) -> Topology:
        return self._current(group)

    def _current(self, group: str) -> Topology:
        return self._topologies.get(group) or Topology.empty(group)

    async def compare_and_swap(self, before: Topology, after: Topology) -> bool:
        current = self._current(before.group)
        if (current.revision, current.leases) != (before.revision, before.leases):
            return False
        if after is not before:
            self._topologies[after.group] = after
            if after.revision != before.revision:
                self._feed.publish(Commit(before, after))
        return True

    def watch(self, group: str) -> CommitWatch:
        return self._feed.watch(self._current(group))

    async def groups(self, after: str, limit: int) -> list[Topology]:
        names = sorted(name for name in self._topologies if name > after)
        return [self._topologies[name] for name in names[:limit]]

    async def group_count(self) -> int:
        return len(self._topologies)

    def end_watches(self) -> None:
        self._feed.end()

    async def renew(self, group: str, leases: Sequence[Lease]) -> list[int]:
        raise NotImplementedError("this store keeps no leases")

    async def register_rooms(self, group: str, epoch: int, dp_ranks: Mapping[int, int]) -> tuple[int, int]:
        assert self._listener is not None
        return self._listener.rooms_committed(group, epoch, dp_ranks)
