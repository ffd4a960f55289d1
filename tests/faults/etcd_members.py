"""Real etcd members as processes of the tests, each on a host of its own, or all on this one."""

import asyncio
import json
import socket
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from faults.processes import PATIENCE, ServerProcess


class Member(ServerProcess):
    """One member of an etcd cluster."""

    def __init__(self, name: str, folder: Path, host: str, ports: tuple[int, int], **more) -> None:
        self.client_port, self.peer_port = ports
        self.host = host
        self.folder = folder
        super().__init__(name, [], folder, **more)

    @property
    def endpoint(self) -> str:
        return f"{self.host}:{self.client_port}"

    @property
    def peer_url(self) -> str:
        return f"http://{self.host}:{self.peer_port}"

    def join(self, members: Sequence["Member"]) -> None:
        """Says who is in the cluster."""
        client_url = f"http://{self.endpoint}"
        self.command += [
            "etcd",
            *("--name", self.name, "--data-dir", str(self.folder / self.name)),
            *("--listen-client-urls", client_url, "--advertise-client-urls", client_url),
            *("--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url),
            *("--initial-cluster", ",".join(f"{member.name}={member.peer_url}" for member in members)),
            *("--initial-cluster-state", "new", "--heartbeat-interval", "100", "--election-timeout", "700"),
            *("--logger", "zap", "--log-level", "warn"),
        ]

    async def call(self, method: str, **arguments: object) -> dict:
        """One RPC over etcd's JSON gateway, for example `kv/compaction`."""
        return await asyncio.to_thread(self._call, method, json.dumps(arguments).encode())

    def _call(self, method: str, body: bytes) -> dict:
        with urllib.request.urlopen(f"http://{self.endpoint}/v3/{method}", body, timeout=2) as answer:
            return json.load(answer)

    async def leads(self) -> bool:
        """Whether it says that it is the leader."""
        try:
            status = await self.call("maintenance/status")
        except OSError:
            return False
        return status.get("leader") == status["header"]["member_id"]


async def leader_of(members: Sequence[Member]) -> Member:
    """The leader, once there is one."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for member in members:
                if member.running and not member.stopped and await member.leads():
                    return member
            await asyncio.sleep(0.05)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody uses."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


async def start_members(members: Sequence[Member]) -> None:
    """Starts a cluster and waits until it has a leader."""
    for member in members:
        member.join(members)
        member.start()
    await leader_of(members)
