"""Several replicas over one etcd are one truth."""

import asyncio
from contextlib import AsyncExitStack, ExitStack, contextmanager

import pytest

from bootstrap.stores.etcd.replicas import eventually, fresh_prefix, replica, same_everywhere, told_until
from etcd_cluster import shared_cluster
from interlock.serving import Refusal
from interlock.topology import (
    Departed,
    DeregisterRoute,
    EpochStarted,
    ParallelSizes,
    RouteRegistered,
    RouteRemoved,
)
from interlock_bootstrap.stores import Lease
from interlock_bootstrap.stores.etcd.settings import EtcdSettings
from topology.examples import LATER_LAUNCH, LAUNCH, LAYOUT, OTHER_LAYOUT, register, route

SIZES = ParallelSizes(1, 1, 24, 1)


@pytest.fixture
def settings():
    return EtcdSettings(endpoints=shared_cluster().endpoints, prefix=fresh_prefix())


@pytest.fixture
async def replicas(settings):
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(replica(settings)) for _ in range(3)]


@contextmanager
def watches_of(replicas, group):
    with ExitStack() as stack:
        yield [stack.enter_context(each.store.watch(group)) for each in replicas]


def lease_of(tp, incarnation=100):
    return Lease(route(tp).key, LAUNCH, incarnation)


async def test_all_replicas_are_told_the_same_revisions_and_events(replicas):
    with watches_of(replicas, "a") as watches:
        await asyncio.gather(
            *(replicas[tp % 3].registry.change("a", register(route(tp, sizes=SIZES))) for tp in range(24))
        )
        await asyncio.gather(
            *(
                replicas[tp % 3].registry.change("a", DeregisterRoute(route(tp).key, LAUNCH, 100))
                for tp in range(0, 24, 2)
            )
        )
        await replicas[1].registry.change("a", register(route(0), LATER_LAUNCH))
        last = await same_everywhere(replicas, "a")
        told = [await told_until(watch, last.revision) for watch in watches]
    assert told[0] == told[1] == told[2]
    revisions = [revision for revision, _ in told[0]]
    assert revisions == list(range(revisions[0], last.revision + 1))
    events = [event for _, events in told[0] for event in events]
    assert sum(isinstance(event, RouteRegistered) for event in events) == 25
    assert sum(isinstance(event, RouteRemoved) for event in events) == 12
    assert [event for event in events if isinstance(event, EpochStarted)] == [
        EpochStarted(1, LAUNCH),
        EpochStarted(2, LATER_LAUNCH),
    ]


async def test_what_was_answered_at_one_replica_is_read_fresh_at_the_others(replicas):
    for number in range(10):
        accepted = await replicas[number % 3].registry.change("a", register(route(0, incarnation=100 + number)))
        assert await same_everywhere(replicas, "a") == accepted.topology


async def test_a_lease_that_runs_out_is_one_revision_whoever_sees_it(replicas):
    with watches_of(replicas, "a") as watches:
        await replicas[0].registry.change("a", register(route(0)))
        before = (await replicas[1].registry.change("a", register(route(1), lease_ttl=1_000))).topology
        told = [await told_until(watch, before.revision + 1) for watch in watches]
        assert (await same_everywhere(replicas, "a")).revision == before.revision + 1
    assert told[0] == told[1] == told[2]
    assert told[0][-1] == (before.revision + 1, (RouteRemoved(route(1).key, 100),))
    assert not (await replicas[2].store.load("a")).ready
    # The same life may come back.
    after = (await replicas[2].registry.change("a", register(route(1), lease_ttl=60_000))).topology
    assert (after.revision, after.ready) == (before.revision + 2, True)


async def test_what_stands_is_not_confirmed_when_a_lease_ran_out_that_no_watch_has_shown_yet(settings):
    async with replica(settings) as only:
        await only.registry.change("a", register(route(0)))
        before = (await only.registry.change("a", register(route(1), lease_ttl=60_000))).topology
        assert await only.store.compare_and_swap(before, before)
        leases = f"{settings.prefix}/groups/a/epochs/{1:016x}/leases/"
        shared_cluster().etcdctl("del", leases, "--prefix")  # the event loop stands still meanwhile
        assert not await only.store.compare_and_swap(before, before)
        assert (await only.store.load("a")).registered == 1


