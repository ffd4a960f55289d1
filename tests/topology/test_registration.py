"""Rule 2: the order of the checks, the equal row, compare-and-swap, revisions."""

from dataclasses import replace

import pytest

from interlock.reasons import Reason
from interlock.topology import (
    DeregisterRoute,
    RankKey,
    RevisionConflict,
    Topology,
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


def test_the_first_route_starts_the_group_at_the_time_in_microseconds():
    topology = accepted(Topology.empty("default"), register(route(0)))
    assert topology.revision == FIRST_REVISION == 1_700_000_000_000_000
    assert (topology.epoch, topology.instance, topology.floor) == (1, LAUNCH, LAUNCH)
    assert dict(topology.routes) == {RankKey(0, 0, 0, 0): route(0)}
    assert (topology.registered, topology.expected, topology.ready) == (1, 2, False)


def test_a_clock_that_stands_at_its_start_still_gives_a_revision_that_is_none_of_an_empty_group():
    early = replace(LAUNCH, started_at=1)
    assert accepted(Topology.empty("default"), register(route(0), early), now=0).revision == 1


def test_every_later_change_counts_one_whatever_the_clock_says():
    topology = group_of(route(0))
    long_before = accepted(topology, register(route(1)), now=NOW - 50 * 10**9)
    long_after = accepted(topology, register(route(1)), now=NOW + 10**18)
    assert long_before.revision == long_after.revision == FIRST_REVISION + 1
    assert long_after.ready


def test_registering_the_same_row_again_gives_the_very_same_topology():
    topology = group_of(route(0), route(1))
    assert accepted(topology, register(route(0))) is topology


def test_an_equal_row_succeeds_before_the_expected_revision_is_looked_at():
    topology = group_of(route(0))
    assert accepted(topology, register(route(0), expected_revision=0)) is topology
    assert accepted(topology, register(route(0), expected_revision=7)) is topology


def test_a_row_is_equal_however_its_address_was_spelt():
    topology = group_of(route(0, rank_ip="2001:db8::1"))
    assert accepted(topology, register(route(0, rank_ip="[2001:DB8:0::1]"))) is topology
    named = group_of(route(0, rank_ip="rank-0.prefill"))
    assert accepted(named, register(route(0, rank_ip="Rank-0.PREFILL"))) is named


def test_an_equal_row_of_another_launch_is_no_equal_row():
    topology = group_of(route(0))
    assert refused(topology, register(route(0), LATER_LAUNCH, expected_revision=0)).reason is Reason.REVISION_CONFLICT
    assert accepted(topology, register(route(0), LATER_LAUNCH)).revision == FIRST_REVISION + 1


def test_compare_and_swap_takes_the_current_revision():
    topology = group_of(route(0))
    assert accepted(topology, register(route(1), expected_revision=FIRST_REVISION)).ready


@pytest.mark.parametrize("expected_revision", [0, 1, FIRST_REVISION - 1, FIRST_REVISION + 1, 2**64 - 1])
def test_compare_and_swap_refuses_another_revision_and_tells_what_the_loser_needs(expected_revision):
    topology = group_of(route(0))
    loser = refused(topology, register(route(0, rank_port=30_001), expected_revision=expected_revision))
    assert loser.reason is Reason.REVISION_CONFLICT
    assert loser.detail == RevisionConflict(FIRST_REVISION, 1, LAUNCH, standing_route=route(0))
    assert str(FIRST_REVISION) in loser.message
    without_a_row = refused(topology, register(route(1), expected_revision=expected_revision))
    assert without_a_row.detail == RevisionConflict(FIRST_REVISION, 1, LAUNCH, standing_route=None)


def test_expected_revision_zero_means_no_live_routes():
    assert accepted(Topology.empty("default"), register(route(0), expected_revision=0)).registered == 1
    tombstone = accepted(group_of(route(0)), DeregisterRoute(route(0).key, LAUNCH, 100))
    assert accepted(tombstone, register(route(0, incarnation=101), expected_revision=0)).registered == 1


def test_a_tombstones_own_number_matches_too():
    tombstone = accepted(group_of(route(0)), DeregisterRoute(route(0).key, LAUNCH, 100))
    assert tombstone.revision == FIRST_REVISION + 1
    again = register(route(0, incarnation=101), expected_revision=tombstone.revision)
    assert accepted(tombstone, again).revision == FIRST_REVISION + 2
    with_an_older_number = register(route(0, incarnation=101), expected_revision=FIRST_REVISION)
    assert refused(tombstone, with_an_older_number).reason is Reason.REVISION_CONFLICT


def test_the_expected_revision_is_looked_at_before_the_contract():
    topology = group_of(route(0))
    misfit = route(1, page_size=128)
    assert refused(topology, register(misfit, expected_revision=1)).reason is Reason.REVISION_CONFLICT
    assert refused(topology, register(misfit, expected_revision=FIRST_REVISION)).reason is Reason.CONTRACT_MISMATCH


def test_faults_of_fields_are_told_before_anything_else():
    topology = group_of(route(0))
    faulty = register(route(1, page_size=0), replace(LAUNCH, id="launch-0", started_at=1), expected_revision=1)
    assert refused(topology, faulty).reason is Reason.INVALID_FIELD


def test_a_stale_instance_is_told_before_a_stale_revision():
    topology = group_of(route(0))
    stale = register(route(0), replace(LAUNCH, id="launch-0", started_at=1), expected_revision=1)
    assert refused(topology, stale).reason is Reason.STALE_INSTANCE


def test_a_stale_incarnation_is_told_before_a_stale_revision():
    topology = group_of(route(0))
    stale = register(route(0, incarnation=99), expected_revision=1)
    assert refused(topology, stale).reason is Reason.STALE_INCARNATION


def test_a_rank_may_change_its_own_row_within_one_life():
    topology = group_of(route(0), route(1))
    moved = accepted(topology, register(route(0, rank_port=30_001)))
    assert moved.revision == topology.revision + 1
    assert moved.routes[RankKey(0, 0, 0, 0)].rank_port == 30_001
    assert moved.ready


def test_presence_is_kept_so_that_declaring_a_default_is_a_change_of_the_row():
    topology = group_of(route(0))
    spelt_out = accepted(topology, register(route(0, decode_allocation_policy="early")))
    assert spelt_out.revision == topology.revision + 1
    assert spelt_out.routes[RankKey(0, 0, 0, 0)].decode_allocation_policy == "early"
