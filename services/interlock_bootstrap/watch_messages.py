"""What a watcher is sent: snapshots, changes and progress, split so that every message fits.

A large group's snapshot, or the first change of its new epoch, comes in several messages of one revision, the last
of them marked.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from google.protobuf.message import Message

from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.topology import Topology, changes
from interlock.topology.messages import event_to_message, group_state_to_message, route_to_message

MESSAGE_BYTES = 1 << 20
"""Rows or events of one message; well under the 4 MiB that a client receives unless told otherwise. One row is at most
about 70 KiB."""

KEPT_SNAPSHOTS = 16
"""Groups of which the last snapshot is kept."""

KEYS_OF_A_CHANGE = 8
"""Missing or undeclared keys that a change lists: every watcher is sent them with every change, and it knows the routes
anyway."""

M = TypeVar("M", bound=Message)


def snapshot_messages(topology: Topology) -> Iterator[bootstrap_pb2.WatchTopologyResponse]:
    """The whole group, routes in ascending order of their keys."""
    state = group_state_to_message(topology)
    rows = (route_to_message(topology.routes[key]) for key in sorted(topology.routes))
    for routes, last in _parts(rows):
        yield bootstrap_pb2.WatchTopologyResponse(
            revision=topology.revision,
            last=last,
            snapshot=bootstrap_pb2.TopologySnapshot(state=state, routes=routes),
        )


class Snapshots:
    """Snapshots as they were sent last, for the many who come to watch at once: after a restart, everybody.

    Those of one message are kept, of a few groups; larger ones are made a part at a time for each watcher.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Topology, bytes]] = {}
        """By group, the one asked for last at the end."""

    def messages(self, topology: Topology) -> Iterator[bytes]:
        """As `snapshot_messages`, serialised."""
        kept, message = self._kept.pop(topology.group, (None, b""))
        if kept is not topology:
            parts = snapshot_messages(topology)
            first = next(parts)
            message = first.SerializeToString()
            if not first.last:
                yield message
                yield from (part.SerializeToString() for part in parts)
                return
        self._kept[topology.group] = topology, message
        if len(self._kept) > KEPT_SNAPSHOTS:
            del self._kept[next(iter(self._kept))]
        yield message


def change_messages(before: Topology, after: Topology) -> Iterator[bootstrap_pb2.WatchTopologyResponse]:
    """What one revision changed."""
    state = group_state_to_message(after, KEYS_OF_A_CHANGE)
    for events, last in _parts(event_to_message(event) for event in changes(before, after)):
        yield bootstrap_pb2.WatchTopologyResponse(
            revision=after.revision, last=last, change=bootstrap_pb2.TopologyChange(state=state, events=events)
        )


def progress_message(topology: Topology) -> bootstrap_pb2.WatchTopologyResponse:
    """Nothing new: every change up to this topology was sent."""
    return bootstrap_pb2.WatchTopologyResponse(
        revision=topology.revision, last=True, progress=bootstrap_pb2.WatchProgress()
    )


def _parts(messages: Iterable[M]) -> Iterator[tuple[list[M], bool]]:
    """Splits messages into parts of about MESSAGE_BYTES, at least one part, each with whether it is the last."""
    part: list[M] = []
    size = 0
    for message in messages:
        if part and size + message.ByteSize() > MESSAGE_BYTES:
            yield part, False
            part, size = [], 0
        part.append(message)
        size += message.ByteSize()
    yield part, True
