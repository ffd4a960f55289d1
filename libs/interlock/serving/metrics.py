"""What a server counts, for Prometheus: of every call here, and what its services add.

Names and labels of calls are those of OpenTelemetry's gRPC metrics (gRPC proposal A66) in Prometheus' spelling. Every
label has a bounded number of values: methods are those that the server has, statuses and reasons those there are.
"""

import asyncio
import ipaddress
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar

import grpc
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from interlock.reasons import Reason
from interlock.serving.config import Settings, setting

_LOGGER = logging.getLogger(__name__)

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bounds of the histograms of durations. Streams that live for hours are in the last one."""

_SCRAPE_SECONDS = 5.0
"""How long a scrape waits for the event loop before it leaves out what is read there."""


def _check_ip_address(host: str) -> None:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f"expected an IP address such as 127.0.0.1, 0.0.0.0 or ::, got {host!r}") from None


@dataclass(frozen=True)
class MetricsSettings(Settings):
    """Where metrics can be read: a port of their own, without TLS and credentials, which no Service should expose."""

    table: ClassVar[str] = "metrics"
    flag_prefix: ClassVar[str] = "metrics-"

    port: int | None = setting(
        None,
        "TCP port of `/metrics`, for Prometheus. 0: a free one, named in the log. Not set: none.",
        minimum=0,
        maximum=65535,
    )
    host: str = setting("127.0.0.1", "IP address of that port.", validate=_check_ip_address)


class Metrics:
    """The metrics of one server. Services add theirs to `registry`, or by `collect`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.loop: asyncio.AbstractEventLoop | None = None
        """That of the server, while metrics are exposed."""
        self._started = Counter("grpc_server_call_started", "Calls that came.", ["grpc_method"], registry=self.registry)
        self._duration = Histogram(
            "grpc_server_call_duration_seconds",
            "Time from the arrival of a call to its end.",
            ["grpc_method", "grpc_status"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._refused = Counter(
            "interlock_refusals",
            "Calls that were refused, by reason.",
            ["grpc_method", "reason"],
            registry=self.registry,
        )
        self._running = Gauge(
            "interlock_calls_running", "Calls that run now, health checks left out.", registry=self.registry
        )

    def call_started(self, method: str) -> None:
        """A call of a method that the server has."""
        self._started.labels(method[1:]).inc()

    def call_ended(self, method: str, status: grpc.StatusCode, seconds: float, reason: Reason | None = None) -> None:
        """It ended so; with a reason if it was refused."""
        self._duration.labels(method[1:], status.name).observe(seconds)
        if reason is not None:
            self._refused.labels(method[1:], reason).inc()

    def count_running(self, running: Callable[[], int]) -> None:
        """Has the number of running calls read from there."""
        self._running.set_function(running)

    def collect(self, read: Callable[[], Awaitable[Iterable[Metric]]]) -> None:
        """Has `read` called on the event loop at each scrape, for what is known there."""
        self.registry.register(_OnTheLoop(self, read))


class _OnTheLoop(Collector):
    def __init__(self, metrics: Metrics, read: Callable[[], Awaitable[Iterable[Metric]]]) -> None:
        self._metrics = metrics
        self._read = read

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        async def read() -> Iterable[Metric]:
            return await self._read()

        if (loop := self._metrics.loop) is None:
            return ()
        reading = asyncio.run_coroutine_threadsafe(read(), loop)
        try:
            return reading.result(_SCRAPE_SECONDS)
        except TimeoutError:
            reading.cancel()
            _LOGGER.warning(
                "a scrape waited %g s for the event loop and goes without what is read there", _SCRAPE_SECONDS
            )
            return ()


@asynccontextmanager
async def exposed(metrics: Metrics, settings: MetricsSettings) -> AsyncIterator[None]:
    """Serves `/metrics` within the block, if the settings say so.

    Raises:
        OSError: The port cannot be listened on.
    """
    if settings.port is None:
        yield
        return
    metrics.loop = asyncio.get_running_loop()
    server, thread = start_http_server(settings.port, settings.host, metrics.registry)
    _LOGGER.info("metrics on %s port %s", settings.host, server.server_port, extra={"metrics_port": server.server_port})
    try:
        yield
    finally:
        metrics.loop = None
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join()
