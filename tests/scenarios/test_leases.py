"""Scenarios from public reports: ranks whose lease runs out, and who come back."""

import sys
from pathlib import Path

from bootstrap.calls import INSTANCE, key, registration, route
from faults.processes import ServerProcess
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from scenarios.reads import not_ready, renew


def leased(tp: int, group: str, seconds: int) -> pb.RegisterRouteRequest:
    request = registration(tp, group=group)
    request.lease_ttl.FromSeconds(seconds)
    return request


def events_of(watcher, revision: int) -> list[pb.TopologyEvent]:
    return [pb.TopologyEvent.FromString(event) for event in watcher.record.events[revision]]


async def test_a_rank_whose_lease_ran_out_leaves_is_unknown_and_joins_again(stub, group, watch):
    answer = await stub.RegisterRoute(leased(0, group, 2))
    assert answer.lease.ttl.seconds == 2
    second = await stub.RegisterRoute(leased(1, group, 600))
    watcher = await watch(group)
    assert watcher.record.state.ready

    left = await watcher.until(lambda state: not state.ready)
    assert (left.revision, list(left.missing_keys)) == (second.revision + 1, [key(0)])
    assert events_of(watcher, left.revision) == [
        pb.TopologyEvent(route_removed=pb.RouteRemoved(key=key(0), incarnation=1))
    ]
    _, state = await not_ready(stub, group)
    assert list(state.missing_keys) == [key(0)]
    assert await renew(stub, group, key(0), INSTANCE) == 0
    assert await renew(stub, group, key(1), INSTANCE) == 600

    again = await stub.RegisterRoute(leased(0, group, 600))
    assert (again.revision, again.ready) == (left.revision + 1, True)
    await watcher.until(lambda state: state.ready)
    assert events_of(watcher, again.revision) == [pb.TopologyEvent(route_registered=pb.RouteRegistered(route=route(0)))]


async def test_a_rank_whose_host_slept_is_registered_again_by_the_sdk(server, stub, group, watch, tmp_path):
    """The host of a rank sleeps for longer than its lease: watchers see it leave; it wakes, and they see it join."""
    script = Path(__file__).with_name("kept_rank.py")
    rank = ServerProcess("rank", [sys.executable, str(script), server.address, group, "2"], tmp_path)
    watcher = await watch(group)
    rank.start()
    try:
        assert await rank.line() == "registered\n"
        joined = await watcher.until(lambda state: state.registered == 1)
        rank.stop()
        left = await watcher.until(lambda state: state.registered == 0)
        assert left.revision == joined.revision + 1
        rank.proceed()
        again = await watcher.until(lambda state: state.registered == 1)
        assert (again.revision, again.epoch) == (left.revision + 1, joined.epoch)
        assert [pb.TopologyEvent.WhichOneof(event, "event") for event in events_of(watcher, again.revision)] == [
            "route_registered"
        ]

        # And it says goodbye when it stops.
        assert rank.terminate() == 0
        gone = await watcher.until(lambda state: state.registered == 0)
        assert gone.revision == again.revision + 1
    finally:
        rank.kill()
