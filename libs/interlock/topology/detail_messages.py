"""The typed details of refusals as messages, cut so that a whole status stays below 4 KiB.

A status travels in trailers, which transports drop when they are large. What was cut is said in the message.
"""

from google.protobuf.message import Message

from interlock.bootstrap.v1 import errors_pb2 as pb
from interlock.topology.contract import cut_apart, value_text
from interlock.topology.messages import (
    group_state_to_message,
    instance_from_message,
    instance_to_message,
    rank_key_from_message,
    rank_key_to_message,
    route_from_message,
    route_to_message,
)
from interlock.topology.state import (
    ContractMismatch,
    FieldViolations,
    Refused,
    RevisionConflict,
    StaleIncarnation,
    StaleInstance,
    Topology,
)

MAX_DETAIL_BYTES = 2_560
"""One serialised detail; the rest of the 4 KiB is for ErrorInfo, message and headers."""

_TEXT_LENGTHS = (1_024, 512, 256, 128, 64, 32)
"""Characters of a value's text. With the last, all thirteen fields fit even at four bytes a character."""


def refusal_details(refused: Refused) -> tuple[Message, ...]:
    """The typed details of a refusal. None for faults of fields: those go out as `google.rpc.BadRequest`."""
    match refused.detail:
        case FieldViolations():
            return ()
        case RevisionConflict() as detail:
            return (revision_conflict_detail(detail),)
        case ContractMismatch() as detail:
            return (contract_mismatch_detail(detail),)
        case StaleInstance() as detail:
            return (stale_instance_detail(detail),)
        case StaleIncarnation() as detail:
            return (stale_incarnation_detail(detail),)


def revision_conflict_detail(conflict: RevisionConflict) -> pb.RevisionConflict:
    """Without the DSpark layout of the standing route where that is too large."""
    route = None if conflict.standing_route is None else route_to_message(conflict.standing_route)
    message = pb.RevisionConflict(
        revision=conflict.revision,
        epoch=conflict.epoch,
        instance=instance_to_message(conflict.instance),
        standing_route=route,
    )
    if message.ByteSize() > MAX_DETAIL_BYTES:
        message.standing_route.ClearField("dsv41_spec_layout")
        message.layout_omitted = True
    return message


def revision_conflict_from_message(message: pb.RevisionConflict) -> RevisionConflict:
    return RevisionConflict(
        revision=message.revision,
        epoch=message.epoch,
        instance=instance_from_message(message.instance) if message.HasField("instance") else None,
        standing_route=route_from_message(message.standing_route) if message.HasField("standing_route") else None,
        layout_omitted=message.layout_omitted,
    )


def contract_mismatch_detail(mismatch: ContractMismatch) -> pb.ContractMismatch:
    """Every difference, its two texts cut around the place where they part if the whole would be too long."""
    for length in _TEXT_LENGTHS:
        message = _mismatch_message(mismatch, length)
        if message.ByteSize() <= MAX_DETAIL_BYTES:
            break
    return message


def _mismatch_message(mismatch: ContractMismatch, length: int) -> pb.ContractMismatch:
    message = pb.ContractMismatch(total_count=len(mismatch.mismatches))
    for found in mismatch.mismatches:
        whole = value_text(found.standing_value), value_text(found.offered_value)
        standing, offered = cut_apart(*whole, length)
        message.truncated |= (standing, offered) != whole
        held_by = rank_key_to_message(found.held_by)
        message.mismatches.add(field=found.field, standing_value=standing, offered_value=offered, held_by=held_by)
    return message


def stale_instance_detail(stale: StaleInstance) -> pb.StaleInstance:
    return pb.StaleInstance(floor=instance_to_message(stale.floor))


def stale_instance_from_message(message: pb.StaleInstance) -> StaleInstance:
    return StaleInstance(instance_from_message(message.floor))


def stale_incarnation_detail(stale: StaleIncarnation) -> pb.StaleIncarnation:
    return pb.StaleIncarnation(
        key=rank_key_to_message(stale.key), newest_incarnation=stale.newest_incarnation, deregistered=stale.deregistered
    )


def stale_incarnation_from_message(message: pb.StaleIncarnation) -> StaleIncarnation:
    return StaleIncarnation(rank_key_from_message(message.key), message.newest_incarnation, message.deregistered)


def not_ready_detail(topology: Topology) -> pb.NotReady:
    """The state as it is: with 64 keys in each list it takes at most about 2,000 bytes."""
    return pb.NotReady(state=group_state_to_message(topology))
