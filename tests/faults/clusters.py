"""What the clients of a history talk to: three replicas over three etcd members, or one server with SQLite.

Each replica and member is on a host of its own, where the machine allows that.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from faults.etcd_members import Member, free_ports, start_members
from faults.networks import Host, Network
from faults.processes import PATIENCE, Replica
from faults.workload import stubs_of
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub

REPLICA_PORT, CLIENT_PORT, PEER_PORT = 50051, 2379, 2380

IMPATIENT = (
    *("--etcd-progress-seconds", "0.4", "--etcd-staleness-bound-seconds", "2"),
    *("--etcd-attempt-timeout-seconds", "0.7", "--etcd-request-timeout-seconds", "3"),
)
"""Replicas that give up on etcd so soon that faults of a second or two make them say so, and leave commits unknown."""


@dataclass(frozen=True)
class Cluster:
    """Running servers, and how to reach them."""

    replicas: list[Replica]
    members: list[Member]
    stubs: list[BootstrapServiceStub]
    network: Network | None
    """None: all are on one host and nothing can be cut."""
    hosts: dict[str, Host]
    """Host of each replica and member by its name; empty without a network."""

    @property
    def servers(self) -> list[Replica | Member]:
        return [*self.replicas, *self.members]

    async def heal(self) -> None:
        """Everybody runs and reaches everybody."""
        if self.network is not None:
            self.network.heal()
        for server in self.servers:
            if server.stopped:
                server.proceed()
        for member in self.members:
            if not member.running:
                member.start()
        await asyncio.gather(*(replica.serve() for replica in self.replicas if not replica.running))


@asynccontextmanager
async def running_single(folder: Path, options: Sequence[str] = ()) -> AsyncIterator[Cluster]:
    """Starts one server with SQLite; kills it afterwards."""
    replica = Replica("single", folder, ["--store", "sqlite", "--state-folder", str(folder / "state"), *options])
    try:
        await replica.serve()
        async with stubs_of([replica.address]) as stubs:
            yield Cluster([replica], [], stubs, None, {})
    finally:
        replica.kill()


@asynccontextmanager
async def running_cluster(folder: Path, options: Sequence[str] = ()) -> AsyncIterator[Cluster]:
    """Starts a cluster; kills all of it afterwards.

    Args:
        folder: Where logs and data go.
        options: More options of each replica.
    """
    network = Network() if Network.possible() else None
    hosts: dict[str, Host] = {}
    members: list[Member] = []
    replicas: list[Replica] = []
    try:
        if network is not None:
            hosts = {name: network.join(name) for name in ("m0", "m1", "m2", "r0", "r1", "r2")}
        for number in range(3):
            host = hosts.get(f"m{number}")
            address, prefix, ports = (
                ("127.0.0.1", (), tuple(free_ports(2)))
                if host is None
                else (host.address, host.prefix, (CLIENT_PORT, PEER_PORT))
            )
            members.append(Member(f"m{number}", folder, address, ports, prefix=prefix))
        await start_members(members)
        endpoints = ",".join(member.endpoint for member in members)
        for number in range(3):
            host = hosts.get(f"r{number}")
            address, prefix, port = ("127.0.0.1", (), 0) if host is None else (host.address, host.prefix, REPLICA_PORT)
            more = ["--store", "etcd", "--etcd-endpoints", endpoints, *options]
            replicas.append(Replica(f"r{number}", folder, more, host=address, port=port, prefix=prefix))
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(replica.serve() for replica in replicas))
        async with stubs_of([replica.address for replica in replicas]) as stubs:
            yield Cluster(replicas, members, stubs, network, hosts)
    finally:
        for server in (*replicas, *members):
            server.kill()
        if network is not None:
            network.close()
