"""The watch validator itself: what is right passes, and each kind of fault is found."""

import pytest

from faults.watches import WatchRecord, compare_watches
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.topology import Instance, ParallelSizes, RankKey, RegisterRoute, Route, Topology, transition
from interlock.topology.rules import DeregisterRoute
from interlock_bootstrap.watch_messages import change_messages, progress_message, snapshot_messages

NOW = 1_700_000_000_000_000_000
SIZES = ParallelSizes(1, 1, 2, 1)


def launch(number: int) -> Instance:
    return Instance(f"launch-{number}", NOW + number)


def registered(topology: Topology, tp: int, incarnation: int = 1, number: int = 1) -> Topology:
    route = Route(RankKey(0, 0, tp, 0), incarnation, SIZES, "10.0.0.1", 9000 + incarnation, 64)
    return transition(topology, RegisterRoute(route, launch(number)), NOW).topology


EMPTY = Topology.empty("default")
ONE = registered(EMPTY, 0)
TWO = registered(ONE, 1)
MOVED = registered(TWO, 0, incarnation=2)
LEFT = transition(MOVED, DeregisterRoute(RankKey(0, 0, 1, 0), launch(1), 1), NOW).topology
RELAUNCHED = registered(LEFT, 0, incarnation=3, number=2)
STORY = [EMPTY, ONE, TWO, MOVED, LEFT, RELAUNCHED]


def snapshot(topology: Topology) -> list[pb.WatchTopologyResponse]:
    return list(snapshot_messages(topology))


def change(before: Topology, after: Topology) -> list[pb.WatchTopologyResponse]:
    return list(change_messages(before, after))


def record(*streams: list[pb.WatchTopologyResponse], who: str = "watcher") -> WatchRecord:
    found = WatchRecord(who)
    for time, stream in enumerate(streams):
        found.opened()
        for message in stream:
            found.receive(message, time)
    return found


def told_from(first: int) -> list[pb.WatchTopologyResponse]:
    """The whole story from a snapshot at one of its topologies on."""
    messages = snapshot(STORY[first])
    for before, after in zip(STORY[first:], STORY[first + 1 :], strict=False):
        messages += change(before, after)
    return [*messages, progress_message(STORY[-1])]


@pytest.mark.parametrize("first", range(len(STORY)))
def test_a_watch_that_tells_the_truth_passes_wherever_it_begins(first):
    found = record(told_from(first))
    assert list(compare_watches([found])) == []
    assert found.observations[-1].content.revision == RELAUNCHED.revision
    assert len(found.observations) == len(STORY) - max(1, first)


def test_watchers_that_began_at_different_times_agree():
    assert list(compare_watches([record(told_from(0), who="a"), record(told_from(3), who="b")])) == []


def test_a_watcher_that_comes_back_goes_on_with_progress_or_with_a_snapshot():
    back_at_once = record(snapshot(TWO), [progress_message(TWO), *change(TWO, MOVED)])
    back_later = record(snapshot(TWO), [*snapshot(LEFT), *change(LEFT, RELAUNCHED)])
    assert list(compare_watches([back_at_once, back_later])) == []


@pytest.mark.parametrize(
    ("streams", "fault"),
    [
        pytest.param([[*snapshot(ONE), *change(TWO, MOVED)]], "a change at", id="gap"),
        pytest.param([[*snapshot(TWO), *change(ONE, TWO)]], "a change at", id="duplicate"),
        pytest.param([change(ONE, TWO)], "begins with a change", id="no snapshot"),
        pytest.param([[progress_message(ONE)]], "begins with progress", id="progress first"),
        pytest.param([snapshot(TWO), [progress_message(MOVED)]], "begins with progress", id="progress elsewhere"),
        pytest.param([[*snapshot(ONE), progress_message(TWO)]], "progress at", id="progress ahead"),
        pytest.param([[*snapshot(TWO), *snapshot(ONE)]], "back in time", id="back in time"),
        pytest.param([snapshot(TWO), snapshot(TWO)], "although the watcher is current", id="needless snapshot"),
    ],
)
def test_a_stream_that_breaks_the_protocol_is_found(streams, fault):
    found = record(*streams)
    assert any(fault in each for each in found.faults), found.faults


def snapshot_route(topology: Topology) -> pb.Route:
    return snapshot(topology)[0].snapshot.routes[0]


def altered(messages, alter):
    for message in messages:
        alter(message)
    return messages


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        pytest.param(
            altered(change(ONE, TWO), lambda m: m.change.events.append(m.change.events[0])), "one key twice", id="twice"
        ),
        pytest.param(altered(change(ONE, TWO), lambda m: m.change.ClearField("events")), "without an event", id="none"),
        pytest.param(
            altered(
                change(ONE, TWO), lambda m: m.change.events[0].route_registered.route.CopyFrom(snapshot_route(ONE))
            ),
            "stood so already",
            id="invented registration",
        ),
        pytest.param(
            altered(change(ONE, TWO), lambda m: m.change.events[0].route_removed.key.CopyFrom(pb.RankKey(tp=1))),
            "did not stand so",
            id="invented removal",
        ),
        pytest.param(
            altered(change(ONE, TWO), lambda m: setattr(m.change.state, "ready", False)), "ready is", id="not ready"
        ),
        pytest.param(
            altered(change(ONE, TWO), lambda m: setattr(m.change.state, "registered", 1)), "the state tells", id="count"
        ),
        pytest.param(
            altered(change(ONE, TWO), lambda m: setattr(m.change.state, "epoch", 2)), "without its start", id="epoch"
        ),
        pytest.param(
            altered(change(ONE, TWO), lambda m: setattr(m.change.events[0].route_registered.route, "page_size", 128)),
            "different contracts",
            id="mixture",
        ),
    ],
)
def test_a_change_that_does_not_hold_together_is_found(messages, fault):
    found = record([*snapshot(ONE), *messages])
    assert any(fault in each for each in found.faults), found.faults


def test_replicas_that_differ_at_one_revision_are_found():
    lying = altered(change(ONE, TWO), lambda m: setattr(m.change.events[0].route_registered.route, "rank_port", 1234))
    honest = record([*snapshot(ONE), *change(ONE, TWO)], who="honest")
    found = list(compare_watches([honest, record([*snapshot(ONE), *lying], who="lying")]))
    assert found == [
        f"lying and honest saw different states at revision {TWO.revision}",
        f"lying and honest saw different events at revision {TWO.revision}",
    ]
