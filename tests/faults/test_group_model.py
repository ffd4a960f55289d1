"""The model that histories are held against and the rules that the server runs say the same, request by request."""

from hypothesis import given
from hypothesis import strategies as st

from faults.group_model import GroupState, answered, empty, expired
from faults.histories import (
    Conflict,
    Deregister,
    Force,
    Forced,
    GroupContent,
    Mismatch,
    Outcome,
    Register,
    Removed,
    Request,
    Row,
    StaleLaunch,
    StaleLife,
    Stands,
)
from interlock.topology import (
    Accepted,
    ContractMismatch,
    DeregisterRoute,
    ExpireRoutes,
    ForceEpoch,
    Instance,
    ParallelSizes,
    RankKey,
    Refused,
    RegisterRoute,
    RevisionConflict,
    Route,
    StaleIncarnation,
    StaleInstance,
    Topology,
    transition,
)

NOW = 1_700_000_000_000_000_000
KEYS = [RankKey(0, 0, tp, 0) for tp in range(3)]
FIRST_REVISION = NOW // 1_000

keys, launches, incarnations = st.sampled_from(KEYS), st.integers(1, 3), st.integers(1, 4)
page_sizes = st.sampled_from([64, 64, 64, 128])
revisions = st.one_of(st.none(), st.just(0), st.integers(FIRST_REVISION - 1, FIRST_REVISION + 5))
registers = st.builds(
    lambda key, launch, incarnation, page_size, expected: Register(
        key, launch, incarnation, 9000 + incarnation, page_size, expected
    ),
    *(keys, launches, incarnations, page_sizes, revisions),
)
deregisters = st.builds(Deregister, keys, launches, incarnations)
expiries = st.sampled_from(KEYS)
requests = st.one_of(registers, registers, registers, deregisters, expiries, st.builds(Force, st.none() | launches))


def launch(number: int) -> Instance:
    return Instance(f"launch-{number}", NOW + number)


def number(instance: Instance | None) -> int | None:
    return None if instance is None else instance.started_at - NOW


def content(topology: Topology) -> GroupContent:
    return GroupContent(
        topology.revision,
        topology.epoch,
        number(topology.instance),
        number(topology.floor),
        frozenset((key, Row(r.incarnation, r.rank_port, r.page_size)) for key, r in topology.routes.items()),
    )


def by_the_rules(topology: Topology, request: Request) -> tuple[Outcome, Topology]:
    """What the server's rules say, in the words of a history."""
    match request:
        case Register(key, of_launch, incarnation, port, page_size, expected):
            route = Route(key, incarnation, ParallelSizes(1, 1, 3, 1), "10.0.0.1", port, page_size)
            asked: object = RegisterRoute(route, launch(of_launch), expected)
        case Deregister(key, of_launch, incarnation):
            asked = DeregisterRoute(key, launch(of_launch), incarnation)
        case Force(floor):
            asked = ForceEpoch(None if floor is None else launch(floor))
    outcome = transition(topology, asked, NOW)
    match outcome:
        case Accepted(after, removed_routes):
            match request:
                case Register():
                    return Stands(after.revision, after.epoch), after
                case Deregister():
                    return Removed(removed_routes > 0, after.revision), after
            return Forced(after.revision, after.epoch), after
        case Refused(detail=RevisionConflict(revision, epoch, instance, standing)):
            row = standing and Row(standing.incarnation, standing.rank_port, standing.page_size)
            return Conflict(revision, epoch, number(instance), row), topology
        case Refused(detail=ContractMismatch((mismatch,))):
            return Mismatch(mismatch.standing_value), topology
        case Refused(detail=StaleInstance(floor)):
            return StaleLaunch(number(floor)), topology
        case Refused(detail=StaleIncarnation(_, newest, deregistered)):
            return StaleLife(newest, deregistered), topology
    raise AssertionError(outcome)


def by_the_model(state: GroupState, request: Request) -> tuple[Outcome, GroupState]:
    """What the model says, with the revision counted on for a change."""
    outcome, after = answered(state, request)
    return (outcome, after) if after is state else answered_with(outcome, counted_on(after))


def counted_on(state: GroupState) -> GroupState:
    return state._replace(content=state.content._replace(revision=state.revision + 1))


def answered_with(outcome: Outcome, state: GroupState) -> tuple[Outcome, GroupState]:
    match outcome:
        case Stands(_, epoch):
            return Stands(state.revision, epoch), state
        case Removed(removed, _):
            return Removed(removed, state.revision), state
        case Forced(_, epoch):
            return Forced(state.revision, epoch), state
    raise AssertionError(outcome)


@given(st.lists(requests, max_size=25))
def test_model_and_rules_tell_the_same_of_every_request(asked):
    topology = transition(Topology.empty("g"), ForceEpoch(None), NOW).topology
    _, state = by_the_model(empty(FIRST_REVISION - 1), Force(None))
    assert content(topology) == state.content
    for request in asked:
        if isinstance(request, RankKey):
            if request not in topology.routes:
                continue
            rows = ((request, topology.routes[request].incarnation),)
            topology = transition(topology, ExpireRoutes(rows), NOW).topology
            state = counted_on(expired(state, request))
        else:
            told, topology = by_the_rules(topology, request)
            expected, state = by_the_model(state, request)
            assert told == expected
        assert content(topology) == state.content
