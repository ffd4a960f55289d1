"""Laws of the rules, tried on random histories."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.topology import (
    Accepted,
    DeregisterRoute,
    EpochStarted,
    ExpireRoutes,
    ForceEpoch,
    ParallelSizes,
    RankMap,
    Refused,
    RegisterRoute,
    Routes,
    Topology,
    apply,
    changes,
    group_state,
    prefill_server_info,
    shared_values,
    transition,
    transition_batch,
)
from topology.examples import NOW, instances, keys, routes

DECLARABLE = ("kv_cache_dtype", "kv_layout", "dsv41_spec_layout", "pools")


@st.composite
def requests(draw):
    """Mostly what goes together with the requests before, now and then what does not."""
    match draw(st.sampled_from("RRRRRRRRRRRRRRRRDDDDDEEF")):
        case "R":
            expected = draw(st.sampled_from([None] * 5 + [0, NOW // 1_000]))
            return RegisterRoute(draw(routes), draw(instances), expected, draw(lease_ttls))
        case "E":
            return ExpireRoutes(tuple(draw(st.dictionaries(keys, st.sampled_from([1, 1, 1, 2]))).items()))
        case "D":
            return DeregisterRoute(draw(keys), draw(instances), draw(st.sampled_from([1, 1, 1, 2])))
        case _:
            return ForceEpoch(draw(st.one_of(st.none(), instances)))


lease_ttls = st.sampled_from([None, None, 10_000, 10_000, 20_000, 999])
clocks = st.integers(NOW - 10**9, NOW + 10**9)
histories = st.lists(st.tuples(requests(), clocks), min_size=3, max_size=30)


def law(test):
    """A law that holds at every step of every history."""
    return settings(max_examples=50)(given(histories)(test))


def run(history):
    """Every step of a history: topology before, request, clock, outcome."""
    topology = Topology.empty("default")
    for request, now in history:
        outcome = transition(topology, request, now)
        yield topology, request, now, outcome
        if isinstance(outcome, Accepted):
            topology = outcome.topology


def rebuilt(topology):
    """The same topology from its parts, nothing shared and nothing carried along."""
    return replace(topology, routes=Routes(list(topology.routes.values())), departed=RankMap(topology.departed.items()))


@law
def test_a_refused_request_leaves_the_whole_value_identical_and_so_does_an_accepted_one(history):
    for before, request, now, outcome in run(history):
        copy = rebuilt(before)
        again = transition(before, request, now)
        assert again == outcome
        assert before == copy
        assert before.routes.contract() == copy.routes.contract()


@law
def test_the_revision_never_goes_down_and_no_two_topologies_share_one(history):
    for before, request, _, outcome in run(history):
        if isinstance(outcome, Accepted):
            after = outcome.topology
            if after.revision == before.revision:
                assert after == replace(before, leases=after.leases)
            else:
                assert after.revision > before.revision
            if before.revision:
                assert after.revision <= before.revision + 1
            assert after.epoch == before.epoch + (after.instance != before.instance or isinstance(request, ForceEpoch))


@law
def test_a_retry_of_an_accepted_request_changes_nothing(history):
    for _, request, now, outcome in run(history):
        if isinstance(outcome, Accepted) and not isinstance(request, ForceEpoch):
            after = outcome.topology
            again = transition(after, request, now)
            assert isinstance(again, Accepted)
            assert again.topology is after


@law
def test_a_group_is_ready_if_and_only_if_its_keys_are_complete_and_all_declared_alike(history):
    for _, _, _, outcome in run(history):
        if isinstance(outcome, Accepted):
            topology = outcome.topology
            rows = list(topology.routes.values())
            complete = bool(rows) and set(topology.routes) == set(rows[0].sizes.rank_keys())
            alike = len({shared_values(row) for row in rows}) == 1
            assert topology.ready == (complete and alike)


@law
def test_live_routes_never_differ_in_what_they_declared(history):
    for before, _, _, _ in run(history):
        values = [shared_values(row) for row in before.routes.values()]
        for field in ("sizes", "page_size", "load_balance_method"):
            assert len({getattr(shared, field) for shared in values}) <= 1
        for field in DECLARABLE:
            assert len({getattr(shared, field) for shared in values} - {None, ()}) <= 1


@law
def test_only_live_routes_have_leases(history):
    for before, _, _, _ in run(history):
        assert before.leases.keys() <= before.routes.keys()


@law
def test_the_state_counts_what_is_missing_and_what_is_undeclared(history):
    for before, _, _, _ in run(history):
        state = group_state(before)
        expected = set(before.sizes.rank_keys()) if before.sizes else set()
        assert state.missing_keys == tuple(sorted(expected - set(before.routes)))
        assert state.missing_count == len(state.missing_keys)
        assert state.undeclared_count == len(state.undeclared_keys)
        assert state.ready == (bool(before.routes) and not state.missing_count and not state.undeclared_count)


@law
def test_the_floor_is_never_below_the_instance_served(history):
    for before, _, _, _ in run(history):
        if before.instance is not None:
            assert before.floor == before.instance


@law
def test_changes_make_of_the_topology_before_the_one_after(history):
    for before, _, _, outcome in run(history):
        if isinstance(outcome, Accepted):
            after = outcome.topology
            events = changes(before, after)
            folded = apply(before.routes, events)
            assert folded == after.routes
            assert folded.contract() == rebuilt(after).routes.contract()
            epochs = [(event.epoch, event.instance) for event in events if isinstance(event, EpochStarted)]
            started = [] if after.epoch == before.epoch else [(after.epoch, after.instance)]
            assert epochs == started
            assert bool(events) == (after.revision != before.revision)


@law
def test_events_of_many_revisions_can_be_applied_at_once(history):
    events = []
    topology = Topology.empty("default")
    for before, _, _, outcome in run(history):
        if isinstance(outcome, Accepted):
            topology = outcome.topology
            events += changes(before, topology)
    assert apply(Routes(), events) == topology.routes


@law
def test_the_index_carried_along_equals_one_counted_anew(history):
    for before, _, _, _ in run(history):
        anew = rebuilt(before).routes
        assert before.routes.lowest_missing == anew.lowest_missing
        assert before.routes.undeclared_count() == anew.undeclared_count()
        for key in [*before.routes, None]:
            assert before.routes.contract(without=key) == anew.contract(without=key)


@given(st.data(), histories, clocks)
@settings(max_examples=100)
def test_a_batch_is_its_requests_one_after_another_as_one_revision(data, history, now):
    before = Topology.empty("default")
    for _, _, _, outcome in run(history):
        if isinstance(outcome, Accepted):
            before = outcome.topology
    first = data.draw(requests())
    batch = [first, *data.draw(st.lists(requests().map(without_condition), max_size=8))]
    after, outcomes = transition_batch(before, batch, now)

    topology = before
    for request, outcome in zip(batch, outcomes, strict=True):
        alone = transition(replace(topology, revision=before.revision), request, now)
        if isinstance(alone, Accepted):
            topology = alone.topology
            assert outcome == Accepted(after, alone.removed_routes)
        else:
            assert outcome == alone
    assert after == replace(topology, revision=after.revision)
    if all(isinstance(outcome, Refused) for outcome in outcomes):
        assert after is before
    published = (topology.epoch, topology.routes) != (before.epoch, before.routes)
    assert published <= (after.revision != before.revision)
    assert after.revision in (before.revision, before.revision + 1) or not before.revision


def without_condition(request):
    return replace(request, expected_revision=None) if isinstance(request, RegisterRoute) else request


@st.composite
def launches(draw):
    """Registrations of one or two launches, one of each key: mostly of ranks that go together."""
    size = draw(st.sampled_from([ParallelSizes(1, 1, 2, 1), ParallelSizes(2, 1, 2, 1)]))
    requests = []
    for instance in draw(st.lists(instances, min_size=1, max_size=2, unique_by=lambda instance: instance.id)):
        common = replace(draw(routes), incarnation=1, sizes=size, rank_ip="10.0.0.1")
        for key in size.rank_keys():
            changed = {
                field: getattr(draw(routes), field) for field in draw(st.sets(st.sampled_from(DECLARABLE), max_size=1))
            }
            requests.append(
                RegisterRoute(replace(common, key=key, **draw(st.sampled_from([{}, {}, changed]))), instance)
            )
    return requests


def ready_state(requests):
    topology = Topology.empty("default")
    for request in requests:
        outcome = transition(topology, request, NOW)
        topology = outcome.topology if isinstance(outcome, Accepted) else topology
    if not topology.ready:
        return None
    return topology.instance, dict(topology.routes), prefill_server_info(topology)


@given(launches(), st.data())
def test_any_order_of_the_same_registrations_gives_the_same_ready_state(requests, data):
    shuffled = data.draw(st.permutations(requests))
    assert ready_state(shuffled) == ready_state(requests)
