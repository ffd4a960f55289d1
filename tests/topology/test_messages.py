"""Values to messages and back, through the bytes of the wire."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.kv.v1 import spec_layout_pb2 as kv
from interlock.pools import POOL_NAMES
from interlock.topology import (
    DECLARED_NONE,
    DecodeServer,
    EpochStarted,
    Incompatibility,
    InvalidFieldsError,
    ParallelSizes,
    RankKey,
    Route,
    RouteRegistered,
    RouteRemoved,
    SpecLayout,
    group_state,
    prefill_server_info,
)
from interlock.topology.messages import (
    decode_server_to_message,
    event_from_message,
    event_to_message,
    group_state_from_message,
    group_state_to_message,
    incompatibility_from_message,
    incompatibility_to_message,
    instance_to_message,
    prefill_server_info_from_message,
    prefill_server_info_to_message,
    read_decode_server,
    route_from_message,
    route_to_message,
)
from topology.examples import FULL_ROUTE, KV, LAUNCH, LAYOUT, SWA, group_of, route


def through_the_wire(message):
    return type(message).FromString(message.SerializeToString())


uint32, uint64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=8)
layouts = st.builds(
    SpecLayout,
    num_draft_tokens=st.none() | uint32,
    compression_ratios=st.lists(uint32, max_size=4).map(tuple),
    kv_layer_ids=st.lists(uint32, max_size=4).map(tuple),
    kv_item_lens=st.lists(uint64, max_size=4).map(tuple),
    state_types=st.lists(texts, max_size=3).map(tuple),
    state_item_lens=st.lists(st.lists(uint64, max_size=3).map(tuple), max_size=3).map(tuple),
    extra_json=st.dictionaries(texts, texts, max_size=3).map(lambda entries: tuple(entries.items())),
)
any_routes = st.builds(
    Route,
    key=st.builds(RankKey, uint32, uint32, uint32, uint32),
    incarnation=uint64,
    sizes=st.builds(ParallelSizes, uint32, uint32, uint32, uint32),
    rank_ip=texts,
    rank_port=uint32,
    page_size=uint32,
    kv_cache_dtype=st.none() | texts,
    kv_layout=st.none() | texts,
    dsv41_spec_layout=st.none() | st.just(DECLARED_NONE) | layouts,
    load_balance_method=st.none() | texts,
    enable_dsa_cache_layer_split=st.none() | st.booleans(),
    enable_kv_cache_sharding=st.none() | st.booleans(),
    decode_allocation_policy=st.none() | texts,
    pools=st.sets(st.sampled_from(POOL_NAMES)).map(tuple),
    prefill_http_port=st.none() | uint32,
)


@given(any_routes)
def test_every_route_goes_there_and_back(any_route):
    assert route_from_message(through_the_wire(route_to_message(any_route))) == any_route


@pytest.mark.parametrize("absent", [field.name for field in fields(Route)[6:]])
def test_what_is_absent_stays_absent_in_both_directions(absent):
    without = replace(FULL_ROUTE, **{absent: () if absent == "pools" else None})
    message = through_the_wire(route_to_message(without))
    assert absent not in {descriptor.name for descriptor, _ in message.ListFields()}
    assert route_from_message(message) == without != FULL_ROUTE


def test_zero_and_false_are_not_absent():
    zeros = route(enable_kv_cache_sharding=False, prefill_http_port=0, dsv41_spec_layout=SpecLayout(num_draft_tokens=0))
    assert route_from_message(through_the_wire(route_to_message(zeros))) == zeros


def test_a_declaration_with_no_state_set_is_undeclared():
    message = route_to_message(route())
    message.dsv41_spec_layout.SetInParent()
    assert message.HasField("dsv41_spec_layout")
    assert route_from_message(message).dsv41_spec_layout is None


def test_an_empty_layout_is_a_layout():
    message = route_to_message(route())
    message.dsv41_spec_layout.layout.SetInParent()
    assert route_from_message(message).dsv41_spec_layout == SpecLayout()


def test_unknown_layout_keys_come_in_order_whatever_order_they_had():
    layout = replace(LAYOUT, extra_json=(("b", "1"), ("a", "2")))
    assert layout.extra_json == (("a", "2"), ("b", "1"))
    message = through_the_wire(route_to_message(route(dsv41_spec_layout=layout)))
    assert route_from_message(message).dsv41_spec_layout == layout


def violations(message):
    with pytest.raises(InvalidFieldsError) as caught:
        route_from_message(message)
    return dict(caught.value.refused.detail.violations)


def test_a_route_without_a_key_names_it():
    message = route_to_message(route())
    message.ClearField("key")
    assert violations(message) == {"route.key": "required"}


def test_where_reading_fails_every_other_fault_is_told_too():
    message = pb.Route(rank_ip="0.0.0.0", pools=[KV, 24, 0])
    assert violations(message) == {
        "route.key": "required",
        "route.pools[1]": "24 is no number of PoolName",
        "route.pools[2]": "0 is no number of PoolName",
        "route.sizes": "required",
        "route.incarnation": "must lie between 1 and 18446744073709551615; got 0",
        "route.rank_ip": "must be an address that others can reach, not the wildcard '0.0.0.0'",
        "route.rank_port": "must lie between 1 and 65535; got 0",
        "route.page_size": "must lie between 1 and 4294967295; got 0",
    }


def test_an_unknown_number_for_declared_none_is_refused():
    message = route_to_message(route())
    message.dsv41_spec_layout.ParseFromString(b"\x08\x05")  # field 1, an enum, is 5
    assert violations(message) == {"route.dsv41_spec_layout.none": "5 is no number of NullValue"}


def test_very_many_pools_are_one_fault():
    message = route_to_message(route())
    message.pools.extend([KV] * 100_000)
    assert violations(message) == {"route.pools": "must name each pool at most once; got 100000 names"}


def test_a_layout_over_64_kib_is_refused_before_it_is_converted():
    message = route_to_message(route())
    message.dsv41_spec_layout.layout.kv_layer_ids.extend([2**32 - 1] * 20_000)
    size = message.dsv41_spec_layout.ByteSize()
    assert violations(message) == {"route.dsv41_spec_layout": f"must be at most 65536 bytes; got {size}"}


def test_a_decode_server_goes_there_and_back():
    server = DecodeServer(64, ParallelSizes(1, 1, 2, 1), "bf16", "page_first", LAYOUT, (SWA, KV))
    faults = []
    assert read_decode_server(through_the_wire(decode_server_to_message(server)), "decode_server", faults) == server
    bare = DecodeServer(64, ParallelSizes(1, 1, 2, 1))
    assert read_decode_server(through_the_wire(decode_server_to_message(bare)), "decode_server", faults) == bare
    assert faults == []


@pytest.mark.parametrize(
    "topology",
    [
        group_of(FULL_ROUTE, replace(FULL_ROUTE, key=RankKey(0, 0, 1, 0))),
        group_of(route(0), route(1)),
        group_of(route(0, dsv41_spec_layout=DECLARED_NONE), route(1, dsv41_spec_layout=DECLARED_NONE)),
    ],
)
def test_an_aggregate_goes_there_and_back(topology):
    info = prefill_server_info(topology)
    assert prefill_server_info_from_message(through_the_wire(prefill_server_info_to_message(info))) == info


def test_an_aggregate_without_declarations_has_none_on_the_wire():
    message = prefill_server_info_to_message(prefill_server_info(group_of(route(0), route(1))))
    assert not message.HasField("dsv41_spec_layout")
    assert not message.HasField("kv_cache_dtype")
    assert message.decode_allocation_policy == "early"


def test_an_incompatibility_goes_there_and_back():
    found = Incompatibility("sizes.tp", "2", "3", "why")
    assert incompatibility_from_message(through_the_wire(incompatibility_to_message(found))) == found


@pytest.mark.parametrize("topology", [group_of(route(1)), group_of(route(0), route(1, kv_layout="page_first"))])
def test_a_state_goes_there_and_back(topology):
    assert group_state_from_message(through_the_wire(group_state_to_message(topology))) == group_state(topology)


def test_a_state_lists_at_most_64_keys_and_counts_all():
    topology = group_of(route(sizes=ParallelSizes(1, 1, 1_000, 1)))
    message = group_state_to_message(topology)
    assert len(message.missing_keys) == 64
    assert message.missing_count == 999


@pytest.mark.parametrize(
    "event",
    [
        EpochStarted(3, LAUNCH),
        EpochStarted(3, None),
        RouteRegistered(FULL_ROUTE),
        RouteRemoved(RankKey(1, 2, 3, 4), 2**64 - 1),
    ],
)
def test_an_event_goes_there_and_back(event):
    assert event_from_message(through_the_wire(event_to_message(event))) == event


def test_an_event_of_a_later_version_is_left_out():
    assert event_from_message(pb.TopologyEvent()) is None


def test_no_instance_is_no_message():
    assert instance_to_message(None) is None
    assert kv.SpecLayoutDeclaration(none=0).WhichOneof("state") == "none"
