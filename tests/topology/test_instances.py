"""Rule 6, launches: instances, epochs, floors, forced epochs."""

from dataclasses import replace

import pytest

from interlock.reasons import Reason
from interlock.topology import (
    DeregisterRoute,
    EpochStarted,
    FieldViolations,
    ForceEpoch,
    Instance,
    RankKey,
    RouteRegistered,
    StaleInstance,
    Topology,
    changes,
)
from topology.examples import (
    FIRST_REVISION,
    LATER_LAUNCH,
    LAUNCH,
    NOW,
    accepted,
    group_of,
    refused,
    register,
    route,
)

SECOND = 10**9


def faults(topology, request, now=NOW):
    refusal = refused(topology, request, now)
    assert refusal.reason is Reason.INVALID_FIELD
    assert isinstance(refusal.detail, FieldViolations)
    return [field for field, _ in refusal.detail.violations]


def test_instances_are_ordered_by_their_start_and_ties_by_id():
    assert Instance("b", 1) < Instance("a", 2) < Instance("b", 2)
    assert Instance("a", 2) >= Instance("z", 1)


def test_a_later_instance_starts_an_epoch_and_the_old_rows_leave():
    topology = group_of(route(0), route(1))
    relaunched = accepted(topology, register(route(1, incarnation=5), LATER_LAUNCH))
    assert relaunched.revision == topology.revision + 1
    assert (relaunched.epoch, relaunched.instance, relaunched.floor) == (2, LATER_LAUNCH, LATER_LAUNCH)
    assert dict(relaunched.routes) == {RankKey(0, 0, 1, 0): route(1, incarnation=5)}
    assert changes(topology, relaunched) == (
        EpochStarted(2, LATER_LAUNCH),
        RouteRegistered(route(1, incarnation=5)),
    )


def test_a_later_instance_brings_a_contract_of_its_own():
    topology = group_of(route(0), route(1))
    relaunched = accepted(topology, register(route(0, page_size=128, kv_cache_dtype="fp8_e4m3"), LATER_LAUNCH))
    assert refused(relaunched, register(route(1), LATER_LAUNCH)).reason is Reason.CONTRACT_MISMATCH


def test_a_tie_of_starts_is_decided_by_id():
    topology = group_of(route(0), instance=Instance("b", NOW))
    assert refused(topology, register(route(0), Instance("a", NOW))).detail == StaleInstance(Instance("b", NOW))
    assert accepted(topology, register(route(0), Instance("c", NOW))).epoch == 2


def test_an_older_instance_is_refused_with_the_floor():
    topology = accepted(group_of(route(0)), register(route(0), LATER_LAUNCH))
    stale = refused(topology, register(route(1), LAUNCH))
    assert stale.reason is Reason.STALE_INSTANCE
    assert stale.detail == StaleInstance(LATER_LAUNCH)


def test_a_tombstone_keeps_revision_epoch_and_floor():
    topology = group_of(route(0))
    tombstone = accepted(topology, DeregisterRoute(RankKey(0, 0, 0, 0), LAUNCH, 100))
    assert (tombstone.revision, tombstone.epoch) == (FIRST_REVISION + 1, 1)
    assert (tombstone.instance, tombstone.floor) == (LAUNCH, LAUNCH)
    assert (tombstone.registered, tombstone.expected, tombstone.ready) == (0, 0, False)
    older = Instance("launch-0", NOW - 1)
    assert refused(tombstone, register(route(0), older)).detail == StaleInstance(LAUNCH)
    assert accepted(tombstone, register(route(1), LAUNCH)).epoch == 1
    assert accepted(tombstone, register(route(1), LATER_LAUNCH)).epoch == 2


@pytest.mark.parametrize("started_at", [NOW - 1, NOW + 1])
def test_a_known_id_with_another_start_is_a_fault_of_that_field(started_at):
    topology = group_of(route(0))
    assert faults(topology, register(route(1), replace(LAUNCH, started_at=started_at))) == ["instance.started_at"]


