"""What a store keeps goes into a dump and comes back whole, in every store, and never takes a revision back."""

import json
from dataclasses import replace

import pytest

from bootstrap.stores.backends import backends, opening
from interlock.topology import DeregisterRoute, ParallelSizes, RegisterRoute, Topology, transition
from interlock_bootstrap.dumps import DumpError, dump, restore
from interlock_bootstrap.stores.memory import MemoryStore
from topology.examples import LAUNCH, NOW, route

PARTS = {backend.name: backend for backend in backends()}


def grown(group, ranks, *, lease_ttl=None):
    """A group in which so many ranks registered and the last one deregistered."""
    sizes, topology = ParallelSizes(1, 1, ranks, 1), Topology.empty(group)
    for tp in range(ranks):
        topology = transition(
            topology, RegisterRoute(route(tp, sizes=sizes), LAUNCH, lease_ttl=lease_ttl), NOW
        ).topology
    last = topology.routes[max(topology.routes)]
    return transition(topology, DeregisterRoute(last.key, LAUNCH, last.incarnation), NOW).topology


async def held(*topologies):
    """A memory store that keeps them."""
    store = MemoryStore(16)
    for topology in topologies:
        assert await store.compare_and_swap(Topology.empty(topology.group), topology)
    return store


@pytest.mark.parametrize("backend", PARTS.values(), ids=PARTS)
async def test_a_dump_that_was_made_to_text_brings_everything_back(backend, tmp_path):
    groups = [grown("large", 150), grown("leased", 3, lease_ttl=60_000)]
    text = json.dumps(await dump(await held(*groups)))
    async with opening(backend, tmp_path) as open_store:
        store = (await open_store()).store
        assert await restore(store, json.loads(text)) == (2, 0)
        assert [await store.load(topology.group, fresh=True) for topology in groups] == groups
        assert await restore(store, json.loads(text)) == (0, 2)
        assert await dump(store) == json.loads(text)


async def test_a_newer_dump_takes_the_place_of_what_stands_and_other_groups_stay():
    old = grown("a", 2)
    other = grown("b", 2)
    newer = transition(old, RegisterRoute(route(1, incarnation=10**6), LAUNCH), NOW).topology
    store = await held(old, other)
    assert await restore(store, await dump(await held(newer))) == (1, 0)
    assert [await store.load(group) for group in ("a", "b")] == [newer, other]


async def test_where_one_revision_would_go_back_nothing_is_changed():
    first, second = grown("a", 2), grown("b", 2)
    store = await held(replace(second, revision=second.revision + 5))
    with pytest.raises(DumpError, match=r"group 'b' is at revision \d+ and the dump has \d+: revisions never go back"):
        await restore(store, await dump(await held(first, second)))
    assert (await store.load("a")).revision == 0


def with_group(**changed):
    """Changes the first group of a dump."""
    return lambda document: document | {"groups": [document["groups"][0] | changed]}


def doubled_ranks(document):
    return with_group(routes=document["groups"][0]["routes"] * 2)(document)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: [], "this is no dump"),
        (lambda document: document | {"format": "interlock-topology-9"}, "this is no dump"),
        (lambda document: document | {"groups": {}}, '"groups" must be a list'),
        (lambda document: document | {"groups": document["groups"] * 2}, r"groups\[1\]: 'a' comes twice"),
        (lambda document: document | {"groups": [{}]}, r"groups\[0\]: KeyError: 'routes'"),
        (with_group(revision=0), "revision must be at least 1"),
        (doubled_ranks, "a rank comes twice"),
        (with_group(routes=[{"route": {"rank_port": -1}}]), "ParseError"),
        (with_group(routes=[{"route": {"rank_port": 1}}]), "InvalidFieldsError"),
    ],
)
async def test_what_is_no_dump_is_refused_with_the_place(change, message):
    document = await dump(await held(grown("a", 2)))
    store = MemoryStore(16)
    with pytest.raises(DumpError, match=message):
        await restore(store, change(document))
    assert await store.group_count() == 0
