"""Registering and deregistering routes over gRPC: what stands, what is refused, and what the refusal tells."""

import asyncio

import grpc
import pytest

from bootstrap.calls import INSTANCE, instance, key, refused, registration, route
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1 import errors_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.kv.v1 import pool_name_pb2


async def state(stub, group="default"):
    groups = (await stub.ListGroups(pb.ListGroupsRequest())).groups
    return next((listed for listed in groups if listed.group == group), None)


async def snapshot(stub, group=""):
    watch = stub.WatchTopology(pb.WatchTopologyRequest(group=group))
    message = await watch.read()
    watch.cancel()
    return message


async def test_two_ranks_make_a_group_of_two_ready(stub):
    first = await stub.RegisterRoute(registration(0))
    assert (first.epoch, first.registered, first.expected, first.ready) == (1, 1, 2, False)
    second = await stub.RegisterRoute(registration(1))
    assert (second.epoch, second.registered, second.expected, second.ready) == (1, 2, 2, True)
    assert second.revision == first.revision + 1
    assert not second.HasField("lease")


async def test_a_rank_that_registers_twice_counts_once_and_the_missing_key_is_named(stub):
    first = await stub.RegisterRoute(registration(0))
    again = await stub.RegisterRoute(registration(0))
    assert again == first
    refusal = await refused(stub.GetPrefillServerInfo(pb.GetPrefillServerInfoRequest()))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_READY")
    detail = refusal.detail(errors_pb2.NotReady).state
    assert list(detail.missing_keys) == [key(1)]
    assert (detail.registered, detail.expected, detail.missing_count) == (1, 2, 1)


async def test_a_rank_that_restarts_on_another_port_replaces_its_route_in_one_revision(stub):
    first = await stub.RegisterRoute(registration(0))
    second = await stub.RegisterRoute(registration(0, incarnation=2, rank_port=7777))
    assert second.revision == first.revision + 1
    answer = await stub.GetRankInfo(pb.GetRankInfoRequest(key=key(0)))
    assert (answer.rank_ip, answer.rank_port) == ("10.0.0.1", 7777)


async def test_every_difference_comes_in_one_refusal_with_both_values_and_the_holder(stub):
    await stub.RegisterRoute(registration(0))
    before = await snapshot(stub)
    offered = registration(
        1,
        sizes=pb.ParallelSizes(dp=1, cp=1, tp=4, pp=1),
        page_size=128,
        kv_cache_dtype="fp8_e4m3",
        load_balance_method="round_robin",
        enable_kv_cache_sharding=True,
        decode_allocation_policy="late",
    )
    refusal = await refused(stub.RegisterRoute(offered))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "CONTRACT_MISMATCH")
    detail = refusal.detail(errors_pb2.ContractMismatch)
    assert {(each.field, each.standing_value, each.offered_value) for each in detail.mismatches} == {
        ("sizes.tp", "2", "4"),
        ("page_size", "64", "128"),
        ("kv_cache_dtype", "bfloat16", "fp8_e4m3"),
        ("load_balance_method", "follow_bootstrap_room", "round_robin"),
        ("enable_kv_cache_sharding", "false", "true"),
        ("decode_allocation_policy", "early", "late"),
    }
    assert all(each.held_by == key(0) for each in detail.mismatches)
    assert (detail.total_count, detail.truncated) == (6, False)
    assert await snapshot(stub) == before


