"""Rules 3 and 4: what all ranks must share, and the three states of a declaration."""

from dataclasses import replace

import pytest

from interlock.reasons import Reason
from interlock.topology import (
    DECLARED_NONE,
    ContractMismatch,
    DeregisterRoute,
    FieldMismatch,
    ParallelSizes,
    RankKey,
    undeclared_count,
    undeclared_keys,
)
from interlock.topology.contract import cut_apart, value_text
from topology.examples import (
    DRAFT,
    FULL_ROUTE,
    KV,
    LAUNCH,
    LAYOUT,
    OTHER_LAYOUT,
    SWA,
    accepted,
    group_of,
    refused,
    register,
    route,
)

FIRST, SECOND = RankKey(0, 0, 0, 0), RankKey(0, 0, 1, 0)


def mismatches(topology, offered):
    refusal = refused(topology, register(offered))
    assert refusal.reason is Reason.CONTRACT_MISMATCH
    assert isinstance(refusal.detail, ContractMismatch)
    return refusal.detail.mismatches


@pytest.mark.parametrize(
    ("field", "changes", "standing_value", "offered_value"),
    [
        ("sizes.dp", {"sizes": ParallelSizes(2, 1, 2, 1)}, 1, 2),
        ("sizes.cp", {"sizes": ParallelSizes(1, 2, 2, 1)}, 1, 2),
        ("sizes.tp", {"sizes": ParallelSizes(1, 1, 4, 1)}, 2, 4),
        ("sizes.pp", {"sizes": ParallelSizes(1, 1, 2, 3)}, 1, 3),
        ("page_size", {"page_size": 128}, 64, 128),
        ("kv_cache_dtype", {"kv_cache_dtype": "bf16"}, "fp8_e4m3", "bf16"),
        ("kv_layout", {"kv_layout": "layer_first"}, "page_first", "layer_first"),
        ("dsv41_spec_layout", {"dsv41_spec_layout": OTHER_LAYOUT}, LAYOUT, OTHER_LAYOUT),
        ("dsv41_spec_layout", {"dsv41_spec_layout": DECLARED_NONE}, LAYOUT, DECLARED_NONE),
        ("load_balance_method", {"load_balance_method": None}, "minimum_tokens", "follow_bootstrap_room"),
        ("enable_dsa_cache_layer_split", {"enable_dsa_cache_layer_split": None}, True, False),
        ("enable_kv_cache_sharding", {"enable_kv_cache_sharding": True}, False, True),
        ("decode_allocation_policy", {"decode_allocation_policy": None}, "late", "early"),
        ("pools", {"pools": (KV, DRAFT)}, (KV, SWA), (KV, DRAFT)),
    ],
)
def test_each_shared_value_must_be_that_of_the_live_routes(field, changes, standing_value, offered_value):
    topology = group_of(FULL_ROUTE)
    offered = replace(FULL_ROUTE, key=SECOND, **changes)
    assert mismatches(topology, offered) == (FieldMismatch(field, standing_value, offered_value, FIRST),)


def test_every_differing_field_is_told_at_once_with_the_rank_that_holds_the_standing_value():
    topology = group_of(route(0), route(1, kv_layout="page_first"))
    topology = accepted(topology, DeregisterRoute(FIRST, LAUNCH, 100))
    topology = accepted(topology, register(route(0, incarnation=101, kv_layout="page_first")))
    sizes = ParallelSizes(1, 1, 3, 1)
    offered = route(2, sizes=sizes, page_size=128, kv_layout="layer_first", enable_kv_cache_sharding=True)
    assert mismatches(topology, offered) == (
        FieldMismatch("sizes.tp", 2, 3, FIRST),
        FieldMismatch("page_size", 64, 128, FIRST),
        FieldMismatch("kv_layout", "page_first", "layer_first", FIRST),
        FieldMismatch("enable_kv_cache_sharding", False, True, FIRST),
    )


def test_a_mismatch_names_the_lowest_rank_that_declared_not_the_lowest_rank():
    topology = group_of(route(0), route(1, kv_cache_dtype="bf16"))
    assert mismatches(topology, route(0, kv_cache_dtype="fp8_e4m3")) == (
        FieldMismatch("kv_cache_dtype", "bf16", "fp8_e4m3", SECOND),
    )


