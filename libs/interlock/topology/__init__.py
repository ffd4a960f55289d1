"""The rules of registration, as pure functions over frozen values. No I/O, no transport, no clock.

- `values`: what ranks register. `limits`, `validation`: what a value may be. `contract`: what ranks must share.
- `state`: a group at one revision (`Topology`), and what comes of a request. `rules`: registration (`transition`).
- `rank_map`, `routes`: what a group keeps by rank key, shared between revisions.
- `readiness`, `compatibility`: what a group tells decode servers. `events`: what changed between two revisions.
- `messages`, `request_messages`, `detail_messages`: to and from protobuf.
"""

from interlock.topology.compatibility import Incompatibility, check_compatibility
from interlock.topology.contract import SharedValues, shared_values
from interlock.topology.events import EpochStarted, Event, RouteRegistered, RouteRemoved, apply, changes
from interlock.topology.rank_map import RankMap
from interlock.topology.readiness import (
    GroupState,
    PrefillServerInfo,
    group_state,
    missing_count,
    missing_keys,
    prefill_server_info,
    undeclared_count,
    undeclared_keys,
)
from interlock.topology.routes import Routes
from interlock.topology.rules import (
    DeregisterRoute,
    ExpireRoutes,
    ForceEpoch,
    Outcome,
    RegisterRoute,
    Request,
    transition,
    transition_batch,
)
from interlock.topology.state import (
    Accepted,
    ContractMismatch,
    Departed,
    FieldMismatch,
    FieldViolations,
    InvalidFieldsError,
    Refused,
    RevisionConflict,
    StaleIncarnation,
    StaleInstance,
    Topology,
)
from interlock.topology.values import (
    DECLARED_NONE,
    Declaration,
    DeclaredNone,
    DecodeServer,
    Instance,
    ParallelSizes,
    RankKey,
    Route,
    SpecLayout,
)

__all__ = [
    "DECLARED_NONE",
    "Accepted",
    "ContractMismatch",
    "Declaration",
    "DeclaredNone",
    "DecodeServer",
    "Departed",
    "DeregisterRoute",
    "EpochStarted",
    "Event",
    "ExpireRoutes",
    "FieldMismatch",
    "FieldViolations",
    "ForceEpoch",
    "GroupState",
    "Incompatibility",
    "Instance",
    "InvalidFieldsError",
    "Outcome",
    "ParallelSizes",
    "PrefillServerInfo",
    "RankKey",
    "RankMap",
    "Refused",
    "RegisterRoute",
    "Request",
    "RevisionConflict",
    "Route",
    "RouteRegistered",
    "RouteRemoved",
    "Routes",
    "SharedValues",
    "SpecLayout",
    "StaleIncarnation",
    "StaleInstance",
    "Topology",
    "apply",
    "changes",
    "check_compatibility",
    "group_state",
    "missing_count",
    "missing_keys",
    "prefill_server_info",
    "shared_values",
    "transition",
    "transition_batch",
    "undeclared_count",
    "undeclared_keys",
]