async def test_a_request_with_several_faults_names_each_field_and_leaves_nothing(stub):
    request = registration(0, rank_port=70_000)
    request.route.page_size = 0
    request.route.rank_ip = "0.0.0.0"
    request.route.key.tp = 2
    request.route.pools.extend([pool_name_pb2.POOL_NAME_UNSPECIFIED, 4096])
    request.ClearField("instance")
    refusal = await refused(stub.RegisterRoute(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert set(refusal.fields) == {
        "route.rank_port",
        "route.page_size",
        "route.rank_ip",
        "route.key.tp",
        "route.pools[0]",
        "route.pools[1]",
        "instance",
    }
    assert await state(stub) is None


@pytest.mark.parametrize("group", ["Upper", "a.b", "-a", "a-", "x" * 64, "a/b", "a\0b", "ä"])
async def test_a_group_that_is_no_dns_label_is_refused(stub, group):
    refusal = await refused(stub.RegisterRoute(registration(0, group=group)))
    assert (refusal.reason, refusal.fields) == ("INVALID_FIELD", ["group"])


async def test_the_empty_group_is_the_default_one(stub):
    answer = await stub.RegisterRoute(registration(0))
    assert await stub.RegisterRoute(registration(0, group="default")) == answer


async def test_a_loser_of_compare_and_swap_gets_all_it_needs_to_decide(stub):
    first = await stub.RegisterRoute(registration(0))
    request = registration(0, incarnation=2, rank_port=7777)
    request.expected_revision = first.revision - 1
    refusal = await refused(stub.RegisterRoute(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "REVISION_CONFLICT")
    assert refusal.detail(errors_pb2.RevisionConflict) == errors_pb2.RevisionConflict(
        revision=first.revision, epoch=1, instance=INSTANCE, standing_route=route(0)
    )
    request.expected_revision = first.revision
    assert (await stub.RegisterRoute(request)).revision == first.revision + 1


async def test_the_answer_is_lost_and_the_client_sends_again_one_row_and_the_same_revision(stub):
    request = registration(0)
    request.expected_revision = 0
    first = await stub.RegisterRoute(request)
    assert await stub.RegisterRoute(request) == first


async def test_64_clients_that_swap_at_once_all_stand_with_64_revisions(service):
    sizes = pb.ParallelSizes(dp=2, cp=2, tp=4, pp=4)
    keys = [
        pb.RankKey(dp=dp, cp=cp, tp=tp, pp=pp)
        for dp in range(2)
        for cp in range(2)
        for tp in range(4)
        for pp in range(4)
    ]
    everyone_is_here = asyncio.Barrier(len(keys))
    aborted = 0

    async def add(rank: pb.RankKey) -> int:
        nonlocal aborted
        # A connection of its own: as real ranks come.
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(service.address, options=options) as channel:
            stub = BootstrapServiceStub(channel)
            request = registration(0, sizes=sizes)
            request.route.key.CopyFrom(rank)
            request.expected_revision = 0
            await everyone_is_here.wait()
            while True:
                try:
                    return (await stub.RegisterRoute(request)).revision
                except grpc.aio.AioRpcError as error:
                    refusal = await refused(_raise(error))
                    assert refusal.code is grpc.StatusCode.ABORTED
                    aborted += 1
                    request.expected_revision = refusal.detail(errors_pb2.RevisionConflict).revision

    revisions = sorted(await asyncio.gather(*map(add, keys)))
    assert revisions == list(range(revisions[0], revisions[0] + 64))
    assert aborted >= 63  # all but one began with a revision that was gone
    message = await snapshot(service.stub)
    assert message.revision == revisions[-1]
    assert [listed.key for listed in message.snapshot.routes] == keys
    assert message.snapshot.state.ready


async def _raise(error):
    raise error


async def test_a_deregistered_route_is_gone_and_its_incarnation_cannot_come_back(stub):
    await stub.RegisterRoute(registration(0))
    gone = await stub.DeregisterRoute(pb.DeregisterRouteRequest(key=key(0), instance=INSTANCE, incarnation=1))
    assert gone.removed
    refusal = await refused(stub.RegisterRoute(registration(0)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "STALE_INCARNATION")
    assert refusal.detail(errors_pb2.StaleIncarnation) == errors_pb2.StaleIncarnation(
        key=key(0), newest_incarnation=1, deregistered=True
    )
    assert (await stub.RegisterRoute(registration(0, incarnation=2))).revision == gone.revision + 1


@pytest.mark.parametrize(
    "other",
    [
        {"incarnation": 2},
        {"incarnation": 1, "instance": instance(2)},
        {"incarnation": 1, "key": key(1)},
        {"incarnation": 1, "group": "nobody-here"},
    ],
)
async def test_deregistering_what_is_not_held_changes_nothing_and_is_no_error(stub, other):
    await stub.RegisterRoute(registration(0))
    before = await snapshot(stub)
    request = pb.DeregisterRouteRequest(**{"key": key(0), "instance": INSTANCE, **other})
    assert not (await stub.DeregisterRoute(request)).removed
    assert await snapshot(stub) == before


async def test_a_later_launch_starts_an_epoch_and_the_older_one_is_refused_for_good(stub):
    await stub.RegisterRoute(registration(0))
    await stub.RegisterRoute(registration(1))
    wider = pb.ParallelSizes(dp=1, cp=1, tp=4, pp=1)
    answer = await stub.RegisterRoute(registration(0, launch=2, sizes=wider))
    assert (answer.epoch, answer.registered, answer.expected, answer.ready) == (2, 1, 4, False)
    refusal = await refused(stub.RegisterRoute(registration(1)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "STALE_INSTANCE")
    assert refusal.detail(errors_pb2.StaleInstance).floor == instance(2)


async def test_a_forced_epoch_drops_the_routes_and_moves_the_floor_downwards(stub):
    await stub.RegisterRoute(registration(0, launch=9))
    await refused(stub.RegisterRoute(registration(0, launch=1)))
    forced = await stub.ForceEpoch(pb.ForceEpochRequest(floor=instance(1)))
    assert (forced.epoch, forced.dropped_routes) == (2, 1)
    answer = await stub.RegisterRoute(registration(0, launch=1))
    assert (answer.revision, answer.registered) == (forced.revision + 1, 1)


async def test_forcing_an_epoch_of_an_unknown_group_is_refused_and_makes_no_group(stub):
    refusal = await refused(stub.ForceEpoch(pb.ForceEpochRequest(group="nobody-here")))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_GROUP")
    assert await state(stub, "nobody-here") is None


async def test_one_group_more_than_the_server_keeps_is_refused(start_service):
    stub = (await start_service(max_groups=2)).stub
    await stub.RegisterRoute(registration(0, group="a"))
    await stub.RegisterRoute(registration(0, group="b"))
    refusal = await refused(stub.RegisterRoute(registration(0, group="c")))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_GROUPS")
    assert (await stub.RegisterRoute(registration(1, group="a"))).registered == 2


async def test_details_stay_small_with_thousands_of_missing_ranks_and_long_layouts(stub):
    sizes = pb.ParallelSizes(dp=8, cp=8, tp=8, pp=8)
    long_layout = registration(0, sizes=sizes)
    long_layout.route.dsv41_spec_layout.layout.kv_item_lens.extend(range(2**40, 2**40 + 2_000))
    first = await stub.RegisterRoute(long_layout)
    not_ready = await refused(stub.GetPrefillServerInfo(pb.GetPrefillServerInfoRequest()))
    detail = not_ready.detail(errors_pb2.NotReady).state
    assert detail.missing_count == 4095
    assert 0 < len(detail.missing_keys) <= 64

    other_layout = registration(1, sizes=sizes)
    other_layout.route.dsv41_spec_layout.layout.kv_item_lens.extend(range(2**41, 2**41 + 2_000))
    mismatch = (await refused(stub.RegisterRoute(other_layout))).detail(errors_pb2.ContractMismatch)
    assert [each.field for each in mismatch.mismatches] == ["dsv41_spec_layout"]
    assert mismatch.truncated

    long_layout.route.rank_port = 1
    long_layout.expected_revision = first.revision + 5
    conflict = (await refused(stub.RegisterRoute(long_layout))).detail(errors_pb2.RevisionConflict)
    assert conflict.layout_omitted
    assert not conflict.standing_route.HasField("dsv41_spec_layout")
    assert conflict.standing_route.rank_port == 9000