def test_an_instance_that_was_accepted_goes_on_when_the_clock_is_set_back():
    topology = group_of(route(0))
    an_hour_ago = LAUNCH.started_at - 3_600 * SECOND
    assert accepted(topology, register(route(0)), an_hour_ago) == topology
    assert accepted(topology, register(route(1)), an_hour_ago).registered == 2
    assert faults(topology, register(route(1), LATER_LAUNCH), an_hour_ago) == ["instance.started_at"]


def test_an_instance_up_to_a_minute_ahead_of_the_clock_is_accepted_and_no_later_one():
    ahead = Instance("ahead", NOW + 60 * SECOND)
    assert accepted(Topology.empty("g"), register(route(0), ahead)).instance == ahead
    too_far = Instance("ahead", NOW + 60 * SECOND + 1)
    assert faults(Topology.empty("g"), register(route(0), too_far)) == ["instance.started_at"]


def test_a_launcher_behind_the_floor_stamps_floor_plus_one_and_is_accepted():
    topology = group_of(route(0), instance=Instance("ahead", NOW + 30 * SECOND))
    stamped = Instance("slow-clock", max(NOW, NOW + 30 * SECOND + 1))
    assert accepted(topology, register(route(0), stamped)).epoch == 2


# Forced epochs


def test_a_forced_epoch_drops_the_routes_and_serves_no_instance():
    topology = group_of(route(0), route(1))
    forced = accepted(topology, ForceEpoch(floor=None))
    assert forced == Topology("default", revision=topology.revision + 1, epoch=2, instance=None, floor=None)
    assert changes(topology, forced) == (EpochStarted(2, None),)


def test_after_a_forced_epoch_the_first_route_starts_one_that_serves_its_instance():
    forced = accepted(group_of(route(0)), ForceEpoch(floor=None))
    served = accepted(forced, register(route(0)))
    assert (served.epoch, served.instance, served.floor) == (3, LAUNCH, LAUNCH)
    assert changes(forced, served) == (EpochStarted(3, LAUNCH), RouteRegistered(route(0)))


def test_a_floor_can_be_forced_downwards():
    older = Instance("launch-0", NOW - 10)
    topology = group_of(route(0))
    assert refused(topology, register(route(0), older)).reason is Reason.STALE_INSTANCE
    forced = accepted(topology, ForceEpoch(floor=older))
    assert forced.floor == older
    assert accepted(forced, register(route(0), older)).instance == older
    below = Instance("launch-00", NOW - 11)
    assert refused(forced, register(route(0), below)).detail == StaleInstance(older)


def test_without_a_floor_any_instance_is_accepted_again():
    forced = accepted(group_of(route(0)), ForceEpoch(floor=None))
    assert accepted(forced, register(route(0), Instance("ancient", 1))).floor == Instance("ancient", 1)


def test_a_floor_can_be_forced_upwards_to_shut_out_a_launch():
    topology = group_of(route(0))
    floor = Instance("shut", NOW + 1)
    forced = accepted(topology, ForceEpoch(floor))
    assert refused(forced, register(route(0))).detail == StaleInstance(floor)


def test_forcing_an_epoch_is_a_change_each_time():
    topology = accepted(group_of(route(0)), ForceEpoch(None))
    again = accepted(topology, ForceEpoch(None))
    assert (again.epoch, again.revision) == (topology.epoch + 1, topology.revision + 1)


def test_forcing_an_epoch_of_a_group_with_no_history_sets_its_floor():
    forced = accepted(Topology.empty("new"), ForceEpoch(LAUNCH))
    assert forced == Topology("new", revision=FIRST_REVISION, epoch=1, instance=None, floor=LAUNCH)


@pytest.mark.parametrize(
    ("floor", "field"),
    [
        (Instance("far", NOW + 61 * SECOND), "floor.started_at"),
        (Instance("", NOW), "floor.id"),
        (Instance("x", 0), "floor.started_at"),
        (Instance("", 0), "floor"),
    ],
)
def test_a_floor_is_checked_like_any_instance(floor, field):
    """One in the far future would shut out every launch to come."""
    assert faults(group_of(route(0)), ForceEpoch(floor)) == [field]
