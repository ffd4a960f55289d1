"""The typed details of refusals, as values."""

from google.protobuf.any_pb2 import Any

from interlock.bootstrap.v1 import errors_pb2 as pb
from interlock.client.groups import Conflict, ContractDifferences, FieldDifference
from interlock.topology import StaleIncarnation, StaleInstance
from interlock.topology.messages import instance_from_message, key_from_message, route_from_message
from interlock.topology.watch_messages import group_state_from_message


def typed_detail(packed: Any) -> object:
    """The value of a detail; the packed message itself if its type is unknown.

    Raises:
        ValueError, google.protobuf.message.DecodeError: it cannot be read.
    """
    conflict, mismatch, not_ready = pb.RevisionConflict(), pb.ContractMismatch(), pb.NotReady()
    stale_instance, stale_incarnation = pb.StaleInstance(), pb.StaleIncarnation()
    if packed.Unpack(conflict):
        return Conflict(
            revision=conflict.revision,
            epoch=conflict.epoch,
            instance=instance_from_message(conflict.instance) if conflict.HasField("instance") else None,
            standing_route=route_from_message(conflict.standing_route) if conflict.HasField("standing_route") else None,
            layout_omitted=conflict.layout_omitted,
        )
    if packed.Unpack(mismatch):
        differences = tuple(
            FieldDifference(one.field, one.standing_value, one.offered_value, key_from_message(one.held_by))
            for one in mismatch.mismatches
        )
        return ContractDifferences(differences, mismatch.total_count)
    if packed.Unpack(stale_instance):
        return StaleInstance(instance_from_message(stale_instance.floor))
    if packed.Unpack(stale_incarnation):
        return StaleIncarnation(
            key_from_message(stale_incarnation.key),
            stale_incarnation.newest_incarnation,
            stale_incarnation.deregistered,
        )
    if packed.Unpack(not_ready):
        return group_state_from_message(not_ready.state)
    return packed
