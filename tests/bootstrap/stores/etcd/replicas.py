"""Replicas: stores upon one etcd, each with what the service puts above it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

from bootstrap.stores.backends import Listener
from interlock.topology import Topology, changes
from interlock_bootstrap.commits import Commit, CommitWatch
from interlock_bootstrap.registry import Registry
from interlock_bootstrap.stores.etcd.settings import EtcdSettings
from interlock_bootstrap.stores.etcd.store import EtcdStore

PATIENCE = 60.0
"""Seconds after which what should have happened long ago is a failure."""

_PREFIXES = count()


def fresh_prefix() -> str:
    """One that no other test has."""
    return f"/replicas/{next(_PREFIXES)}"


@dataclass
class Replica:
    """One of several that share an etcd."""

    store: EtcdStore
    registry: Registry
    listener: Listener


@asynccontextmanager
async def replica(settings: EtcdSettings, watch_buffer: int = 256) -> AsyncIterator[Replica]:
    """A replica that runs in the `async with` block."""
    store, listener = EtcdStore(settings, watch_buffer, room_ttl=300.0), Listener()
    registry = Registry(store, time.time_ns, max_groups=1_000)
    try:
        await store.start(listener)
        yield Replica(store, registry, listener)
    finally:
        await registry.close()
        await store.close()


async def eventually(condition: Callable[[], object]) -> None:
    """Waits until something holds."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


async def told_until(watch: CommitWatch, revision: int) -> list[tuple[int, tuple[object, ...]]]:
    """Revisions and events that a watch is told of, up to a revision."""
    told = []
    async with asyncio.timeout(PATIENCE):
        while not told or told[-1][0] < revision:
            news = await watch.next()
            assert isinstance(news, Commit)
            told.append((news.after.revision, changes(news.before, news.after)))
    return told


async def same_everywhere(replicas: list[Replica], group: str) -> Topology:
    """The group, after all replicas have it alike."""
    topologies = [await each.store.load(group, fresh=True) for each in replicas]
    assert all(topology == topologies[0] for topology in topologies)
    return topologies[0]
