"""Rule 6, lives of one rank: incarnations, and what deregistering touches."""

from itertools import product
from math import prod

import pytest

from interlock.reasons import Reason
from interlock.topology import (
    Departed,
    DeregisterRoute,
    ForceEpoch,
    Instance,
    ParallelSizes,
    RankKey,
    RankMap,
    RouteRegistered,
    RouteRemoved,
    StaleIncarnation,
    Topology,
    changes,
)
from topology.examples import LATER_LAUNCH, LAUNCH, accepted, group_of, refused, register, route

FIRST, SECOND = RankKey(0, 0, 0, 0), RankKey(0, 0, 1, 0)


def test_a_higher_incarnation_replaces_the_row_in_one_revision_and_one_event():
    topology = group_of(route(0), route(1))
    restarted = route(0, incarnation=101, rank_ip="10.0.0.9")
    replaced = accepted(topology, register(restarted))
    assert replaced.revision == topology.revision + 1
    assert replaced.epoch == topology.epoch
    assert changes(topology, replaced) == (RouteRegistered(restarted),)
    assert replaced.ready


def test_a_lower_incarnation_is_refused_with_the_newest():
    topology = group_of(route(0))
    stale = refused(topology, register(route(0, incarnation=99)))
    assert stale.reason is Reason.STALE_INCARNATION
    assert stale.detail == StaleIncarnation(FIRST, newest_incarnation=100, deregistered=False)


def test_incarnations_order_the_lives_of_one_key_only():
    topology = group_of(route(0, incarnation=100))
    assert accepted(topology, register(route(1, incarnation=1))).ready


def test_a_new_launch_begins_its_incarnations_anew():
    topology = group_of(route(0, incarnation=100))
    assert accepted(topology, register(route(0, incarnation=1), LATER_LAUNCH)).registered == 1


def test_deregistering_removes_that_very_row():
    topology = group_of(route(0), route(1))
    smaller = accepted(topology, DeregisterRoute(FIRST, LAUNCH, 100))
    assert smaller.revision == topology.revision + 1
    assert dict(smaller.routes) == {SECOND: route(1)}
    assert not smaller.ready
    assert changes(topology, smaller) == (RouteRemoved(FIRST, 100),)
    assert dict(smaller.departed) == {FIRST: Departed(100, deregistered=True)}


@pytest.mark.parametrize(
    "request_",
    [
        DeregisterRoute(FIRST, LAUNCH, 99),
        DeregisterRoute(FIRST, LAUNCH, 101),
        DeregisterRoute(FIRST, LATER_LAUNCH, 100),
        DeregisterRoute(FIRST, Instance("launch-1", LAUNCH.started_at - 1), 100),
        DeregisterRoute(RankKey(0, 0, 1, 0), LAUNCH, 100),
        DeregisterRoute(RankKey(9, 9, 9, 9), LAUNCH, 100),
    ],
)
def test_deregistering_what_is_not_held_changes_nothing(request_):
    """Above all it is not remembered: else a stranger could fill a group's memory."""
    topology = group_of(route(0))
    assert accepted(topology, request_) is topology
    empty = Topology.empty("default")
    assert accepted(empty, request_) is empty


def test_a_late_goodbye_of_a_former_life_does_not_touch_the_present_one():
    topology = group_of(route(0, incarnation=100), route(0, incarnation=101))
    assert accepted(topology, DeregisterRoute(FIRST, LAUNCH, 100)) is topology


def test_a_late_goodbye_of_a_former_launch_does_not_touch_the_present_one():
    topology = accepted(group_of(route(0)), register(route(0), LATER_LAUNCH))
    assert accepted(topology, DeregisterRoute(FIRST, LAUNCH, 100)) is topology


def test_a_deregistered_life_cannot_come_back_in_this_epoch():
    topology = accepted(group_of(route(0), route(1)), DeregisterRoute(FIRST, LAUNCH, 100))
    zombie = refused(topology, register(route(0)))
    assert zombie.reason is Reason.STALE_INCARNATION
    assert zombie.detail == StaleIncarnation(FIRST, newest_incarnation=100, deregistered=True)
    older = refused(topology, register(route(0, incarnation=99)))
    assert older.detail == StaleIncarnation(FIRST, newest_incarnation=100, deregistered=True)
    assert accepted(topology, register(route(0, incarnation=101))).ready


def test_a_deregistered_life_cannot_come_back_to_a_tombstone():
    tombstone = accepted(group_of(route(0)), DeregisterRoute(FIRST, LAUNCH, 100))
    assert refused(tombstone, register(route(0))).reason is Reason.STALE_INCARNATION


def test_a_deregistered_life_may_come_back_in_another_epoch():
    topology = accepted(group_of(route(0)), DeregisterRoute(FIRST, LAUNCH, 100))
    forced = accepted(topology, ForceEpoch(None))
    assert dict(forced.departed) == {}
    assert accepted(forced, register(route(0))).registered == 1


def test_a_life_that_left_without_a_goodbye_may_come_back_and_an_older_one_may_not():
    topology = Topology(
        "default",
        revision=7,
        epoch=1,
        instance=LAUNCH,
        floor=LAUNCH,
        departed=RankMap([(FIRST, Departed(100, deregistered=False))]),
    )
    assert accepted(topology, register(route(0))).registered == 1
    older = refused(topology, register(route(0, incarnation=99)))
    assert older.detail == StaleIncarnation(FIRST, newest_incarnation=100, deregistered=False)


def test_what_left_is_remembered_when_the_sizes_change():
    topology = accepted(group_of(route(1)), DeregisterRoute(SECOND, LAUNCH, 100))
    one_rank = ParallelSizes(1, 1, 1, 1)
    topology = accepted(topology, register(route(0, sizes=one_rank)))
    topology = accepted(topology, DeregisterRoute(FIRST, LAUNCH, 100))
    assert refused(topology, register(route(1))).reason is Reason.STALE_INCARNATION


def test_what_left_is_bounded_by_forgetting_keys_outside_the_present_sizes(monkeypatch):
    monkeypatch.setattr("interlock.topology.rules.MAX_RANKS", 4)
    topology = Topology.empty("default")
    for sizes in (sizes for sizes in product(range(1, 5), repeat=4) if prod(sizes) <= 4):
        for key in ParallelSizes(*sizes).rank_keys():
            life = topology.revision + 1
            topology = accepted(topology, register(route(key=key, sizes=ParallelSizes(*sizes), incarnation=life)))
            topology = accepted(topology, DeregisterRoute(key, LAUNCH, life))
            assert topology.departed[key] == Departed(life, deregistered=True)
            assert len(topology.departed) <= 4
