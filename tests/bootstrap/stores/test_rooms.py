"""What every store does with rooms: it commits them, tells of them in order, and a durable one has them again."""

import asyncio

from bootstrap.stores.histories import commit
from topology.examples import register, route

LARGEST = 2**64 - 1


async def test_rooms_are_told_before_they_are_answered(opened):
    await commit(opened.store, "a", register(route(0)))
    assert await opened.store.register_rooms("a", 1, {0: 3, LARGEST: 0}) == (2, 0)
    assert opened.listener.rooms.query("a", 1, [0, 1, LARGEST]) == {0: 3, LARGEST: 0}
    assert await opened.store.register_rooms("a", 1, {1: 1, LARGEST: 2}) == (1, 1)
    assert opened.listener.rooms.query("a", 1, [0, 1, LARGEST]) == {0: 3, 1: 1, LARGEST: 2}


async def test_rooms_of_different_groups_have_nothing_in_common(opened):
    for name in ("a", "a-b", "ab"):
        await commit(opened.store, name, register(route(0)))
        assert await opened.store.register_rooms(name, 1, {7: len(name)}) == (1, 0)
    for name in ("a", "a-b", "ab"):
        assert opened.listener.rooms.query(name, 1, [7]) == {7: len(name)}


async def test_as_many_rooms_as_a_call_may_have_are_kept(opened):
    await commit(opened.store, "a", register(route(0)))
    rooms = {room * (LARGEST // 10_000): room % 8 for room in range(10_000)}
    assert await opened.store.register_rooms("a", 1, rooms) == (10_000, 0)
    assert opened.listener.rooms.query("a", 1, rooms) == rooms


async def test_no_rooms_are_no_rooms(opened):
    await commit(opened.store, "a", register(route(0)))
    assert await opened.store.register_rooms("a", 1, {}) == (0, 0)


async def test_concurrent_registrations_are_each_counted_and_the_last_one_told_wins(opened):
    await commit(opened.store, "a", register(route(0)))
    counts = await asyncio.gather(
        *(opened.store.register_rooms("a", 1, {5: rank, 100 + rank: 0}) for rank in range(20))
    )
    assert sum(new for new, _ in counts) == 21
    assert sum(overwritten for _, overwritten in counts) == 19
    last = [dp_ranks[5] for _, _, dp_ranks in opened.listener.told if 5 in dp_ranks][-1]
    assert opened.listener.rooms.query("a", 1, [5]) == {5: last}


async def test_a_restart_tells_of_the_rooms_that_a_durable_store_committed(backend, open_store):
    opened = await open_store()
    await commit(opened.store, "a", register(route(0)))
    await opened.store.register_rooms("a", 1, {1: 1, LARGEST: 2})
    await opened.store.register_rooms("a", 1, {1: 3})
    await opened.store.close()
    opened = await open_store()
    expected = {1: 3, LARGEST: 2} if backend.durable else {}
    assert opened.listener.rooms.query("a", 1, [1, 2, LARGEST]) == expected
