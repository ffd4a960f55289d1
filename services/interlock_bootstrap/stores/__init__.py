"""Stores: where the topologies of the groups are kept.

The rules live above a store. A backend knows nothing of ranks or readiness: it keeps one `Topology` a group and
swaps it if its revision is still the expected one.
"""

from typing import Protocol

from interlock.topology import Topology
from interlock_bootstrap.commits import CommitWatch


class Store(Protocol):
    """What a backend does. All methods may be called from many tasks of one event loop."""

    async def load(self, group: str) -> Topology:
        """The group's topology as last committed; `Topology.empty(group)` if it has no history."""
        ...

    async def compare_and_swap(self, group: str, expected_revision: int, topology: Topology) -> bool:
        """Commits `topology` if the group's revision is `expected_revision`, else changes nothing.

        Returns:
            Whether it was committed. Nobody is shown the topology before it is.
        """
        ...

    def watch(self, group: str) -> CommitWatch:
        """Follows the group's commits from the one that stands now. To be used in a `with` block."""
        ...

    async def groups(self, after: str, limit: int) -> list[Topology]:
        """At most `limit` groups with a history whose names come after `after`, in the order of their names."""
        ...

    async def group_count(self) -> int:
        """How many groups have a history."""
        ...

    def end_watches(self) -> None:
        """Ends every watch: the server is about to stop."""
        ...
