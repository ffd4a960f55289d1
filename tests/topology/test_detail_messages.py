"""Typed details of refusals: whole where they fit, cut and said so where they do not."""

from dataclasses import replace

import pytest

from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.bootstrap.v1 import errors_pb2 as pb
from interlock.topology import (
    DECLARED_NONE,
    Instance,
    ParallelSizes,
    RankKey,
    RevisionConflict,
    StaleIncarnation,
    StaleInstance,
    Topology,
)
from interlock.topology.detail_messages import (
    MAX_DETAIL_BYTES,
    not_ready_detail,
    refusal_details,
    revision_conflict_from_message,
    stale_incarnation_from_message,
    stale_instance_from_message,
)
from interlock.topology.messages import instance_to_message, rank_key_to_message, route_to_message
from topology.examples import (
    FIRST_REVISION,
    FULL_ROUTE,
    LATER_LAUNCH,
    LAUNCH,
    LAYOUT,
    NOW,
    accepted,
    group_of,
    refused,
    register,
    route,
)

FIRST = RankKey(0, 0, 0, 0)
LARGE_LAYOUT = replace(LAYOUT, kv_item_lens=(2**40,) * 1_000)
WORST_ID = "i" * 128


def detail(topology, request):
    (message,) = refusal_details(refused(topology, request))
    assert message.ByteSize() <= MAX_DETAIL_BYTES
    return message


def longest(**changes):
    """A route with every text as long as it can be."""
    values = {
        "rank_ip": ".".join(["a" * 62] * 4)[:253].rstrip("."),
        "kv_cache_dtype": "\U0001f600" * 64,
        "kv_layout": "\U0001f600" * 64,
        "load_balance_method": "\U0001f600" * 64,
        "decode_allocation_policy": "\U0001f600" * 64,
        **changes,
    }
    return route(**values)


def test_a_conflict_carries_the_standing_route():
    message = detail(group_of(FULL_ROUTE), register(route(0), expected_revision=1))
    assert message == pb.RevisionConflict(
        revision=FIRST_REVISION,
        epoch=1,
        instance=instance_to_message(LAUNCH),
        standing_route=route_to_message(FULL_ROUTE),
    )
    assert revision_conflict_from_message(message) == RevisionConflict(FIRST_REVISION, 1, LAUNCH, FULL_ROUTE)


def test_a_conflict_without_a_standing_route_or_an_instance_has_none():
    tombstone = replace(Topology.empty("g"), revision=7, epoch=2)
    message = detail(tombstone, register(route(0), expected_revision=1))
    assert message == pb.RevisionConflict(revision=7, epoch=2)
    assert revision_conflict_from_message(message) == RevisionConflict(7, 2, None, None)


def test_a_conflict_leaves_out_a_layout_that_is_too_large_and_says_so():
    standing = longest(dsv41_spec_layout=LARGE_LAYOUT)
    topology = group_of(standing, instance=Instance(WORST_ID, NOW))
    message = detail(topology, register(route(0), Instance(WORST_ID, NOW), expected_revision=1))
    assert message.layout_omitted
    assert message.standing_route == route_to_message(replace(standing, dsv41_spec_layout=None))
    assert revision_conflict_from_message(message).layout_omitted


def test_a_mismatch_carries_every_field_with_both_values():
    message = detail(group_of(route(0)), register(route(1, page_size=128, enable_kv_cache_sharding=True)))
    assert message == pb.ContractMismatch(
        mismatches=[
            pb.FieldMismatch(
                field="page_size", standing_value="64", offered_value="128", held_by=rank_key_to_message(FIRST)
            ),
            pb.FieldMismatch(
                field="enable_kv_cache_sharding",
                standing_value="false",
                offered_value="true",
                held_by=rank_key_to_message(FIRST),
            ),
        ],
        total_count=2,
    )


