"""The watch validator: what one watcher is sent holds together, and all watchers are sent the same.

A `WatchRecord` takes the messages of one watcher over all its streams, folds them, and notes every fault:

- a stream begins with a snapshot, or with progress at exactly the revision that was asked for;
- a change is one revision after what was known: no gap, no duplicate;
- every event changes something: nothing is invented, also not after a snapshot;
- the state sent along is that of the folded routes;
- progress names exactly the revision that was reached;
- a watcher that stays with one replica never goes back in time.

`compare_watches` holds the records of one group against each other, revision by revision.
"""

from collections.abc import Iterable, Iterator
from itertools import product

from faults.histories import GroupContent, Observation, Row
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.topology import RankKey

LISTED_KEYS = 8
"""Missing keys that every state lists at least, lowest first."""


class WatchRecord:
    """What one watcher was sent."""

    def __init__(self, who: str) -> None:
        self.who = who
        self.faults: list[str] = []
        self.observations: list[Observation] = []
        """The group at every revision that this watcher came to, in the order of time."""
        self.events: dict[int, tuple[bytes, ...]] = {}
        """Events of each revision that came as a change, serialised."""
        self.states: dict[int, bytes] = {}
        """State and rows at each revision, serialised."""
        self.snapshots = self.changes = self.streams = 0
        self.revision: int | None = None
        self.state = pb.GroupState()
        self.routes: dict[RankKey, pb.Route] = {}
        self._asked: int | None = None
        self._begun = False
        self._parts: list[pb.WatchTopologyResponse] = []

    def opened(self) -> int | None:
        """A new stream begins; returns the revision to ask for."""
        self.streams += 1
        self._asked, self._begun, self._parts = self.revision, False, []
        return self._asked

    def receive(self, message: pb.WatchTopologyResponse, time: int) -> None:
        """Takes the next message of the stream."""
        self._parts.append(message)
        if len({(part.revision, part.WhichOneof("body")) for part in self._parts}) > 1:
            self._fault("the parts of one message differ in revision or kind", message)
        if not message.last:
            return
        parts, self._parts = self._parts, []
        match message.WhichOneof("body"):
            case "snapshot":
                self._snapshot(parts)
            case "change":
                self._change(parts)
            case "progress":
                self._progress(message)
                return
            case _:
                self._fault("an empty message", message)
        self._check_state(message)
        self._note(time)

    def _snapshot(self, parts: list[pb.WatchTopologyResponse]) -> None:
        self.snapshots += 1
        revision, rows = parts[-1].revision, [route for part in parts for route in part.snapshot.routes]
        if self.revision is not None and revision < self.revision:
            self._fault(f"a snapshot at {revision} after {self.revision}: back in time", parts[-1])
        if not self._begun and self._asked is not None and revision == self._asked:
            self._fault(f"a snapshot at {revision}, although the watcher is current", parts[-1])
        keys = [_key(route.key) for route in rows]
        if keys != sorted(set(keys)):
            self._fault("the rows of a snapshot are not in order, each there once", parts[-1])
        self._begun = True
        self.revision, self.state = revision, parts[-1].snapshot.state
        self.routes = dict(zip(keys, rows, strict=True))

    def _change(self, parts: list[pb.WatchTopologyResponse]) -> None:
        self.changes += 1
        revision, state = parts[-1].revision, parts[-1].change.state
        events = [event for part in parts for event in part.change.events]
        if not self._begun:
            self._fault("the stream begins with a change", parts[-1])
        elif revision != (self.revision or 0) + 1 and self.revision != 0:
            self._fault(f"a change at {revision} after {self.revision}", parts[-1])
        if not events:
            self._fault("a change without an event", parts[-1])
        order = [_rank(event) for event in events]
        if order != sorted(set(order)):
            self._fault("events out of order, or one key twice", parts[-1])
        for event in events:
            self._apply(event, state, parts[-1])
        if state.epoch != self.state.epoch and events[0].WhichOneof("event") != "epoch_started":
            self._fault("another epoch without its start", parts[-1])
        self.revision, self.state = revision, state
        self.events[revision] = tuple(event.SerializeToString(deterministic=True) for event in events)

    def _apply(self, event: pb.TopologyEvent, state: pb.GroupState, message: pb.WatchTopologyResponse) -> None:
        match event.WhichOneof("event"):
            case "epoch_started":
                started = event.epoch_started
                if started.epoch <= self.state.epoch or started.epoch != state.epoch:
                    self._fault(f"epoch {started.epoch} starts in {self.state.epoch}", message)
                if started.HasField("instance") != state.HasField("instance") or started.instance != state.instance:
                    self._fault("an epoch starts with another instance than that of the state", message)
                self.routes.clear()
            case "route_removed":
                key = _key(event.route_removed.key)
                standing = self.routes.pop(key, None)
                if standing is None or standing.incarnation != event.route_removed.incarnation:
                    self._fault(f"a removal of {key}, which did not stand so", message)
            case "route_registered":
                route = event.route_registered.route
                if self.routes.get(_key(route.key)) == route:
                    self._fault(f"a registration of {_key(route.key)}, which stood so already", message)
                self.routes[_key(route.key)] = route
            case _:
                self._fault("an unknown event", message)

    def _progress(self, message: pb.WatchTopologyResponse) -> None:
        if not self._begun and (self._asked is None or message.revision != self._asked):
            self._fault(f"the stream begins with progress at {message.revision}; asked for {self._asked}", message)
        elif message.revision != self.revision:
            self._fault(f"progress at {message.revision}, but {self.revision} was reached", message)
        self._begun = True

    def _check_state(self, message: pb.WatchTopologyResponse) -> None:
        state, routes = self.state, self.routes
        if state.revision != message.revision:
            self._fault("the state is of another revision than its message", message)
        sizes = {(r.sizes.dp, r.sizes.cp, r.sizes.tp, r.sizes.pp) for r in routes.values()}
        if len(sizes) > 1 or len({route.page_size for route in routes.values()}) > 1:
            self._fault("routes of different contracts together", message)
        expected = [RankKey(*key) for shape in sizes for key in product(*map(range, shape))]
        missing = [key for key in expected if key not in routes]
        told = (state.registered, state.expected, state.missing_count)
        if told != (len(routes), len(expected), len(missing)):
            self._fault(f"the state tells {told} of routes {sorted(routes)}", message)
        listed = [_key(key) for key in state.missing_keys]
        if listed != missing[: len(listed)] or len(listed) < min(LISTED_KEYS, len(missing)):
            self._fault(f"the state lists {listed} of the missing {missing}", message)
        if state.ready != (bool(routes) and not missing and not state.undeclared_count):
            self._fault(f"ready is {state.ready} with {missing} missing", message)

    def _note(self, time: int) -> None:
        if not self.revision:
            return  # nobody registered as yet
        rows = b"".join(self.routes[key].SerializeToString(deterministic=True) for key in sorted(self.routes))
        # A change lists fewer of the missing keys than a snapshot; those that are listed were checked.
        state = pb.GroupState.FromString(self.state.SerializeToString())
        state.ClearField("missing_keys")
        told = state.SerializeToString(deterministic=True) + rows
        if self.states.setdefault(self.revision, told) != told:
            self.faults.append(f"{self.who}: revision {self.revision} came twice with different content")
        content = content_of(self.state, self.routes.values())
        self.observations.append(Observation(time, self.revision, content.epoch, self.who, content=content))

    def _fault(self, what: str, message: pb.WatchTopologyResponse) -> None:
        self.faults.append(f"{self.who}, stream {self.streams}: {what}\n{message}")


