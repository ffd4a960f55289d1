"""What `BootstrapClient` gives back, beside the values of `interlock.topology`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from interlock.topology import Event, GroupState, Incompatibility, Instance, PrefillServerInfo, RankKey, Routes


@dataclass(frozen=True)
class Registered:
    """The registration stands."""

    revision: int
    """Revision at which the route stands."""
    epoch: int
    registered: int
    """Routes that live now."""
    expected: int
    """Routes that make the group complete."""
    ready: bool
    lease_ttl: float | None = None
    """Seconds that the route stays without being renewed. None: until it is removed."""


class RegistrationState(StrEnum):
    """How a registration that is kept stands."""

    NEW = "NEW"
    """Not made yet."""
    REGISTERED = "REGISTERED"
    """It stands, and its lease is renewed in time."""
    RECOVERING = "RECOVERING"
    """The server cannot be reached, or no longer knew the lease; the rank is being registered again."""
    LOST = "LOST"
    """The server refused it for good: a newer launch or process took over, or the rank no longer fits its group."""
    ENDED = "ENDED"
    """Left by this side."""


@dataclass(frozen=True)
class Deregistered:
    """What became of a route that was to be removed."""

    removed: bool
    """False: no route of that instance and incarnation was held, which is no error."""
    revision: int
    """Revision of the group afterwards; 0: the group is unknown."""


@dataclass(frozen=True)
class ReadyGroup:
    """A ready group: what its ranks share, and when that was read."""

    info: PrefillServerInfo
    revision: int
    epoch: int
    instance: Instance


@dataclass(frozen=True)
class RankInfo:
    """Where one rank is. An epoch other than that of the aggregate means that the group was launched anew."""

    rank_ip: str
    """Canonical text without brackets, or a host name."""
    rank_port: int
    revision: int
    epoch: int


@dataclass(frozen=True)
class Compatibility:
    """Whether a decode server fits what a group declared so far."""

    incompatibilities: tuple[Incompatibility, ...]
    """Every violation. Empty: it fits."""
    ready: bool
    """The group is ready. While it is not, later declarations may still bring a violation."""
    revision: int
    epoch: int


@dataclass(frozen=True)
class ForcedEpoch:
    """The epoch that an admin began."""

    revision: int
    epoch: int
    dropped_routes: int


@dataclass(frozen=True)
class DpRanksRegistered:
    """How many rooms were kept."""

    registered: int
    """Rooms that were new."""
    overwritten: int
    """Rooms that had a rank before."""


class RoomRank(NamedTuple):
    """The DP rank that serves one request."""

    room: int
    """Rendezvous id of the request."""
    dp_rank: int


@dataclass(frozen=True)
class FieldDifference:
    """One shared value in which a rank differs from its group, as the server told it."""

    field: str
    """Field of `Route`, for example `page_size` or `sizes.tp`."""
    standing_value: str
    """What the live routes hold, as text; cut where it is long."""
    offered_value: str
    """What was offered, likewise."""
    held_by: RankKey
    """Lowest rank key that holds the standing value."""


@dataclass(frozen=True)
class ContractDifferences:
    """Every shared value in which a rank differs from its group."""

    differences: tuple[FieldDifference, ...]
    """At most those that fit into a status."""
    total_count: int
    """How many there are in all."""


@dataclass(frozen=True)
class WatchSnapshot:
    """The group as it is. What the watcher knew before is replaced; how it came to be so is not told."""

    state: GroupState
    routes: Routes


@dataclass(frozen=True)
class WatchChange:
    """What one revision changed, and the group afterwards."""

    events: tuple[Event, ...]
    """In the order in which they apply: an epoch start first, then removals, then registrations."""
    state: GroupState
    routes: Routes


@dataclass(frozen=True)
class WatchProgress:
    """Nothing new: every change up to this revision was given."""

    revision: int


WatchItem: TypeAlias = WatchSnapshot | WatchChange | WatchProgress
"""What a watch yields."""
