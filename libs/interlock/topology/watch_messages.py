"""The messages of a watch, both ways: state, snapshot, change.

A large snapshot or change is split into parts, so that no message nears the transport's limit; parts are made one at
a time.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from google.protobuf.message import Message

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.topology.changes import EpochStarted, Event, RouteRegistered, RouteRemoved, changes
from interlock.topology.limits import MAX_LISTED_KEYS
from interlock.topology.messages import (
    instance_from_message,
    instance_message,
    key_from_message,
    key_message,
    route_from_message,
    route_message,
)
from interlock.topology.readiness import GroupState, group_state
from interlock.topology.state import Topology

M = TypeVar("M", bound=Message)

MAX_PART_BYTES = 1024 * 1024
"""Routes or events of one message; one that is larger alone goes alone. A route is at most about 66 KiB."""


def group_state_message(topology: Topology, limit: int = MAX_LISTED_KEYS) -> pb.GroupState:
    """The state of a group, with at most `limit` keys in each list."""
    state = group_state(topology, limit)
    return pb.GroupState(
        group=state.group,
        revision=state.revision,
        epoch=state.epoch,
        instance=instance_message(state.instance),
        floor=instance_message(state.floor),
        registered=state.registered,
        expected=state.expected,
        ready=state.ready,
        missing_keys=map(key_message, state.missing_keys),
        missing_count=state.missing_count,
        undeclared_keys=map(key_message, state.undeclared_keys),
        undeclared_count=state.undeclared_count,
    )


def group_state_from_message(message: pb.GroupState) -> GroupState:
    return GroupState(
        group=message.group,
        revision=message.revision,
        epoch=message.epoch,
        instance=instance_from_message(message.instance) if message.HasField("instance") else None,
        floor=instance_from_message(message.floor) if message.HasField("floor") else None,
        registered=message.registered,
        expected=message.expected,
        ready=message.ready,
        missing_keys=tuple(map(key_from_message, message.missing_keys)),
        missing_count=message.missing_count,
        undeclared_keys=tuple(map(key_from_message, message.undeclared_keys)),
        undeclared_count=message.undeclared_count,
    )


def event_message(event: Event) -> pb.TopologyEvent:
    match event:
        case EpochStarted():
            return pb.TopologyEvent(
                epoch_started=pb.EpochStarted(epoch=event.epoch, instance=instance_message(event.instance))
            )
        case RouteRegistered():
            return pb.TopologyEvent(route_registered=pb.RouteRegistered(route=route_message(event.route)))
        case RouteRemoved():
            return pb.TopologyEvent(
                route_removed=pb.RouteRemoved(key=key_message(event.key), incarnation=event.incarnation)
            )


def event_from_message(message: pb.TopologyEvent) -> Event | None:
    """None: an event of a later version, which this one does not know."""
    match message.WhichOneof("event"):
        case "epoch_started":
            started = message.epoch_started
            instance = instance_from_message(started.instance) if started.HasField("instance") else None
            return EpochStarted(started.epoch, instance)
        case "route_registered":
            return RouteRegistered(route_from_message(message.route_registered.route))
        case "route_removed":
            return RouteRemoved(key_from_message(message.route_removed.key), message.route_removed.incarnation)
        case None:
            return None


def snapshot_messages(topology: Topology) -> Iterator[pb.WatchTopologyResponse]:
    """A group as it is, in one or more parts; the last one is marked."""
    state = group_state_message(topology)
    routes = (route_message(topology.routes[key]) for key in sorted(topology.routes))
    for part, last in _parts(routes):
        yield pb.WatchTopologyResponse(
            revision=topology.revision, last=last, snapshot=pb.TopologySnapshot(state=state, routes=part)
        )


def change_messages(before: Topology, after: Topology) -> Iterator[pb.WatchTopologyResponse]:
    """What one revision changed, in one or more parts; the last one is marked."""
    state = group_state_message(after)
    for part, last in _parts(map(event_message, changes(before, after))):
        yield pb.WatchTopologyResponse(
            revision=after.revision, last=last, change=pb.TopologyChange(state=state, events=part)
        )


def progress_message(revision: int) -> pb.WatchTopologyResponse:
    """Nothing new: every change up to this revision was sent."""
    return pb.WatchTopologyResponse(revision=revision, last=True, progress=pb.WatchProgress())


def _parts(messages: Iterable[M]) -> Iterator[tuple[list[M], bool]]:
    """Messages in parts of bounded size, each with whether it is the last. No messages make one empty part."""
    part: list[M] = []
    size = 0
    for message in messages:
        length = message.ByteSize()
        if part and size + length > MAX_PART_BYTES:
            yield part, False
            part, size = [], 0
        part.append(message)
        size += length
    yield part, True