async def test_leases_that_run_out_while_nobody_is_there_are_known_by_key_and_incarnation(settings):
    async with replica(settings) as first:
        await first.registry.change("a", register(route(0, incarnation=5)))
        await first.registry.change("a", register(route(1, incarnation=7), lease_ttl=1_000))
        before = await first.store.load("a")
    await eventually(lambda: not shared_cluster().keys(f"{settings.prefix}/groups/a/epochs/{1:016x}/leases/"))
    async with replica(settings) as second:
        after = await second.store.load("a")
        assert after.revision == before.revision + 1
        assert dict(after.departed) == {route(1).key: Departed(7, deregistered=False)}
        with pytest.raises(Refusal) as refused:
            await second.registry.change("a", register(route(1, incarnation=6)))
        assert refused.value.reason == "STALE_INCARNATION"


async def test_a_whole_group_whose_leases_run_out_goes_in_few_revisions(replicas):
    sizes = ParallelSizes(1, 1, 150, 1)
    with replicas[2].store.watch("a") as watch:
        await asyncio.gather(
            *(
                replicas[tp % 3].registry.change("a", register(route(tp, sizes=sizes, rank_ip="h"), lease_ttl=1_000))
                for tp in range(150)
            )
        )
        before = await same_everywhere(replicas, "a")
        assert before.registered == 150
        async with asyncio.timeout(60):
            while watch.current.registered:
                await watch.next()
    after = await same_everywhere(replicas, "a")
    assert (after.registered, len(after.departed), len(after.leases)) == (0, 150, 0)
    assert after.epoch == before.epoch


async def test_a_lease_is_renewed_at_any_replica_by_instance_and_incarnation(replicas):
    await replicas[0].registry.change("a", register(route(0), lease_ttl=2_000))
    await replicas[0].registry.change("a", register(route(1)))
    await same_everywhere(replicas, "a")
    for _ in range(3):
        renewed = await replicas[1].store.renew(
            "a",
            [lease_of(0), lease_of(1), lease_of(0, 99), Lease(route(0).key, LATER_LAUNCH, 100), lease_of(7)],
        )
        assert renewed == [2_000, 0, 0, 0, 0]
        assert await replicas[2].store.renew("b", [lease_of(0)]) == [0]


async def test_a_renewed_lease_outlives_its_ttl(replicas):
    """The lease beside it, which nobody renews, shows that its time would have been over."""
    await replicas[0].registry.change("a", register(route(1), lease_ttl=2_000))
    before = (await replicas[0].registry.change("a", register(route(0), lease_ttl=2_000))).topology
    with replicas[0].store.watch("a") as watch:
        while watch.current.revision == before.revision:
            assert await replicas[1].store.renew("a", [lease_of(0)]) == [2_000]
            await asyncio.sleep(0.1)
        assert dict(watch.current.leases) == {route(0).key: 2_000}


async def test_a_route_registered_again_as_it_stands_has_its_whole_ttl_again(replicas):
    await replicas[0].registry.change("a", register(route(1), lease_ttl=2_000))
    before = (await replicas[0].registry.change("a", register(route(0), lease_ttl=2_000))).topology
    with replicas[0].store.watch("a") as watch:
        while watch.current.revision == before.revision:
            again = await replicas[1].registry.change("a", register(route(0), lease_ttl=2_000))
            assert again.topology.routes[route(0).key] == route(0)
            await asyncio.sleep(0.1)
        assert dict(watch.current.leases) == {route(0).key: 2_000}


async def test_a_row_that_is_deregistered_or_replaced_gives_its_etcd_lease_back(replicas, settings):
    cluster = shared_cluster()

    def leases():
        return set(cluster.etcdctl("lease", "list").split()[3:])

    before = leases()
    await replicas[0].registry.change("a", register(route(0), lease_ttl=3_600_000))
    (first,) = leases() - before
    await replicas[1].registry.change("a", register(route(0, incarnation=101), lease_ttl=3_600_000))
    await eventually(lambda: first not in leases())
    await replicas[2].registry.change("a", DeregisterRoute(route(0).key, LAUNCH, 101))
    await eventually(lambda: leases() <= before)


