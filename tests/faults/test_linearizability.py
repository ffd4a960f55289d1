"""The checker itself: histories that are fine pass, and each kind of fault is found."""

import pytest

from faults.group_model import empty
from faults.histories import (
    Conflict,
    Deregister,
    Force,
    Forced,
    GroupContent,
    History,
    Mismatch,
    NeverHappened,
    Observation,
    Operation,
    Outcome,
    Register,
    Removed,
    Renewal,
    Request,
    Row,
    StaleLaunch,
    StaleLife,
    Stands,
)
from faults.linearizability import NotLinearizableError, check_linearizable
from interlock.topology import RankKey

A, B, C = (RankKey(0, 0, tp, 0) for tp in range(3))
SECOND = 1_000_000_000


def register(key: RankKey, incarnation: int = 1, **changed: object) -> Register:
    values = {"key": key, "launch": 1, "incarnation": incarnation, "port": 9000 + incarnation, "page_size": 64}
    return Register(**{**values, **changed})


def content(revision: int, rows: dict[RankKey, Row], *, epoch: int = 1, launch: int = 1) -> GroupContent:
    return GroupContent(revision, epoch, launch, launch, frozenset(rows.items()))


def row(incarnation: int = 1, page_size: int = 64) -> Row:
    return Row(incarnation, 9000 + incarnation, page_size)


def seen(time: int, whole: GroupContent) -> Observation:
    return Observation(time, whole.revision, whole.epoch, "reader", content=whole)


class Story:
    """A history told line by line; revisions start at 1."""

    def __init__(self) -> None:
        self.history = History("group", 0, clock=lambda: 0)

    def did(self, invoked: int, returned: int, request: Request, outcome: Outcome) -> "Story":
        self.history.operations.append(Operation(request, "client", invoked, returned, outcome))
        return self

    def lost(self, invoked: int, request: Request) -> "Story":
        """A request whose outcome nobody knows."""
        self.history.operations.append(Operation(request, "client", invoked))
        return self

    def saw(self, *observations: Observation) -> "Story":
        self.history.observations.extend(observations)
        return self

    def renewed(self, invoked: int, returned: int, key: RankKey, incarnation: int = 1) -> "Story":
        self.history.renewals.append(Renewal(key, 1, incarnation, invoked, returned))
        return self

    def passes(self, *, ambiguous_commits: bool = False) -> None:
        check_linearizable(self.history, empty(0), ambiguous_commits=ambiguous_commits)

    def fails(self, *, ambiguous_commits: bool = False) -> None:
        with pytest.raises(NotLinearizableError):
            check_linearizable(self.history, empty(0), ambiguous_commits=ambiguous_commits)


@pytest.fixture
def story() -> Story:
    return Story()


# One after another


def test_a_sequential_history_of_every_request_passes(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(A), Stands(1, 1))
    story.did(4, 5, register(B, expected_revision=1), Stands(2, 1))
    story.did(6, 7, register(C, expected_revision=1), Conflict(2, 1, 1, None))
    story.did(8, 9, register(A, 2, expected_revision=1), Conflict(2, 1, 1, row()))
    story.did(10, 11, register(A, 2), Stands(3, 1))
    story.did(12, 13, register(A, 1), StaleLife(2, False))
    story.did(14, 15, register(B, 2, page_size=128), Mismatch(64))
    story.did(16, 17, Deregister(B, 1, 1), Removed(True, 4))
    story.did(18, 19, Deregister(B, 1, 1), Removed(False, 4))
    story.did(20, 21, register(B, 1), StaleLife(1, True))
    story.did(22, 23, register(A, 1, launch=2, page_size=128), Stands(5, 2))
    story.did(24, 25, register(B, 9), StaleLaunch(2))
    story.did(26, 27, Force(None), Forced(6, 3))
    story.did(28, 29, register(B, 9), Stands(7, 4))
    story.saw(seen(30, content(7, {B: row(9)}, epoch=4)))
    story.passes()


def test_a_request_that_never_happened_changes_nothing(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B), NeverHappened("STORE_FULL"))
    story.did(4, 5, register(C), Stands(2, 1))
    story.passes()
    story.saw(seen(6, content(2, {A: row(), B: row(), C: row()})))
    story.fails()


def test_a_lost_update_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 9, register(A, 2, expected_revision=1), Stands(2, 1))
    story.did(3, 8, register(A, 3, expected_revision=1), Stands(3, 1))
    story.fails()


def test_a_swap_that_succeeds_on_an_old_revision_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B), Stands(2, 1))
    story.did(4, 5, register(C, expected_revision=1), Stands(3, 1))
    story.fails()


