"""What clients did to one group and what they were told: the history that the checkers read.

Times are nanoseconds of one monotonic clock, that of the process which ran all clients.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from interlock.topology import RankKey

# Requests


@dataclass(frozen=True, slots=True)
class Register:
    """A RegisterRoute. A rank's life (key, launch, incarnation) always asks for the same row."""

    key: RankKey
    launch: int
    """Number of the launch; a later one has a higher number."""
    incarnation: int
    port: int
    page_size: int
    """The one value of the contract that differs between requests."""
    expected_revision: int | None = None
    ttl: float | None = None
    """Seconds. None: the route stays until removed."""


@dataclass(frozen=True, slots=True)
class Deregister:
    """A DeregisterRoute."""

    key: RankKey
    launch: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Force:
    """A ForceEpoch."""

    floor: int | None


Request = Register | Deregister | Force


# What a request was told


class Row(NamedTuple):
    """One live route, as far as requests differ."""

    incarnation: int
    port: int
    page_size: int


@dataclass(frozen=True, slots=True)
class Stands:
    """The registration stands."""

    revision: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Removed:
    """The answer to a deregistration."""

    removed: bool
    revision: int


@dataclass(frozen=True, slots=True)
class Forced:
    """A new epoch was forced."""

    revision: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """REVISION_CONFLICT with its detail."""

    revision: int
    epoch: int
    launch: int | None
    standing: Row | None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """CONTRACT_MISMATCH."""

    standing_page_size: int


@dataclass(frozen=True, slots=True)
class StaleLaunch:
    """STALE_INSTANCE with its floor."""

    floor: int


@dataclass(frozen=True, slots=True)
class StaleLife:
    """STALE_INCARNATION with its detail."""

    newest: int
    deregistered: bool


@dataclass(frozen=True, slots=True)
class NeverHappened:
    """The request was given up before it could change anything, for example STORE_FULL."""

    reason: str


Outcome = Stands | Removed | Forced | Conflict | Mismatch | StaleLaunch | StaleLife | NeverHappened


@dataclass(slots=True)
class Operation:
    """One request with its answer."""

    request: Request
    client: str
    invoked: int
    returned: int | None = None
    """None: the client was told nothing it can rely on."""
    outcome: Outcome | None = None
    """None: unknown. The request may have taken effect at any time since, may take effect later, or never."""
    note: str = ""
    """What the client saw where the outcome is unknown."""


# What was read


class GroupContent(NamedTuple):
    """A group at one revision, as far as requests differ."""

    revision: int
    epoch: int
    launch: int | None
    floor: int | None
    rows: frozenset[tuple[RankKey, Row]]


@dataclass(frozen=True, slots=True)
class Observation:
    """What somebody was shown of the group: the whole of it, or one row of it, at one revision.

    It promises that this was a committed state. It does not promise that it was the newest one: replicas read from a
    copy. So it has no place of its own in real time, but that the revision was reached when it was shown.
    """

    time: int
    revision: int
    epoch: int
    who: str
    content: GroupContent | None = None
    """The whole group; None: only one row was read."""
    key: RankKey | None = None
    """The row that was read, where `content` is None."""
    port: int | None = None
    """Its port."""
    ready: tuple[int, int] | None = None
    """The group was ready, with so many ranks and this page size; that is all that was read."""

    def agrees(self, content: GroupContent) -> bool:
        """Whether this is what one sees in a group of that content; the revisions are equal already."""
        if self.content is not None:
            return self.content == content
        if self.ready is not None:
            ranks, page_size = self.ready
            sizes = [row.page_size for _, row in content.rows]
            return self.epoch == content.epoch and sizes == [page_size] * ranks
        ports = {key: row.port for key, row in content.rows}
        return self.epoch == content.epoch and ports.get(self.key) == self.port


@dataclass(frozen=True, slots=True)
class Renewal:
    """A lease was renewed: it cannot run out before `invoked` plus its TTL."""

    key: RankKey
    launch: int
    incarnation: int
    invoked: int
    returned: int


@dataclass(slots=True)
class History:
    """All that happened to one group."""

    group: str
    seed: int
    clock: Callable[[], int]
    operations: list[Operation] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    renewals: list[Renewal] = field(default_factory=list)

    def invoke(self, request: Request, client: str) -> Operation:
        """Notes that a request is about to be sent."""
        operation = Operation(request, client, self.clock())
        self.operations.append(operation)
        return operation

    def answer(self, operation: Operation, outcome: Outcome) -> None:
        """Notes that a request was answered."""
        operation.returned = self.clock()
        operation.outcome = outcome

    @property
    def unknown(self) -> int:
        """Operations of which nobody knows the outcome."""
        return sum(operation.outcome is None for operation in self.operations)

    def dump(self, path: Path) -> None:
        """Writes the history down, in the order of time, for a person to read."""
        lines = [
            *((o.invoked, {"kind": type(o.request).__name__, **asdict(o)}) for o in self.operations),
            *((o.time, {"kind": "Observation", **asdict(o), "content": _text(o.content)}) for o in self.observations),
            *((o.invoked, {"kind": "Renewal", **asdict(o)}) for o in self.renewals),
        ]
        with path.open("w") as file:
            file.write(json.dumps({"group": self.group, "seed": self.seed}) + "\n")
            for _, line in sorted(lines, key=lambda each: each[0]):
                file.write(json.dumps(line, default=str) + "\n")


def _text(content: GroupContent | None) -> str | None:
    return None if content is None else str(content._replace(rows=frozenset()))[:-1] + f" {sorted(content.rows)}"