def test_a_mismatch_of_large_layouts_is_cut_around_their_difference_and_says_so():
    other = replace(LARGE_LAYOUT, kv_item_lens=(2**40,) * 999 + (777,))
    message = detail(group_of(route(0, dsv41_spec_layout=LARGE_LAYOUT)), register(route(1, dsv41_spec_layout=other)))
    assert message.truncated
    assert message.total_count == 1
    (mismatch,) = message.mismatches
    assert mismatch.field == "dsv41_spec_layout"
    assert mismatch.standing_value.startswith("...")
    assert "1099511627776]" in mismatch.standing_value
    assert "777]" in mismatch.offered_value


def test_the_worst_mismatch_still_fits_and_counts_whole():
    sizes = ParallelSizes(2, 2, 2, 2)
    standing = longest(dsv41_spec_layout=LARGE_LAYOUT, pools=tuple(range(1, 24)), sizes=sizes)
    offered = longest(
        key=RankKey(1, 1, 1, 1),
        sizes=ParallelSizes(3, 3, 3, 3),
        page_size=2**32 - 1,
        kv_cache_dtype="\U0001f601" * 64,
        kv_layout="\U0001f601" * 64,
        dsv41_spec_layout=DECLARED_NONE,
        load_balance_method="\U0001f601" * 64,
        enable_dsa_cache_layer_split=True,
        enable_kv_cache_sharding=True,
        decode_allocation_policy="\U0001f601" * 64,
        pools=(1,),
    )
    message = detail(group_of(standing), register(offered))
    assert message.truncated
    assert message.total_count == 13
    assert [mismatch.field for mismatch in message.mismatches] == [
        *("sizes.dp", "sizes.cp", "sizes.tp", "sizes.pp"),
        *("page_size", "kv_cache_dtype", "kv_layout", "dsv41_spec_layout", "load_balance_method"),
        *("enable_dsa_cache_layer_split", "enable_kv_cache_sharding", "decode_allocation_policy", "pools"),
    ]
    assert message.mismatches[-1].offered_value == "kv"


def test_a_stale_instance_carries_the_floor():
    message = detail(group_of(route(0), instance=LATER_LAUNCH), register(route(0), LAUNCH))
    assert message == pb.StaleInstance(floor=instance_to_message(LATER_LAUNCH))
    assert stale_instance_from_message(message) == StaleInstance(LATER_LAUNCH)


def test_a_stale_incarnation_carries_the_newest():
    message = detail(group_of(route(0)), register(route(0, incarnation=1)))
    assert message == pb.StaleIncarnation(key=rank_key_to_message(FIRST), newest_incarnation=100)
    assert stale_incarnation_from_message(message) == StaleIncarnation(FIRST, 100, deregistered=False)


def test_faults_of_fields_have_no_typed_detail_of_ours():
    assert refusal_details(refused(Topology.empty("g"), register(route(rank_port=0)))) == ()


def test_not_ready_carries_the_state():
    message = not_ready_detail(group_of(route(1)))
    assert message.state.missing_keys == [bootstrap_pb2.RankKey()]
    assert (message.state.missing_count, message.state.registered, message.state.expected) == (1, 1, 2)


@pytest.mark.parametrize("sizes", [ParallelSizes(200, 1, 160, 2), ParallelSizes(1, 1, 1, 65_536)])
def test_not_ready_of_the_largest_groups_fits_and_counts_whole(sizes):
    instance = Instance("i" * 128, NOW)
    keys = list(sizes.rank_keys())[-200:]
    topology = group_of(*(route(key=key, sizes=sizes) for key in keys[1:]), instance=instance)
    topology = accepted(topology, register(route(key=keys[0], sizes=sizes, kv_layout="page_first"), instance))
    message = not_ready_detail(replace(topology, group="g" * 63))
    assert message.ByteSize() <= MAX_DETAIL_BYTES
    assert message.state.missing_count == sizes.product - 200
    assert message.state.undeclared_count == 199
    assert len(message.state.missing_keys) == len(message.state.undeclared_keys) == 64
