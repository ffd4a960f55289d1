"""Rule 5: ready, what is missing, what is undeclared, and the aggregate."""

from dataclasses import replace

import pytest

from interlock.topology import (
    DECLARED_NONE,
    GroupState,
    ParallelSizes,
    PrefillServerInfo,
    RankKey,
    Topology,
    group_state,
    missing_count,
    missing_keys,
    prefill_server_info,
    undeclared_count,
    undeclared_keys,
)
from topology.examples import (
    FIRST_REVISION,
    FULL_ROUTE,
    KV,
    LAUNCH,
    LAYOUT,
    SWA,
    accepted,
    group_of,
    register,
    route,
)


def test_rank_keys_ascend_from_the_last_dimension():
    assert list(ParallelSizes(2, 1, 2, 1).rank_keys()) == [
        RankKey(0, 0, 0, 0),
        RankKey(0, 0, 1, 0),
        RankKey(1, 0, 0, 0),
        RankKey(1, 0, 1, 0),
    ]


def test_a_group_is_ready_when_its_last_rank_comes():
    topology = group_of(route(1))
    assert (topology.registered, topology.expected, topology.ready) == (1, 2, False)
    assert missing_keys(topology) == (RankKey(0, 0, 0, 0),)
    assert missing_count(topology) == 1
    topology = accepted(topology, register(route(0)))
    assert (topology.registered, topology.expected, topology.ready) == (2, 2, True)
    assert missing_keys(topology) == ()
    assert missing_count(topology) == 0


def test_one_rank_that_registers_twice_counts_once():
    topology = group_of(route(0), route(0, rank_port=30_001), route(0, incarnation=101))
    assert (topology.registered, topology.ready) == (1, False)


def test_every_dimension_counts():
    sizes = ParallelSizes(2, 3, 2, 2)
    keys = list(sizes.rank_keys())
    topology = group_of(*(route(key=key, sizes=sizes) for key in reversed(keys[1:])))
    assert (topology.registered, topology.expected, topology.ready) == (23, 24, False)
    assert missing_keys(topology) == (RankKey(0, 0, 0, 0),)
    assert accepted(topology, register(route(key=keys[0], sizes=sizes))).ready


def test_an_empty_group_expects_nothing_and_is_not_ready():
    topology = Topology.empty("default")
    assert (topology.registered, topology.expected, topology.ready, topology.sizes) == (0, 0, False, None)
    assert missing_keys(topology) == undeclared_keys(topology) == ()
    assert missing_count(topology) == undeclared_count(topology) == 0
    assert not topology.expects(RankKey(0, 0, 0, 0))


def test_a_group_expects_the_keys_within_its_sizes():
    topology = group_of(route(0))
    assert topology.sizes == ParallelSizes(1, 1, 2, 1)
    assert topology.expects(RankKey(0, 0, 1, 0))
    assert not topology.expects(RankKey(0, 0, 2, 0))
    assert not topology.expects(RankKey(0, 1, 0, 0))


def test_of_the_largest_group_only_the_lowest_missing_keys_are_made():
    topology = group_of(route(key=RankKey(0, 0, 0, 1), sizes=ParallelSizes(32_768, 1, 1, 2)))
    assert topology.expected == 65_536
    assert missing_count(topology) == 65_535
    listed = missing_keys(topology)
    assert len(listed) == 64
    assert listed[:3] == (RankKey(0, 0, 0, 0), RankKey(1, 0, 0, 0), RankKey(1, 0, 0, 1))
    assert all(isinstance(key, RankKey) for key in listed)


def test_undeclared_keys_are_listed_lowest_first_and_only_as_many_as_asked_for():
    sizes = ParallelSizes(1, 1, 6, 1)
    topology = group_of(
        *(route(tp, sizes=sizes) for tp in (4, 2, 0)),
        route(1, sizes=sizes, dsv41_spec_layout=DECLARED_NONE),
        route(3, sizes=sizes, dsv41_spec_layout=DECLARED_NONE, kv_cache_dtype="bf16"),
    )
    assert undeclared_keys(topology) == tuple(RankKey(0, 0, tp, 0) for tp in (0, 1, 2, 4))
    assert undeclared_keys(topology, 2) == (RankKey(0, 0, 0, 0), RankKey(0, 0, 1, 0))
    assert undeclared_count(topology) == 4


def test_the_state_says_all_of_it():
    sizes = ParallelSizes(1, 1, 3, 1)
    topology = group_of(route(0, sizes=sizes), route(1, sizes=sizes, kv_layout="page_first"))
    assert group_state(topology) == GroupState(
        group="default",
        revision=FIRST_REVISION + 1,
        epoch=1,
        instance=LAUNCH,
        floor=LAUNCH,
        registered=2,
        expected=3,
        ready=False,
        missing_keys=(RankKey(0, 0, 2, 0),),
        missing_count=1,
        undeclared_keys=(RankKey(0, 0, 0, 0),),
        undeclared_count=1,
    )


def test_the_aggregate_of_a_ready_group_carries_what_its_ranks_share():
    topology = group_of(FULL_ROUTE, replace(FULL_ROUTE, key=RankKey(0, 0, 1, 0)))
    assert prefill_server_info(topology) == PrefillServerInfo(
        sizes=ParallelSizes(1, 1, 2, 1),
        page_size=64,
        kv_cache_dtype="fp8_e4m3",
        kv_layout="page_first",
        dsv41_spec_layout=LAYOUT,
        load_balance_method="minimum_tokens",
        enable_dsa_cache_layer_split=True,
        enable_kv_cache_sharding=False,
        decode_allocation_policy="late",
        pools=(KV, SWA),
        prefill_http_port=8_000,
    )


def test_the_aggregate_fills_in_defaults_and_keeps_what_nobody_declared_undeclared():
    assert prefill_server_info(group_of(route(0), route(1))) == PrefillServerInfo(
        sizes=ParallelSizes(1, 1, 2, 1),
        page_size=64,
        kv_cache_dtype=None,
        kv_layout=None,
        dsv41_spec_layout=None,
        load_balance_method="follow_bootstrap_room",
        enable_dsa_cache_layer_split=False,
        enable_kv_cache_sharding=False,
        decode_allocation_policy="early",
        pools=(),
        prefill_http_port=None,
    )


@pytest.mark.parametrize(("ports", "port"), [((None, 8_001), 8_001), ((8_000, 8_001), 8_000), ((None, None), None)])
def test_the_http_port_is_that_of_the_lowest_key_that_has_one(ports, port):
    first, second = (route(tp, prefill_http_port=ports[tp]) for tp in (0, 1))
    assert prefill_server_info(group_of(second, first)).prefill_http_port == port


@pytest.mark.parametrize(
    "topology", [Topology.empty("default"), group_of(route(0)), group_of(route(0), route(1, kv_layout="page_first"))]
)
def test_a_group_that_is_not_ready_has_no_aggregate(topology):
    with pytest.raises(ValueError, match="group 'default' is not ready"):
        prefill_server_info(topology)
