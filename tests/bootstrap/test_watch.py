"""Following a group: snapshot, changes, progress, falling behind, and what a folded watch amounts to."""

import asyncio

import grpc
import pytest

from bootstrap.calls import INSTANCE, instance, key, refused, registration, route
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.topology import Topology
from interlock_bootstrap import watch_messages


@pytest.fixture
def watch():
    """Opens watches; ends them after the test."""
    calls = []

    def start(stub, **request):
        call = stub.WatchTopology(pb.WatchTopologyRequest(**request))
        calls.append(call)
        return call

    yield start
    for call in calls:
        call.cancel()


async def test_a_watch_begins_with_a_snapshot_and_goes_on_with_one_change_a_revision(stub, watch):
    first = await stub.RegisterRoute(registration(0))
    call = watch(stub)
    begin = await call.read()
    assert (begin.revision, begin.last, begin.WhichOneof("body")) == (first.revision, True, "snapshot")
    assert list(begin.snapshot.routes) == [route(0)]
    assert list(begin.snapshot.state.missing_keys) == [key(1)]

    second = await stub.RegisterRoute(registration(1))
    change = await call.read()
    assert (change.revision, change.last) == (second.revision, True)
    assert list(change.change.events) == [pb.TopologyEvent(route_registered=pb.RouteRegistered(route=route(1)))]
    assert change.change.state.ready

    third = await stub.DeregisterRoute(pb.DeregisterRouteRequest(key=key(0), instance=INSTANCE, incarnation=1))
    change = await call.read()
    assert change.revision == third.revision == second.revision + 1
    assert list(change.change.events) == [pb.TopologyEvent(route_removed=pb.RouteRemoved(key=key(0), incarnation=1))]
    assert not change.change.state.ready


async def test_a_new_launch_is_one_change_that_starts_the_epoch(stub, watch):
    await stub.RegisterRoute(registration(0))
    await stub.RegisterRoute(registration(1))
    call = watch(stub)
    await call.read()
    answer = await stub.RegisterRoute(registration(1, launch=2))
    change = await call.read()
    assert change.revision == answer.revision
    assert list(change.change.events) == [
        pb.TopologyEvent(epoch_started=pb.EpochStarted(epoch=2, instance=instance(2))),
        pb.TopologyEvent(route_registered=pb.RouteRegistered(route=route(1))),
    ]


async def test_a_group_that_nobody_registered_in_can_be_watched(stub, watch):
    call = watch(stub, group="to-come")
    begin = await call.read()
    assert (begin.revision, list(begin.snapshot.routes), begin.snapshot.state.group) == (0, [], "to-come")
    answer = await stub.RegisterRoute(registration(0, group="to-come"))
    assert (await call.read()).revision == answer.revision


async def test_a_watcher_that_is_current_gets_no_snapshot(stub, watch):
    first = await stub.RegisterRoute(registration(0))
    call = watch(stub, after_revision=first.revision)
    begin = await call.read()
    assert (begin.revision, begin.WhichOneof("body")) == (first.revision, "progress")
    second = await stub.RegisterRoute(registration(1))
    change = await call.read()
    assert (change.revision, change.WhichOneof("body")) == (second.revision, "change")


@pytest.mark.parametrize("distance", [-1, 1, 10**6])
async def test_a_watcher_at_any_other_revision_gets_a_snapshot(stub, watch, distance):
    first = await stub.RegisterRoute(registration(0))
    begin = await watch(stub, after_revision=first.revision + distance).read()
    assert begin.WhichOneof("body") == "snapshot"


async def test_progress_follows_every_change_up_to_its_revision(start_service, watch):
    stub = (await start_service(progress_seconds=0.05)).stub
    first = await stub.RegisterRoute(registration(0))
    call = watch(stub)
    assert (await call.read()).WhichOneof("body") == "snapshot"
    progress = await call.read()
    assert (progress.revision, progress.WhichOneof("body")) == (first.revision, "progress")
    second = await stub.RegisterRoute(registration(1))
    while (message := await call.read()).WhichOneof("body") == "progress":
        assert message.revision == first.revision
    assert (message.WhichOneof("body"), message.revision) == ("change", second.revision)
    progress = await call.read()
    assert (progress.revision, progress.WhichOneof("body")) == (second.revision, "progress")