def test_a_registration_that_was_acknowledged_and_is_lost_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B), Stands(2, 1))
    story.did(4, 5, register(C), Stands(3, 1))
    story.saw(seen(6, content(3, {A: row(), C: row()})))
    story.fails()


def test_a_registration_that_was_acknowledged_and_is_forgotten_by_a_refusal_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B), Stands(2, 1))
    story.did(4, 5, register(B, 2, expected_revision=1), Conflict(2, 1, 1, None))
    story.fails()


def test_a_registration_that_was_refused_and_stands_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B, page_size=128), Mismatch(64))
    story.did(4, 5, register(C), Stands(2, 1))
    story.saw(seen(6, content(2, {A: row(), B: row(page_size=128), C: row()})))
    story.fails()


def test_a_route_that_comes_back_after_it_was_deregistered_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B), Stands(2, 1))
    story.did(4, 5, Deregister(B, 1, 1), Removed(True, 3))
    story.did(6, 7, register(B), Stands(4, 1))
    story.fails()


def test_a_deregistration_of_another_life_that_removes_the_row_is_found(story):
    story.did(0, 1, register(A, 2), Stands(1, 1))
    story.did(2, 3, Deregister(A, 1, 1), Removed(True, 2))
    story.fails()
    story.fails(ambiguous_commits=True)


def test_a_dead_life_that_replaces_a_newer_one_is_found(story):
    story.did(0, 1, register(A, 2), Stands(1, 1))
    story.did(2, 3, register(A, 1), Stands(2, 1))
    story.fails()


def test_an_old_launch_that_is_accepted_is_found(story):
    story.did(0, 1, register(A, launch=2), Stands(1, 1))
    story.did(2, 3, register(B, launch=1), Stands(2, 2))
    story.fails()


def test_two_page_sizes_in_one_group_are_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B, page_size=128), Stands(2, 1))
    story.fails()


def test_a_gap_in_the_revisions_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B), Stands(3, 1))
    story.fails()


def test_a_revision_that_goes_back_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B), Stands(2, 1))
    story.did(4, 5, register(A), Stands(1, 1))
    story.fails()


def test_a_change_without_a_revision_of_its_own_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B), Stands(1, 1))
    story.fails()


# At the same time


def test_requests_for_different_keys_at_the_same_time_may_share_a_revision(story):
    story.did(0, 5, register(A), Stands(1, 1))
    story.did(1, 6, register(B), Stands(1, 1))
    story.did(2, 7, register(C), Stands(1, 1))
    story.passes()


def test_two_requests_for_one_key_that_share_a_revision_are_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 6, register(A, 2), Stands(2, 1))
    story.did(2, 6, register(A, 3), Stands(2, 1))
    story.fails()


def test_two_swaps_that_share_a_revision_are_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 6, register(A, 2, expected_revision=1), Stands(2, 1))
    story.did(2, 6, register(B, expected_revision=1), Stands(2, 1))
    story.fails()


def test_a_swap_may_share_a_revision_with_requests_that_have_no_condition(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 6, register(A, 2, expected_revision=1), Stands(2, 1))
    story.did(2, 6, register(B), Stands(2, 1))
    story.passes()


def test_a_request_that_joins_a_revision_which_was_told_already_is_found(story):
    story.did(0, 9, register(A), Stands(1, 1))
    story.did(1, 3, register(B), Stands(1, 1))
    story.did(4, 8, register(C), Stands(1, 1))
    story.fails()


def test_a_reader_that_saw_half_of_a_shared_revision_is_found(story):
    story.did(0, 8, register(A), Stands(1, 1))
    story.did(1, 9, register(B), Stands(1, 1))
    story.saw(seen(4, content(1, {A: row()})))
    story.fails()


def test_an_order_that_only_one_interleaving_explains_passes(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 20, register(A, 2), Stands(3, 1))
    story.did(3, 19, Deregister(A, 1, 1), Removed(False, 3))
    story.did(4, 18, register(B), Stands(2, 1))
    story.passes()


def test_an_answer_that_no_interleaving_explains_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 20, register(A, 2), Stands(3, 1))
    story.did(3, 19, Deregister(A, 1, 1), Removed(False, 2))
    story.did(4, 18, register(B), Stands(2, 1))
    story.fails()


def test_an_effect_before_its_request_was_sent_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.saw(seen(3, content(2, {A: row(), B: row()})))
    story.did(4, 5, register(B), Stands(2, 1))
    story.fails()


# Unknown outcomes


