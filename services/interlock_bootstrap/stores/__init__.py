"""Stores: where the topologies of the groups, and the rooms, are kept.

The rules live above a store. A backend knows nothing of readiness or contracts: it keeps one `Topology` a group and
swaps it if the group still is as it was, and it keeps rooms. `tests/bootstrap/stores` says what each has to do.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from interlock.reasons import Reason
from interlock.serving import Refusal
from interlock.topology import Instance, RankKey, Topology
from interlock_bootstrap.commits import CommitWatch

RETRY_SECONDS = 1.0
"""After which a caller that met a store without an answer may try again."""


class CannotOpenStoreError(Exception):
    """A store cannot be opened; the message says why, and what to do."""


class StoreUnreachableError(CannotOpenStoreError):
    """A store that others serve gave no answer. The same may go well a little later."""


class StoreUnavailableError(Refusal):
    """The store cannot be reached, or what it keeps cannot be known to be current. Nothing was changed."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.STORE_UNAVAILABLE, message, retry_delay=RETRY_SECONDS)


class StoreFullError(Refusal):
    """The store has no room left. Nothing was changed, and it goes on with what it has."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.STORE_FULL, message)


class CommitUnknownError(Exception):
    """A commit was sent and no answer came: it may stand or not. Only `Store.load(fresh=True)` tells."""


class Lease(NamedTuple):
    """Names the lease of one row of a group."""

    key: RankKey
    instance: Instance
    incarnation: int


class StoreListener(Protocol):
    """What a store tells the service above it. All calls come on the event loop."""

    def rooms_committed(self, group: str, epoch: int, dp_ranks: Mapping[int, int]) -> tuple[int, int]:
        """Rooms (with their DP ranks) were committed by this server or another one, or were there at the start.

        Called once for each commit, in the order of the commits, so that the last writer wins everywhere.

        Returns:
            How many rooms were new, and how many had a rank before.
        """
        ...

    def availability(self, available: bool) -> None:
        """The store was lost, or is there again; at first it is taken to be there."""
        ...


class Unheard:
    """A listener that takes no notice, for a store that no service uses."""

    def rooms_committed(self, group: str, epoch: int, dp_ranks: Mapping[int, int]) -> tuple[int, int]:
        return 0, 0

    def availability(self, available: bool) -> None:
        pass


class Store(Protocol):
    """What a backend does. All methods may be called from many tasks of one event loop.

    Where nothing else is said, each may raise `StoreUnavailableError`.
    """

    keeps_leases: bool
    """The store itself drops rows whose lease ran out, and renews leases. If not, the service above keeps their time:
    it renews them without the store and asks for `ExpireRoutes`."""

    async def start(self, listener: StoreListener) -> None:
        """Opens the store, and tells `listener` of the rooms that it keeps. Called once, before anything else.

        Raises:
            CannotOpenStoreError: `close` is called nevertheless.
        """
        ...

    async def close(self) -> None:
        """Gives back all that the store holds; what was committed stays, if the backend is durable. Once is enough,
        and a second time does nothing."""
        ...

    async def load(self, group: str, *, fresh: bool = False) -> Topology:
        """The group's topology as last committed; `Topology.empty(group)` if it has no history.

        Args:
            group: Name of the group.
            fresh: As committed now by anybody; else as far as the watches of this store have followed.
        """
        ...

    async def compare_and_swap(self, before: Topology, after: Topology) -> bool:
        """Commits `after` if the group still is as `before`: the same revision, and the same leases.

        Nobody is shown `after` before it is committed, and every watch is told of it before this returns.

        - `after is before`: nothing is written, only confirmed that the group still is so.
        - `after.revision == before.revision`: the leases alone changed; they are stored and nobody is told.

        One change has at most `registry.MAX_BATCH` rows, but for those that expire.

        Returns:
            Whether it was committed. False: somebody else was first, and nothing changed.

        Raises:
            StoreFullError: There is no room for it.
            CommitUnknownError: Nobody knows whether it was committed.
        """
        ...

    def watch(self, group: str) -> CommitWatch:
        """Follows the group's commits from the one that stands now. To be used in a `with` block.

        Every later revision is told once and in order, as one commit each, whoever made it.
        """
        ...

    async def groups(self, after: str, limit: int) -> list[Topology]:
        """At most `limit` groups with a history whose names come after `after`, in the order of their names."""
        ...

    async def group_count(self) -> int:
        """How many groups have a history."""
        ...

    def end_watches(self) -> None:
        """Ends every watch, those to come as well: the server is about to stop."""
        ...

    async def renew(self, group: str, leases: Sequence[Lease]) -> list[int]:
        """Renews leases, where the store keeps them.

        Returns:
            Of each the milliseconds that it has from now on, all of its TTL; 0: there is no such lease.
        """
        ...

    async def register_rooms(self, group: str, epoch: int, dp_ranks: Mapping[int, int]) -> tuple[int, int]:
        """Commits the DP ranks of rooms of a group's epoch. They are kept for at least as long as the service keeps
        them from when it learns of them; a store may forget them after that, and may forget those of past epochs.

        Returns:
            What the listener said to it, which was told before this returns.

        Raises:
            StoreFullError: There is no room for them.
        """
        ...
