"""Between the requests and outcomes of a history and the messages of the service."""

import time

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from faults.histories import (
    Conflict,
    Deregister,
    Force,
    Forced,
    Mismatch,
    NeverHappened,
    Outcome,
    Register,
    Removed,
    Request,
    Row,
    StaleLaunch,
    StaleLife,
    Stands,
)
from faults.watches import launch_number
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1 import errors_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.topology import RankKey

_EARLIEST_LAUNCH = time.time_ns()

_NO_CONNECTION = "failed to connect to all addresses"
"""What gRPC says of a call that it never sent."""

_LOST_WHILE_WRITING = "INTERNAL: Internal error from Core"
"""What grpc.aio makes, in the client, of a connection that is lost while a stream writes to it."""

AMBIGUOUS_REASONS = {"STORE_UNAVAILABLE", "STORE_CONTENDED", "DRAINING"}
"""Reasons after which a request may have taken effect all the same."""

REASONS_OF_UNTOUCHED = {"STORE_FULL", "OVERLOADED"}
"""Reasons that promise that nothing happened."""


def instance(launch: int) -> pb.Instance:
    """The instance of a launch."""
    return pb.Instance(id=f"launch-{launch}", started_at=_EARLIEST_LAUNCH + launch)


def key_message(key: RankKey) -> pb.RankKey:
    return pb.RankKey(dp=key.dp, cp=key.cp, tp=key.tp, pp=key.pp)


def registration(request: Register, group: str, ranks: int) -> pb.RegisterRouteRequest:
    """The message of a registration in a group of so many TP ranks."""
    message = pb.RegisterRouteRequest(
        group=group,
        instance=instance(request.launch),
        route=pb.Route(
            key=key_message(request.key),
            incarnation=request.incarnation,
            sizes=pb.ParallelSizes(dp=1, cp=1, tp=ranks, pp=1),
            rank_ip="10.0.0.1",
            rank_port=request.port,
            page_size=request.page_size,
        ),
        expected_revision=request.expected_revision,
    )
    if request.ttl is not None:
        message.lease_ttl.CopyFrom(Duration(nanos=round(request.ttl % 1 * 1e9), seconds=int(request.ttl)))
    return message


async def send(stub: BootstrapServiceStub, request: Request, group: str, ranks: int, timeout: float) -> Outcome:
    """Makes one call.

    Raises:
        grpc.aio.AioRpcError: it was refused or failed; `refusal_of` says which.
    """
    match request:
        case Register():
            stands = await stub.RegisterRoute(registration(request, group, ranks), timeout=timeout)
            return Stands(stands.revision, stands.epoch)
        case Deregister(key, launch, incarnation):
            removed = await stub.DeregisterRoute(
                pb.DeregisterRouteRequest(
                    group=group, key=key_message(key), instance=instance(launch), incarnation=incarnation
                ),
                timeout=timeout,
            )
            return Removed(removed.removed, removed.revision)
        case Force(floor):
            forced = await stub.ForceEpoch(
                pb.ForceEpochRequest(group=group, floor=None if floor is None else instance(floor)), timeout=timeout
            )
            return Forced(forced.revision, forced.epoch)


class Failure:
    """What a failed call tells."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.code = error.code()
        self.text = f"{error.code().name}: {error.details()}"
        self.reason: str | None = None
        self._details = {}
        status = rpc_status.from_call(error)
        if status is not None:
            assert status.ByteSize() < 4096
            self._details = {detail.type_url.rpartition(".")[2]: detail for detail in status.details}
            self.reason = self._detail(error_details_pb2.ErrorInfo).reason

    def _detail(self, kind):
        message = kind()
        self._details[kind.DESCRIPTOR.name].Unpack(message)
        return message

    @property
    def is_surprise(self) -> bool:
        """Whether no fault of a process, store or network explains it: a fault of ours."""
        if self.reason is not None:
            return self.reason not in AMBIGUOUS_REASONS and self.outcome() is None
        if _LOST_WHILE_WRITING in self.text:
            return False
        return self.code not in {
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.CANCELLED,
        }

    def outcome(self) -> Outcome | None:
        """What it says of the request; None: nothing."""
        match self.reason:
            case "REVISION_CONFLICT":
                conflict = self._detail(errors_pb2.RevisionConflict)
                standing = conflict.standing_route
                return Conflict(
                    conflict.revision,
                    conflict.epoch,
                    launch_number(conflict.instance) if conflict.HasField("instance") else None,
                    Row(standing.incarnation, standing.rank_port, standing.page_size)
                    if conflict.HasField("standing_route")
                    else None,
                )
            case "CONTRACT_MISMATCH":
                (mismatch,) = self._detail(errors_pb2.ContractMismatch).mismatches
                assert mismatch.field == "page_size"
                return Mismatch(int(mismatch.standing_value))
            case "STALE_INSTANCE":
                return StaleLaunch(launch_number(self._detail(errors_pb2.StaleInstance).floor))
            case "STALE_INCARNATION":
                stale = self._detail(errors_pb2.StaleIncarnation)
                return StaleLife(stale.newest_incarnation, stale.deregistered)
            case reason if reason in REASONS_OF_UNTOUCHED:
                return NeverHappened(self.text)
            case None if _NO_CONNECTION in self.text:
                return NeverHappened(self.text)
        return None
