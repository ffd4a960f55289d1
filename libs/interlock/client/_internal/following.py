"""A watch of one group, without its I/O: from messages to the group's present state."""

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.client.errors import UnexpectedAnswerError
from interlock.client.groups import WatchChange, WatchItem, WatchProgress, WatchSnapshot
from interlock.topology import Event, Route, Routes, apply
from interlock.topology.limits import MAX_RANKS
from interlock.topology.messages import event_from_message, group_state_from_message, route_from_message

_MAX_EVENTS = 2 * MAX_RANKS + 1
"""An epoch start, every route gone, and every route come."""


class Following:
    """What a watcher knows of a group. It survives the streams that bring it."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._revision: int | None = None
        self._routes = Routes()
        self._parts: list[Route] = []
        self._events: list[Event] = []

    def request(self) -> pb.WatchTopologyRequest:
        """What to ask for on a new stream: what came after the revision that is known."""
        # Parts of a message whose last part never came are worth nothing.
        self._parts, self._events = [], []
        return pb.WatchTopologyRequest(group=self._group, after_revision=self._revision)

    def receive(self, message: pb.WatchTopologyResponse) -> WatchItem | None:
        """What a message brings; None: more parts have to follow.

        Raises:
            UnexpectedAnswerError: the message does not go with those before it, or cannot be read.
        """
        try:
            return self._receive(message)
        except ValueError as error:
            raise UnexpectedAnswerError(f"a message of the watch cannot be read: {error}") from error

    def _receive(self, message: pb.WatchTopologyResponse) -> WatchItem | None:
        match message.WhichOneof("body"):
            case "snapshot":
                self._parts += map(route_from_message, message.snapshot.routes)
                _check_count("routes", len(self._parts), MAX_RANKS)
                if not message.last:
                    return None
                self._routes, self._parts = Routes(self._parts), []
                self._revision = message.revision
                return WatchSnapshot(group_state_from_message(message.snapshot.state), self._routes)
            case "change":
                if self._revision is None:
                    raise UnexpectedAnswerError("the watch began with a change, not with a snapshot")
                events = map(event_from_message, message.change.events)
                self._events += (event for event in events if event is not None)
                _check_count("events", len(self._events), _MAX_EVENTS)
                if not message.last:
                    return None
                events_of_change, self._events = tuple(self._events), []
                self._routes = apply(self._routes, events_of_change)
                self._revision = message.revision
                return WatchChange(events_of_change, group_state_from_message(message.change.state), self._routes)
            case _:
                # Progress, or something that a later version tells: the revision holds either way.
                if self._revision is None:
                    raise UnexpectedAnswerError("the watch began with progress, not with a snapshot")
                self._revision = message.revision
                return WatchProgress(message.revision)


def _check_count(what: str, count: int, most: int) -> None:
    if count > most:
        raise UnexpectedAnswerError(f"a message of the watch has more than {most} {what}")
