"""Reading a group: the aggregate, one rank, the list, the compatibility check, and waiting for a revision."""

import asyncio

import grpc
import pytest

from bootstrap.calls import INSTANCE, key, refused, registration
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.kv.v1 import pool_name_pb2


async def make_ready(stub, **changed):
    await stub.RegisterRoute(registration(0, **changed))
    return await stub.RegisterRoute(registration(1, **changed))


async def test_the_aggregate_of_a_ready_group_has_the_shared_values_with_the_defaults_filled_in(stub):
    pools = [pool_name_pb2.POOL_NAME_SWA, pool_name_pb2.POOL_NAME_KV]
    ready = await make_ready(stub, pools=pools, kv_layout="nhd", prefill_http_port=30000)
    answer = await stub.GetPrefillServerInfo(pb.GetPrefillServerInfoRequest())
    assert answer == pb.GetPrefillServerInfoResponse(
        info=pb.PrefillServerInfo(
            sizes=pb.ParallelSizes(dp=1, cp=1, tp=2, pp=1),
            page_size=64,
            kv_cache_dtype="bfloat16",
            kv_layout="nhd",
            load_balance_method="follow_bootstrap_room",
            decode_allocation_policy="early",
            pools=sorted(pools),
            prefill_http_port=30000,
        ),
        revision=ready.revision,
        epoch=1,
        instance=INSTANCE,
    )


@pytest.mark.parametrize(
    ("method", "request_message"),
    [
        ("GetPrefillServerInfo", pb.GetPrefillServerInfoRequest(group="nobody-here")),
        ("GetRankInfo", pb.GetRankInfoRequest(group="nobody-here", key=pb.RankKey())),
        (
            "CheckCompatibility",
            pb.CheckCompatibilityRequest(
                group="nobody-here",
                decode_server=pb.DecodeServer(page_size=1, sizes=pb.ParallelSizes(dp=1, cp=1, tp=1, pp=1)),
            ),
        ),
    ],
)
async def test_a_group_that_nobody_registered_in_is_unknown(stub, method, request_message):
    refusal = await refused(getattr(stub, method)(request_message))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_GROUP")
    assert "nobody-here" in refusal.message


async def test_a_live_rank_is_found_also_while_its_group_is_not_ready(stub):
    await stub.RegisterRoute(registration(1))
    answer = await stub.GetRankInfo(pb.GetRankInfoRequest(key=key(1)))
    assert (answer.rank_ip, answer.rank_port, answer.epoch) == ("10.0.0.1", 9001, 1)


async def test_a_rank_that_has_yet_to_come_is_not_ready_and_one_outside_the_sizes_unknown(stub):
    await stub.RegisterRoute(registration(1))
    to_come = await refused(stub.GetRankInfo(pb.GetRankInfoRequest(key=key(0))))
    assert (to_come.code, to_come.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_READY")
    outside = await refused(stub.GetRankInfo(pb.GetRankInfoRequest(key=key(2))))
    assert (outside.code, outside.reason) == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_RANK")


async def test_a_rank_request_without_a_key_is_refused(stub):
    refusal = await refused(stub.GetRankInfo(pb.GetRankInfoRequest()))
    assert (refusal.reason, refusal.fields) == ("INVALID_FIELD", ["key"])


async def test_groups_come_in_pages_in_the_order_of_their_names(stub):
    names = [f"group-{number}" for number in range(7)]
    for name in reversed(names):
        await stub.RegisterRoute(registration(0, group=name))
    seen, token, pages = [], "", 0
    while True:
        page = await stub.ListGroups(pb.ListGroupsRequest(page_size=3, page_token=token))
        seen += [group.group for group in page.groups]
        pages += 1
        token = page.next_page_token
        if not token:
            break
    assert (seen, pages) == (names, 3)


@pytest.mark.parametrize("token", ["!", "abc", "\n", "/w=="])
async def test_a_page_token_of_ones_own_is_refused(stub, token):
    refusal = await refused(stub.ListGroups(pb.ListGroupsRequest(page_token=token)))
    assert (refusal.reason, refusal.fields) == ("INVALID_FIELD", ["page_token"])


async def test_a_group_lists_with_what_it_still_lacks(stub):
    answer = await stub.RegisterRoute(registration(0))
    assert list((await stub.ListGroups(pb.ListGroupsRequest())).groups) == [
        pb.GroupState(
            group="default",
            revision=answer.revision,
            epoch=1,
            instance=INSTANCE,
            floor=INSTANCE,
            registered=1,
            expected=2,
            missing_keys=[key(1)],
            missing_count=1,
        )
    ]


async def test_a_decode_server_hears_every_violation_before_it_starts(stub):
    await make_ready(stub, pools=[pool_name_pb2.POOL_NAME_KV])
    decode_server = pb.DecodeServer(
        page_size=32,
        kv_cache_dtype="fp8_e4m3",
        sizes=pb.ParallelSizes(dp=1, cp=2, tp=3, pp=4),
        pools=[pool_name_pb2.POOL_NAME_SWA],
    )
    answer = await stub.CheckCompatibility(pb.CheckCompatibilityRequest(decode_server=decode_server))
    assert answer.ready
    assert [(each.field, each.prefill_value, each.decode_value) for each in answer.incompatibilities] == [
        ("page_size", "64", "32"),
        ("kv_cache_dtype", "bfloat16", "fp8_e4m3"),
        ("pools", "kv", "swa"),
        ("sizes.cp", "1", "2"),
        ("sizes.tp", "2", "3"),
        ("sizes.pp", "1", "4"),
    ]
    fitting = pb.DecodeServer(page_size=64, sizes=pb.ParallelSizes(dp=8, cp=1, tp=8, pp=1))
    answer = await stub.CheckCompatibility(pb.CheckCompatibilityRequest(decode_server=fitting))
    assert not answer.incompatibilities


async def test_compatibility_is_judged_before_the_group_is_ready(stub):
    await stub.RegisterRoute(registration(0))
    decode_server = pb.DecodeServer(page_size=32, sizes=pb.ParallelSizes(dp=1, cp=1, tp=2, pp=1))
    answer = await stub.CheckCompatibility(pb.CheckCompatibilityRequest(decode_server=decode_server))
    assert not answer.ready
    assert [each.field for each in answer.incompatibilities] == ["page_size"]


async def test_a_read_waits_for_the_revision_that_it_asks_for(stub):
    first = await stub.RegisterRoute(registration(0))
    request = pb.GetPrefillServerInfoRequest(min_revision=first.revision + 1)
    reading = asyncio.ensure_future(stub.GetPrefillServerInfo(request, timeout=30))
    # The read is at the server once a later call of the same connection was answered.
    await stub.ListGroups(pb.ListGroupsRequest())
    assert not reading.done()
    await stub.RegisterRoute(registration(1))
    assert (await reading).revision == first.revision + 1


async def test_a_read_waits_for_a_group_that_is_to_come(stub):
    reading = asyncio.ensure_future(stub.GetRankInfo(pb.GetRankInfoRequest(key=key(0), min_revision=1), timeout=30))
    await stub.ListGroups(pb.ListGroupsRequest())
    await stub.RegisterRoute(registration(0))
    assert (await reading).rank_port == 9000


async def test_a_revision_that_does_not_come_ends_the_read_at_its_deadline(stub):
    first = await stub.RegisterRoute(registration(0))
    request = pb.GetRankInfoRequest(key=key(0), min_revision=first.revision + 1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.GetRankInfo(request, timeout=0.5)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