def test_a_request_without_an_answer_may_have_happened(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.lost(2, register(B))
    story.did(3, 4, register(C), Stands(3, 1))
    story.saw(seen(5, content(3, {A: row(), B: row(), C: row()})))
    story.passes()


def test_a_request_without_an_answer_may_happen_much_later(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.lost(2, register(B))
    story.did(3, 4, register(C), Stands(2, 1))
    story.did(5, 6, register(C, 2, expected_revision=2), Stands(3, 1))
    story.saw(seen(9, content(4, {A: row(), B: row(), C: row(2)})))
    story.passes()


def test_a_request_without_an_answer_may_never_happen(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.lost(2, register(B))
    story.did(3, 4, register(C), Stands(2, 1))
    story.saw(seen(9, content(2, {A: row(), C: row()})))
    story.passes()


def test_a_request_without_an_answer_that_happens_twice_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.lost(2, register(B))
    story.did(3, 4, Deregister(B, 1, 1), Removed(True, 3))
    story.did(5, 6, register(C), Stands(5, 1))
    story.fails()
    story.fails(ambiguous_commits=True)


def test_what_nobody_asked_for_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.lost(2, register(B))
    story.saw(seen(3, content(2, {A: row(), C: row()})))
    story.fails()


def test_a_server_that_looks_again_may_answer_with_a_later_revision(story):
    """The commit of B got no answer; meanwhile C registered; B stands, and is told the present revision."""
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 9, register(B), Stands(3, 1))
    story.did(3, 4, register(C, expected_revision=2), Stands(3, 1))
    story.saw(seen(5, content(2, {A: row(), B: row()})))
    story.passes(ambiguous_commits=True)
    story.fails()


def test_a_deregistration_that_looks_again_and_finds_the_row_gone_counts_it_as_removed(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B), Stands(2, 1))
    story.did(4, 9, Deregister(B, 1, 1), Removed(True, 4))
    story.did(5, 6, register(C, expected_revision=3), Stands(4, 1))
    story.passes(ambiguous_commits=True)
    story.fails()


def test_ambiguous_commits_do_not_excuse_a_lost_registration(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 9, register(B), Stands(2, 1))
    story.did(10, 11, register(C), Stands(3, 1))
    story.saw(seen(12, content(3, {A: row(), C: row()})))
    story.fails(ambiguous_commits=True)


# Reads


def test_a_stale_read_passes_and_one_of_what_never_was_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B), Stands(2, 1))
    story.did(4, 5, register(A, 2), Stands(3, 1))
    story.saw(seen(6, content(2, {A: row(), B: row()})))
    story.passes()
    story.saw(seen(7, content(2, {A: row(2), B: row()})))
    story.fails()


def test_a_read_of_one_row_is_held_against_its_revision(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(A, 2), Stands(2, 1))
    story.saw(Observation(4, 2, 1, "reader", key=A, port=9002))
    story.passes()
    story.saw(Observation(5, 2, 1, "reader", key=A, port=9001))
    story.fails()


def test_a_read_of_a_revision_that_was_not_reached_yet_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.saw(seen(2, content(2, {A: row(), B: row()})))
    story.did(3, 4, register(B), Stands(2, 1))
    story.fails()


def test_two_replicas_that_show_one_revision_differently_are_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.lost(2, register(B))
    story.lost(2, register(C))
    story.saw(seen(5, content(2, {A: row(), B: row()})), seen(6, content(2, {A: row(), C: row()})))
    story.fails()


# Leases


def test_a_lease_may_run_out_after_its_time_in_a_revision_of_its_own(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B, ttl=1.0), Stands(2, 1))
    story.saw(seen(SECOND + 2, content(3, {A: row()})))
    story.did(SECOND + 4, SECOND + 5, register(B, ttl=1.0), Stands(4, 1))
    story.passes()


def test_a_lease_that_runs_out_early_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B, ttl=1.0), Stands(2, 1))
    story.saw(seen(SECOND - 1, content(3, {A: row()})))
    story.fails()


def test_a_lease_that_runs_out_although_it_was_renewed_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B, ttl=1.0), Stands(2, 1))
    story.renewed(SECOND // 2, SECOND // 2 + 1, B)
    story.did(SECOND // 2 + 2, SECOND // 2 + 3, register(A), Stands(2, 1))
    story.saw(seen(SECOND + 2, content(3, {A: row()})))
    story.fails()


def test_a_route_without_a_lease_that_goes_by_itself_is_found(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B), Stands(2, 1))
    story.saw(seen(3600 * SECOND, content(3, {A: row()})))
    story.fails()


def test_leases_that_run_out_together_may_share_a_revision(story):
    story.did(0, 1, register(A), Stands(1, 1))
    story.did(2, 3, register(B, ttl=1.0), Stands(2, 1))
    story.did(4, 5, register(C, ttl=1.0), Stands(3, 1))
    story.saw(seen(2 * SECOND, content(4, {A: row()})))
    story.passes()
