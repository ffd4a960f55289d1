"""The lease wheel: the time of leases, for stores that do not keep it themselves.

Time goes on from tick to tick, and between two ticks by one tick at most, however late the second one comes. So a
process that was stopped, or a machine that slept, adds its lateness to every lease, and nobody is evicted for it.
TTLs are stored with the topologies; deadlines are only here, so that after a restart every lease has its full TTL.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil

from interlock.topology import Instance, RankKey, Topology
from interlock_bootstrap.stores import Lease

TICK_SECONDS = 0.25
"""A lease runs out at the first tick after its time, never before it."""


@dataclass(eq=False, slots=True)
class _Running:
    """The lease of one row."""

    group: str
    key: RankKey
    incarnation: int
    ttl: int
    """Milliseconds."""
    slot: int
    """Where on the wheel it is, or was."""
    place: "set[_Running]"
    """The leases of that slot; or those that ran out, or those whose rows are being removed."""


@dataclass(slots=True)
class _Group:
    """The leases of one group's epoch."""

    epoch: int
    instance: Instance | None
    leases: dict[RankKey, _Running] = field(default_factory=dict)
    out: set[_Running] = field(default_factory=set)
    """They ran out."""
    claimed: set[_Running] = field(default_factory=set)
    """They ran out, and their rows are being removed."""


class LeaseWheel:
    """A wheel of slots, one a tick, each with the leases that run out there. Whatever happens to a lease is O(1)."""

    def __init__(self, clock: Callable[[], float], tick: float = TICK_SECONDS) -> None:
        """
        Args:
            clock: Monotonic time in seconds.
            tick: Seconds between two ticks.
        """
        self._clock = clock
        self._tick = tick
        self._ticked_at = clock()
        self._time = 0.0
        """Time of the leases at the last tick."""
        self._emptied = 0
        """The slot that the last tick emptied."""
        self._slots: dict[int, set[_Running]] = {}
        self._groups: dict[str, _Group] = {}

    async def run(self, on_expiry: Callable[[str], object]) -> None:
        """Ticks for ever; calls `on_expiry` with each group in which leases ran out."""
        while True:
            await asyncio.sleep(self._tick)
            for group in self.tick():
                on_expiry(group)

    def tick(self) -> list[str]:
        """Goes on in time.

        Returns:
            Groups with leases that ran out, at this tick or before; `claim` gives them.
        """
        self._time, self._ticked_at = self._now(), self._clock()
        slot = int(self._time / self._tick)
        for passed in range(self._emptied + 1, slot + 1):
            for running in self._slots.pop(passed, ()):
                running.place = self._groups[running.group].out
                running.place.add(running)
        self._emptied = slot
        return [name for name, group in self._groups.items() if group.out]

    def _now(self) -> float:
        return self._time + min(self._clock() - self._ticked_at, self._tick)

    def restore(self, topology: Topology) -> None:
        """Every lease of a group begins anew: the server has just started."""
        self.settle(topology, topology.leases)

    def settle(self, topology: Topology, keys: Iterable[RankKey]) -> None:
        """Takes over from a committed topology the leases of rows that were registered or removed: each begins anew,
        or is gone. Those of a past epoch all go."""
        group = self._groups.get(topology.group)
        if group is not None and group.epoch != topology.epoch:
            for running in group.leases.values():
                self._leave(running)
            group = None
        if group is None:
            group = self._groups[topology.group] = _Group(topology.epoch, topology.instance)
        for key in keys:
            if key in group.leases:
                self._leave(group.leases.pop(key))
            if ttl := topology.leases.get(key):
                incarnation = topology.routes[key].incarnation
                group.leases[key] = running = _Running(topology.group, key, incarnation, ttl, 0, set())
                self._begin(running)
        if not group.leases:
            del self._groups[topology.group]

    def renew(self, name: str, leases: Sequence[Lease]) -> list[int]:
        """Begins leases anew. Of each the milliseconds that it has from now on; 0: there is no such lease."""
        group = self._groups.get(name)
        return [0 if group is None else self._renewed(group, lease) for lease in leases]

    def _renewed(self, group: _Group, lease: Lease) -> int:
        running = group.leases.get(lease.key)
        if (
            running is None
            or (group.instance, running.incarnation) != (lease.instance, lease.incarnation)
            or running.place is group.claimed
        ):
            return 0
        self._begin(running)
        return running.ttl

    def _begin(self, running: _Running) -> None:
        self._leave(running)
        running.slot = ceil((self._now() + running.ttl / 1_000) / self._tick)
        running.place = self._slots.setdefault(running.slot, set())
        running.place.add(running)

    def _leave(self, running: _Running) -> None:
        running.place.discard(running)
        if not running.place and self._slots.get(running.slot) is running.place:
            del self._slots[running.slot]

    def claim(self, name: str) -> tuple[tuple[RankKey, int], ...]:
        """Key and incarnation of each lease of a group that ran out, for its row to be removed.

        Nobody can renew them any more, until `settle` says that they are gone, or `give_back` that the rows stand.
        """
        group = self._groups.get(name)
        if group is None:
            return ()
        for running in group.out:
            running.place = group.claimed
        group.claimed |= group.out
        group.out.clear()
        return tuple((running.key, running.incarnation) for running in group.claimed)

    def give_back(self, name: str) -> None:
        """The rows of the claimed leases could not be removed: the leases run out once more at the next tick."""
        claimed = self._groups[name].claimed
        slot = self._emptied + 1
        for running in claimed:
            running.slot, running.place = slot, self._slots.setdefault(slot, set())
        self._slots[slot] |= claimed
        claimed.clear()
