"""Leases in a topology: stored beside the routes, changed without a revision, and what expires."""

import pytest

from interlock.reasons import Reason
from interlock.topology import (
    Departed,
    DeregisterRoute,
    ExpireRoutes,
    ForceEpoch,
    RankKey,
    RouteRemoved,
    changes,
    transition_batch,
)
from topology.examples import LATER_LAUNCH, LAUNCH, NOW, accepted, group_of, refused, register, route

FIRST, SECOND = RankKey(0, 0, 0, 0), RankKey(0, 0, 1, 0)


def test_a_lease_is_kept_beside_the_route():
    topology = accepted(group_of(route(0)), register(route(1), lease_ttl=30_000))
    assert dict(topology.leases) == {SECOND: 30_000}
    assert topology.routes == group_of(route(0), route(1)).routes


@pytest.mark.parametrize(("before", "after"), [(10_000, 20_000), (10_000, None), (None, 10_000)])
def test_an_equal_row_with_another_lease_changes_nothing_else(before, after):
    standing = accepted(group_of(route(1)), register(route(0), lease_ttl=before))
    renewed = accepted(standing, register(route(0), expected_revision=1, lease_ttl=after))
    assert renewed.revision == standing.revision
    assert renewed.leases.get(FIRST) == after
    assert renewed.routes is standing.routes
    assert changes(standing, renewed) == ()


def test_an_equal_row_with_the_same_lease_changes_nothing():
    standing = accepted(group_of(route(1)), register(route(0), lease_ttl=10_000))
    assert accepted(standing, register(route(0), lease_ttl=10_000)) is standing


def test_another_life_of_a_rank_has_its_own_lease_or_none():
    standing = accepted(group_of(route(1)), register(route(0), lease_ttl=10_000))
    assert dict(accepted(standing, register(route(0, incarnation=101))).leases) == {}
    assert dict(accepted(standing, register(route(0, incarnation=101), lease_ttl=5_000)).leases) == {FIRST: 5_000}


def test_a_lease_goes_with_its_row_and_with_its_epoch():
    standing = accepted(group_of(route(1)), register(route(0), lease_ttl=10_000))
    assert dict(accepted(standing, DeregisterRoute(FIRST, LAUNCH, 100)).leases) == {}
    assert dict(accepted(standing, ForceEpoch(None)).leases) == {}
    assert dict(accepted(standing, register(route(1), LATER_LAUNCH)).leases) == {}
    assert dict(accepted(standing, register(route(1), LATER_LAUNCH, lease_ttl=1_000)).leases) == {SECOND: 1_000}


@pytest.mark.parametrize("ttl", [1_000, 86_400_000])
def test_a_lease_may_be_a_second_and_a_day(ttl):
    assert dict(accepted(group_of(route(1)), register(route(0), lease_ttl=ttl)).leases) == {FIRST: ttl}


@pytest.mark.parametrize("ttl", [-1, 0, 999, 86_400_001])
def test_a_lease_outside_its_bounds_is_refused(ttl):
    refusal = refused(group_of(route(1)), register(route(0), lease_ttl=ttl))
    assert refusal.reason is Reason.INVALID_FIELD
    assert [field for field, _ in refusal.detail.violations] == ["lease_ttl"]


def test_rows_that_expire_together_go_in_one_revision():
    topology = group_of(route(0), route(1))
    after = accepted(topology, ExpireRoutes(((FIRST, 100), (SECOND, 100))))
    assert after.revision == topology.revision + 1
    assert dict(after.routes) == {}
    assert changes(topology, after) == (RouteRemoved(FIRST, 100), RouteRemoved(SECOND, 100))
    assert (after.instance, after.floor, after.epoch) == (LAUNCH, LAUNCH, topology.epoch)


def test_only_rows_that_still_stand_so_expire():
    topology = group_of(route(0, incarnation=101), route(1))
    after = accepted(topology, ExpireRoutes(((FIRST, 100), (SECOND, 100), (RankKey(0, 0, 9, 0), 1))))
    assert dict(after.routes) == {FIRST: route(0, incarnation=101)}
    assert accepted(topology, ExpireRoutes(((FIRST, 100),))) is topology


def test_a_life_whose_lease_ran_out_may_come_back_and_an_older_one_may_not():
    topology = accepted(group_of(route(0), route(1)), ExpireRoutes(((FIRST, 100),)))
    assert dict(topology.departed) == {FIRST: Departed(100, deregistered=False)}
    assert accepted(topology, register(route(0))).ready
    assert refused(topology, register(route(0, incarnation=99))).reason is Reason.STALE_INCARNATION


def test_a_refused_request_leaves_its_batch_and_the_others_share_a_revision():
    topology = group_of(route(0))
    batch = [register(route(1)), register(route(0, incarnation=99)), register(route(0, page_size=1, incarnation=101))]
    after, outcomes = transition_batch(topology, batch, NOW)
    assert after.revision == topology.revision + 1
    assert dict(after.routes) == {FIRST: route(0), SECOND: route(1)}
    assert outcomes[0].topology is after
    assert [outcome.reason for outcome in outcomes[1:]] == [Reason.STALE_INCARNATION, Reason.CONTRACT_MISMATCH]


def test_of_a_batch_everybody_hears_what_they_removed_and_the_group_after_all_of_it():
    topology = group_of(route(0), route(1))
    batch = [
        DeregisterRoute(FIRST, LAUNCH, 100),
        DeregisterRoute(SECOND, LAUNCH, 99),
        ExpireRoutes(((SECOND, 100),)),
        register(route(0, incarnation=101)),
    ]
    after, outcomes = transition_batch(topology, batch, NOW)
    assert after.revision == topology.revision + 1
    assert [outcome.removed_routes for outcome in outcomes] == [1, 0, 1, 0]
    assert all(outcome.topology is after for outcome in outcomes)


def test_an_epoch_takes_away_all_routes():
    after, (outcome,) = transition_batch(group_of(route(0), route(1)), [ForceEpoch(None)], NOW)
    assert (outcome.removed_routes, after.epoch) == (2, 2)
