"""The topologies of all groups as a store of this process has committed them, and who follows them."""

from bisect import bisect_right, insort

from interlock.topology import Topology
from interlock_bootstrap.commits import Commit, CommitFeed, CommitWatch


class Copies:
    """What every read is answered from."""

    def __init__(self, watch_buffer: int) -> None:
        """`watch_buffer`: commits that one watch may fall behind before it loses them."""
        self._topologies: dict[str, Topology] = {}
        self._names: list[str] = []
        """In order."""
        self._feed = CommitFeed(watch_buffer)

    def __len__(self) -> int:
        """Groups with a history."""
        return len(self._topologies)

    def current(self, group: str) -> Topology:
        return self._topologies.get(group) or Topology.empty(group)

    def still(self, before: Topology) -> bool:
        """Whether the group still is as `before`."""
        current = self.current(before.group)
        return current is before or (current.revision, current.leases) == (before.revision, before.leases)

    def put(self, after: Topology) -> None:
        """Takes over what was committed, and tells the watches unless the leases alone changed."""
        before = self.current(after.group)
        if after.group not in self._topologies:
            insort(self._names, after.group)
        self._topologies[after.group] = after
        if after.revision != before.revision:
            self._feed.publish(Commit(before, after))

    def page(self, after: str, limit: int) -> list[Topology]:
        """At most `limit` groups whose names come after `after`, in the order of their names."""
        first = bisect_right(self._names, after)
        return [self._topologies[name] for name in self._names[first : first + limit]]

    def watch(self, group: str) -> CommitWatch:
        return self._feed.watch(self.current(group))

    def end_watches(self) -> None:
        self._feed.end()
