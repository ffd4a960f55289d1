"""Putting the Preprocess service on a server."""

import asyncio
from functools import partial

from interlock.preprocess.v1 import preprocess_service_pb2
from interlock.preprocess.v1.preprocess_service_pb2_grpc import add_PreprocessServiceServicer_to_server
from interlock.serving import Server
from interlock.vision import kernels, warm_up
from interlock_preprocess import memory
from interlock_preprocess.access import RULES
from interlock_preprocess.admission import Budget
from interlock_preprocess.counters import Counters
from interlock_preprocess.metrics import PreprocessMetrics, standing
from interlock_preprocess.regions import Regions
from interlock_preprocess.servicer import PreprocessServicer
from interlock_preprocess.settings import PreprocessSettings
from interlock_preprocess.sharing import SharedPictures
from interlock_preprocess.work import WorkPool

SERVICE_NAME: str = preprocess_service_pb2.DESCRIPTOR.services_by_name["PreprocessService"].full_name


class PreprocessService:
    """A Preprocess service on a server. Made by `add_preprocess`; close it after the server has stopped."""

    def __init__(self, counters: Counters, pool: WorkPool, regions: Regions) -> None:
        self.counters = counters
        self.regions = regions
        self._pool = pool

    async def close(self) -> None:
        """Wait until every thread has returned. Decodes under way run to their end."""
        await self._pool.close()
        self.regions.close()


def add_preprocess(server: Server, settings: PreprocessSettings | None = None) -> PreprocessService:
    """Add the Preprocess service to a server that was not started yet.

    The allocator of the whole process is told to keep freed memory while there is work.

    Args:
        server: where to add it.
        settings: limits; None: the defaults.

    Raises:
        SettingsError: no such kernel here, or the shared-memory folder cannot be used.
    """
    settings = settings or PreprocessSettings()
    memory.keep_freed_memory()
    if settings.kernel_cache_folder is not None:
        kernels.keep_compiled_in(settings.kernel_cache_folder)
    counters = Counters(
        sources=Budget(settings.source_budget_bytes),
        work=Budget(settings.work_budget_bytes),
        cache=Budget(settings.cache_bytes),
    )
    metrics = PreprocessMetrics(server.metrics.registry)
    warm_up()
    pool = WorkPool(settings, counters, metrics)  # the kernel runs once here, before the server can be ready
    regions = Regions(settings)
    draining = asyncio.Event()
    server.on_drain(draining.set)
    pictures = SharedPictures(settings, pool, counters)
    servicer = PreprocessServicer(settings, pool.kernel.name, pictures, regions, counters, draining)
    server.add(SERVICE_NAME, partial(add_PreprocessServiceServicer_to_server, servicer), RULES)
    server.metrics.collect(partial(standing, counters, settings.worker_threads))
    return PreprocessService(counters, pool, regions)