async def test_other_groups_are_not_seen(stub, watch):
    await stub.RegisterRoute(registration(0, group="a"))
    call = watch(stub, group="a")
    await call.read()
    await stub.RegisterRoute(registration(0, group="ab"))
    await stub.RegisterRoute(registration(0))
    answer = await stub.RegisterRoute(registration(1, group="a"))
    assert (await call.read()).revision == answer.revision


async def test_a_large_snapshot_comes_in_parts_with_the_last_one_marked(stub, watch, monkeypatch):
    monkeypatch.setattr(watch_messages, "MESSAGE_BYTES", 200)
    sizes = pb.ParallelSizes(dp=1, cp=1, tp=16, pp=1)
    for tp in range(16):
        answer = await stub.RegisterRoute(registration(tp, sizes=sizes))
    call = watch(stub)
    routes, parts = [], 0
    while True:
        message = await call.read()
        assert message.revision == answer.revision
        routes += message.snapshot.routes
        parts += 1
        if message.last:
            break
    assert [listed.key.tp for listed in routes] == list(range(16))
    assert parts > 1


async def test_watchers_that_come_at_once_share_a_snapshot_and_a_later_one_gets_what_is_true_then(stub, watch):
    for tp in (0, 1):
        answer = await stub.RegisterRoute(registration(tp))
        snapshots = [await watch(stub).read() for _ in range(3)]
        assert [snapshot.revision for snapshot in snapshots] == [answer.revision] * 3
        assert [[row.key.tp for row in snapshot.snapshot.routes] for snapshot in snapshots] == [[*range(tp + 1)]] * 3


def test_snapshots_are_kept_of_a_few_groups_and_made_once():
    snapshots = watch_messages.Snapshots()
    topologies = [Topology.empty(f"group-{number}") for number in range(20)]
    first = {topology.group: [*snapshots.messages(topology)] for topology in topologies}
    assert len(snapshots._kept) == watch_messages.KEPT_SNAPSHOTS
    for topology in topologies[-watch_messages.KEPT_SNAPSHOTS :]:
        (again,) = snapshots.messages(topology)
        assert again is first[topology.group][0]
    (other,) = snapshots.messages(Topology.empty("group-19"))
    assert other is not first["group-19"][0]


async def test_a_watcher_that_falls_behind_gets_a_fresh_snapshot_in_the_same_stream(start_service, watch):
    service = await start_service(watch_buffer=4)
    await service.stub.RegisterRoute(registration(0))
    # A small window and large rows: the transport cannot hide that nobody reads.
    options = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(service.address, options=options) as channel:
        call = watch(BootstrapServiceStub(channel))
        begin = await call.read()
        count = 300
        for number in range(2, count + 2):
            request = registration(0, incarnation=number)
            request.route.dsv41_spec_layout.layout.kv_item_lens.extend([2**63] * 2_000)
            answer = await service.stub.RegisterRoute(request)
        revision, snapshots, changes = begin.revision, 0, 0
        while revision < answer.revision:
            message = await call.read()
            body = message.WhichOneof("body")
            if body == "snapshot":
                snapshots += 1
                incarnation = message.snapshot.routes[0].incarnation
            else:
                changes += 1
                assert message.revision == revision + 1
                incarnation = message.change.events[0].route_registered.route.incarnation
            revision = message.revision
            assert incarnation == 1 + revision - begin.revision
    assert snapshots >= 1
    assert snapshots + changes < count


async def test_one_watcher_more_than_the_server_allows_is_refused_and_its_place_is_free_again(start_service, watch):
    stub = (await start_service(max_watchers=2)).stub
    first, second = watch(stub), watch(stub)
    await first.read()
    await second.read()
    refusal = await refused(watch(stub).read())
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")
    first.cancel()
    async with asyncio.timeout(30):
        while True:
            try:
                await watch(stub).read()
                break
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.01)


async def test_a_server_that_stops_sends_its_watchers_elsewhere(service, watch):
    call = watch(service.stub)
    await call.read()
    stopping = asyncio.ensure_future(service.server.stop(30))
    refusal = await refused(call.read())
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    await stopping
