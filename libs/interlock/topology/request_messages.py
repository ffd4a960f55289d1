"""What the Bootstrap service is asked, read from its messages: the group, and the request or value beside it.

Reading raises `InvalidFieldsError` with every fault at once, those of the group, the message and the values together.
A request of `transition` that can be read is returned unchecked, since `transition` checks it.
"""

from typing import Protocol

from google.protobuf.duration_pb2 import Duration

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.topology.limits import MAX_RENEWALS
from interlock.topology.messages import (
    instance_from_message,
    rank_key_from_message,
    read_decode_server,
    read_route,
)
from interlock.topology.rules import DeregisterRoute, ForceEpoch, RegisterRoute, deregister_faults
from interlock.topology.state import InvalidFieldsError
from interlock.topology.validation import (
    DEFAULT_GROUP,
    Fault,
    checked_route,
    decode_server_faults,
    group_faults,
    incarnation_faults,
    instance_faults,
    key_faults,
    lease_ttl_faults,
)
from interlock.topology.values import DecodeServer, Instance, RankKey


class _NamesGroup(Protocol):
    @property
    def group(self) -> str: ...


def group_from_message(message: _NamesGroup) -> str:
    """The group that a request names; empty is `default`.

    Raises:
        InvalidFieldsError: it is no DNS label.
    """
    faults: list[Fault] = []
    group = _read_group(message, faults)
    _raise_for(faults)
    return group


def register_route_from_message(message: pb.RegisterRouteRequest) -> tuple[str, RegisterRoute]:
    """Group and request.

    Raises:
        InvalidFieldsError: no request can be made of it.
    """
    faults: list[Fault] = []
    group = _read_group(message, faults)
    route = read_route(message.route, "route", faults)
    instance = instance_from_message(message.instance)
    lease_ttl = _milliseconds(message.lease_ttl) if message.HasField("lease_ttl") else None
    if faults:
        faults += (*checked_route(route)[1], *instance_faults(instance, "instance"))
        faults += () if lease_ttl is None else lease_ttl_faults(lease_ttl, "lease_ttl")
    _raise_for(faults)
    expected = message.expected_revision if message.HasField("expected_revision") else None
    return group, RegisterRoute(route, instance, expected, lease_ttl)


def deregister_route_from_message(message: pb.DeregisterRouteRequest) -> tuple[str, DeregisterRoute]:
    """Group and request.

    Raises:
        InvalidFieldsError: no request can be made of it.
    """
    faults: list[Fault] = []
    group = _read_group(message, faults)
    key = _read_key(message, faults)
    request = DeregisterRoute(key, instance_from_message(message.instance), message.incarnation)
    if faults:
        faults += deregister_faults(request)
    _raise_for(faults)
    return group, request


def keep_alive_from_message(message: pb.KeepAliveRequest) -> tuple[tuple[str, RankKey, Instance, int], ...]:
    """Group, key, instance and incarnation of each lease to renew.

    Raises:
        InvalidFieldsError: one is at fault, or they are too many.
    """
    if len(message.leases) > MAX_RENEWALS:
        raise InvalidFieldsError((("leases", f"has {len(message.leases)}; at most {MAX_RENEWALS} a message"),))
    faults: list[Fault] = []
    leases = []
    for at, lease in enumerate(message.leases):
        group = lease.group or DEFAULT_GROUP
        key, instance = rank_key_from_message(lease.key), instance_from_message(lease.instance)
        path = f"leases[{at}]"
        faults += ((f"{path}.{field}", fault) for field, fault in group_faults(group))
        faults += [(f"{path}.key", "required")] if not lease.HasField("key") else key_faults(key, f"{path}.key")
        faults += instance_faults(instance, f"{path}.instance")
        faults += incarnation_faults(lease.incarnation, f"{path}.incarnation")
        leases.append((group, key, instance, lease.incarnation))
    _raise_for(faults)
    return tuple(leases)


def force_epoch_from_message(message: pb.ForceEpochRequest) -> tuple[str, ForceEpoch]:
    """Group and request.

    Raises:
        InvalidFieldsError: no request can be made of it.
    """
    faults: list[Fault] = []
    group = _read_group(message, faults)
    floor = instance_from_message(message.floor) if message.HasField("floor") else None
    if faults and floor is not None:
        faults += instance_faults(floor, "floor")
    _raise_for(faults)
    return group, ForceEpoch(floor)


def get_rank_info_from_message(message: pb.GetRankInfoRequest) -> tuple[str, RankKey]:
    """Group and rank key.

    Raises:
        InvalidFieldsError: it is at fault.
    """
    faults: list[Fault] = []
    group = _read_group(message, faults)
    key = _read_key(message, faults)
    _raise_for(faults)
    return group, key


def check_compatibility_from_message(message: pb.CheckCompatibilityRequest) -> tuple[str, DecodeServer]:
    """Group and decode server, its values checked.

    Raises:
        InvalidFieldsError: it is at fault.
    """
    faults: list[Fault] = []
    group = _read_group(message, faults)
    server = read_decode_server(message.decode_server, "decode_server", faults)
    faults += decode_server_faults(server)
    _raise_for(faults)
    return group, server


def _read_group(message: _NamesGroup, faults: list[Fault]) -> str:
    group = message.group or DEFAULT_GROUP
    faults += group_faults(group)
    return group


def _read_key(message: pb.DeregisterRouteRequest | pb.GetRankInfoRequest, faults: list[Fault]) -> RankKey:
    if not message.HasField("key"):
        faults.append(("key", "required"))
    return rank_key_from_message(message.key)


def _milliseconds(duration: Duration) -> int:
    """Rounded up, since a lease is never cut short; whatever the two numbers are, also those no duration may have."""
    return -(-(duration.seconds * 1_000_000_000 + duration.nanos) // 1_000_000)


def _raise_for(faults: list[Fault]) -> None:
    if faults:
        raise InvalidFieldsError(tuple(faults))
