"""The calls of the Bootstrap service: from arguments to messages, from messages to values."""

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from google.protobuf.duration_pb2 import Duration

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.client._internal.faces import Rpc
from interlock.client.groups import (
    Compatibility,
    Deregistered,
    DpRanksRegistered,
    ForcedEpoch,
    RankInfo,
    ReadyGroup,
    Registered,
    RoomRank,
)
from interlock.reasons import Reason
from interlock.topology import DecodeServer, GroupState, Instance, InvalidFieldsError, RankKey, Route
from interlock.topology.messages import (
    decode_server_to_message,
    group_state_from_message,
    incompatibility_from_message,
    instance_from_message,
    instance_to_message,
    prefill_server_info_from_message,
    rank_key_to_message,
    route_to_message,
)
from interlock.topology.validation import checked_route, lease_ttl_faults

NOT_READY_YET = frozenset({Reason.NOT_READY, Reason.UNKNOWN_GROUP})
"""Refusals that time alone can mend, for those who wait for a group."""

GroupsPage: TypeAlias = tuple[tuple[GroupState, ...], str]
"""Groups of one page, and the token of the next one; empty: this was the last."""


def register_route(
    route: Route, instance: Instance, group: str, expected_revision: int | None, lease_ttl: float | None
) -> Rpc[pb.RegisterRouteRequest, pb.RegisterRouteResponse, Registered]:
    """One rank's registration.

    Raises:
        ValueError: the route cannot be sent; names every faulty field where a rule does.
    """
    try:
        message = route_to_message(route)
    except ValueError:
        # A number that the wire cannot carry. The rules say it better than protobuf does.
        faults = checked_route(route)[1]
        if faults:
            raise InvalidFieldsError(faults) from None
        raise
    request = pb.RegisterRouteRequest(
        group=group,
        route=message,
        instance=instance_to_message(instance),
        expected_revision=expected_revision,
        lease_ttl=None if lease_ttl is None else _lease_ttl_to_message(lease_ttl),
    )

    def read(response: pb.RegisterRouteResponse) -> Registered:
        ttl = seconds_of(response.lease.ttl) if response.HasField("lease") else None
        if lease_ttl is not None and (ttl is None or ttl <= 0):
            raise ValueError(f"a lease of {lease_ttl:g} s was asked for, and none was granted")
        return Registered(
            response.revision, response.epoch, response.registered, response.expected, response.ready, ttl
        )

    return Rpc(request, read)


def _lease_ttl_to_message(seconds: float) -> Duration:
    if not math.isfinite(seconds):
        raise InvalidFieldsError((("lease_ttl", f"must be a number of seconds; got {seconds}"),))
    milliseconds = round(seconds * 1_000)
    if faults := tuple(lease_ttl_faults(milliseconds, "lease_ttl")):
        raise InvalidFieldsError(faults)
    return Duration(seconds=milliseconds // 1_000, nanos=milliseconds % 1_000 * 1_000_000)


def seconds_of(duration: Duration) -> float:
    """A duration in seconds, whatever the two numbers are."""
    return duration.seconds + duration.nanos / 1e9


def deregister_route(
    key: RankKey, instance: Instance, incarnation: int, group: str
) -> Rpc[pb.DeregisterRouteRequest, pb.DeregisterRouteResponse, Deregistered]:
    """The end of one rank's route."""
    request = pb.DeregisterRouteRequest(
        group=group, key=rank_key_to_message(key), instance=instance_to_message(instance), incarnation=incarnation
    )
    return Rpc(request, lambda response: Deregistered(response.removed, response.revision))


def get_prefill_server_info(
    group: str, min_revision: int | None
) -> Rpc[pb.GetPrefillServerInfoRequest, pb.GetPrefillServerInfoResponse, ReadyGroup]:
    """The aggregate of a ready group."""
    return Rpc(
        pb.GetPrefillServerInfoRequest(group=group, min_revision=min_revision),
        lambda response: ReadyGroup(
            prefill_server_info_from_message(response.info),
            response.revision,
            response.epoch,
            instance_from_message(response.instance),
        ),
    )


def get_rank_info(
    key: RankKey, group: str, min_revision: int | None
) -> Rpc[pb.GetRankInfoRequest, pb.GetRankInfoResponse, RankInfo]:
    """Where one rank is."""
    return Rpc(
        pb.GetRankInfoRequest(group=group, key=rank_key_to_message(key), min_revision=min_revision),
        lambda response: RankInfo(response.rank_ip, response.rank_port, response.revision, response.epoch),
    )


def list_groups(page_token: str) -> Rpc[pb.ListGroupsRequest, pb.ListGroupsResponse, GroupsPage]:
    """One page of groups."""
    return Rpc(
        pb.ListGroupsRequest(page_token=page_token),
        lambda response: (tuple(map(group_state_from_message, response.groups)), response.next_page_token),
    )


def check_compatibility(
    decode_server: DecodeServer, group: str, min_revision: int | None
) -> Rpc[pb.CheckCompatibilityRequest, pb.CheckCompatibilityResponse, Compatibility]:
    """Whether a decode server fits."""
    return Rpc(
        pb.CheckCompatibilityRequest(
            group=group, decode_server=decode_server_to_message(decode_server), min_revision=min_revision
        ),
        lambda response: Compatibility(
            tuple(map(incompatibility_from_message, response.incompatibilities)),
            response.ready,
            response.revision,
            response.epoch,
        ),
    )


def force_epoch(group: str, floor: Instance | None) -> Rpc[pb.ForceEpochRequest, pb.ForceEpochResponse, ForcedEpoch]:
    """An epoch's end by hand."""
    return Rpc(
        pb.ForceEpochRequest(group=group, floor=instance_to_message(floor)),
        lambda response: ForcedEpoch(response.revision, response.epoch, response.dropped_routes),
    )


def register_dp_ranks(
    assignments: Mapping[int, int], group: str
) -> Rpc[pb.RegisterDpRanksRequest, pb.RegisterDpRanksResponse, DpRanksRegistered]:
    """Which DP rank serves each room."""
    request = pb.RegisterDpRanksRequest(
        group=group,
        assignments=[pb.RoomAssignment(room=room, dp_rank=dp_rank) for room, dp_rank in assignments.items()],
    )
    return Rpc(request, lambda response: DpRanksRegistered(response.registered, response.overwritten))


def query_dp_ranks(
    rooms: Iterable[int], group: str
) -> Rpc[pb.QueryDpRanksRequest, pb.QueryDpRanksResponse, dict[int, int]]:
    """The DP ranks that are known now."""
    return Rpc(
        pb.QueryDpRanksRequest(group=group, rooms=rooms),
        lambda response: {assignment.room: assignment.dp_rank for assignment in response.assignments},
    )


class RoomWait:
    """The rooms that a caller still waits for."""

    def __init__(self, rooms: Iterable[int], group: str) -> None:
        self._group = group
        self._unknown = dict.fromkeys(rooms)

    @property
    def over(self) -> bool:
        """Every room is known."""
        return not self._unknown

    def request(self) -> pb.WaitDpRanksRequest:
        """What to ask for now: a stream that broke is asked again only for what is still unknown."""
        return pb.WaitDpRanksRequest(group=self._group, rooms=self._unknown)

    def receive(self, response: pb.WaitDpRanksResponse) -> list[RoomRank]:
        """Rooms that became known."""
        known = [
            RoomRank(assignment.room, assignment.dp_rank)
            for assignment in response.assignments
            if assignment.room in self._unknown
        ]
        for room, _ in known:
            self._unknown.pop(room, None)
        return known