def test_the_message_tells_a_person_field_both_values_and_holder():
    refusal = refused(group_of(route(0)), register(route(1, page_size=128)))
    assert refusal.message == (
        "rank dp=0 cp=0 tp=1 pp=0 does not fit group 'default': "
        "page_size is 64 on dp=0 cp=0 tp=0 pp=0, but 128 was offered"
    )


def test_an_absent_flag_method_or_policy_equals_its_default():
    topology = group_of(route(0))
    spelt_out = route(
        1,
        load_balance_method="follow_bootstrap_room",
        enable_dsa_cache_layer_split=False,
        enable_kv_cache_sharding=False,
        decode_allocation_policy="early",
    )
    assert accepted(topology, register(spelt_out)).ready


def test_pools_are_a_set():
    topology = group_of(route(0, pools=(KV, SWA)))
    assert accepted(topology, register(route(1, pools=(SWA, KV)))).ready


def test_what_ranks_need_not_share_may_differ():
    topology = group_of(route(0, prefill_http_port=8_000))
    assert accepted(topology, register(route(1, prefill_http_port=None, rank_port=1, incarnation=7))).ready


def test_the_only_rank_of_a_group_may_change_every_shared_value():
    topology = group_of(route(0))
    changed = accepted(topology, register(replace(FULL_ROUTE, incarnation=101, sizes=ParallelSizes(1, 1, 1, 1))))
    assert changed.ready
    assert changed.epoch == topology.epoch


def test_a_value_that_no_live_route_holds_is_forgotten():
    topology = group_of(route(0, page_size=64))
    topology = accepted(topology, DeregisterRoute(FIRST, LAUNCH, 100))
    topology = accepted(topology, register(route(1, page_size=128)))
    assert topology.routes[SECOND].page_size == 128
    assert mismatches(topology, route(0, incarnation=101, page_size=64)) == (
        FieldMismatch("page_size", 128, 64, SECOND),
    )


def test_a_refused_route_fixes_nothing():
    topology = group_of(route(0))
    refused(topology, register(route(1, page_size=128, kv_cache_dtype="bf16")))
    assert accepted(topology, register(route(1, kv_cache_dtype="fp8_e4m3"))).registered == 2


# Declared, declared none, undeclared


def test_the_risk_of_the_seed_first_a_rank_without_a_layout_then_ranks_with_one():
    """A first rank that says nothing must not fix "no layout" for the others, nor be counted as agreeing with them."""
    sizes = ParallelSizes(1, 1, 3, 1)
    topology = group_of(
        route(0, sizes=sizes),
        route(1, sizes=sizes, dsv41_spec_layout=LAYOUT),
        route(2, sizes=sizes, dsv41_spec_layout=LAYOUT),
    )
    assert (topology.registered, topology.expected, topology.ready) == (3, 3, False)
    assert undeclared_keys(topology) == (FIRST,)
    assert undeclared_count(topology) == 1

    assert mismatches(topology, route(0, sizes=sizes, dsv41_spec_layout=DECLARED_NONE)) == (
        FieldMismatch("dsv41_spec_layout", LAYOUT, DECLARED_NONE, SECOND),
    )
    declared_too = accepted(topology, register(route(0, sizes=sizes, dsv41_spec_layout=LAYOUT)))
    assert declared_too.ready
    assert undeclared_keys(declared_too) == ()


@pytest.mark.parametrize("declaration", [None, DECLARED_NONE, LAYOUT])
def test_alike_declarations_make_a_ready_group(declaration):
    topology = group_of(route(0, dsv41_spec_layout=declaration), route(1, dsv41_spec_layout=declaration))
    assert topology.ready
    assert undeclared_keys(topology) == ()


@pytest.mark.parametrize("declaration", [DECLARED_NONE, LAYOUT])
def test_undeclared_may_come_first_and_keeps_the_group_from_being_ready(declaration):
    topology = group_of(route(0), route(1, dsv41_spec_layout=declaration))
    assert topology.registered == topology.expected == 2
    assert not topology.ready
    assert undeclared_keys(topology) == (FIRST,)


