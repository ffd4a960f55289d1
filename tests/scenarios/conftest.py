"""What the scenarios share: real servers on each durable store, a group of one's own, and watchers that check.

Each scenario runs on SQLite and on etcd.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

import grpc
import pytest

from faults.etcd_members import Member, free_ports, start_members
from faults.processes import PATIENCE, Replica
from faults.watches import WatchRecord, compare_watches
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub

STORES = ["sqlite", "etcd"]

_NUMBERS = count(1)


class Stores:
    """Places for stores: an etcd of one member that all scenarios share, and folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.member: Member | None = None

    async def options(self, kind: str) -> list[str]:
        """What to tell a server so that it has an empty store of its own."""
        number = next(_NUMBERS)
        if kind != "etcd":
            return ["--store", kind, "--state-folder", str(self.folder / f"state-{number}")]
        if self.member is None:
            self.member = Member("etcd", self.folder, "127.0.0.1", tuple(free_ports(2)))
            await start_members([self.member])
        return ["--store", "etcd", "--etcd-endpoints", self.member.endpoint, "--etcd-prefix", f"/scenario-{number}"]


@pytest.fixture(scope="session")
async def stores(tmp_path_factory) -> AsyncIterator[Stores]:
    places = Stores(tmp_path_factory.mktemp("scenarios"))
    yield places
    if places.member is not None:
        places.member.kill()


@pytest.fixture(scope="session", params=STORES)
def store(request) -> str:
    return request.param


@asynccontextmanager
async def _running(stores: Stores, kind: str, *options: str) -> AsyncIterator[Replica]:
    replica = Replica(f"server-{next(_NUMBERS)}", stores.folder, [*await stores.options(kind), *options])
    try:
        await replica.serve()
        yield replica
    finally:
        replica.kill()


@pytest.fixture(scope="session")
async def server(stores: Stores, store: str) -> AsyncIterator[Replica]:
    """One server for all scenarios that leave it alone."""
    async with _running(stores, store, "--progress-seconds", "0.2") as replica:
        yield replica


@pytest.fixture(scope="session")
async def stub(server: Replica) -> AsyncIterator[BootstrapServiceStub]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield BootstrapServiceStub(channel)


@pytest.fixture
async def own_server(stores: Stores, store: str) -> AsyncIterator[Callable[..., Awaitable[Replica]]]:
    """Starts servers for one scenario that does something to them; each has an empty store."""
    async with AsyncExitStack() as stack:

        async def start(*options: str) -> Replica:
            return await stack.enter_async_context(_running(stores, store, *options))

        yield start


@pytest.fixture
def group() -> str:
    return f"group-{next(_NUMBERS)}"


class Watcher:
    """Follows one group, checks all that it is sent, and waits for what should come."""

    def __init__(self, stub: BootstrapServiceStub, group: str) -> None:
        self.record = WatchRecord(f"watcher of {group}")
        self.call = stub.WatchTopology(pb.WatchTopologyRequest(group=group, after_revision=self.record.opened()))
        self.progress = 0
        self.states: list[pb.GroupState] = []

    async def until(self, reached: Callable[[pb.GroupState], bool]) -> pb.GroupState:
        """Reads until the group's state is as asked."""
        async with asyncio.timeout(PATIENCE):
            while not (self.record.revision is not None and reached(self.record.state)):
                await self._read()
        return self.record.state

    async def until_progress(self) -> None:
        """Reads until the server says once more that nothing is new."""
        told = self.progress
        async with asyncio.timeout(PATIENCE):
            while self.progress == told:
                await self._read()

    async def _read(self) -> None:
        message = await self.call.read()
        assert message is not grpc.aio.EOF
        self.record.receive(message, time.monotonic_ns())
        if message.WhichOneof("body") == "progress":
            self.progress += 1
        elif message.last:
            self.states.append(pb.GroupState.FromString(self.record.state.SerializeToString()))


@pytest.fixture
async def watch(stub: BootstrapServiceStub) -> AsyncIterator[Callable[..., Awaitable[Watcher]]]:
    """Starts watchers, which have seen the group as it is; afterwards no fault must have been found."""
    watchers: list[Watcher] = []

    async def start(group: str, at: BootstrapServiceStub = stub) -> Watcher:
        watcher = Watcher(at, group)
        watchers.append(watcher)
        await watcher.until(lambda state: True)
        return watcher

    yield start
    for watcher in watchers:
        watcher.call.cancel()
    assert list(compare_watches(watcher.record for watcher in watchers)) == []
