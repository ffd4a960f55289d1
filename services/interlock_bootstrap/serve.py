"""Puts the Bootstrap service onto a server."""

import time
from functools import partial

from interlock.bootstrap.v1 import bootstrap_service_pb2, bootstrap_service_pb2_grpc
from interlock.serving.server import Server
from interlock_bootstrap.registry import Registry
from interlock_bootstrap.rooms import Rooms
from interlock_bootstrap.servicer import BootstrapServicer
from interlock_bootstrap.settings import BootstrapSettings
from interlock_bootstrap.stores.memory import MemoryStore

SERVICE_NAME: str = bootstrap_service_pb2.DESCRIPTOR.services_by_name["BootstrapService"].full_name
"""Full name of the service, as health and reflection know it."""


def add_bootstrap(server: Server, settings: BootstrapSettings) -> BootstrapServicer:
    """Adds the Bootstrap service, on a memory store, to a server that has not started yet."""
    store = MemoryStore(settings.watch_buffer)
    registry = Registry(store, time.time_ns, settings.max_groups)
    rooms = Rooms(settings.max_rooms, settings.max_awaited_rooms, settings.room_ttl_seconds, time.monotonic)
    servicer = BootstrapServicer(store, registry, rooms, settings)
    server.add(SERVICE_NAME, partial(bootstrap_service_pb2_grpc.add_BootstrapServiceServicer_to_server, servicer))
    server.on_drain(store.end_watches)
    server.on_drain(rooms.end_waits)
    return servicer
