"""Puts the Bootstrap service onto a server."""

import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import NamedTuple

from interlock.bootstrap.v1 import bootstrap_service_pb2, bootstrap_service_pb2_grpc
from interlock.serving.server import Server
from interlock_bootstrap.access import RULES
from interlock_bootstrap.leases import LeaseWheel
from interlock_bootstrap.metrics import BootstrapMetrics, standing
from interlock_bootstrap.registry import Registry
from interlock_bootstrap.rooms import Rooms
from interlock_bootstrap.servicer import BootstrapServicer
from interlock_bootstrap.settings import BootstrapSettings
from interlock_bootstrap.stores import Store
from interlock_bootstrap.stores.etcd.settings import EtcdSettings
from interlock_bootstrap.stores.etcd.store import EtcdStore
from interlock_bootstrap.stores.memory import MemoryStore
from interlock_bootstrap.stores.sqlite import SqliteSettings, SqliteStore, default_state_folder

SERVICE_NAME: str = bootstrap_service_pb2.DESCRIPTOR.services_by_name["BootstrapService"].full_name
"""Full name of the service, as health and reflection know it."""


class ChosenStore(NamedTuple):
    """The store that the settings ask for."""

    store: Store
    """Not started."""
    place: str
    """Where it keeps groups, for people."""


def choose_store(
    settings: BootstrapSettings, sqlite: SqliteSettings, etcd: EtcdSettings, environment: Mapping[str, str]
) -> ChosenStore:
    """
    Raises:
        CannotOpenStoreError: No place for it is known.
    """
    watch_buffer, room_ttl = settings.watch_buffer, settings.room_ttl_seconds
    match settings.store:
        case "memory":
            return ChosenStore(MemoryStore(watch_buffer), "memory, which a restart forgets")
        case "etcd":
            return ChosenStore(EtcdStore(etcd, watch_buffer, room_ttl), f"etcd at {etcd.endpoints} under {etcd.prefix}")
    store = SqliteStore(sqlite.state_folder or default_state_folder(environment), watch_buffer, room_ttl)
    return ChosenStore(store, str(store.path))


def add_bootstrap(
    server: Server,
    settings: BootstrapSettings,
    store: Store | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> BootstrapServicer:
    """Adds the Bootstrap service to a server that has not started yet.

    Args:
        server: It opens the store when it starts, and closes it when it has stopped.
        settings: Bounds of the service.
        store: Not started, as `choose_store` gives it. None: a memory store.
        clock: Unix time in nanoseconds.
    """
    store = store or MemoryStore(settings.watch_buffer)
    wheel = None if store.keeps_leases else LeaseWheel(time.monotonic)
    registry = Registry(store, clock, settings.max_groups, wheel, BootstrapMetrics(server.metrics.registry))
    rooms = Rooms(settings.max_rooms, settings.max_awaited_rooms, settings.room_ttl_seconds, time.monotonic)
    servicer = BootstrapServicer(store, registry, rooms, settings)
    server.add(
        SERVICE_NAME, partial(bootstrap_service_pb2_grpc.add_BootstrapServiceServicer_to_server, servicer), RULES
    )
    server.add_lifespan(partial(_open, store, registry, _Listener(server, registry, rooms)))
    server.metrics.collect(lambda: standing(store, len(rooms), servicer.watchers))
    server.on_drain(store.end_watches)
    server.on_drain(rooms.end_waits)
    server.on_drain(servicer.end_keep_alives)
    return servicer


@asynccontextmanager
async def _open(store: Store, registry: Registry, listener: "_Listener") -> AsyncIterator[None]:
    with _rare_garbage_collection():
        try:
            await store.start(listener)
            await registry.start()
            yield
        finally:
            await registry.close()
            await store.close()


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Python looks for cycles after 700 new objects, and now and then at all there are. What a server keeps are rows,
    many and without cycles: looking that often costs a tenth of a registration, and more the larger a group is."""
    thresholds = gc.get_threshold()
    gc.set_threshold(10_000, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class _Listener:
    """Takes what the store tells to where it belongs."""

    def __init__(self, server: Server, registry: Registry, rooms: Rooms) -> None:
        self._server = server
        self._registry = registry
        self._rooms = rooms

    def rooms_committed(self, group: str, epoch: int, dp_ranks: Mapping[int, int]) -> tuple[int, int]:
        return self._rooms.put(group, epoch, dp_ranks)

    def availability(self, available: bool) -> None:
        self._server.set_serving(SERVICE_NAME, available)
        if available:
            self._registry.store_is_back()
