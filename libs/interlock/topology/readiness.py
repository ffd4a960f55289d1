"""How far a group has come, and what a decode server gets to know of a ready one."""

from dataclasses import dataclass, fields
from heapq import nsmallest

from interlock.topology.contract import SharedValues
from interlock.topology.limits import MAX_LISTED_KEYS
from interlock.topology.state import Topology
from interlock.topology.values import Instance, RankKey


def missing_count(topology: Topology) -> int:
    """How many keys have no route."""
    return topology.expected - topology.registered


def missing_keys(topology: Topology) -> tuple[RankKey, ...]:
    """The lowest keys without a route, at most `MAX_LISTED_KEYS` of them."""
    return topology.routes.lowest_missing


def undeclared_count(topology: Topology) -> int:
    """How many ranks still have to declare a value that another rank declared."""
    return topology.routes.undeclared_count()


def undeclared_keys(topology: Topology, limit: int = MAX_LISTED_KEYS) -> tuple[RankKey, ...]:
    """The lowest keys that still have to declare a value that another rank declared, at most `limit` of them."""
    return tuple(nsmallest(limit, topology.routes.undeclared()))


@dataclass(frozen=True, slots=True)
class PrefillServerInfo(SharedValues):
    """The values that all ranks of a ready group share: what a decode server needs to know of the whole."""

    prefill_http_port: int | None
    """That of the lowest rank key that has one."""


def prefill_server_info(topology: Topology) -> PrefillServerInfo:
    """The aggregate of a ready group.

    Raises:
        ValueError: the group is not ready; `missing_keys` and `undeclared_keys` say why.
    """
    contract = topology.routes.contract()
    if contract is None or not topology.ready:
        raise ValueError(f"group {topology.group!r} is not ready")
    ports = ((route.key, route.prefill_http_port) for route in topology.routes.values())
    _, port = min(((key, port) for key, port in ports if port is not None), default=(None, None))
    return PrefillServerInfo(
        **{field.name: getattr(contract, field.name) for field in fields(contract)}, prefill_http_port=port
    )


@dataclass(frozen=True, slots=True)
class GroupState:
    """How far a group has come, in short."""

    group: str
    revision: int
    epoch: int
    instance: Instance | None
    floor: Instance | None
    registered: int
    expected: int
    ready: bool
    missing_keys: tuple[RankKey, ...]
    """The lowest of them."""
    missing_count: int
    undeclared_keys: tuple[RankKey, ...]
    """The lowest of them."""
    undeclared_count: int


def group_state(topology: Topology, limit: int = MAX_LISTED_KEYS) -> GroupState:
    """The state of a group, with at most `limit` keys in each list, never more than `MAX_LISTED_KEYS`."""
    return GroupState(
        group=topology.group,
        revision=topology.revision,
        epoch=topology.epoch,
        instance=topology.instance,
        floor=topology.floor,
        registered=topology.registered,
        expected=topology.expected,
        ready=topology.ready,
        missing_keys=missing_keys(topology)[:limit],
        missing_count=missing_count(topology),
        undeclared_keys=undeclared_keys(topology, limit),
        undeclared_count=undeclared_count(topology),
    )
