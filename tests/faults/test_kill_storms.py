"""100 times `kill -9` in the middle of a storm of registrations, on SQLite and on etcd.

Every storm checks by itself that what was acknowledged is there and what was refused is not, that the watchers of
before and after agree, and that the history is linearizable.
"""

import pytest

from faults.clusters import running_server
from faults.kill_storms import RANKS, Aftermath, storm
from faults.workload import stubs_of
from scenarios.reads import snapshot

KILLS = 100


@pytest.mark.parametrize("store", ["sqlite", "etcd"])
async def test_what_was_acknowledged_survives_a_hundred_kills(tmp_path, store):
    async with running_server(store, tmp_path) as replica:
        aftermaths: list[Aftermath] = [await storm(replica, number, seed=1) for number in range(KILLS)]

        async with stubs_of([replica.address]) as (stub,):
            for number, aftermath in enumerate(aftermaths):
                whole = await snapshot(stub, f"storm-1-{number}")
                assert {route.key.tp for route in whole.routes} == aftermath.rows
    # The kills came in the middle: some were told, some were not, and of those some had been written already.
    assert sum(each.acknowledged for each in aftermaths) > KILLS
    assert sum(each.unknown for each in aftermaths) > KILLS
    assert sum(each.refused for each in aftermaths) > KILLS
    assert any(0 < each.acknowledged < RANKS - each.refused for each in aftermaths)
