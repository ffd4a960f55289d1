"""What a second store upon the same state is: a replica that shares one truth, one that is refused, or a stranger."""

import asyncio

import pytest

from bootstrap.stores.histories import FIRST, LIFE_OF_A_GROUP, changed, commit
from interlock.topology import Topology, changes
from topology.examples import register, route


async def test_a_second_store_shares_one_truth_or_is_kept_out(backend, open_store):
    one = await open_store()
    if backend.shared:
        await _share_one_truth(one, await open_store())
    elif backend.durable:
        with pytest.raises(Exception, match=r".+"):
            await open_store()
        await commit(one.store, "a", register(route(0)))
    else:
        other = await open_store()
        await commit(one.store, "a", register(route(0)))
        assert await other.store.load("a", fresh=True) == Topology.empty("a")


async def _share_one_truth(one, other):
    with one.store.watch("a") as here, other.store.watch("a") as there:
        for at, requests in enumerate(LIFE_OF_A_GROUP):
            writer, reader = (one, other) if at % 2 else (other, one)
            before = await writer.store.load("a", fresh=True)
            after = changed(before, *requests)
            assert await writer.store.compare_and_swap(before, after)
            assert await reader.store.load("a", fresh=True) == after
            if after.revision != before.revision:
                async with asyncio.timeout(30):
                    seen = [await watch.next() for watch in (here, there)]
                assert [each.after.revision for each in seen] == [after.revision] * 2
                assert [changes(each.before, each.after) for each in seen] == [changes(before, after)] * 2

    before = await one.store.load("a", fresh=True)
    await other.store.load("a", fresh=True)
    offers = [changed(before, register(route(0, rank_port=port))) for port in (1, 2)]
    won = await asyncio.gather(
        *map(lambda each, offer: each.store.compare_and_swap(before, offer), (one, other), offers)
    )
    assert sorted(won) == [False, True]
    winner = offers[won.index(True)]
    assert [await each.store.load("a", fresh=True) for each in (one, other)] == [winner, winner]
    assert winner.routes[FIRST].rank_port in (1, 2)

    await one.store.register_rooms("a", winner.epoch, {1: 1, 2: 1})
    await other.store.register_rooms("a", winner.epoch, {2: 0, 2**64 - 1: 1})
    last = {1: 1, 2: 0, 2**64 - 1: 1}
    async with asyncio.timeout(30):  # a listener has no event to wait on
        for each in (one, other):
            while each.listener.rooms.query("a", winner.epoch, [1, 2, 2**64 - 1]) != last:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
