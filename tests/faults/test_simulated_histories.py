"""The checker on thousands of made-up histories: what a correct server could have told passes, one lie is found."""

import random
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from faults.group_model import GroupState, answered, empty
from faults.histories import (
    Conflict,
    Deregister,
    History,
    Mismatch,
    Observation,
    Operation,
    Outcome,
    Register,
    Removed,
    Request,
    StaleLife,
    Stands,
)
from faults.linearizability import NotLinearizableError, check_linearizable
from interlock.topology import RankKey

KEYS = [RankKey(0, 0, tp, 0) for tp in range(4)]
BATCHES = 15
LONG = 1_000


def simulated(choose: random.Random) -> History:
    """A server that commits one batch after another, and clients whose requests overlap. Nobody lies.

    Batches are LONG apart; a request comes up to two batches before its own and is answered up to two after it, or
    never. A watcher sees every third revision, late.
    """
    history = History("simulated", 0, clock=lambda: 0)
    state = answered_first(history)
    for number in range(1, BATCHES):
        committed_at = number * LONG
        requests = [
            request_for(key, choose, state, first=at == 0)
            for at, key in enumerate(choose.sample(KEYS, choose.randint(1, len(KEYS))))
        ]
        before, told = state, []
        for request in requests:
            outcome, after = answered(state, request)
            told.append((outcome, after is not state))
            state = after
        changed = any(changes for _, changes in told)
        if changed:
            state = state._replace(content=state.content._replace(revision=before.revision + 1))
        for request, (outcome, _) in zip(requests, told, strict=True):
            invoked = committed_at - choose.randint(1, 2 * LONG)
            operation = Operation(request, "client", invoked)
            if choose.random() < 0.85:
                operation.outcome = at_revision(outcome, state.revision)
                operation.returned = committed_at + choose.randint(1, 2 * LONG)
            history.operations.append(operation)
        if changed and choose.random() < 0.35:
            seen_at = committed_at + choose.randint(1, 5 * LONG)
            content = state.content
            history.observations.append(Observation(seen_at, state.revision, content.epoch, "watcher", content))
    end = BATCHES * LONG * 2
    history.observations.append(Observation(end, state.revision, state.content.epoch, "watcher", state.content))
    return history


def answered_first(history: History) -> GroupState:
    first = Register(KEYS[0], 1, 1, 9001, 64)
    outcome, state = answered(empty(0), first)
    state = state._replace(content=state.content._replace(revision=1))
    history.operations.append(Operation(first, "client", -3 * LONG, -2 * LONG - 1, at_revision(outcome, 1)))
    return state


def request_for(key: RankKey, choose: random.Random, state: GroupState, *, first: bool) -> Request:
    if choose.random() < 0.25:
        return Deregister(key, 1, choose.randint(1, 6))
    incarnation = choose.randint(1, 6)
    page_size = 64 if choose.random() < 0.9 else 128
    expected = choose.choice([state.revision, state.revision - 1, 0]) if first and choose.random() < 0.5 else None
    return Register(key, 1, incarnation, 9000 + incarnation + page_size, page_size, expected)


def at_revision(outcome: Outcome, revision: int) -> Outcome:
    """What a server tells after the commit: the revision of the whole batch; of a conflict, the one it met."""
    return replace(outcome, revision=revision) if isinstance(outcome, Stands | Removed) else outcome


def lie(choose: random.Random, operation: Operation) -> Outcome:
    """Another outcome than the one that was told."""
    match operation.outcome:
        case Stands(revision, epoch):
            return Stands(revision - 1, epoch)
        case Removed(removed, revision):
            return Removed(not removed, revision)
        case Conflict(revision, epoch, launch, standing):
            return Conflict(revision - 1, epoch, launch, standing)
        case Mismatch(page_size):
            return Mismatch(192 - page_size)
        case StaleLife(newest, deregistered):
            return StaleLife(newest + 10, deregistered)
    raise AssertionError(operation)


@pytest.mark.parametrize("ambiguous_commits", [False, True])
@given(seed=st.integers(0, 2**32))
def test_what_a_correct_server_could_have_told_passes(ambiguous_commits, seed):
    check_linearizable(simulated(random.Random(seed)), empty(0), ambiguous_commits=ambiguous_commits)


@given(seed=st.integers(0, 2**32))
def test_a_refusal_that_no_order_explains_is_found(seed):
    choose = random.Random(seed)
    history = simulated(choose)
    told = [each for each in history.operations if isinstance(each.outcome, StaleLife | Mismatch)]
    assume(told)
    operation = choose.choice(told)
    operation.outcome = lie(choose, operation)
    with pytest.raises(NotLinearizableError):
        check_linearizable(history, empty(0))


@given(seed=st.integers(0, 2**32))
def test_an_acknowledged_change_that_the_end_does_not_show_is_found(seed):
    history = simulated(random.Random(seed))
    assume(all(each.outcome or isinstance(each.request, Register) for each in history.operations))
    last = history.observations[-1]
    acknowledged = {
        (each.request.key, each.request.incarnation) for each in history.operations if isinstance(each.outcome, Stands)
    }
    standing = [(key, row) for key, row in last.content.rows if (key, row.incarnation) in acknowledged]
    assume(standing)
    content = last.content._replace(rows=last.content.rows - {standing[0]})
    history.observations[-1] = replace(last, content=content)
    with pytest.raises(NotLinearizableError):
        check_linearizable(history, empty(0))
