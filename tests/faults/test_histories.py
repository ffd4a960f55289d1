"""What clients see while servers are killed, stopped and cut off is what one group could have shown them.

50 histories on three replicas over three etcd members, 10 on one server with SQLite. `make faults` runs more.
"""

import pytest

from faults.campaign import Tally, run_groups, run_round
from faults.clusters import Cluster
from faults.etcd_members import leader_of
from faults.histories import Conflict, Stands
from faults.workload import GroupRun


@pytest.mark.parametrize("seed", range(1, 11))
async def test_five_histories_on_three_replicas_are_linearizable_while_things_go_wrong(cluster, tmp_path, seed):
    tally = Tally()
    await run_round(cluster, seed, tally, tmp_path)
    assert tally.histories == 5
    assert tally.counts["changes"] > 0


@pytest.mark.parametrize("seed", range(1, 3))
async def test_five_histories_on_one_server_with_sqlite_are_linearizable_while_it_is_killed(single, tmp_path, seed):
    tally = Tally()
    await run_round(single, seed, tally, tmp_path)
    assert tally.histories == 5
    assert tally.counts["changes"] > 0


def told(run: GroupRun) -> int:
    """How many changes and conflicts the clients of a group were told of so far."""
    return sum(isinstance(operation.outcome, Stands | Conflict) for operation in run.history.operations)


async def test_work_goes_on_while_the_leader_of_etcd_is_stopped(cluster: Cluster, tmp_path):
    async def stop_the_leader(runs: list[GroupRun]) -> list[str]:
        leader = await leader_of(cluster.members)
        leader.stop()
        try:
            before = [told(run) for run in runs]
            while any(told(run) < count + 20 for run, count in zip(runs, before, strict=True)):
                await leader_of(cluster.members)
            return ["stop the leader"]
        finally:
            await cluster.heal()

    tally = Tally()
    await run_groups(cluster, 1, tally, tmp_path, 3, stop_the_leader)
    assert tally.histories == 3
