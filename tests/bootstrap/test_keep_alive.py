"""Leases over gRPC: granted with a route, renewed on one stream, expired in the sight of every watcher."""

import asyncio

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from bootstrap.calls import INSTANCE, instance, key, refused, registration
from interlock.bootstrap.v1 import bootstrap_pb2 as pb


def leased(tp=0, seconds=30.0, **changed):
    request = registration(tp, **changed)
    request.lease_ttl.FromNanoseconds(round(seconds * 1e9))
    return request


def lease(tp=0, group="", incarnation=1, launch=1):
    return pb.LeaseRef(group=group, key=key(tp), instance=instance(launch), incarnation=incarnation)


async def renewed(call, *leases):
    """What one message of renewals is answered, in seconds."""
    await call.write(pb.KeepAliveRequest(leases=leases))
    answer = await call.read()
    assert [renewal.lease for renewal in answer.renewals] == list(leases)
    return [renewal.ttl.ToMilliseconds() / 1_000 for renewal in answer.renewals]


async def test_a_registration_answers_the_lease_that_it_was_granted(stub):
    answer = await stub.RegisterRoute(leased(seconds=12.5))
    assert answer.lease == pb.Lease(ttl=Duration(seconds=12, nanos=500_000_000))
    assert not (await stub.RegisterRoute(registration(1))).HasField("lease")


@pytest.mark.parametrize(
    "ttl",
    [
        Duration(),
        Duration(nanos=999_000_000),
        Duration(seconds=-5),
        Duration(seconds=86_400, nanos=1),
        Duration(seconds=2**63 - 1, nanos=2**31 - 1),
        Duration(seconds=-(2**63), nanos=-(2**31)),
    ],
)
async def test_a_lease_outside_its_bounds_is_refused_with_its_field(stub, ttl):
    request = registration(0)
    request.lease_ttl.CopyFrom(ttl)
    refusal = await refused(stub.RegisterRoute(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert refusal.fields == ["lease_ttl"]


async def test_all_faults_of_a_registration_with_a_lease_come_at_once(stub):
    request = leased(seconds=0.5, group="-")
    refusal = await refused(stub.RegisterRoute(request))
    assert refusal.fields == ["group", "lease_ttl"]


async def test_one_stream_renews_the_leases_of_many_ranks_and_groups_in_their_order(stub):
    sizes = pb.ParallelSizes(dp=1, cp=1, tp=400, pp=1)
    for group, seconds in (("a", 30), ("b", 60)):
        await asyncio.gather(*(stub.RegisterRoute(leased(tp, seconds, group=group, sizes=sizes)) for tp in range(400)))
    call = stub.KeepAlive()
    leases = [lease(tp, group) for tp in range(400) for group in ("a", "b")]
    for _ in range(3):
        assert await renewed(call, *leases) == [30, 60] * 400
    assert await renewed(call) == []
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_a_lease_that_does_not_exist_has_no_time(stub):
    await stub.RegisterRoute(leased(0))
    await stub.RegisterRoute(registration(1))
    unknown = [
        lease(1),  # it stays without one
        lease(0, group="other"),
        lease(0, incarnation=2),
        lease(0, launch=2),
        lease(5),
    ]
    call = stub.KeepAlive()
    assert await renewed(call, *unknown, lease(0)) == [0, 0, 0, 0, 0, 30]
    await stub.DeregisterRoute(pb.DeregisterRouteRequest(key=key(0), instance=INSTANCE, incarnation=1))
    assert await renewed(call, lease(0)) == [0]


async def test_a_superseded_life_or_launch_renews_nothing(stub):
    await stub.RegisterRoute(leased(0))
    await stub.RegisterRoute(leased(0, seconds=40, incarnation=2))
    call = stub.KeepAlive()
    assert await renewed(call, lease(0), lease(0, incarnation=2)) == [0, 40]
    await stub.RegisterRoute(leased(1, seconds=50, launch=2))
    assert await renewed(call, lease(0, incarnation=2), lease(1, launch=2)) == [0, 50]


async def test_a_rank_that_stops_renewing_leaves_in_the_sight_of_watchers_and_comes_back(stub):
    await stub.RegisterRoute(leased(0, seconds=86_400))
    ready = await stub.RegisterRoute(leased(1, seconds=1))
    watch = stub.WatchTopology(pb.WatchTopologyRequest(after_revision=ready.revision))
    assert (await watch.read()).WhichOneof("body") == "progress"

    left = await watch.read()
    assert left.revision == ready.revision + 1
    (event,) = left.change.events
    assert event == pb.TopologyEvent(route_removed=pb.RouteRemoved(key=key(1), incarnation=1))
    assert (left.change.state.ready, list(left.change.state.missing_keys)) == (False, [key(1)])
    refusal = await refused(stub.GetPrefillServerInfo(pb.GetPrefillServerInfoRequest()))
    assert refusal.reason == "NOT_READY"
    assert await renewed(stub.KeepAlive(), lease(1)) == [0]

    again = await stub.RegisterRoute(leased(1))
    assert (again.revision, again.ready) == (ready.revision + 2, True)
    back = await watch.read()
    assert back.revision == again.revision
    assert [event.WhichOneof("event") for event in back.change.events] == ["route_registered"]
    assert back.change.state.ready
    watch.cancel()


async def test_a_lease_that_alone_changes_makes_no_revision(stub):
    first = await stub.RegisterRoute(leased(0, seconds=30))
    second = await stub.RegisterRoute(leased(0, seconds=60))
    assert (second.revision, second.lease.ttl.seconds) == (first.revision, 60)
    call = stub.KeepAlive()
    assert await renewed(call, lease(0)) == [60]
    await stub.RegisterRoute(registration(0))
    assert await renewed(call, lease(0)) == [0]


@pytest.mark.parametrize(
    ("named", "fields"),
    [
        (pb.LeaseRef(), ["leases[1].key", "leases[1].instance", "leases[1].incarnation"]),
        (lease(group="a b"), ["leases[1].group"]),
        (pb.LeaseRef(key=pb.RankKey(tp=2**31), instance=INSTANCE, incarnation=1), ["leases[1].key.tp"]),
        (pb.LeaseRef(key=key(0), instance=pb.Instance(id="x" * 129, started_at=1), incarnation=1),
         ["leases[1].instance.id"]),
    ],
)  # fmt: skip
async def test_a_lease_that_cannot_be_is_refused_with_its_fields(stub, named, fields):
    call = stub.KeepAlive()
    await call.write(pb.KeepAliveRequest(leases=[lease(0), named]))
    refusal = await refused(call.read())
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert refusal.fields == fields


async def test_more_renewals_than_a_message_may_have_are_refused(stub):
    call = stub.KeepAlive()
    assert await renewed(call, *([lease(0)] * 1_024)) == [0] * 1_024
    await call.write(pb.KeepAliveRequest(leases=[lease(0)] * 1_025))
    refusal = await refused(call.read())
    assert (refusal.reason, refusal.fields) == ("INVALID_FIELD", ["leases"])


async def test_a_server_that_stops_sends_those_who_renew_elsewhere(service):
    await service.stub.RegisterRoute(leased(0))
    call = service.stub.KeepAlive()
    assert await renewed(call, lease(0)) == [30]
    stopping = asyncio.ensure_future(service.server.stop(30))
    refusal = await refused(call.read())
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    await stopping
