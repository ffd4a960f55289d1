"""What the store does while etcd, or the way to it, is hurt."""

import asyncio
import subprocess
import time
from contextlib import AsyncExitStack, suppress

import pytest

from bootstrap.stores.etcd.replicas import PATIENCE, eventually, fresh_prefix, replica, same_everywhere
from etcd_cluster import etcd_cluster, free_ports, shared_cluster
from interlock.serving import Refusal
from interlock.topology import ParallelSizes, Topology
from interlock_bootstrap.stores import StoreFullError, StoreUnavailableError, StoreUnreachableError
from interlock_bootstrap.stores.etcd.settings import EtcdSettings
from tcp_proxy import tcp_proxy
from topology.examples import register, route

QUICK = {
    "attempt_timeout_seconds": 0.5,
    "request_timeout_seconds": 2.0,
    "progress_seconds": 0.1,
    "staleness_bound_seconds": 1.0,
}
"""A bound that a test can wait for."""


def proxied(proxy, prefix, **more):
    return EtcdSettings(endpoints=f"127.0.0.1:{proxy.port}", prefix=prefix, **more)


async def last_answer(store, since):
    """Loads until the store says that it cannot; seconds from `since` to the beginning of the last load it answered."""
    answered_at = since
    while True:
        asked_at = time.monotonic()
        try:
            await store.load("a")
        except StoreUnavailableError:
            return answered_at - since
        answered_at = asked_at
        await asyncio.sleep(0.01)


