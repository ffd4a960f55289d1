"""Scenarios from public reports: ranks of one launch that register, again, late, wrongly, or half."""

import asyncio

import grpc
import pytest

from bootstrap.calls import INSTANCE, SIZES, key, refused, registration, route
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1 import errors_pb2
from interlock.kv.v1 import pool_name_pb2
from scenarios.reads import info, not_ready, snapshot


def long_layout(last: int) -> dict:
    """A layout of about 20 KB; two of them differ in their last number."""
    message = pb.Route()
    layout = message.dsv41_spec_layout.layout
    layout.num_draft_tokens = 2
    layout.kv_layer_ids.extend(range(1_000))
    layout.kv_item_lens.extend([2**62] * 1_999 + [last])
    return {"dsv41_spec_layout": message.dsv41_spec_layout}


async def test_a_rank_that_registers_twice_does_not_make_a_group_of_two_ready(stub, group):
    first = await stub.RegisterRoute(registration(0, group=group))
    again = await stub.RegisterRoute(registration(0, group=group))
    assert (again.revision, again.registered, again.expected, again.ready) == (first.revision, 1, 2, False)
    _, state = await not_ready(stub, group)
    assert (list(state.missing_keys), state.missing_count) == ([key(1)], 1)

    other = await stub.RegisterRoute(registration(1, group=group))
    assert (other.registered, other.ready) == (2, True)
    assert (await info(stub, group)).info.sizes == SIZES


@pytest.mark.parametrize("expected_revision", [None, 0])
async def test_an_answer_that_was_lost_is_given_again_one_row_and_the_same_revision(
    stub, group, watch, expected_revision
):
    watcher = await watch(group)
    request = registration(0, group=group)
    if expected_revision is not None:
        request.expected_revision = expected_revision
    first = await stub.RegisterRoute(request)
    assert await stub.RegisterRoute(request) == first
    await stub.RegisterRoute(registration(1, group=group))
    state = await watcher.until(lambda state: state.ready)
    assert state.revision == first.revision + 1
    assert [each.registered for each in watcher.states] == [0, 1, 2]
    assert list((await snapshot(stub, group)).routes) == [route(0), route(1)]


async def test_a_rank_that_restarts_on_a_new_port_is_one_event_and_a_delayed_write_loses(stub, group, watch):
    first = await stub.RegisterRoute(registration(0, group=group))
    watcher = await watch(group)
    moved = await stub.RegisterRoute(registration(0, group=group, incarnation=2, rank_port=7777))
    assert (moved.revision, moved.epoch) == (first.revision + 1, first.epoch)

    delayed = registration(0, group=group, incarnation=3, rank_port=6666)
    delayed.expected_revision = first.revision
    refusal = await refused(stub.RegisterRoute(delayed))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "REVISION_CONFLICT")
    assert refusal.detail(errors_pb2.RevisionConflict) == errors_pb2.RevisionConflict(
        revision=moved.revision,
        epoch=moved.epoch,
        instance=INSTANCE,
        standing_route=route(0, incarnation=2, rank_port=7777),
    )
    await watcher.until(lambda state: state.revision == moved.revision)
    (event,) = watcher.record.events[moved.revision]
    assert pb.TopologyEvent.FromString(event) == pb.TopologyEvent(
        route_registered=pb.RouteRegistered(route=route(0, incarnation=2, rank_port=7777))
    )
    assert len((await snapshot(stub, group)).routes) == 1


async def test_details_stay_small_with_4096_ranks_missing(stub, group):
    sizes = pb.ParallelSizes(dp=4, cp=4, tp=16, pp=17)
    await stub.RegisterRoute(registration(0, group=group, sizes=sizes))
    _, state = await not_ready(stub, group)  # which checks that all details are under 4 KiB
    assert (state.expected, state.missing_count, len(state.missing_keys)) == (4352, 4351, 64)