@pytest.mark.parametrize(
    ("standing", "offered"),
    [
        (DECLARED_NONE, None),
        (DECLARED_NONE, LAYOUT),
        (LAYOUT, None),
        (LAYOUT, DECLARED_NONE),
        (LAYOUT, OTHER_LAYOUT),
    ],
)
def test_after_a_declaration_undeclared_or_differing_is_refused(standing, offered):
    topology = group_of(route(0, dsv41_spec_layout=standing))
    assert mismatches(topology, route(1, dsv41_spec_layout=offered)) == (
        FieldMismatch("dsv41_spec_layout", standing, offered, FIRST),
    )


@pytest.mark.parametrize(
    ("field", "value", "other"),
    [("kv_cache_dtype", "bf16", "fp8_e4m3"), ("kv_layout", "page_first", "layer_first"), ("pools", (KV,), (KV, SWA))],
)
def test_dtype_layout_and_pools_can_be_undeclared_in_the_same_way(field, value, other):
    undeclared = getattr(route(0), field)
    topology = group_of(route(0), route(1, **{field: value}))
    assert not topology.ready
    assert undeclared_keys(topology) == (FIRST,)
    assert mismatches(topology, route(0, **{field: other})) == (FieldMismatch(field, value, other, SECOND),)
    declared = accepted(topology, register(route(0, **{field: value})))
    assert declared.ready
    assert mismatches(declared, route(1, **{field: undeclared}, incarnation=101)) == (
        FieldMismatch(field, value, undeclared, FIRST),
    )


def test_a_rank_that_alone_declared_may_take_its_declaration_back():
    topology = group_of(route(0), route(1, dsv41_spec_layout=LAYOUT))
    assert accepted(topology, register(route(1))).ready


def test_a_rank_that_is_still_undeclared_may_repeat_itself_but_not_come_anew():
    topology = group_of(route(0), route(1, dsv41_spec_layout=LAYOUT))
    assert accepted(topology, register(route(0))) is topology
    assert mismatches(topology, route(0, incarnation=101)) == (
        FieldMismatch("dsv41_spec_layout", LAYOUT, None, SECOND),
    )


def test_ranks_of_a_group_hold_one_layout_object():
    """The layout is the one large value; thousands of copies of it would not fit into memory."""
    topology = group_of(route(0, dsv41_spec_layout=LAYOUT), route(1, dsv41_spec_layout=replace(LAYOUT)))
    assert topology.routes[SECOND].dsv41_spec_layout is topology.routes[FIRST].dsv41_spec_layout


# Values as text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "undeclared"),
        ((), "undeclared"),
        (DECLARED_NONE, "none"),
        (True, "true"),
        (False, "false"),
        (64, "64"),
        ("bf16", "bf16"),
        ((KV, SWA), "kv,swa"),
        (
            LAYOUT,
            '{"num_draft_tokens":2,"compression_ratios":[1,4,128],"kv_layer_ids":[0,1,2],'
            '"kv_item_lens":[1024,1099511627776,512],"state_types":["swa","c128_state"],'
            '"state_item_lens":[[64,64],[9223372036854775808]],'
            '"extra_json":[["future","{\\"a\\":[1,2],\\"b\\":\\"c d\\"}"]]}',
        ),
    ],
)
def test_each_kind_of_value_has_a_text(value, text):
    assert value_text(value) == text


def test_long_texts_are_cut_around_the_place_where_they_part():
    first, second = "a" * 500 + "X" + "b" * 500, "a" * 500 + "Y" + "b" * 500
    assert cut_apart(first, second, 8) == ("...aaXbbbbb...", "...aaYbbbbb...")


def test_long_texts_that_part_at_once_or_at_the_end_are_cut_to_what_tells_them_apart():
    assert cut_apart("abcdefgh", "xbcdefgh", 4) == ("abcd...", "xbcd...")
    assert cut_apart("abcdefgh", "abcdefghij", 4) == ("...h", "...hij")


def test_short_texts_are_not_cut():
    assert cut_apart("64", "128", 8) == ("64", "128")
