"""The etcd store in the conformance suite, on a real etcd."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from bootstrap.stores.backends import Backend, MakeStore
from etcd_cluster import shared_cluster
from interlock_bootstrap.stores.etcd.settings import EtcdSettings
from interlock_bootstrap.stores.etcd.store import EtcdStore

_NUMBERS = count()


@asynccontextmanager
async def state(folder: Path) -> AsyncIterator[MakeStore]:
    settings = EtcdSettings(endpoints=shared_cluster().endpoints, prefix=f"/conformance/{next(_NUMBERS)}")
    yield lambda watch_buffer: EtcdStore(settings, watch_buffer, room_ttl=300.0)


BACKEND = Backend("etcd", state, durable=True, shared=True)
