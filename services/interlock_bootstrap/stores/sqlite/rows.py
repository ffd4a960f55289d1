"""Between topologies and the rows of the store's file: what a change writes, and what a start reads."""

import struct
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain

from google.protobuf.message import DecodeError

from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.topology import (
    Declaration,
    Departed,
    InvalidFieldsError,
    RankKey,
    RankMap,
    Route,
    Routes,
    Topology,
)
from interlock.topology.messages import instance_from_message, instance_to_message, route_from_message, route_to_message
from interlock_bootstrap.stores.sqlite.database import Database, Row, Statement, damaged, sealed

_PUT_GROUP = """INSERT INTO groups VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET header = excluded.header, checksum = excluded.checksum"""
_PUT_ROUTE = """INSERT INTO routes VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET route = excluded.route, lease_ttl = excluded.lease_ttl, checksum = excluded.checksum"""
_PUT_DEPARTED = """INSERT INTO departed VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET incarnation = excluded.incarnation, deregistered = excluded.deregistered,
    checksum = excluded.checksum"""
_OF_KEY = "WHERE group_name = ? AND dp = ? AND cp = ? AND tp = ? AND pp = ?"

_DP_RANK = struct.Struct("<QI")


def change_statements(before: Topology, after: Topology) -> list[Statement]:
    """What makes a group's rows those of `after`, where they are those of `before`. Writes only what changed."""
    group = after.group
    statements: list[Statement] = []
    if after.revision != before.revision:
        statements.append((_PUT_GROUP, [_group_row(after)]))
    if after.epoch != before.epoch:
        statements += [(f"DELETE FROM {table} WHERE group_name = ?", [(group,)]) for table in ("routes", "departed")]
        before = Topology.empty(group)
    removed, registered = after.routes.since(before.routes)
    of_another_ttl = set(chain.from_iterable(after.leases.since(before.leases))) - set(removed)
    put = {route.key for route in registered} | of_another_ttl
    forgotten, departed = after.departed.since(before.departed)
    statements += [
        (f"DELETE FROM routes {_OF_KEY}", [(group, *key) for key in removed]),
        (_PUT_ROUTE, [_route_row(group, after.routes[key], after.leases.get(key)) for key in put]),
        (f"DELETE FROM departed {_OF_KEY}", [(group, *key) for key in forgotten]),
        (_PUT_DEPARTED, [_departed_row(group, key, after.departed[key]) for key in departed]),
    ]
    return [(sql, rows) for sql, rows in statements if rows]


def rooms_statement(number: int, group: str, epoch: int, dp_ranks: Mapping[int, int]) -> Statement:
    """Keeps the rooms of one call, packed, as the row of this number."""
    packed = struct.pack("<" + "QI" * len(dp_ranks), *chain.from_iterable(dp_ranks.items()))
    return "INSERT INTO rooms VALUES (?, ?, ?, ?, ?)", [sealed(number, group, epoch, packed)]


def forget_rooms_statement(last: int) -> Statement:
    """Drops the rooms of all calls up to this one."""
    return "DELETE FROM rooms WHERE id <= ?", [(last,)]


@dataclass(frozen=True)
class RoomsRow:
    """The rooms of one call, with their DP ranks."""

    number: int
    group: str
    epoch: int
    dp_ranks: dict[int, int]


@dataclass(frozen=True)
class Contents:
    """All that the file holds."""

    topologies: dict[str, Topology]
    """The groups with a history, by name."""
    rooms: list[RoomsRow]
    """In the order of the calls."""


def read_contents(database: Database) -> Contents:
    """Reads the whole file.

    Raises:
        StoreFileError: Something is not as it was written, or a group lacks routes.
    """
    try:
        return Contents(
            _read_topologies(database),
            [
                RoomsRow(number, group, epoch, dict(_DP_RANK.iter_unpack(packed)))
                for number, group, epoch, packed in database.rows("rooms")
            ],
        )
    except (DecodeError, InvalidFieldsError) as error:
        raise damaged(database.path, str(error)) from None


def _read_topologies(database: Database) -> dict[str, Topology]:
    routes: defaultdict[str, list[Route]] = defaultdict(list)
    leases: defaultdict[str, dict[RankKey, int]] = defaultdict(dict)
    departed: defaultdict[str, dict[RankKey, Departed]] = defaultdict(dict)
    layouts: dict[bytes, Declaration] = {}
    for group, *key, encoded, lease_ttl in database.rows("routes"):
        routes[group].append(_route(encoded, layouts))
        if lease_ttl is not None:
            leases[group][RankKey(*key)] = lease_ttl
    for group, *key, incarnation, deregistered in database.rows("departed"):
        departed[group][RankKey(*key)] = Departed(int(incarnation), bool(deregistered))
    headers = dict(database.rows("groups"))
    for group in routes.keys() | departed.keys():
        if group not in headers:
            raise damaged(database.path, f"group {group!r} has rows and no header")
    topologies: dict[str, Topology] = {}
    for group, header in headers.items():
        state = bootstrap_pb2.GroupState.FromString(header)
        if len(routes[group]) != state.registered:
            raise damaged(database.path, f"group {group!r} has {len(routes[group])} of its {state.registered} routes")
        topologies[group] = Topology(
            group,
            revision=state.revision,
            epoch=state.epoch,
            instance=instance_from_message(state.instance) if state.HasField("instance") else None,
            floor=instance_from_message(state.floor) if state.HasField("floor") else None,
            routes=Routes(routes[group]),
            leases=RankMap(leases[group].items()),
            departed=RankMap(departed[group].items()),
        )
    return topologies


def _route(encoded: bytes, layouts: dict[bytes, Declaration]) -> Route:
    """Reads a route; the same DSpark layout becomes the same object for all ranks, as it was when they registered."""
    message = bootstrap_pb2.Route.FromString(encoded)
    if not message.HasField("dsv41_spec_layout"):
        return route_from_message(message)
    layout = message.dsv41_spec_layout.SerializeToString(deterministic=True)
    if layout not in layouts:
        layouts[layout] = route_from_message(message).dsv41_spec_layout
    message.ClearField("dsv41_spec_layout")  # is not read again
    return replace(route_from_message(message), dsv41_spec_layout=layouts[layout])


def _group_row(topology: Topology) -> Row:
    header = bootstrap_pb2.GroupState(
        group=topology.group,
        revision=topology.revision,
        epoch=topology.epoch,
        instance=None if topology.instance is None else instance_to_message(topology.instance),
        floor=None if topology.floor is None else instance_to_message(topology.floor),
        registered=topology.registered,
    )
    return sealed(topology.group, header.SerializeToString())


def _route_row(group: str, route: Route, lease_ttl: int | None) -> Row:
    return sealed(group, *route.key, route_to_message(route).SerializeToString(), lease_ttl)


def _departed_row(group: str, key: RankKey, life: Departed) -> Row:
    return sealed(group, *key, str(life.incarnation), int(life.deregistered))
