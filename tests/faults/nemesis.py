"""What goes wrong while clients work, as the seed decides."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import combinations

from faults.clusters import Cluster
from faults.etcd_members import leader_of

Fault = Callable[[Cluster, random.Random], Awaitable[str]]
"""Makes something go wrong and says what."""


async def kill_a_replica(cluster: Cluster, choose: random.Random) -> str:
    replica = choose.choice(cluster.replicas)
    replica.kill()
    return f"kill {replica.name}"


async def stop_a_replica(cluster: Cluster, choose: random.Random) -> str:
    replica = choose.choice(cluster.replicas)
    replica.stop()
    return f"stop {replica.name}"


async def kill_a_member(cluster: Cluster, choose: random.Random) -> str:
    member = choose.choice(cluster.members)
    member.kill()
    return f"kill {member.name}"


async def kill_the_leader(cluster: Cluster, choose: random.Random) -> str:
    leader = await leader_of(cluster.members)
    leader.kill()
    return f"kill the leader {leader.name}"


async def stop_the_leader(cluster: Cluster, choose: random.Random) -> str:
    leader = await leader_of(cluster.members)
    leader.stop()
    return f"stop the leader {leader.name}"


async def kill_all_replicas(cluster: Cluster, choose: random.Random) -> str:
    for replica in cluster.replicas:
        replica.kill()
    return "kill all replicas"


async def kill_most_members(cluster: Cluster, choose: random.Random) -> str:
    """No majority is left: nothing can be written, and soon nothing be read."""
    for member in choose.sample(cluster.members, 2):
        member.kill()
    return "kill two members"


async def stop_a_replica_and_the_leader(cluster: Cluster, choose: random.Random) -> str:
    return f"{await stop_a_replica(cluster, choose)}, {await stop_the_leader(cluster, choose)}"


async def cut_a_replica_from_etcd(cluster: Cluster, choose: random.Random) -> str:
    replica = choose.choice(cluster.replicas)
    for member in choose.sample(cluster.members, choose.choice([1, 2, 3, 3])):
        _cut(cluster, replica.name, member.name)
    return f"cut {replica.name} from members"


async def cut_the_leader_from_its_peers(cluster: Cluster, choose: random.Random) -> str:
    """Replicas still reach it: it must not answer from what it believes."""
    leader = await leader_of(cluster.members)
    for member in cluster.members:
        if member is not leader:
            _cut(cluster, leader.name, member.name)
    return f"cut the leader {leader.name} from its peers"


async def cut_every_member_from_every_other(cluster: Cluster, choose: random.Random) -> str:
    for one, other in combinations(cluster.members, 2):
        _cut(cluster, one.name, other.name)
    return "cut all members apart"


async def lose_answers_of_a_replica(cluster: Cluster, choose: random.Random) -> str:
    """Requests arrive and take effect; nobody hears of it."""
    replica = choose.choice(cluster.replicas)
    assert cluster.network is not None
    cluster.network.mute(cluster.hosts[replica.name], cluster.network.tests)
    return f"lose the answers of {replica.name}"


async def lose_answers_of_the_leader(cluster: Cluster, choose: random.Random) -> str:
    """Transactions arrive and take effect; the replicas do not hear of it."""
    leader = await leader_of(cluster.members)
    assert cluster.network is not None
    for replica in cluster.replicas:
        cluster.network.mute(cluster.hosts[leader.name], cluster.hosts[replica.name])
    return f"lose the answers of the leader {leader.name}"


FAULTS_OF_REPLICAS: tuple[Fault, ...] = (kill_a_replica, stop_a_replica)
FAULTS_OF_MEMBERS: tuple[Fault, ...] = (
    kill_a_member,
    kill_the_leader,
    stop_the_leader,
    kill_all_replicas,
    kill_most_members,
    stop_a_replica_and_the_leader,
)
FAULTS_OF_NETWORKS: tuple[Fault, ...] = (
    cut_a_replica_from_etcd,
    cut_the_leader_from_its_peers,
    cut_every_member_from_every_other,
    lose_answers_of_a_replica,
    lose_answers_of_the_leader,
)


async def go_wrong(cluster: Cluster, seed: int, times: int) -> list[str]:
    """One fault after the other, each healed before the next; says what they were."""
    choose = random.Random(f"{seed} nemesis")
    faults = [
        *FAULTS_OF_REPLICAS,
        *(FAULTS_OF_MEMBERS if cluster.members else ()),
        *(FAULTS_OF_NETWORKS if cluster.network is not None else ()),
    ]
    happened = []
    try:
        for fault in choose.choices(faults, k=times):
            await asyncio.sleep(choose.uniform(0.1, 0.8))
            happened.append(await fault(cluster, choose))
            await asyncio.sleep(choose.uniform(0.3, 2.5))
            await cluster.heal()
        await asyncio.sleep(choose.uniform(0.1, 0.5))
    finally:
        await cluster.heal()
    return happened


def _cut(cluster: Cluster, one: str, other: str) -> None:
    assert cluster.network is not None
    cluster.network.cut(cluster.hosts[one], cluster.hosts[other])
