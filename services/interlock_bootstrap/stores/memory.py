"""The memory store: for tests and trials. A restart forgets everything."""

from interlock.topology import Topology
from interlock_bootstrap.commits import Commit, CommitFeed, CommitWatch


class MemoryStore:
    """Keeps the topologies in this process; see `Store`."""

    def __init__(self, watch_buffer: int) -> None:
        """`watch_buffer`: commits that one watch may fall behind before it loses them."""
        self._topologies: dict[str, Topology] = {}
        self._feed = CommitFeed(watch_buffer)

    async def load(self, group: str) -> Topology:
        return self._topologies.get(group) or Topology.empty(group)

    async def compare_and_swap(self, group: str, expected_revision: int, topology: Topology) -> bool:
        before = await self.load(group)
        if before.revision != expected_revision:
            return False
        self._topologies[group] = topology
        self._feed.publish(Commit(before, topology))
        return True

    def watch(self, group: str) -> CommitWatch:
        return self._feed.watch(self._topologies.get(group) or Topology.empty(group))

    async def groups(self, after: str, limit: int) -> list[Topology]:
        names = sorted(name for name in self._topologies if name > after)
        return [self._topologies[name] for name in names[:limit]]

    async def group_count(self) -> int:
        return len(self._topologies)

    def end_watches(self) -> None:
        self._feed.end()
