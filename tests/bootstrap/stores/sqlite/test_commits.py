"""What waits shares one transaction; what was committed is told whoever still listens."""

import asyncio

from bootstrap.stores.histories import changed, commit
from bootstrap.stores.sqlite.holding import disk_held, until, until_waiting
from interlock.topology import Topology
from interlock_bootstrap.commits import Commit
from topology.examples import FULL_ROUTE, LATER_LAUNCH, register, route


async def test_changes_that_wait_for_the_disk_share_one_transaction(store):
    names = [f"group-{number}" for number in range(20)]
    with disk_held(store):
        before = store.writer.transactions
        committing = [asyncio.create_task(commit(store, name, register(route(0)))) for name in names]
        rooms = asyncio.create_task(store.register_rooms("group-0", 1, {1: 0}))
        await until_waiting(store, 21)
    committed = await asyncio.gather(*committing)
    assert await rooms == (1, 0)
    assert [await store.load(name) for name in names] == committed
    assert store.writer.transactions == before + 2  # that of the block, and one for all


async def test_nothing_is_shown_before_its_commit(store):
    first = await commit(store, "a", register(route(0)))
    with store.watch("a") as watch:
        with disk_held(store):
            committing = asyncio.create_task(commit(store, "a", register(route(1))))
            await until_waiting(store, 1)
            assert await store.load("a") == first
            assert await store.load("a", fresh=True) == first
            assert watch.current == first
            assert not committing.done()
        assert await watch.next() == Commit(first, await committing)


async def test_a_commit_whose_caller_left_stands_and_is_told(store):
    empty = Topology.empty("a")
    after = changed(empty, register(route(0)))
    with store.watch("a") as watch:
        with disk_held(store):
            leaving = [
                asyncio.create_task(store.compare_and_swap(empty, after)),
                asyncio.create_task(store.register_rooms("a", 1, {7: 3})),
            ]
            await until_waiting(store, 2)
            for task in leaving:
                task.cancel()
            await asyncio.wait(leaving)
        assert await watch.next() == Commit(empty, after)
    await store.register_rooms("a", 1, {8: 3})  # comes after the other ones
    assert await store.load("a") == after


async def test_rooms_whose_caller_left_are_told_all_the_same(open_store, store):
    with disk_held(store):
        leaving = asyncio.create_task(store.register_rooms("a", 1, {7: 3}))
        await until_waiting(store, 1)
        leaving.cancel()
        await asyncio.wait([leaving])
    await store.register_rooms("a", 1, {8: 4})
    assert open_store.listener.told == [("a", 1, {7: 3}), ("a", 1, {8: 4})]


async def test_closing_commits_what_waits(open_store, store):
    with disk_held(store):
        committing = asyncio.create_task(commit(store, "a", register(route(0))))
        await until_waiting(store, 1)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
    after = await committing
    await closing
    assert await (await open_store()).load("a") == after


async def test_what_is_equal_or_refused_costs_no_transaction(store):
    first = await commit(store, "a", register(route(0)))
    transactions = store.writer.transactions
    assert await store.compare_and_swap(first, first)
    assert not await store.compare_and_swap(Topology.empty("a"), first)
    assert store.writer.transactions == transactions


async def test_ranks_share_their_layout_after_a_restart_as_before(open_store, store):
    await commit(store, "a", register(FULL_ROUTE), register(route(1, **shared_fields(FULL_ROUTE))))
    loaded = await (await open_store()).load("a")
    one, other = loaded.routes.values()
    assert one.dsv41_spec_layout == FULL_ROUTE.dsv41_spec_layout
    assert one.dsv41_spec_layout is other.dsv41_spec_layout


def shared_fields(of):
    names = (
        "kv_cache_dtype kv_layout dsv41_spec_layout load_balance_method enable_dsa_cache_layer_split "
        "enable_kv_cache_sharding decode_allocation_policy pools"
    )
    return {name: getattr(of, name) for name in names.split()}


async def test_the_log_does_not_grow_with_what_was_written(open_store, store):
    rooms = dict.fromkeys(range(10_000), 1)
    for _ in range(400):
        await store.register_rooms("a", 1, rooms)
    assert open_store.file.stat().st_size > 30 << 20
    assert open_store.log.stat().st_size < 20 << 20


async def test_rooms_are_read_back_in_the_order_in_which_they_came(open_store, store):
    await commit(store, "a", register(route(0)))
    calls = [("a", 1, {0: 1, 2**64 - 1: 2**32 - 1}), ("a", 1, {0: 2, 5: 1}), ("a", 1, {})]
    for call in calls:
        await store.register_rooms(*call)
    store = await open_store()
    assert open_store.listener.told == calls
    await store.register_rooms("a", 1, {0: 3})
    await open_store()
    assert open_store.listener.told == [*calls, ("a", 1, {0: 3})]


async def test_rooms_of_a_past_epoch_are_not_read_back(open_store, store):
    await commit(store, "a", register(route(0)))
    await commit(store, "b", register(route(0)))
    await store.register_rooms("a", 1, {1: 1})
    await store.register_rooms("b", 1, {2: 2})
    await commit(store, "a", register(route(0), LATER_LAUNCH))
    await open_store()
    assert open_store.listener.told == [("b", 1, {2: 2})]


async def test_rooms_leave_the_file_once_they_are_over(open_store):
    store = await open_store(room_ttl=0.3)
    await store.register_rooms("a", 0, {1: 1})
    transactions = store.writer.transactions
    await until(lambda: store.writer.transactions > transactions)
    await open_store()
    assert open_store.listener.told == []


async def test_every_commit_waits_for_the_disk(store):
    connection = store.writer._database._connection
    settings = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("journal_mode", "synchronous")]
    assert settings == [("wal",), (2,)]  # 2: FULL, which syncs the log at each commit
