"""A watch gives the state of a group, goes on by itself where it stopped, and leaves nothing behind."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from client.scripted import (
    PATIENCE,
    QUICK,
    Face,
    Script,
    bootstrap_servicer,
    hangs,
    refuses,
    serving,
    streams,
    unavailable,
)
from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.client import (
    AsyncBootstrapClient,
    BootstrapClient,
    CallCancelledError,
    DeadlineError,
    InterlockError,
    OverloadedError,
    RefusedError,
    UnexpectedAnswerError,
    UnreachableError,
    WatchChange,
    WatchProgress,
    WatchSnapshot,
)
from interlock.topology import (
    EpochStarted,
    Instance,
    ParallelSizes,
    RankKey,
    Route,
    RouteRegistered,
    RouteRemoved,
    Topology,
    changes,
)
from interlock.topology.messages import event_to_message, group_state_to_message, route_to_message
from interlock.topology.routes import Routes

LAUNCH = Instance("launch", 5)


def route(tp: int, incarnation: int = 1) -> Route:
    return Route(RankKey(0, 0, tp, 0), incarnation, ParallelSizes(1, 1, 4, 1), "10.0.0.1", 8998, 64)


def group(revision: int, *routes: Route, epoch: int = 1) -> Topology:
    return Topology("default", revision, epoch, LAUNCH, LAUNCH, Routes(routes))


def snapshot(topology: Topology, *routes: Route, last: bool = True) -> bootstrap_pb2.WatchTopologyResponse:
    return bootstrap_pb2.WatchTopologyResponse(
        revision=topology.revision,
        last=last,
        snapshot=bootstrap_pb2.TopologySnapshot(
            state=group_state_to_message(topology), routes=map(route_to_message, routes)
        ),
    )


def change(before: Topology, after: Topology) -> bootstrap_pb2.WatchTopologyResponse:
    return bootstrap_pb2.WatchTopologyResponse(
        revision=after.revision,
        last=True,
        change=bootstrap_pb2.TopologyChange(
            state=group_state_to_message(after), events=map(event_to_message, changes(before, after))
        ),
    )


def progress(revision: int) -> bootstrap_pb2.WatchTopologyResponse:
    return bootstrap_pb2.WatchTopologyResponse(revision=revision, last=True, progress=bootstrap_pb2.WatchProgress())


def watch(face: Face, count: int, script: Script, **kwargs: object) -> list:
    with serving(bootstrap_servicer(WatchTopology=script)) as address:
        items = face.take(count, face.bootstrap(address, retry=QUICK), "watch_topology", **kwargs)
        assert script.ended.wait(PATIENCE)
        return items


ONE = group(10, route(0))
TWO = group(11, route(0), route(1))
THREE = group(12, route(1, incarnation=2))


def test_a_watch_gives_the_state_and_then_every_change_with_the_state_after_it(face: Face) -> None:
    script = Script([streams(snapshot(ONE, route(0)), progress(10), change(ONE, TWO), change(TWO, THREE), then=hangs)])
    first, alive, second, third = watch(face, 4, script)
    assert isinstance(first, WatchSnapshot)
    assert (first.state.revision, first.state.instance, dict(first.routes)) == (10, LAUNCH, dict(ONE.routes))
    assert alive == WatchProgress(10)
    assert isinstance(second, WatchChange)
    assert second.events == (RouteRegistered(route(1)),)
    assert (second.state.registered, second.routes) == (2, TWO.routes)
    assert third.events == (RouteRemoved(RankKey(0, 0, 0, 0), 1), RouteRegistered(route(1, incarnation=2)))
    assert third.routes == THREE.routes


def test_a_new_epoch_forgets_the_routes_of_the_one_before(face: Face) -> None:
    relaunched = group(12, route(3), epoch=2)
    script = Script([streams(snapshot(TWO, route(0), route(1)), change(TWO, relaunched), then=hangs)])
    _, started = watch(face, 2, script)
    assert started.events == (EpochStarted(2, LAUNCH), RouteRegistered(route(3)))
    assert started.routes == relaunched.routes


def test_a_snapshot_in_parts_is_one_item(face: Face) -> None:
    parts = (snapshot(TWO, route(0), last=False), snapshot(TWO, route(1)))
    (item,) = watch(face, 1, Script([streams(*parts, then=hangs)]))
    assert item.routes == TWO.routes


def test_a_watch_goes_on_after_the_revision_that_it_knows(face: Face) -> None:
    script = Script(
        [
            unavailable,
            streams(snapshot(ONE, route(0)), then=unavailable),
            refuses("DRAINING", grpc.StatusCode.UNAVAILABLE),
            streams(),
            streams(change(ONE, TWO), progress(11), then=unavailable),
            streams(change(TWO, THREE), then=hangs),
        ]
    )
    items = watch(face, 4, script)
    assert [type(item) for item in items] == [WatchSnapshot, WatchChange, WatchProgress, WatchChange]
    assert items[-1].routes == THREE.routes
    asked = [request.after_revision if request.HasField("after_revision") else None for request in script.requests]
    assert asked == [None, None, 10, 10, 10, 11]


def test_a_snapshot_after_an_outage_gives_the_state_and_invents_no_events(face: Face) -> None:
    script = Script(
        [
            streams(snapshot(TWO, route(0), route(1)), then=unavailable),
            streams(snapshot(THREE, route(1, incarnation=2)), then=hangs),
        ]
    )
    _, after = watch(face, 2, script)
    assert isinstance(after, WatchSnapshot)
    assert after.routes == THREE.routes


def test_parts_of_a_snapshot_that_broke_off_are_forgotten(face: Face) -> None:
    script = Script(
        [
            streams(snapshot(TWO, route(0), last=False), then=unavailable),
            streams(snapshot(THREE, route(1, incarnation=2)), then=hangs),
        ]
    )
    (item,) = watch(face, 1, script)
    assert item.routes == THREE.routes


def test_a_watch_that_was_connected_outlives_more_failures_than_a_call_may_have(face: Face) -> None:
    failures = [unavailable] * (QUICK.attempts * 3)
    script = Script([streams(snapshot(ONE, route(0)), then=unavailable), *failures, streams(progress(10), then=hangs)])
    assert watch(face, 2, script)[1] == WatchProgress(10)


def test_a_watch_says_whenever_it_has_lost_its_server(face: Face) -> None:
    without_store = refuses("STORE_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE, "etcd does not answer")
    script = Script(
        [
            streams(snapshot(ONE, route(0)), then=unavailable),
            without_store,
            streams(progress(10)),
            streams(progress(10), then=hangs),
        ]
    )
    lost: list[InterlockError] = []
    assert len(watch(face, 3, script, on_lost=lost.append)) == 3
    assert [type(error) for error in lost] == [UnreachableError, RefusedError, UnreachableError]
    assert str(lost[1]).endswith("etcd does not answer")
    assert str(lost[2]).endswith("the server ended the watch")


def test_a_watch_that_never_connects_is_given_up(face: Face) -> None:
    script = Script([unavailable])
    with pytest.raises(UnreachableError):
        watch(face, 1, script)
    assert len(script.requests) == QUICK.attempts


def test_a_watch_that_is_refused_ends_with_the_refusal(face: Face) -> None:
    script = Script([refuses("OVERLOADED", grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watches")])
    with pytest.raises(OverloadedError, match="too many watches"):
        watch(face, 1, script)


def test_a_watch_ends_at_its_timeout(face: Face) -> None:
    with pytest.raises(DeadlineError):
        watch(face, 2, Script([streams(snapshot(ONE, route(0)), then=hangs)]), timeout=0.3)


@pytest.mark.parametrize(
    "messages",
    [
        [change(ONE, TWO)],
        [progress(10)],
        [
            bootstrap_pb2.WatchTopologyResponse(
                last=True, snapshot=bootstrap_pb2.TopologySnapshot(routes=[bootstrap_pb2.Route(page_size=64)])
            )
        ],
    ],
    ids=["a change first", "progress first", "a route without a key"],
)
def test_messages_against_the_contract_are_an_error(face: Face, messages: list) -> None:
    with pytest.raises(UnexpectedAnswerError):
        watch(face, 1, Script([streams(*messages, then=hangs)]))


async def test_leaving_an_asynchronous_loop_ends_the_call_while_the_client_lives_on() -> None:
    script = Script([streams(snapshot(ONE, route(0)), then=hangs)])
    with serving(bootstrap_servicer(WatchTopology=script)) as address:
        async with AsyncBootstrapClient(address) as client:
            async for _ in client.watch_topology():
                break
            assert await asyncio.to_thread(script.ended.wait, PATIENCE)


def test_leaving_a_synchronous_loop_ends_the_call_while_the_client_lives_on() -> None:
    script = Script([streams(snapshot(ONE, route(0)), then=hangs)])
    with serving(bootstrap_servicer(WatchTopology=script)) as address, BootstrapClient(address) as client:
        for _ in client.watch_topology():
            break
        assert script.ended.wait(PATIENCE)


def test_closing_the_client_ends_a_watch_of_another_thread_with_an_error() -> None:
    script = Script([streams(snapshot(ONE, route(0)), then=hangs)])
    with serving(bootstrap_servicer(WatchTopology=script)) as address:
        client = BootstrapClient(address, retry=QUICK)
        items = client.watch_topology()
        next(items)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(next, items)
            client.close()
            with pytest.raises(CallCancelledError):
                waiting.result(PATIENCE)


async def test_closing_the_client_ends_a_watch_with_an_error_and_not_as_if_the_task_were_cancelled() -> None:
    script = Script([streams(snapshot(ONE, route(0)), then=hangs)])
    with serving(bootstrap_servicer(WatchTopology=script)) as address:
        client = AsyncBootstrapClient(address)
        items = client.watch_topology()
        await anext(items)
        waiting = asyncio.create_task(anext(items))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(CallCancelledError):
            await waiting
