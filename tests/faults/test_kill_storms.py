"""100 times `kill -9` in the middle of a storm of registrations, on SQLite and on etcd.

Every storm checks by itself that what was acknowledged is there and what was refused is not, that the watchers of
before and after agree, and that the history is linearizable.
"""

import pytest

from faults.etcd_members import Member, free_ports, start_members
from faults.kill_storms import RANKS, Aftermath, storm
from faults.processes import Replica, ServerProcess
from faults.workload import stubs_of
from scenarios.reads import snapshot

KILLS = 100


@pytest.mark.parametrize("store", ["sqlite", "etcd"])
async def test_what_was_acknowledged_survives_a_hundred_kills(tmp_path, store):
    processes: list[ServerProcess] = []
    try:
        options = ["--store", store, "--state-folder", str(tmp_path / "state")]
        if store == "etcd":
            member = Member("etcd", tmp_path, "127.0.0.1", tuple(free_ports(2)))
            processes.append(member)
            await start_members([member])
            options += ["--etcd-endpoints", member.endpoint]
        replica = Replica("server", tmp_path, options)
        processes.append(replica)
        await replica.serve()
        aftermaths: list[Aftermath] = [await storm(replica, number, seed=1) for number in range(KILLS)]

        async with stubs_of([replica.address]) as (stub,):
            for number, aftermath in enumerate(aftermaths):
                whole = await snapshot(stub, f"storm-1-{number}")
                assert {route.key.tp for route in whole.routes} == aftermath.rows
    finally:
        for process in processes:
            process.kill()
    # The kills came in the middle: some were told, some were not, and of those some had been written already.
    assert sum(each.acknowledged for each in aftermaths) > KILLS
    assert sum(each.unknown for each in aftermaths) > KILLS
    assert sum(each.refused for each in aftermaths) > KILLS
    assert any(0 < each.acknowledged < RANKS - each.refused for each in aftermaths)