async def test_ranks_share_one_record_of_their_layout_and_one_object_in_memory(replicas, settings):
    layouts = f"{settings.prefix}/groups/a/epochs/{1:016x}/layouts/"

    def names():
        return shared_cluster().keys(layouts)

    await replicas[0].registry.change("a", register(route(0, dsv41_spec_layout=LAYOUT)))
    (name,) = names()
    await replicas[1].registry.change("a", register(route(1, dsv41_spec_layout=LAYOUT)))
    assert names() == [name]
    topology = await same_everywhere(replicas, "a")
    assert topology.routes[route(0).key].dsv41_spec_layout == LAYOUT
    assert topology.routes[route(0).key].dsv41_spec_layout is topology.routes[route(1).key].dsv41_spec_layout
    for tp in (0, 1):
        await replicas[2].registry.change("a", DeregisterRoute(route(tp).key, LAUNCH, 100))
    assert names() == []
    await replicas[0].registry.change("a", register(route(0, incarnation=101, dsv41_spec_layout=OTHER_LAYOUT)))
    (other,) = names()
    assert other != name
    assert (await same_everywhere(replicas, "a")).routes[route(0).key].dsv41_spec_layout == OTHER_LAYOUT


async def test_a_new_epoch_leaves_nothing_of_the_one_before_in_etcd(replicas, settings):
    await replicas[0].registry.change("a", register(route(0, dsv41_spec_layout=LAYOUT), lease_ttl=60_000))
    await replicas[0].registry.change("ab", register(route(0)))
    await replicas[0].store.register_rooms("a", 1, {1: 0})
    await replicas[1].registry.change("a", register(route(1), LATER_LAUNCH))
    assert shared_cluster().keys(f"{settings.prefix}/") == [
        f"{settings.prefix}/groups/a/epochs/{2:016x}/ranks/0.0.1.0",
        f"{settings.prefix}/groups/a/header",
        f"{settings.prefix}/groups/ab/epochs/{1:016x}/ranks/0.0.0.0",
        f"{settings.prefix}/groups/ab/header",
        f"{settings.prefix}/last-commit",
    ]


async def test_rooms_registered_at_one_replica_are_known_at_all_and_the_last_writer_wins_everywhere(replicas):
    await replicas[0].registry.change("a", register(route(0)))
    await asyncio.gather(
        *(each.store.register_rooms("a", 1, {5: number, 10 + number: 1}) for number, each in enumerate(replicas * 5))
    )
    known = [{5, *range(10, 25)}] * 3
    await eventually(lambda: [set(each.listener.rooms.query("a", 1, range(30))) for each in replicas] == known)
    assert await replicas[0].store.register_rooms("a", 1, {5: 77}) == (0, 1)
    await eventually(lambda: all(each.listener.rooms.query("a", 1, [5]) == {5: 77} for each in replicas))


async def test_a_row_deleted_by_hand_makes_the_group_unready_for_all_alike(replicas, settings):
    for tp in (0, 1):
        await replicas[0].registry.change("a", register(route(tp)))
    before = await same_everywhere(replicas, "a")
    shared_cluster().etcdctl("del", f"{settings.prefix}/groups/a/epochs/{1:016x}/ranks/0.0.1.0")
    for each in replicas:
        with each.store.watch("a") as watch:
            async with asyncio.timeout(60):
                await watch.until_revision(before.revision + 1)
    after = await same_everywhere(replicas, "a")
    assert (after.revision, set(after.routes)) == (before.revision + 1, {route(0).key})


async def test_a_store_whose_keys_are_deleted_by_hand_begins_anew(replicas, settings):
    before = (await replicas[0].registry.change("a", register(route(0)))).topology
    await same_everywhere(replicas, "a")
    shared_cluster().etcdctl("del", f"{settings.prefix}/", "--prefix")
    for each in replicas:
        with each.store.watch("a") as watch:
            await eventually(lambda watch=watch: watch.current.revision == 0)
    after = (await replicas[1].registry.change("a", register(route(1)))).topology
    assert after.registered == 1
    assert after.revision > before.revision
