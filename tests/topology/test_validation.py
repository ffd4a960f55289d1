"""Rule 1: every fault is refused and named, and nothing hostile costs much."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.reasons import Reason
from interlock.topology import (
    DeregisterRoute,
    FieldViolations,
    Instance,
    ParallelSizes,
    RankKey,
    SpecLayout,
    Topology,
)
from interlock.topology.validation import canonical_address, group_faults
from topology.examples import FULL_ROUTE, KV, LAUNCH, LAYOUT, NOW, accepted, refused, register, route

MEGABYTE = "x" * 2**20


def violations(offered, instance=LAUNCH):
    """Faults of a registration, by field; the group must stay as it was."""
    topology = Topology.empty("default")
    refusal = refused(topology, register(offered, instance))
    assert refusal.reason is Reason.INVALID_FIELD
    assert isinstance(refusal.detail, FieldViolations)
    assert topology == Topology.empty("default")
    assert all(len(description) < 400 for _, description in refusal.detail.violations)
    return dict(refusal.detail.violations)


def fields(offered, instance=LAUNCH):
    return list(violations(offered, instance))


def test_every_fault_is_told_at_once_with_its_field():
    offered = route(
        key=RankKey(0, 0, 2, 0), incarnation=0, rank_ip="0.0.0.0", rank_port=0, page_size=0, prefill_http_port=65_536
    )
    assert violations(offered, Instance("", NOW)) == {
        "route.key.tp": "must be below the size of 2; got 2",
        "route.incarnation": "must lie between 1 and 18446744073709551615; got 0",
        "route.rank_ip": "must be an address that others can reach, not the wildcard '0.0.0.0'",
        "route.rank_port": "must lie between 1 and 65535; got 0",
        "route.page_size": "must lie between 1 and 4294967295; got 0",
        "route.prefill_http_port": "must lie between 1 and 65535; got 65536",
        "instance.id": "must be 1 to 128 printable ASCII characters; got ''",
    }


def test_the_message_tells_the_first_fault_and_how_many_more():
    refusal = refused(Topology.empty("g"), register(route(rank_port=0, page_size=0)))
    assert refusal.message == "route.rank_port: must lie between 1 and 65535; got 0 (and 1 more)"


# Sizes and keys


@pytest.mark.parametrize("dimension", ["dp", "cp", "tp", "pp"])
def test_each_size_is_at_least_one(dimension):
    sizes = ParallelSizes(1, 1, 2, 1)._replace(**{dimension: 0})
    assert fields(route(sizes=sizes)) == [f"route.sizes.{dimension}"]


@pytest.mark.parametrize("dimension", ["dp", "cp", "tp", "pp"])
def test_each_rank_is_below_its_size(dimension):
    key = RankKey(0, 0, 0, 0)._replace(**{dimension: 2})
    assert fields(route(key=key)) == [f"route.key.{dimension}"]
    assert fields(route(key=RankKey(0, 0, 0, 0)._replace(**{dimension: -1}))) == [f"route.key.{dimension}"]


def test_no_sizes_at_all_are_one_fault():
    assert violations(route(sizes=ParallelSizes(0, 0, 0, 0))) == {"route.sizes": "required"}


@pytest.mark.parametrize(
    "sizes",
    [
        ParallelSizes(65_536, 1, 1, 2),
        ParallelSizes(256, 1, 257, 1),
        ParallelSizes(65_536, 65_536, 65_536, 65_536),  # 2^64: zero where a product wraps
        ParallelSizes(65_536, 65_536, 1, 1),  # 2^32
    ],
)
def test_a_product_that_is_too_large_is_refused_however_large(sizes):
    assert violations(route(key=RankKey(0, 0, 0, 0), sizes=sizes)) == {
        "route.sizes": f"dp x cp x tp x pp must be at most 65536; got {sizes.product}"
    }


def test_a_single_size_that_is_too_large_is_named():
    assert fields(route(sizes=ParallelSizes(2**32 - 1, 1, 1, 2**32 - 1))) == ["route.sizes.dp", "route.sizes.pp"]


def test_the_largest_group_is_legal():
    offered = route(key=RankKey(255, 0, 255, 0), sizes=ParallelSizes(256, 1, 256, 1))
    assert accepted(Topology.empty("g"), register(offered)).expected == 65_536


# Addresses


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("[2001:0db8:0000:0000:0000:0000:0000:0001]", "2001:db8::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("prefill-0", "prefill-0"),
        ("Prefill-0.Default.SVC.cluster.local", "prefill-0.default.svc.cluster.local"),
        ("3com.example", "3com.example"),
        ("a" * 63, "a" * 63),
    ],
)
def test_an_address_is_stored_canonical(text, stored):
    topology = accepted(Topology.empty("g"), register(route(rank_ip=text)))
    assert topology.routes[RankKey(0, 0, 0, 0)].rank_ip == stored
    assert canonical_address(stored) == stored


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "address or a host name"),
        ("0.0.0.0", "wildcard"),
        ("::", "wildcard"),
        ("[::]", "wildcard"),
        ("0:0:0:0:0:0:0:0", "wildcard"),
        ("::ffff:0.0.0.0", "wildcard"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("fe80::1%eth0", "zone"),
        ("[fe80::1%25eth0]", "zone"),
        ("10.0.0", "address or a host name"),
        ("10.0.0.256", "address or a host name"),
        ("010.0.0.1", "address or a host name"),
        ("10.0.0.0x1", "address or a host name"),
        ("0x7f000001", "address or a host name"),
        ("2130706433", "address or a host name"),
        ("１０.0.0.1", "address or a host name"),
        ("[10.0.0.1]", "address or a host name"),
        ("[::1", "address or a host name"),
        ("::1]", "address or a host name"),
        ("[]", "address or a host name"),
        ("[::1]:30000", "address or a host name"),
        ("10.0.0.1:30000", "address or a host name"),
        ("10.0.0.0/8", "address or a host name"),
        ("host name", "address or a host name"),
        ("host_name", "address or a host name"),
        ("-host", "address or a host name"),
        ("host-.example", "address or a host name"),
        ("host..example", "address or a host name"),
        ("host.", "address or a host name"),
        ("a" * 64, "address or a host name"),
        ("höst", "address or a host name"),
        ("10.0.0.1\0", "address or a host name"),
        ("10.0.0.1\n", "address or a host name"),
        (" 10.0.0.1", "address or a host name"),
        ("http://10.0.0.1", "address or a host name"),
        ("a." * 127, "at most 253 characters"),
        (MEGABYTE, "at most 253 characters"),
    ],
)
def test_what_is_no_reachable_address_is_refused(text, why):
    assert why in violations(route(rank_ip=text))["route.rank_ip"]


@given(st.text(max_size=300) | st.from_regex(r"\A[0-9a-fx.:\[\]%-]{0,40}\Z"))
def test_what_is_stored_is_canonical_itself(text):
    try:
        stored = canonical_address(text)
    except ValueError:
        return
    assert canonical_address(stored) == stored
    assert stored.isascii()
    assert stored == stored.lower()


@pytest.mark.parametrize("port", [0, 65_536, 2**32 - 1, -1])
def test_ports_lie_between_1_and_65535(port):
    assert fields(route(rank_port=port)) == ["route.rank_port"]
    assert fields(route(prefill_http_port=port)) == ["route.prefill_http_port"]


@pytest.mark.parametrize("port", [1, 65_535])
def test_the_first_and_the_last_port_are_legal(port):
    accepted(Topology.empty("g"), register(route(rank_port=port, prefill_http_port=port)))


# Texts


@pytest.mark.parametrize("field", ["kv_cache_dtype", "kv_layout", "load_balance_method", "decode_allocation_policy"])
@pytest.mark.parametrize("text", ["", "nul\0", "line\n", "\x7f", "x" * 257, "é" * 129, "\ud800", MEGABYTE])
def test_texts_are_bounded_and_printable(field, text):
    assert fields(route(**{field: text})) == [f"route.{field}"]


@pytest.mark.parametrize("text", ["x", "x" * 256, "é" * 128])
def test_texts_within_the_bound_are_legal(text):
    accepted(Topology.empty("g"), register(route(kv_layout=text)))


@pytest.mark.parametrize("instance_id", ["", "x" * 129, "nul\0", "é", MEGABYTE])
def test_an_instance_id_is_short_printable_ascii(instance_id):
    assert fields(route(), Instance(instance_id, NOW)) == ["instance.id"]


def test_no_instance_at_all_is_one_fault():
    assert violations(route(), Instance("", 0)) == {"instance": "required"}


@pytest.mark.parametrize("group", ["a", "default", "prefill-7", "0", "x" * 63])
def test_a_group_is_a_dns_label(group):
    assert list(group_faults(group)) == []


@pytest.mark.parametrize("group", ["", "-a", "a-", "A", "a.b", "a_b", "a b", "a\n", "a\0", "ä", "x" * 64, MEGABYTE])
def test_what_is_no_dns_label_is_no_group(group):
    ((field, description),) = group_faults(group)
    assert field == "group"
    assert len(description) < 200


# Pools


def test_pools_are_known_and_each_there_once():
    assert violations(route(pools=(KV, KV))) == {"route.pools": "must name each pool at most once"}
    assert violations(route(pools=(KV, 24, 99))) == {"route.pools": "24 is no number of PoolName"}
    assert violations(route(pools=(0, KV, KV))) == {"route.pools": "0 is no number of PoolName"}


# Layouts


def layout_fields(**changes):
    return fields(route(dsv41_spec_layout=replace(LAYOUT, **changes)))


PATH = "route.dsv41_spec_layout.layout"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_draft_tokens": 2**32}, f"{PATH}.num_draft_tokens"),
        ({"compression_ratios": (-1,)}, f"{PATH}.compression_ratios"),
        ({"kv_layer_ids": (0, 2**32)}, f"{PATH}.kv_layer_ids"),
        ({"kv_item_lens": (2**64,)}, f"{PATH}.kv_item_lens"),
        ({"state_item_lens": ((1,), (2**64,))}, f"{PATH}.state_item_lens[1].item_lens"),
        ({"state_types": ("swa", "")}, f"{PATH}.state_types[1]"),
        ({"state_types": ("x",) * 65}, f"{PATH}.state_types"),
        ({"state_item_lens": ((),) * 10**5}, f"{PATH}.state_item_lens"),
        ({"kv_layer_ids": (1,) * 4_097}, PATH),
        ({"extra_json": tuple((str(n), "1") for n in range(65))}, f"{PATH}.extra_json"),
        ({"extra_json": (("k", "1"), ("k", "2"))}, f"{PATH}.extra_json"),
        ({"extra_json": (("", "1"),)}, f"{PATH}.extra_json, key 0"),
        ({"extra_json": (("k", '"' + MEGABYTE + '"'),)}, f"{PATH}.extra_json"),
    ],
)
def test_a_layout_is_bounded_in_every_part(changes, field):
    assert layout_fields(**changes) == [field]


def test_the_largest_numbers_of_a_layout_are_legal():
    largest = SpecLayout(2**32 - 1, (2**32 - 1,), (2**32 - 1,), (2**64 - 1,), ("swa",), ((2**64 - 1,),))
    accepted(Topology.empty("g"), register(replace(FULL_ROUTE, dsv41_spec_layout=largest)))


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "-0.5e3",
        "123456789012345678901234567890",
        "9" * 5_000,
        "true",
        "null",
        '""',
        '"a b\\" \\u00e9 é"',
        "[]",
        "{}",
        '{"a":{"b":1,"c":[1,2]},"b":" "}',
        "[" * 32 + "]" * 32,
    ],
)
def test_canonical_json_texts_are_legal(text):
    accepted(Topology.empty("g"), register(route(dsv41_spec_layout=SpecLayout(extra_json=(("k", text),)))))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "canonical JSON"),
        ("{", "canonical JSON"),
        ("{]", "canonical JSON"),
        ("]" * 100 + "[" * 100, "canonical JSON"),
        ("[1, 2]", "no white space"),
        ('{"a": 1}', "no white space"),
        ("1\n", "no white space"),
        ('{"b":1,"a":2}', "sorted"),
        ('{"a":1,"a":1}', "each there once"),
        ('[{"b":1,"a":2}]', "sorted"),
        ("NaN", "NaN is no JSON number"),
        ("-Infinity", "-Infinity is no JSON number"),
        ("01", "canonical JSON"),
        ("'a'", "canonical JSON"),
        ('"a', "canonical JSON"),
        ('"a\0"', "canonical JSON"),
        ('"\ud800"', "canonical JSON"),
        ('"' + '\\"' * 8_000, "canonical JSON"),
        ("[" * 33 + "]" * 33, "at most 32 deep"),
        ("[" * 1_000 + "]" * 1_000, "at most 32 deep"),
        ('{"a":' * 1_000 + "1" + "}" * 1_000, "at most 32 deep"),
        ("[" * 16_000, "at most 32 deep"),
    ],
)
def test_what_is_no_canonical_json_is_refused(text, why):
    found = violations(route(dsv41_spec_layout=SpecLayout(extra_json=(("k", text),))))
    assert list(found) == [f"{PATH}.extra_json['k']"]
    assert why in found[f"{PATH}.extra_json['k']"]


# Other requests


def test_deregistering_is_checked_too():
    refusal = refused(Topology.empty("g"), DeregisterRoute(RankKey(0, 65_536, 0, 0), Instance("", 5), 0))
    assert isinstance(refusal.detail, FieldViolations)
    assert [field for field, _ in refusal.detail.violations] == ["key.cp", "instance.id", "incarnation"]
