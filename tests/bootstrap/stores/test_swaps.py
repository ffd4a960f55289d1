"""What every store does: it swaps a group's topology if the group still is as it was, whole or not at all."""

import asyncio

import pytest

from bootstrap.stores.histories import LIFE_OF_A_GROUP, changed, commit, large_group
from interlock.topology import Topology
from topology.examples import LATER_LAUNCH, register, route


async def test_a_group_with_no_history_is_empty(store):
    assert await store.load("a") == Topology.empty("a")
    assert await store.load("a", fresh=True) == Topology.empty("a")
    assert await store.group_count() == 0


async def test_what_is_committed_is_loaded_equal_in_everything(store):
    for requests in LIFE_OF_A_GROUP:
        after = await commit(store, "a", *requests)
        assert await store.load("a") == after
        assert await store.load("a", fresh=True) == after


async def test_a_restart_keeps_all_that_a_durable_store_committed(backend, open_store):
    opened = await open_store()
    for requests in LIFE_OF_A_GROUP:
        after = await commit(opened.store, "a", *requests)
        await opened.store.close()
        opened = await open_store()
        if not backend.durable:
            assert await opened.store.load("a") == Topology.empty("a")
            return
        assert await opened.store.load("a") == after
        assert await opened.store.load("a", fresh=True) == after


async def test_a_store_confirms_what_is_still_so_and_nothing_else(store):
    empty = Topology.empty("a")
    assert await store.compare_and_swap(empty, empty)
    assert await store.group_count() == 0
    first = await commit(store, "a", register(route(0)))
    assert await store.compare_and_swap(first, first)
    second = await commit(store, "a", register(route(1)))
    assert not await store.compare_and_swap(first, first)
    assert not await store.compare_and_swap(empty, empty)
    assert await store.compare_and_swap(second, second)


async def test_who_comes_second_changes_nothing(store):
    before = await commit(store, "a", register(route(0)))
    winner, loser = changed(before, register(route(1))), changed(before, register(route(1, rank_port=1)))
    assert await store.compare_and_swap(before, winner)
    assert not await store.compare_and_swap(before, loser)
    assert await store.load("a", fresh=True) == winner


async def test_of_many_at_once_exactly_one_wins(store):
    before = await commit(store, "a", register(route(0)))
    offers = [changed(before, register(route(1, rank_port=port))) for port in range(1, 21)]
    won = await asyncio.gather(*(store.compare_and_swap(before, offer) for offer in offers))
    assert won.count(True) == 1
    assert await store.load("a", fresh=True) == offers[won.index(True)]


async def test_of_many_that_make_the_same_new_group_exactly_one_wins(store):
    empty = Topology.empty("a")
    offers = [changed(empty, register(route(0, rank_port=port))) for port in range(1, 21)]
    won = await asyncio.gather(*(store.compare_and_swap(empty, offer) for offer in offers))
    assert won.count(True) == 1
    assert await store.load("a", fresh=True) == offers[won.index(True)]
    assert await store.group_count() == 1


async def test_a_lease_that_alone_changes_is_stored_at_the_same_revision(store):
    before = await commit(store, "a", register(route(0), lease_ttl=10_000))
    longer, none = changed(before, register(route(0), lease_ttl=20_000)), changed(before, register(route(0)))
    assert (longer.revision, none.revision) == (before.revision, before.revision)
    assert await store.compare_and_swap(before, longer)
    assert await store.load("a", fresh=True) == longer
    assert not await store.compare_and_swap(before, none)
    assert await store.load("a", fresh=True) == longer
    assert await store.compare_and_swap(longer, changed(longer, register(route(0))))
    assert dict((await store.load("a", fresh=True)).leases) == {}


async def test_rows_of_a_past_epoch_do_not_come_back(store):
    for requests in large_group(150):
        await commit(store, "a", *requests)
    after = await commit(store, "a", register(route(1), LATER_LAUNCH))
    assert dict((await store.load("a", fresh=True)).routes) == {route(1).key: route(1)}
    assert (await store.load("a")) == after


async def test_a_large_group_is_kept_whole(store):
    for requests in large_group(1_000):
        after = await commit(store, "a", *requests)
    assert after.ready
    assert await store.load("a", fresh=True) == after


async def test_groups_whose_names_begin_alike_have_nothing_in_common(store):
    names = ["a", "a-b", "ab", "a0", "aa"]
    committed = {}
    for number, name in enumerate(names):
        for _ in range(number + 1):
            committed[name] = await commit(store, name, register(route(0, incarnation=100 + _)))
    committed["a"] = await commit(store, "a", register(route(1), LATER_LAUNCH))
    for name in names:
        assert await store.load(name, fresh=True) == committed[name]


async def test_groups_come_in_pages_by_name_with_their_tombstones(store):
    committed = {}
    for name in ("c", "a", "e", "b", "d"):
        committed[name] = await commit(store, name, register(route(0)))
    from_one_page = await store.groups("", 10)
    assert from_one_page == [committed[name] for name in "abcde"]
    assert await store.groups("", 2) == [committed["a"], committed["b"]]
    assert await store.groups("b", 2) == [committed["c"], committed["d"]]
    assert await store.groups("cc", 9) == [committed["d"], committed["e"]]
    assert await store.groups("e", 2) == []
    assert await store.group_count() == 5


@pytest.mark.parametrize("groups", [30])
async def test_concurrent_changes_of_different_groups_all_stand(store, groups):
    names = [f"group-{number}" for number in range(groups)]
    committed = await asyncio.gather(*(commit(store, name, register(route(0))) for name in names))
    assert [await store.load(name, fresh=True) for name in names] == committed
