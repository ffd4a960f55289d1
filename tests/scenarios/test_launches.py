"""Scenarios from public reports: launches that follow one another, race, or have a wrong clock; ranks that restart."""

import asyncio
import time

import grpc
import pytest

from bootstrap.calls import INSTANCE, instance, key, refused, registration
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1 import errors_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from scenarios.reads import deregister, info, not_ready, renew, snapshot

TP4 = pb.ParallelSizes(dp=1, cp=1, tp=4, pp=1)


async def test_a_group_that_comes_back_with_another_tp_is_never_a_mixture(stub, group, watch):
    for tp in range(2):
        await stub.RegisterRoute(registration(tp, group=group))
    watcher = await watch(group)
    over = asyncio.Event()
    answers = []

    async def ask() -> None:
        while not over.is_set():
            try:
                answers.append(await info(stub, group))
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE  # noqa: PT017
                await asyncio.sleep(0)

    asking = asyncio.ensure_future(ask())
    try:
        for tp in (3, 0, 2):
            answer = await stub.RegisterRoute(registration(tp, launch=2, group=group, sizes=TP4))
            assert (answer.epoch, answer.expected, answer.ready) == (2, 4, False)
            await not_ready(stub, group)
        answer = await stub.RegisterRoute(registration(1, launch=2, group=group, sizes=TP4))
        assert (answer.registered, answer.ready) == (4, True)
        ready = await info(stub, group)
        assert (ready.info.sizes, ready.epoch, ready.instance) == (TP4, 2, instance(2))
        await watcher.until(lambda state: state.revision == answer.revision)
    finally:
        over.set()
        await asking
    assert {(each.info.sizes.tp, each.epoch) for each in answers} <= {(2, 1), (4, 2)}
    # The validator of the watch refuses rows of two sizes together; the state says how far each epoch had come.
    assert [(each.epoch, each.registered, each.ready) for each in watcher.states] == [
        (1, 2, True),
        (2, 1, False),
        (2, 2, False),
        (2, 3, False),
        (2, 4, True),
    ]


async def test_late_ranks_of_an_older_launch_are_refused_for_good(stub, group):
    await stub.RegisterRoute(registration(0, launch=1, group=group, sizes=TP4))
    await stub.RegisterRoute(registration(0, launch=2, group=group, sizes=TP4))
    for tp in range(4):  # rank 0 was there before, the others were never seen
        refusal = await refused(stub.RegisterRoute(registration(tp, launch=1, group=group, sizes=TP4, incarnation=9)))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "STALE_INSTANCE")
        assert refusal.detail(errors_pb2.StaleInstance).floor == instance(2)

    assert (await deregister(stub, group, key(0), instance(2))).removed
    assert (await snapshot(stub, group)).state.registered == 0
    request = registration(1, launch=1, group=group)
    request.expected_revision = 0
    assert (await refused(stub.RegisterRoute(request))).reason == "STALE_INSTANCE"
    assert (await stub.RegisterRoute(registration(1, launch=2, group=group))).registered == 1


async def test_the_floor_holds_after_the_group_went_empty_and_the_server_was_killed(own_server, group):
    server = await own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = BootstrapServiceStub(channel)
        await stub.RegisterRoute(registration(0, launch=2, group=group))
        gone = await deregister(stub, group, key(0), instance(2))
    server.kill()
    await server.serve()
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = BootstrapServiceStub(channel)
        refusal = await refused(stub.RegisterRoute(registration(0, launch=1, group=group, incarnation=7)))
        assert refusal.detail(errors_pb2.StaleInstance).floor == instance(2)
        assert (await refused(stub.RegisterRoute(registration(0, launch=2, group=group)))).reason == "STALE_INCARNATION"
        assert (await stub.RegisterRoute(registration(0, launch=3, group=group))).revision == gone.revision + 1


async def test_two_launches_that_race_end_with_the_newer_one_alone(stub, group, watch):
    watcher = await watch(group)
    requests = [registration(tp, launch=launch, group=group, sizes=TP4) for tp in range(4) for launch in (1, 2)]

    async def register(request: pb.RegisterRouteRequest) -> str:
        try:
            await stub.RegisterRoute(request)
        except grpc.aio.AioRpcError:
            return (await refused(stub.RegisterRoute(request))).reason
        return "stands"

    outcomes = await asyncio.gather(*map(register, requests))
    assert outcomes[1::2] == ["stands"] * 4
    assert set(outcomes[::2]) <= {"stands", "STALE_INSTANCE"}
    state = await watcher.until(lambda state: state.ready and state.instance == instance(2))
    assert (state.registered, state.floor) == (4, instance(2))


