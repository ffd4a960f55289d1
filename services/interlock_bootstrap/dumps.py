"""All groups of a store as one JSON document, and back: to keep a copy, and to move from one store to another.

Routes are in the canonical JSON of their protobuf messages, so that a dump can be read, compared and changed by hand.
Rooms are not in it: they live for minutes.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message

from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.topology import Departed, RankKey, Topology
from interlock.topology.messages import (
    instance_from_message,
    instance_to_message,
    rank_key_from_message,
    rank_key_to_message,
    route_from_message,
    route_to_message,
)
from interlock.topology.rank_map import RankMap
from interlock.topology.routes import Routes
from interlock_bootstrap.registry import MAX_BATCH
from interlock_bootstrap.stores import Store

FORMAT = "interlock-topology-1"
_PAGE = 100


class DumpError(Exception):
    """A dump cannot be read, or does not fit what the store has; nothing was changed."""


class Imported(NamedTuple):
    """What came of an import."""

    written: int
    """Groups that were brought to what the dump says."""
    equal: int
    """Groups that were so already."""


async def dump(store: Store) -> dict[str, Any]:
    """What a store keeps, as JSON values."""
    groups: list[dict[str, Any]] = []
    while page := await store.groups(groups[-1]["group"] if groups else "", _PAGE):
        groups += map(_group_document, page)
    return {"format": FORMAT, "groups": groups}


async def restore(store: Store, document: object) -> Imported:
    """Brings a store to what a dump says, group by group; groups that the dump does not have stay as they are.

    Leases have their full time again. Every group keeps revision and epoch, so that clients go on where they were.

    Raises:
        DumpError: it is none, or a group's revision would go back. Nothing was changed.
    """
    dumped = read(document)
    standing = {group: await store.load(group, fresh=True) for group in dumped}
    for group, topology in dumped.items():
        known = standing[group]
        steps = _steps(topology)
        if known != topology and steps[0].revision <= known.revision:
            raise DumpError(
                f"group {group!r} is at revision {known.revision} and the dump has {topology.revision}: revisions "
                "never go back, for clients would take old for new"
            )
    written = 0
    for group, topology in dumped.items():
        if standing[group] == topology:
            continue
        before = standing[group]
        for step in _steps(topology):
            if not await store.compare_and_swap(before, step):
                raise DumpError(f"group {group!r} changed meanwhile; stop the servers, or import again")
            before = await store.load(group, fresh=True)
        written += 1
    return Imported(written, len(dumped) - written)


def read(document: object) -> dict[str, Topology]:
    """The groups of a dump, by name.

    Raises:
        DumpError: it is none; says where.
    """
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise DumpError(f'this is no dump: expected an object with "format": "{FORMAT}"')
    groups = document.get("groups")
    if not isinstance(groups, list):
        raise DumpError('"groups" must be a list')
    read: dict[str, Topology] = {}
    for number, group in enumerate(groups):
        try:
            topology = _group(group)
        except (KeyError, TypeError, ValueError, ParseError) as error:
            raise DumpError(f"groups[{number}]: {type(error).__name__}: {error}") from None
        if topology.group in read:
            raise DumpError(f"groups[{number}]: {topology.group!r} comes twice")
        read[topology.group] = topology
    return read


def _group_document(topology: Topology) -> dict[str, Any]:
    document: dict[str, Any] = {
        "group": topology.group,
        "revision": topology.revision,
        "epoch": topology.epoch,
    }
    for name, instance in (("instance", topology.instance), ("floor", topology.floor)):
        if instance is not None:
            document[name] = _json(instance_to_message(instance))
    document["routes"] = [
        {"route": _json(route_to_message(topology.routes[key]))}
        | ({"lease_ttl_ms": topology.leases[key]} if key in topology.leases else {})
        for key in sorted(topology.routes)
    ]
    document["departed"] = [
        {
            "key": _json(rank_key_to_message(key)),
            "incarnation": topology.departed[key].incarnation,
            "deregistered": topology.departed[key].deregistered,
        }
        for key in sorted(topology.departed)
    ]
    return document


def _group(document: Mapping[str, Any]) -> Topology:
    routes = [route_from_message(_message(row["route"], bootstrap_pb2.Route())) for row in document["routes"]]
    leases = {
        route.key: row["lease_ttl_ms"]
        for route, row in zip(routes, document["routes"], strict=True)
        if "lease_ttl_ms" in row
    }
    departed = {
        rank_key_from_message(_message(row["key"], bootstrap_pb2.RankKey())): Departed(
            int(row["incarnation"]), bool(row["deregistered"])
        )
        for row in document["departed"]
    }
    instance, floor = (
        instance_from_message(_message(document[name], bootstrap_pb2.Instance())) if name in document else None
        for name in ("instance", "floor")
    )
    topology = Topology(
        group=document["group"],
        revision=int(document["revision"]),
        epoch=int(document["epoch"]),
        instance=instance,
        floor=floor,
        routes=Routes(routes),
        leases=RankMap(leases.items()),
        departed=RankMap(departed.items()),
    )
    if len(topology.routes) != len(routes):
        raise ValueError("a rank comes twice")
    if topology.revision < 1:
        raise ValueError("revision must be at least 1")
    return topology


def _steps(topology: Topology) -> list[Topology]:
    """The topology built up in commits of as many rows as a store takes at once; the last one is the topology."""
    keys = sorted({*topology.routes, *topology.departed})
    batches = [keys[: end + MAX_BATCH] for end in range(0, len(keys), MAX_BATCH)] or [[]]
    return [
        replace(
            topology,
            revision=topology.revision - len(batches) + 1 + number,
            routes=Routes(topology.routes[key] for key in batch if key in topology.routes),
            leases=_part(topology.leases, batch),
            departed=_part(topology.departed, batch),
        )
        for number, batch in enumerate(batches)
    ]


def _part(entries: RankMap[Any], keys: list[RankKey]) -> RankMap[Any]:
    return RankMap((key, entries[key]) for key in keys if key in entries)


def _json(message: Message | None) -> dict[str, Any]:
    assert message is not None
    return MessageToDict(message, preserving_proto_field_name=True)


def _message(document: dict[str, Any], message: Any) -> Any:
    return ParseDict(document, message)
