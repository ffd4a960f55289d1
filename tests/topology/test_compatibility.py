"""Whether a decode server fits a group: each rule, and what is not judged yet."""

from dataclasses import replace

import pytest

from interlock.topology import (
    DECLARED_NONE,
    DecodeServer,
    Incompatibility,
    ParallelSizes,
    RankKey,
    Topology,
    check_compatibility,
)
from topology.examples import FULL_ROUTE, KV, LAYOUT, OTHER_LAYOUT, SWA, group_of, route

ONE = ParallelSizes(1, 1, 1, 1)


def prefill(sizes=ONE, **changes):
    """A ready prefill server."""
    return group_of(*(route(key=key, sizes=sizes, **changes) for key in sizes.rank_keys()))


def decode(**changes):
    return DecodeServer(**{"page_size": 64, "sizes": ONE, **changes})


def fields(topology, decode_server):
    return [violation.field for violation in check_compatibility(topology, decode_server)]


def test_a_decode_server_that_fits_in_everything_has_no_violation():
    topology = group_of(FULL_ROUTE, replace(FULL_ROUTE, key=RankKey(0, 0, 1, 0)))
    server = DecodeServer(64, ParallelSizes(8, 1, 4, 1), "fp8_e4m3", "page_first", LAYOUT, (SWA, KV))
    assert check_compatibility(topology, server) == ()


def test_page_sizes_must_be_equal():
    assert check_compatibility(prefill(), decode(page_size=128)) == (
        Incompatibility("page_size", "64", "128", "KV pages move whole: page sizes must be equal"),
    )


@pytest.mark.parametrize(
    ("field", "ours", "theirs", "texts"),
    [
        ("kv_cache_dtype", "bf16", "fp8_e4m3", ("bf16", "fp8_e4m3")),
        ("kv_layout", "page_first", "layer_first", ("page_first", "layer_first")),
        ("pools", (KV,), (KV, SWA), ("kv", "kv,swa")),
    ],
)
def test_dtype_layout_and_pools_must_be_equal_where_both_declare_them(field, ours, theirs, texts):
    (violation,) = check_compatibility(prefill(**{field: ours}), decode(**{field: theirs}))
    assert (violation.field, violation.prefill_value, violation.decode_value) == (field, *texts)
    assert fields(prefill(**{field: ours}), decode(**{field: ours})) == []
    assert fields(prefill(**{field: ours}), decode()) == []
    assert fields(prefill(), decode(**{field: theirs})) == []


@pytest.mark.parametrize("ours", [None, DECLARED_NONE, LAYOUT])
@pytest.mark.parametrize("theirs", [None, DECLARED_NONE, LAYOUT, OTHER_LAYOUT])
def test_layouts_must_be_strictly_equal_and_undeclared_is_none_on_both_sides(ours, theirs):
    fits = (ours or DECLARED_NONE) == (theirs or DECLARED_NONE)
    found = fields(prefill(dsv41_spec_layout=ours), decode(dsv41_spec_layout=theirs))
    assert found == ([] if fits else ["dsv41_spec_layout"])


def test_a_layout_that_differs_is_shown_where_it_differs():
    long = replace(LAYOUT, kv_item_lens=(1024,) * 300)
    (violation,) = check_compatibility(
        prefill(dsv41_spec_layout=long), decode(dsv41_spec_layout=replace(long, kv_item_lens=(1024,) * 299 + (7777,)))
    )
    assert "1024]" in violation.prefill_value
    assert "7777]" in violation.decode_value
    assert len(violation.prefill_value) <= 256 + 6


def test_a_group_without_live_routes_has_declared_nothing_to_judge_by():
    assert check_compatibility(Topology.empty("default"), decode(page_size=128, dsv41_spec_layout=LAYOUT)) == ()


def test_what_is_declared_so_far_is_judged_before_the_group_is_ready():
    topology = group_of(route(0, dsv41_spec_layout=LAYOUT))
    assert not topology.ready
    assert fields(topology, decode(page_size=128)) == ["page_size", "dsv41_spec_layout"]


def test_a_layout_is_not_judged_while_nobody_declared_and_a_rank_is_missing():
    """That rank may bring the very layout; only a complete group that says nothing has none."""
    incomplete, complete = group_of(route(0)), group_of(route(0), route(1))
    assert fields(incomplete, decode(dsv41_spec_layout=LAYOUT)) == []
    assert fields(complete, decode(dsv41_spec_layout=LAYOUT)) == ["dsv41_spec_layout"]


def test_a_complete_group_that_is_half_undeclared_is_judged_by_what_is_declared():
    topology = group_of(route(0), route(1, dsv41_spec_layout=LAYOUT))
    assert fields(topology, decode()) == ["dsv41_spec_layout"]
    assert fields(topology, decode(dsv41_spec_layout=LAYOUT)) == []


def test_decode_has_no_context_parallelism():
    assert fields(prefill(ParallelSizes(1, 2, 1, 1)), decode(sizes=ParallelSizes(1, 2, 1, 1))) == ["sizes.cp"]
    assert fields(prefill(ParallelSizes(1, 2, 1, 1)), decode()) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "fits"),
    [(1, 1, True), (1, 8, True), (8, 1, True), (2, 4, True), (6, 3, True), (2, 3, False), (4, 6, False)],
)
def test_the_larger_tp_must_be_a_multiple_of_the_smaller(ours, theirs, fits):
    found = check_compatibility(prefill(ParallelSizes(1, 1, ours, 1)), decode(sizes=ParallelSizes(1, 1, theirs, 1)))
    assert [(each.field, each.prefill_value, each.decode_value) for each in found] == (
        [] if fits else [("sizes.tp", str(ours), str(theirs))]
    )


@pytest.mark.parametrize(
    ("cp", "sharding", "fits"), [(1, True, False), (1, False, True), (1, None, True), (2, True, True)]
)
def test_a_sharded_kv_cache_without_context_parallelism_needs_equal_tp(cp, sharding, fits):
    topology = prefill(ParallelSizes(1, cp, 2, 1), enable_kv_cache_sharding=sharding)
    assert fields(topology, decode(sizes=ParallelSizes(1, 1, 4, 1))) == ([] if fits else ["sizes.tp"])
    assert fields(topology, decode(sizes=ParallelSizes(1, 1, 2, 1))) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "fits"), [(1, 1, True), (4, 1, True), (4, 4, True), (4, 2, False), (1, 2, False)]
)
def test_decode_pp_is_that_of_prefill_or_one(ours, theirs, fits):
    found = fields(prefill(ParallelSizes(1, 1, 1, ours)), decode(sizes=ParallelSizes(1, 1, 1, theirs)))
    assert found == ([] if fits else ["sizes.pp"])


def test_dp_sizes_need_not_match():
    assert fields(prefill(ParallelSizes(3, 1, 1, 1)), decode(sizes=ParallelSizes(7, 1, 1, 1))) == []


def test_every_violation_is_told_at_once():
    topology = prefill(ParallelSizes(1, 1, 2, 3), kv_cache_dtype="bf16", dsv41_spec_layout=LAYOUT)
    server = decode(page_size=1, sizes=ParallelSizes(1, 2, 3, 2), kv_cache_dtype="fp8_e4m3")
    assert fields(topology, server) == [
        "page_size",
        "kv_cache_dtype",
        "dsv41_spec_layout",
        "sizes.cp",
        "sizes.tp",
        "sizes.pp",
    ]