async def test_a_launcher_whose_clock_is_an_hour_ahead_is_told_so(stub, group):
    request = registration(0, group=group)
    request.instance.started_at = time.time_ns() + 3_600 * 10**9
    refusal = await refused(stub.RegisterRoute(request))
    assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["instance.started_at"])
    assert "ahead of the server's clock" in refusal.message
    assert (await refused(info(stub, group))).reason == "UNKNOWN_GROUP"


async def test_an_admin_mends_a_floor_that_a_wrong_clock_set_too_high(stub, group, watch):
    ahead = registration(0, group=group)
    ahead.instance.CopyFrom(pb.Instance(id="launch-99", started_at=time.time_ns() + 50 * 10**9))
    await stub.RegisterRoute(ahead)
    watcher = await watch(group)
    refusal = await refused(stub.RegisterRoute(registration(0, launch=1, group=group)))
    assert refusal.detail(errors_pb2.StaleInstance).floor == ahead.instance

    forced = await stub.ForceEpoch(pb.ForceEpochRequest(group=group, floor=instance(1)))
    assert (forced.epoch, forced.dropped_routes) == (2, 1)
    mended = await stub.RegisterRoute(registration(0, launch=1, group=group))
    assert (mended.revision, mended.epoch) == (forced.revision + 1, 3)
    state = await watcher.until(lambda state: state.revision == mended.revision)
    assert (state.instance, state.floor) == (instance(1), instance(1))


async def test_what_a_dead_process_of_a_restarted_rank_sends_late_touches_nothing(stub, group):
    request = registration(0, group=group, incarnation=1)
    request.lease_ttl.FromSeconds(600)
    await stub.RegisterRoute(request)
    restarted = registration(0, group=group, incarnation=2, rank_port=7777)
    restarted.lease_ttl.FromSeconds(600)
    await stub.RegisterRoute(restarted)
    await stub.RegisterRoute(registration(1, group=group))
    before = await snapshot(stub, group)

    gone = await deregister(stub, group, key(0), INSTANCE, incarnation=1)
    assert (gone.removed, gone.revision) == (False, before.state.revision)
    assert await renew(stub, group, key(0), INSTANCE, incarnation=1) == 0
    refusal = await refused(stub.RegisterRoute(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "STALE_INCARNATION")
    stale = refusal.detail(errors_pb2.StaleIncarnation)
    assert (stale.key, stale.newest_incarnation, stale.deregistered) == (key(0), 2, False)

    assert await snapshot(stub, group) == before
    assert await renew(stub, group, key(0), INSTANCE, incarnation=2) == 600


async def test_a_restarted_rank_corrects_its_page_size_where_no_other_row_holds_the_wrong_one(stub, group):
    await stub.RegisterRoute(registration(0, group=group, page_size=128))
    corrected = await stub.RegisterRoute(registration(0, group=group, incarnation=2, page_size=64))
    assert corrected.registered == 1
    assert (await stub.RegisterRoute(registration(1, group=group, page_size=64))).ready
    assert (await info(stub, group)).info.page_size == 64


async def test_a_restarted_rank_cannot_change_its_page_size_while_another_row_holds_it(stub, group):
    for tp in range(2):
        await stub.RegisterRoute(registration(tp, group=group, page_size=128))
    refusal = await refused(stub.RegisterRoute(registration(0, group=group, incarnation=2, page_size=64)))
    (mismatch,) = refusal.detail(errors_pb2.ContractMismatch).mismatches
    assert (mismatch.field, mismatch.held_by) == ("page_size", key(1))


@pytest.mark.parametrize("launch", [1, 2])
async def test_a_deregistration_of_another_launch_removes_nothing(stub, group, launch):
    await stub.RegisterRoute(registration(0, launch=3 - launch, group=group))
    gone = await deregister(stub, group, key(0), instance(launch))
    assert not gone.removed
    assert (await snapshot(stub, group)).state.registered == 1