def compare_watches(records: Iterable[WatchRecord]) -> Iterator[str]:
    """Every fault of the records of one group, and every revision at which two of them differ."""
    states: dict[int, tuple[str, bytes]] = {}
    events: dict[int, tuple[str, tuple[bytes, ...]]] = {}
    for record in records:
        yield from record.faults
        for revision, told in record.states.items():
            other, standing = states.setdefault(revision, (record.who, told))
            if told != standing:
                yield f"{record.who} and {other} saw different states at revision {revision}"
        for revision, came in record.events.items():
            other, standing_events = events.setdefault(revision, (record.who, came))
            if came != standing_events:
                yield f"{record.who} and {other} saw different events at revision {revision}"


def content_of(state: pb.GroupState, routes: Iterable[pb.Route]) -> GroupContent:
    """What the linearizability checker knows of a group."""
    return GroupContent(
        state.revision,
        state.epoch,
        launch_number(state.instance) if state.HasField("instance") else None,
        launch_number(state.floor) if state.HasField("floor") else None,
        frozenset((_key(r.key), Row(r.incarnation, r.rank_port, r.page_size)) for r in routes),
    )


def launch_number(instance: pb.Instance) -> int:
    """Launches of the tests are named `launch-1`, `launch-2`, ..."""
    return int(instance.id.removeprefix("launch-"))


def _key(key: pb.RankKey) -> RankKey:
    return RankKey(key.dp, key.cp, key.tp, key.pp)


def _rank(event: pb.TopologyEvent) -> tuple[int, RankKey | None]:
    """The place of an event in its change: epoch start, removals, registrations, each by key."""
    match event.WhichOneof("event"):
        case "epoch_started":
            return 0, None
        case "route_removed":
            return 1, _key(event.route_removed.key)
    return 2, _key(event.route_registered.route.key)
