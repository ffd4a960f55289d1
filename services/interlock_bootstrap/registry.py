"""The registry: the rules of `interlock.topology` applied to a store.

Everything that changes a group goes through `Registry.change`, everything that reads one through `Registry.read`.
"""

import asyncio
from collections.abc import Callable

from interlock.reasons import Reason
from interlock.serving import Refusal
from interlock.topology import Refused, Request, Topology, transition
from interlock_bootstrap.refusals import refusal_of
from interlock_bootstrap.stores import Store

LONGEST_WAIT = 60.0
"""Seconds that a call without a deadline waits for what it asked to wait for."""


class Registry:
    """Applies the rules to a store."""

    def __init__(self, store: Store, clock: Callable[[], int], max_groups: int) -> None:
        """
        Args:
            store: Keeps the topologies.
            clock: Unix time in nanoseconds.
            max_groups: Groups with a history that this registry lets come into being.
        """
        self.store = store
        self._clock = clock
        self._max_groups = max_groups

    async def change(self, group: str, request: Request) -> tuple[Topology, Topology]:
        """Applies one request; loads and tries again while other changes come first.

        Returns:
            The topology before and after; the same object twice if the request changed nothing.

        Raises:
            Refusal: The rules refuse the request, or a new group would be one too many. Nothing has changed.
        """
        while True:
            before = await self.store.load(group)
            outcome = transition(before, request, self._clock())
            if isinstance(outcome, Refused):
                raise refusal_of(outcome)
            after = outcome.topology
            if after is before:
                return before, after
            if before.revision == 0 and await self.store.group_count() >= self._max_groups:
                raise Refusal(
                    Reason.TOO_MANY_GROUPS,
                    f"group {group!r} would be one more than the {self._max_groups} groups that this server keeps",
                    metadata={"max_groups": str(self._max_groups)},
                )
            if await self.store.compare_and_swap(group, before.revision, after):
                return before, after

    async def read(self, group: str, min_revision: int | None = None, time_remaining: float | None = None) -> Topology:
        """The group as last committed.

        Args:
            group: Name of the group.
            min_revision: Wait until the group's revision is at least this.
            time_remaining: Seconds until the caller's deadline.

        Raises:
            Refusal: The group has no history (UNKNOWN_GROUP), or did not reach the revision in time.
        """
        topology = await self.store.load(group)
        if min_revision is not None and topology.revision < min_revision:
            topology = await self._wait_for(group, min_revision, time_remaining)
        if topology.revision == 0:
            raise Refusal(
                Reason.UNKNOWN_GROUP,
                f"group {group!r} is unknown: no rank ever registered in it; `interlock route list` shows the groups",
                metadata={"group": group},
            )
        return topology

    async def _wait_for(self, group: str, min_revision: int, time_remaining: float | None) -> Topology:
        with self.store.watch(group) as watch:
            try:
                async with asyncio.timeout(LONGEST_WAIT if time_remaining is None else time_remaining):
                    return await watch.until_revision(min_revision)
            except TimeoutError:
                raise Refusal(
                    Reason.REVISION_NOT_REACHED,
                    f"group {group!r} is at revision {watch.current.revision} and did not reach {min_revision} in time",
                    metadata={"revision": str(watch.current.revision)},
                ) from None
