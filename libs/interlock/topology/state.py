"""A group at one revision, and what comes of a request: accepted or refused."""

from dataclasses import dataclass, field

from interlock.reasons import Reason
from interlock.topology.contract import SharedValue
from interlock.topology.rank_map import RankMap
from interlock.topology.routes import Routes
from interlock.topology.values import Instance, ParallelSizes, RankKey, Route


@dataclass(frozen=True, slots=True)
class Departed:
    """A life of a rank that is over."""

    incarnation: int
    deregistered: bool
    """This incarnation said goodbye, and cannot come back in the same epoch."""


@dataclass(frozen=True, slots=True)
class Topology:
    """A group at one revision. Two are equal if they are equal in everything."""

    group: str
    revision: int = 0
    """Grows with every change and is never used again. 0: a group with no history."""
    epoch: int = 0
    """Number of the time in which the group serves one instance (or none, after a forced epoch)."""
    instance: Instance | None = None
    """The instance served. It stays when the last route goes."""
    floor: Instance | None = None
    """The newest instance accepted, or what an admin set: older ones are refused."""
    routes: Routes = field(default_factory=Routes)
    leases: RankMap[int] = field(default_factory=RankMap)
    """How long the route of a key stays without being renewed, in milliseconds; of each that does not stay for ever.
    Beside the routes, not in them: a lease is no part of what the ranks publish."""
    departed: RankMap[Departed] = field(default_factory=RankMap)
    """The last life that left, of each key that one left in this epoch. At most `MAX_RANKS` of them."""

    @classmethod
    def empty(cls, group: str) -> "Topology":
        """A group that nobody registered in."""
        return cls(group)

    @property
    def sizes(self) -> ParallelSizes | None:
        """Sizes of the prefill server; None while no route lives."""
        contract = self.routes.contract()
        return None if contract is None else contract.sizes

    def expects(self, key: RankKey) -> bool:
        """Whether a rank of this key belongs to the complete group. False while no route lives."""
        return self.sizes is not None and all(rank < size for rank, size in zip(key, self.sizes, strict=True))

    @property
    def registered(self) -> int:
        """How many routes live."""
        return len(self.routes)

    @property
    def expected(self) -> int:
        """How many routes make the group complete; 0 while none lives."""
        return 0 if self.sizes is None else self.sizes.product

    @property
    def ready(self) -> bool:
        """Every key has a route and all declared alike.

        Counting is enough: keys are unique, and the contract keeps all of them inside the same sizes.
        """
        return 0 < self.registered == self.expected and self.routes.undeclared_count() == 0


@dataclass(frozen=True, slots=True)
class FieldViolations:
    """With INVALID_FIELD: every fault as a field path and what is wrong with it."""

    violations: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RevisionConflict:
    """With REVISION_CONFLICT: what a loser of compare-and-swap needs to decide without a second call."""

    revision: int
    epoch: int
    instance: Instance | None
    standing_route: Route | None
    """The route that stands under the offered key, if any."""
    layout_omitted: bool = False
    """In a refusal that was received: the standing route came without its DSpark layout, which was too large."""


@dataclass(frozen=True, slots=True)
class FieldMismatch:
    """One shared value that differs from the contract."""

    field: str
    standing_value: SharedValue
    offered_value: SharedValue
    held_by: RankKey
    """Lowest key that holds the standing value."""


@dataclass(frozen=True, slots=True)
class ContractMismatch:
    """With CONTRACT_MISMATCH: every shared value that differs."""

    mismatches: tuple[FieldMismatch, ...]


@dataclass(frozen=True, slots=True)
class StaleInstance:
    """With STALE_INSTANCE: the newest instance accepted."""

    floor: Instance


@dataclass(frozen=True, slots=True)
class StaleIncarnation:
    """With STALE_INCARNATION: the newest life of that rank."""

    key: RankKey
    newest_incarnation: int
    deregistered: bool


Detail = FieldViolations | RevisionConflict | ContractMismatch | StaleInstance | StaleIncarnation


@dataclass(frozen=True, slots=True)
class Accepted:
    """What came of a request that the rules accept."""

    topology: Topology
    """The group afterwards: the very same object if nothing changed. Of a batch: after all of it."""
    removed_routes: int = 0
    """Routes that the request took away; one that it replaced does not count."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the request was refused. The group is as it was."""

    reason: Reason
    message: str
    """For people; may change."""
    detail: Detail


class InvalidFieldsError(ValueError):
    """A message that makes no value. `refused` says why, as `transition` would."""

    def __init__(self, violations: tuple[tuple[str, str], ...]) -> None:
        self.refused = invalid_fields(violations)
        super().__init__(self.refused.message)


def invalid_fields(violations: tuple[tuple[str, str], ...]) -> Refused:
    """The refusal of a request with these faults."""
    field_name, fault = violations[0]
    more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
    return Refused(Reason.INVALID_FIELD, f"{field_name}: {fault}{more}", FieldViolations(violations))