async def test_details_stay_small_with_two_long_layouts(stub, group):
    first = await stub.RegisterRoute(registration(0, group=group, **long_layout(1)))
    refusal = await refused(stub.RegisterRoute(registration(1, group=group, **long_layout(2))))
    (mismatch,) = refusal.detail(errors_pb2.ContractMismatch).mismatches
    assert mismatch.field == "dsv41_spec_layout"
    assert mismatch.standing_value != mismatch.offered_value

    request = registration(0, group=group, incarnation=2, **long_layout(1))
    request.expected_revision = first.revision + 1
    conflict = (await refused(stub.RegisterRoute(request))).detail(errors_pb2.RevisionConflict)
    assert conflict.layout_omitted
    assert conflict.standing_route == route(0)


async def test_the_same_launch_cannot_bring_another_layout_and_the_next_one_can(stub, group):
    with_layout = [registration(tp, group=group, **long_layout(1)) for tp in range(2)]
    for request in with_layout:
        await stub.RegisterRoute(request)
    before = await snapshot(stub, group)
    refusal = await refused(stub.RegisterRoute(registration(1, group=group, incarnation=2, **long_layout(2))))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "CONTRACT_MISMATCH")
    (mismatch,) = refusal.detail(errors_pb2.ContractMismatch).mismatches
    assert (mismatch.field, mismatch.held_by) == ("dsv41_spec_layout", key(0))
    # Long values are cut around the place where they part: both numbers can be seen.
    assert "4611686018427387904,1]" in mismatch.standing_value
    assert "4611686018427387904,2]" in mismatch.offered_value
    assert await snapshot(stub, group) == before

    for tp in range(2):
        answer = await stub.RegisterRoute(registration(tp, launch=2, group=group, **long_layout(2)))
    assert (answer.epoch, answer.ready) == (2, True)


async def test_every_difference_of_a_rank_comes_in_one_refusal_with_who_set_it(stub, group):
    sizes = pb.ParallelSizes(dp=1, cp=1, tp=3, pp=1)
    await stub.RegisterRoute(registration(0, group=group, sizes=sizes))
    await stub.RegisterRoute(registration(1, group=group, sizes=sizes, kv_layout="page_first"))
    before = await snapshot(stub, group)
    offered = registration(
        2,
        group=group,
        sizes=pb.ParallelSizes(dp=1, cp=1, tp=4, pp=1),
        page_size=128,
        kv_cache_dtype="fp8_e4m3",
        kv_layout="layer_first",
        load_balance_method="round_robin",
        enable_dsa_cache_layer_split=True,
        enable_kv_cache_sharding=True,
        decode_allocation_policy="late",
    )
    refusal = await refused(stub.RegisterRoute(offered))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "CONTRACT_MISMATCH")
    detail = refusal.detail(errors_pb2.ContractMismatch)
    assert [(each.field, each.standing_value, each.offered_value, each.held_by.tp) for each in detail.mismatches] == [
        ("sizes.tp", "3", "4", 0),
        ("page_size", "64", "128", 0),
        ("kv_cache_dtype", "bfloat16", "fp8_e4m3", 0),
        ("kv_layout", "page_first", "layer_first", 1),
        ("load_balance_method", "follow_bootstrap_room", "round_robin", 0),
        ("enable_dsa_cache_layer_split", "false", "true", 0),
        ("enable_kv_cache_sharding", "false", "true", 0),
        ("decode_allocation_policy", "early", "late", 0),
    ]
    assert (detail.total_count, detail.truncated) == (8, False)
    assert await snapshot(stub, group) == before


async def test_a_request_that_is_half_valid_leaves_nothing_of_its_valid_half(stub, group, watch):
    half = registration(0, group=group, page_size=128, kv_cache_dtype="fp8_e4m3", rank_port=70_000)
    half.route.pools.append(pool_name_pb2.POOL_NAME_UNSPECIFIED)
    refusal = await refused(stub.RegisterRoute(half))
    assert (refusal.reason, set(refusal.fields)) == ("INVALID_FIELD", {"route.rank_port", "route.pools[0]"})
    assert (await refused(info(stub, group))).reason == "UNKNOWN_GROUP"

    # Not even its page size or dtype stayed: others may come with their own.
    watcher = await watch(group)
    await asyncio.gather(*(stub.RegisterRoute(registration(tp, group=group)) for tp in range(2)))
    await watcher.until(lambda state: state.ready)
    before = await snapshot(stub, group)
    half.route.key.tp = 1
    await refused(stub.RegisterRoute(half))
    assert await snapshot(stub, group) == before
