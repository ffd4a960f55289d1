"""The typed details of refusals, as values."""

from google.protobuf.any_pb2 import Any

from interlock.bootstrap.v1 import errors_pb2 as pb
from interlock.client.groups import ContractDifferences, FieldDifference
from interlock.topology.detail_messages import (
    revision_conflict_from_message,
    stale_incarnation_from_message,
    stale_instance_from_message,
)
from interlock.topology.messages import group_state_from_message, rank_key_from_message


def typed_detail(packed: Any) -> object:
    """The value of a detail; the packed message itself if its type is unknown.

    Raises:
        ValueError, google.protobuf.message.DecodeError: it cannot be read.
    """
    conflict, mismatch, not_ready = pb.RevisionConflict(), pb.ContractMismatch(), pb.NotReady()
    stale_instance, stale_incarnation = pb.StaleInstance(), pb.StaleIncarnation()
    if packed.Unpack(conflict):
        return revision_conflict_from_message(conflict)
    if packed.Unpack(mismatch):
        differences = tuple(
            FieldDifference(one.field, one.standing_value, one.offered_value, rank_key_from_message(one.held_by))
            for one in mismatch.mismatches
        )
        return ContractDifferences(differences, mismatch.total_count)
    if packed.Unpack(stale_instance):
        return stale_instance_from_message(stale_instance)
    if packed.Unpack(stale_incarnation):
        return stale_incarnation_from_message(stale_incarnation)
    if packed.Unpack(not_ready):
        return group_state_from_message(not_ready.state)
    return packed
