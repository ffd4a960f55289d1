"""What changed between two revisions, and how a watcher follows."""

from interlock.topology import (
    DeregisterRoute,
    EpochStarted,
    ForceEpoch,
    RankKey,
    RouteRegistered,
    RouteRemoved,
    Routes,
    Topology,
    apply,
    changes,
)
from topology.examples import LATER_LAUNCH, LAUNCH, accepted, group_of, register, route

FIRST, SECOND = RankKey(0, 0, 0, 0), RankKey(0, 0, 1, 0)


def test_the_first_route_starts_the_first_epoch():
    assert changes(Topology.empty("default"), group_of(route(0))) == (
        EpochStarted(1, LAUNCH),
        RouteRegistered(route(0)),
    )


def test_no_change_has_no_events():
    topology = group_of(route(0), route(1))
    assert changes(topology, topology) == ()
    assert changes(topology, group_of(route(0), route(1))) == ()


def test_over_several_revisions_removals_come_first_and_then_registrations_by_key():
    before = group_of(route(0), route(1))
    after = accepted(before, DeregisterRoute(SECOND, LAUNCH, 100))
    after = accepted(after, register(route(0, rank_port=30_001)))
    assert changes(before, after) == (RouteRemoved(SECOND, 100), RouteRegistered(route(0, rank_port=30_001)))
    assert changes(after, before) == (RouteRegistered(route(0)), RouteRegistered(route(1)))
    assert apply(before.routes, changes(before, after)) == after.routes


def test_a_new_epoch_tells_all_its_routes_and_no_removals():
    before = group_of(route(0), route(1))
    after = accepted(before, register(route(1), LATER_LAUNCH))
    after = accepted(after, register(route(0), LATER_LAUNCH))
    assert changes(before, after) == (
        EpochStarted(2, LATER_LAUNCH),
        RouteRegistered(route(0)),
        RouteRegistered(route(1)),
    )
    assert apply(before.routes, changes(before, after)) == after.routes


def test_a_forced_epoch_is_one_event():
    before = group_of(route(0))
    after = accepted(before, ForceEpoch(None))
    assert changes(before, after) == (EpochStarted(2, None),)
    assert apply(before.routes, changes(before, after)) == Routes()


def test_events_apply_in_their_order():
    routes = group_of(route(0)).routes
    gone_and_back = [RouteRemoved(FIRST, 100), RouteRegistered(route(0, incarnation=101))]
    assert dict(apply(routes, gone_and_back)) == {FIRST: route(0, incarnation=101)}
    come_and_gone = [RouteRegistered(route(1)), RouteRemoved(SECOND, 100)]
    assert dict(apply(routes, come_and_gone)) == {FIRST: route(0)}
    all_forgotten = [RouteRegistered(route(1)), EpochStarted(2, LATER_LAUNCH), RouteRegistered(route(0))]
    assert dict(apply(routes, all_forgotten)) == {FIRST: route(0)}


def test_a_change_that_comes_in_parts_applies_part_by_part():
    before = group_of(route(0))
    after = accepted(accepted(before, register(route(0), LATER_LAUNCH)), register(route(1), LATER_LAUNCH))
    events = changes(before, after)
    routes = before.routes
    for event in events:
        routes = apply(routes, [event])
    assert routes == after.routes


def test_removing_what_a_watcher_does_not_hold_changes_nothing():
    routes = group_of(route(0)).routes
    assert apply(routes, [RouteRemoved(SECOND, 1)]) == routes
