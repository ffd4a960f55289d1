"""Between topologies and the records that etcd keeps of them: a commit as etcd's operations."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from interlock.kv.v1 import spec_layout_pb2
from interlock.topology import Departed, RankKey, Route, SpecLayout, Topology
from interlock.topology.messages import (
    declaration_from_message,
    declaration_to_message,
    instance_from_message,
    instance_to_message,
    route_from_message,
    route_to_message,
)
from interlock_bootstrap.stores.etcd.keys import Keys
from interlock_bootstrap.stores.etcd.v1 import records_pb2
from interlock_bootstrap.stores.etcd.v3 import rpc_pb2 as rpc

MAX_OPERATIONS = 128
"""Operations of one transaction, as etcd is set up by default."""


@dataclass(frozen=True)
class StoredRank:
    """One rank as etcd keeps it."""

    route: Route | None
    lease_ttl: int | None
    departed: Departed | None


def header_record(topology: Topology, commit_id: bytes) -> records_pb2.Header:
    return records_pb2.Header(
        revision=topology.revision,
        epoch=topology.epoch,
        instance=instance_to_message(topology.instance),
        floor=instance_to_message(topology.floor),
        routes=len(topology.routes),
        commit_id=commit_id,
    )


def with_header(topology: Topology, header: records_pb2.Header) -> Topology:
    """The topology with what the header says of it."""
    return replace(
        topology,
        revision=header.revision,
        epoch=header.epoch,
        instance=instance_from_message(header.instance) if header.HasField("instance") else None,
        floor=instance_from_message(header.floor) if header.HasField("floor") else None,
    )


def layout_record(layout: SpecLayout) -> tuple[str, bytes]:
    """Name and record of a DSpark layout."""
    message = declaration_to_message(layout)
    assert message is not None
    record = message.SerializeToString(deterministic=True)
    return sha256(record).hexdigest()[:32], record


def read_layout(record: bytes) -> SpecLayout:
    layout = declaration_from_message(spec_layout_pb2.SpecLayoutDeclaration.FromString(record))
    assert isinstance(layout, SpecLayout)
    return layout


def rank_record(topology: Topology, key: RankKey, layout: str) -> records_pb2.Rank:
    """One rank of a topology; `layout` is the name of the group's layout, if it has one."""
    record = records_pb2.Rank(lease_ttl_ms=topology.leases.get(key))
    if (route := topology.routes.get(key)) is not None:
        if isinstance(route.dsv41_spec_layout, SpecLayout):
            record.layout = layout
            route = replace(route, dsv41_spec_layout=None)
        record.route.CopyFrom(route_to_message(route))
    if (departed := topology.departed.get(key)) is not None:
        record.departed.incarnation = departed.incarnation
        record.departed.deregistered = departed.deregistered
    return record


def read_rank(value: bytes, layouts: Mapping[str, SpecLayout]) -> StoredRank:
    """One rank; ranks of one layout share its object."""
    record = records_pb2.Rank.FromString(value)
    route = None
    if record.HasField("route"):
        route = route_from_message(record.route)
        if record.layout:
            route = replace(route, dsv41_spec_layout=layouts[record.layout])
    return StoredRank(
        route,
        record.lease_ttl_ms if record.HasField("lease_ttl_ms") else None,
        Departed(record.departed.incarnation, record.departed.deregistered) if record.HasField("departed") else None,
    )


@dataclass(frozen=True)
class Difference:
    """What a commit changes, by rank key."""

    changed: tuple[RankKey, ...]
    """Ranks whose record is another one."""
    forgotten: tuple[RankKey, ...]
    """Ranks of which nothing is left to say."""
    leased: tuple[RankKey, ...]
    """Ranks whose lease begins with the commit."""
    released: tuple[RankKey, ...]
    """Ranks whose lease ends with the commit."""

    @classmethod
    def between(cls, before: Topology, after: Topology, lapsed: Collection[RankKey]) -> "Difference":
        """
        Args:
            before: The group as it stands.
            after: The group as it shall be.
            lapsed: Ranks whose lease ended before.
        """
        if before.epoch != after.epoch:
            before = Topology(after.group, epoch=after.epoch)
        went, came = after.routes.since(before.routes)
        leases_went, leases_came = after.leases.since(before.leases)
        forgot, departed = after.departed.since(before.departed)
        registered = {route.key for route in came}
        touched = {*went, *registered, *leases_went, *leases_came, *forgot, *departed}
        forgotten = {key for key in touched if key not in after.routes and key not in after.departed}
        return cls(
            changed=tuple(sorted(touched - forgotten)),
            forgotten=tuple(sorted(forgotten)),
            leased=tuple(sorted(key for key in registered | set(leases_came) if key in after.leases)),
            released=tuple(key for key in leases_went if key not in lapsed),
        )


def commit_operations(
    keys: Keys,
    before: Topology,
    after: Topology,
    difference: Difference,
    granted: Mapping[RankKey, int],
    commit_id: bytes,
) -> list[rpc.RequestOp]:
    """The operations that make `before` into `after`.

    Args:
        keys: The store's keys.
        before: The group as it stands.
        after: The group as it shall be.
        difference: That between the two.
        granted: The etcd lease of each rank whose lease begins with this commit.
        commit_id: Marks the header.
    """
    group, epoch = after.group, after.epoch
    operations = [
        _put(keys.last_commit),
        _put(keys.header(group), header_record(after, commit_id).SerializeToString()),
    ]
    if before.epoch != epoch:
        operations.append(_delete(*keys.epochs_before(group, epoch)))
    layout = ""
    standing, offered = (_layout_of(before) if before.epoch == epoch else None), _layout_of(after)
    if offered is not None:
        layout, record = layout_record(offered)
        if offered != standing:
            operations.append(_put(keys.layout(group, epoch, layout), record))
    if standing is not None and offered != standing:
        operations.append(_delete(keys.layout(group, epoch, layout_record(standing)[0])))
    operations += [
        *(
            _put(keys.rank(group, epoch, key), rank_record(after, key, layout).SerializeToString())
            for key in difference.changed
        ),
        *(_put(keys.lease(group, epoch, key), lease=granted[key]) for key in difference.leased),
        *(_delete(keys.lease(group, epoch, key)) for key in difference.released),
    ]
    # There are many only after a launch that changed its sizes over and over; later commits forget the rest.
    forgotten = difference.forgotten[: MAX_OPERATIONS - len(operations)]
    operations += [_delete(keys.rank(group, epoch, key)) for key in forgotten]
    return operations


def _layout_of(topology: Topology) -> SpecLayout | None:
    """The one layout of a group: its ranks share it, or have none."""
    contract = topology.routes.contract()
    layout = None if contract is None else contract.dsv41_spec_layout
    return layout if isinstance(layout, SpecLayout) else None


def _put(key: bytes, value: bytes = b"", lease: int = 0) -> rpc.RequestOp:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease))


def _delete(first: bytes, end: bytes = b"") -> rpc.RequestOp:
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=first, range_end=end))
