"""What every store does: its watches see each revision once, in order, after its commit, and cost bounded memory."""

import asyncio
from contextlib import ExitStack

import pytest

from bootstrap.stores.histories import LIFE_OF_A_GROUP, commit
from interlock.serving import Refusal
from interlock.topology import Topology, apply, changes
from interlock_bootstrap.commits import Commit
from topology.examples import register, route


async def seen_until(watch, revision):
    """The commits that a watch sees, up to a revision."""
    commits = []
    async with asyncio.timeout(30):
        while not commits or commits[-1].after.revision < revision:
            news = await watch.next()
            assert isinstance(news, Commit)
            commits.append(news)
    return commits


async def test_a_watch_begins_with_what_stands(store):
    with store.watch("a") as watch:
        assert watch.current == Topology.empty("a")
    after = await commit(store, "a", register(route(0)))
    with store.watch("a") as watch:
        assert watch.current == after


async def test_a_watch_sees_every_revision_once_and_in_order(store):
    committed = [Topology.empty("a")]
    with store.watch("a") as watch:
        for requests in LIFE_OF_A_GROUP:
            after = await commit(store, "a", *requests)
            assert watch.current.revision == after.revision, "it is told before the commit is answered"
            if after.revision != committed[-1].revision:
                committed.append(after)
        seen = await seen_until(watch, committed[-1].revision)
    # The leases of one that was told may be older: they alone are not told.
    assert [each.after.revision for each in seen] == [each.revision for each in committed[1:]]
    for told, before, after in zip(seen, committed, committed[1:], strict=False):
        assert changes(told.before, told.after) == changes(before, after)
        assert apply(before.routes, changes(told.before, told.after)) == after.routes


async def test_leases_are_not_told(store):
    await commit(store, "a", register(route(0), lease_ttl=10_000))
    with store.watch("a") as watch:
        await commit(store, "a", register(route(0), lease_ttl=20_000))
        after = await commit(store, "a", register(route(1)))
        seen = await seen_until(watch, after.revision)
    assert [each.after.revision for each in seen] == [after.revision]


async def test_a_loser_is_not_told(store):
    before = await commit(store, "a", register(route(0)))
    with store.watch("a") as watch:
        after = await commit(store, "a", register(route(1)))
        assert not await store.compare_and_swap(before, after)
        last = await commit(store, "a", register(route(0, incarnation=101)))
        seen = await seen_until(watch, last.revision)
    assert [each.after.revision for each in seen] == [after.revision, last.revision]


async def test_all_watches_of_a_group_share_what_they_are_told(store):
    with store.watch("a") as first, store.watch("a") as second:
        await commit(store, "a", register(route(0)))
        assert await first.next() is await second.next()


async def test_a_crowd_of_watches_is_told_all_of_it(store):
    with ExitStack() as stack:
        crowd = [stack.enter_context(store.watch("a")) for _ in range(350)]
        following = [asyncio.ensure_future(seen_until(watch, 1)) for watch in crowd]
        first = await commit(store, "a", register(route(0)))
        second = await commit(store, "a", register(route(1)))
        assert all(watch.current == second for watch in crowd)
        told = await asyncio.gather(*following)
        rest = await asyncio.gather(*(seen_until(watch, second.revision) for watch in crowd))
    assert [[each.after.revision for each in seen] for seen in told] == [[first.revision]] * 350
    assert [[each.after.revision for each in seen] for seen in rest] == [[second.revision]] * 350


async def test_other_groups_are_not_told(store):
    with store.watch("a") as watch:
        await commit(store, "ab", register(route(0)))
        await commit(store, "a-b", register(route(0)))
        after = await commit(store, "a", register(route(0)))
        assert (await watch.next()).after == after


async def test_who_falls_behind_gets_the_whole_instead_and_goes_on_from_there(open_store):
    store = (await open_store(watch_buffer=3)).store
    with store.watch("a") as watch:
        for number in range(5):
            after = await commit(store, "a", register(route(0, incarnation=100 + number)))
        assert await watch.next() == after
        last = await commit(store, "a", register(route(0, incarnation=200)))
        news = await watch.next()
        assert (news.before, news.after) == (after, last)


async def test_who_waits_for_a_revision_gets_a_topology_that_has_it(store):
    with store.watch("a") as watch:
        waiting = asyncio.ensure_future(watch.until_revision(1))
        after = await commit(store, "a", register(route(0)))
        assert await waiting == after


async def test_watches_end_when_the_server_is_about_to_stop_those_to_come_as_well(store):
    with store.watch("a") as watch:
        waiting = asyncio.ensure_future(watch.next())
        await asyncio.sleep(0)
        store.end_watches()
        with pytest.raises(Refusal) as ended:
            await waiting
        assert ended.value.reason == "DRAINING"
    with store.watch("b") as watch:
        with pytest.raises(Refusal) as ended:
            await watch.next()
        assert ended.value.reason == "DRAINING"