async def patiently(ask):
    """What a store answers once it can."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await ask()
            except StoreUnavailableError:
                await asyncio.sleep(0.01)


async def test_a_replica_cut_off_from_etcd_answers_no_longer_than_the_bound_and_is_current_again_afterwards():
    prefix = fresh_prefix()
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(tcp_proxy(shared_cluster().members[0].port))
        other = await stack.enter_async_context(
            replica(EtcdSettings(endpoints=shared_cluster().endpoints, prefix=prefix))
        )
        cut_off = await stack.enter_async_context(replica(proxied(proxy, prefix, **QUICK)))
        await cut_off.registry.change("a", register(route(0)))
        watch = stack.enter_context(cut_off.store.watch("a"))

        proxy.freeze()
        assert await last_answer(cut_off.store, time.monotonic()) <= 1.0
        await eventually(lambda: cut_off.listener.availabilities == [False])
        with pytest.raises(Refusal) as ended:
            await watch.next()
        assert ended.value.reason == "STORE_UNAVAILABLE"
        for asked in (cut_off.store.groups("", 1), cut_off.store.group_count(), cut_off.store.renew("a", [])):
            with pytest.raises(StoreUnavailableError):
                await asked
        with pytest.raises(StoreUnavailableError):
            cut_off.store.watch("a")
        with pytest.raises(StoreUnavailableError):
            await cut_off.store.register_rooms("a", 1, {1: 1})
        after = (await other.registry.change("a", register(route(1)))).topology

        proxy.mend()
        await eventually(lambda: cut_off.listener.availabilities == [False, True])
        assert await cut_off.store.load("a") == after


async def test_an_etcd_that_stands_still_is_noticed_and_comes_back():
    with etcd_cluster() as cluster:
        settings = EtcdSettings(endpoints=cluster.endpoints, prefix=fresh_prefix(), **QUICK)
        async with replica(settings) as only:
            before = (await only.registry.change("a", register(route(0)))).topology
            cluster.members[0].pause()
            assert await last_answer(only.store, time.monotonic()) <= 1.0
            with pytest.raises(Refusal) as refused:
                await only.registry.change("a", register(route(1)))
            assert refused.value.reason == "STORE_UNAVAILABLE"
            cluster.members[0].proceed()
            await eventually(lambda: only.listener.availabilities[-1:] == [True])
            assert await only.store.load("a", fresh=True) == before
            assert (await only.registry.change("a", register(route(1)))).topology.ready


async def test_a_member_without_its_majority_does_not_make_a_replica_current(three_members):
    """It still answers its watches, from what it knew."""
    one, *others = three_members.members
    settings = EtcdSettings(endpoints=one.endpoint, prefix=fresh_prefix(), **QUICK)
    async with replica(settings) as only:
        await only.registry.change("a", register(route(0)))
        for member in others:
            member.kill()
        assert await last_answer(only.store, time.monotonic()) <= 1.0
        for member in others:
            member.start()
        await eventually(lambda: only.listener.availabilities[-1:] == [True])
        assert (await only.registry.change("a", register(route(1)))).topology.ready


async def test_a_leader_that_stands_still_is_left_for_another_member(three_members):
    settings = EtcdSettings(
        endpoints=three_members.endpoints,
        prefix=fresh_prefix(),
        attempt_timeout_seconds=0.5,
        request_timeout_seconds=30,
        staleness_bound_seconds=30,
    )
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(replica(settings)) for _ in range(3)]
        await replicas[0].registry.change("a", register(route(0)))
        leader = three_members.leader()
        leader.pause()
        for each in replicas:
            await each.registry.change("a", register(route(1)))
            assert await each.store.load("a", fresh=True) == await replicas[0].store.load("a", fresh=True)
        leader.proceed()
        assert (await same_everywhere(replicas, "a")).ready


async def test_no_acknowledged_row_is_lost_when_the_leader_is_killed_during_commits(three_members):
    settings = EtcdSettings(
        endpoints=three_members.endpoints,
        prefix=fresh_prefix(),
        attempt_timeout_seconds=1,
        request_timeout_seconds=30,
        staleness_bound_seconds=30,
    )
    sizes = ParallelSizes(1, 1, 90, 1)
    acknowledged = []
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(replica(settings)) for _ in range(3)]

        async def register_one_after_another(number):
            for tp in range(number, 90, 3):
                row = route(tp, sizes=sizes, rank_ip="h")
                answer = await replicas[number].registry.change("a", register(row, lease_ttl=60_000))
                assert answer.topology.routes[row.key] == row
                acknowledged.append(row)

        storm = [asyncio.create_task(register_one_after_another(number)) for number in range(3)]
        await eventually(lambda: len(acknowledged) >= 15)
        leader = three_members.leader()
        leader.kill()
        await eventually(lambda: len(acknowledged) >= 60)
        leader.start()
        await asyncio.gather(*storm)
        topology = await same_everywhere(replicas, "a")
    assert set(topology.routes.values()) == set(acknowledged)
    assert topology.ready


async def test_a_replica_that_slept_through_a_compaction_lists_anew_and_gives_its_watches_the_whole():
    prefix = fresh_prefix()
    awake = EtcdSettings(endpoints=shared_cluster().endpoints, prefix=prefix)
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(tcp_proxy(shared_cluster().members[0].port))
        other = await stack.enter_async_context(replica(awake))
        sleeper = await stack.enter_async_context(replica(proxied(proxy, prefix, staleness_bound_seconds=60)))
        for group in ("a", "unchanged"):
            await sleeper.registry.change(group, register(route(0)))
        watch = stack.enter_context(sleeper.store.watch("a"))
        unchanged = stack.enter_context(sleeper.store.watch("unchanged"))
        proxy.cut()
        for number in range(5):
            after = (await other.registry.change("a", register(route(1, incarnation=100 + number)))).topology
        await other.store.register_rooms("a", 1, {1: 2})
        shared_cluster().compact()
        proxy.mend()
        assert await watch.next() == after
        last = (await other.registry.change("a", register(route(0, incarnation=101)))).topology
        news = await watch.next()
        assert (news.before, news.after) == (after, last)
        assert sleeper.listener.rooms.query("a", 1, [1]) == {1: 2}
        # A group of which nothing was missed goes on as if nothing had been.
        later = (await other.registry.change("unchanged", register(route(1)))).topology
        assert (await unchanged.next()).after == later
    assert sleeper.listener.availabilities == []


async def test_a_replica_that_missed_events_which_are_still_there_gives_its_watches_each_of_them():
    prefix = fresh_prefix()
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(tcp_proxy(shared_cluster().members[0].port))
        other = await stack.enter_async_context(
            replica(EtcdSettings(endpoints=shared_cluster().endpoints, prefix=prefix))
        )
        sleeper = await stack.enter_async_context(replica(proxied(proxy, prefix, staleness_bound_seconds=60)))
        first = (await sleeper.registry.change("a", register(route(0)))).topology
        watch = stack.enter_context(sleeper.store.watch("a"))
        proxy.cut()
        for number in range(5):
            await other.registry.change("a", register(route(1, incarnation=100 + number)))
        proxy.mend()
        revisions = [(await watch.next()).after.revision for _ in range(5)]
    assert revisions == list(range(first.revision + 1, first.revision + 6))


async def test_a_commit_whose_answer_is_lost_stands_once_and_is_answered():
    prefix = fresh_prefix()
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(tcp_proxy(shared_cluster().members[0].port))
        other = await stack.enter_async_context(
            replica(EtcdSettings(endpoints=shared_cluster().endpoints, prefix=prefix))
        )
        unlucky = await stack.enter_async_context(replica(proxied(proxy, prefix, staleness_bound_seconds=60)))
        await unlucky.registry.change("a", register(route(0)))
        before = await same_everywhere([unlucky, other], "a")
        with other.store.watch("a") as watch:
            proxy.lose_answers()
            change = asyncio.create_task(unlucky.registry.change("a", register(route(1))))
            committed = (await watch.next()).after
            proxy.mend()
            answered = (await change).topology
            assert answered == committed
            assert answered.revision == before.revision + 1
        assert await same_everywhere([unlucky, other], "a") == committed


async def test_a_commit_whose_answer_is_lost_is_found_below_those_that_came_upon_it():
    prefix = fresh_prefix()
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(tcp_proxy(shared_cluster().members[0].port))
        other = await stack.enter_async_context(
            replica(EtcdSettings(endpoints=shared_cluster().endpoints, prefix=prefix))
        )
        unlucky = await stack.enter_async_context(replica(proxied(proxy, prefix, staleness_bound_seconds=60)))
        before = await unlucky.store.load("a")
        with other.store.watch("a") as watch:
            proxy.lose_answers()
            change = asyncio.create_task(unlucky.registry.change("a", register(route(0))))
            committed = (await watch.next()).after
            upon = (await other.registry.change("a", register(route(0, incarnation=101)))).topology
            proxy.mend()
            assert (await change).topology == committed
        assert (before.revision, upon.revision) == (0, committed.revision + 1)
        assert await same_everywhere([unlucky, other], "a") == upon


async def test_a_commit_that_never_arrived_is_refused_and_changes_nothing():
    prefix = fresh_prefix()
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(tcp_proxy(shared_cluster().members[0].port))
        settings = proxied(
            proxy, prefix, attempt_timeout_seconds=0.2, request_timeout_seconds=0.5, staleness_bound_seconds=60
        )
        unlucky = await stack.enter_async_context(replica(settings))
        before = (await unlucky.registry.change("a", register(route(0)))).topology
        proxy.cut()
        with pytest.raises(Refusal) as refused:
            await unlucky.registry.change("a", register(route(1)))
        assert refused.value.reason == "STORE_UNAVAILABLE"
        proxy.mend()
        assert await patiently(lambda: unlucky.store.load("a", fresh=True)) == before
        assert (await unlucky.registry.change("a", register(route(1)))).topology.revision == before.revision + 1


def fill(cluster):
    """Puts keys until there is no room for another one."""
    with suppress(subprocess.CalledProcessError):
        for _ in range(30):
            cluster.etcdctl("put", "/filler", "x" * 100_000)
    assert "NOSPACE" in cluster.etcdctl("alarm", "list")


async def test_a_full_etcd_is_told_changes_nothing_and_goes_on_when_there_is_room_again():
    with etcd_cluster(1, None, "--quota-backend-bytes", "1000000") as cluster:
        settings = EtcdSettings(endpoints=cluster.endpoints, prefix=fresh_prefix())
        async with replica(settings) as only:
            before = (await only.registry.change("a", register(route(0)))).topology
            fill(cluster)
            for request in (register(route(1)), register(route(1), lease_ttl=60_000)):
                with pytest.raises(StoreFullError) as full:
                    await only.registry.change("a", request)
                assert full.value.reason == "STORE_FULL"
            with pytest.raises(StoreFullError):
                await only.store.register_rooms("a", 1, {1: 1})
            assert await only.store.load("a", fresh=True) == before
            cluster.compact()
            cluster.etcdctl("defrag")
            cluster.etcdctl("alarm", "disarm")
            assert (await only.registry.change("a", register(route(1)))).topology.ready


async def test_a_store_that_finds_no_etcd_does_not_start_and_says_where_it_looked():
    (port,) = free_ports(1)
    settings = EtcdSettings(endpoints=f"127.0.0.1:{port}", attempt_timeout_seconds=0.2, request_timeout_seconds=0.5)
    with pytest.raises(StoreUnreachableError, match=f"etcd at 127.0.0.1:{port} does not answer"):
        async with replica(settings):
            pass


async def test_groups_that_nobody_knows_are_empty_and_not_kept():
    async with replica(EtcdSettings(endpoints=shared_cluster().endpoints, prefix=fresh_prefix())) as only:
        for number in range(100):
            name = f"nobody-{number}"
            assert await only.store.load(name, fresh=True) == Topology.empty(name)
        assert await only.store.group_count() == 0
