"""`Server`: one gRPC server with health, reflection, bounds and a clean stop; services are added to it."""

import asyncio
import errno
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar

import grpc
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from interlock.serving.access import ANY_ROLE, OPEN, Access, AccessSettings, Rule
from interlock.serving.calls import CallInterceptor
from interlock.serving.config import Settings, setting
from interlock.serving.health import SERVICE_NAME as HEALTH_SERVICE_NAME
from interlock.serving.health import HealthServicer
from interlock.serving.metrics import Metrics, MetricsSettings, exposed
from interlock.serving.tls import ServerCertificates, TlsSettings

_LOGGER = logging.getLogger(__name__)

_METADATA_BYTES = 16 * 1024  # a request's headers; the same soft and hard limit, so that none is dropped at random
_KEEPALIVE_MS = 30_000  # how soon a vanished caller is looked for on an idle connection
_KEEPALIVE_TIMEOUT_MS = 10_000
_MAX_PROBES = 100
"""Calls and connections at once on the port for health checks."""


class CannotListenError(Exception):
    """The server cannot listen on its address; the message says which and why."""


class OpenToAllError(Exception):
    """Everyone who reaches the server could do everything, and nobody said that this is meant."""


class PortTakenError(CannotListenError):
    """Something else listens on the port."""


def _check_ip_address(host: str) -> None:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f"expected an IP address such as 127.0.0.1, 0.0.0.0 or ::, got {host!r}") from None


@dataclass(frozen=True)
class ServerSettings(Settings):
    """Where a server listens and how much it takes at once.

    The default address is reached only from the same machine. In a pod or container set `0.0.0.0`, which gRPC takes as
    every address of both families. A host name is refused: it can mean several addresses, of which gRPC is content to
    get one.
    """

    table: ClassVar[str] = "server"

    host: str = setting(
        "127.0.0.1",
        "IP address to listen on. 0.0.0.0: every address of the machine, IPv6 too.",
        validate=_check_ip_address,
    )
    port: int = setting(50051, "TCP port to listen on. 0: a free one, named in the log.", minimum=0, maximum=65535)
    health_port: int | None = setting(
        None,
        "TCP port for health checks alone, in plain text whatever the other speaks: for probes that know no TLS, such "
        "as Kubernetes'. 0: a free one, named in the log. Not set: none.",
        minimum=0,
        maximum=65535,
    )
    max_concurrent_rpcs: int = setting(
        20_000, "Calls that run at once, streams included; further ones are refused (OVERLOADED).", minimum=1
    )
    max_connection_streams: int = setting(
        1_000, "Calls at once on one connection; further ones wait at the caller.", minimum=1, maximum=2**31 - 1
    )
    max_connections: int = setting(
        20_000, "Connections at once; further ones are closed.", minimum=1, maximum=2**31 - 1
    )
    max_receive_message_bytes: int = setting(
        17 * 1024 * 1024,
        "Bytes of one request message; a larger one is refused (RESOURCE_EXHAUSTED).",
        minimum=1024,
        maximum=2**31 - 1,
    )
    max_connection_age_seconds: float | None = setting(
        None,
        "Age after which a connection is asked to go, so that callers spread over new servers: its calls have "
        "`grace_seconds` to end. Not set: none is.",
        minimum=1,
        maximum=1_000_000,
    )
    grace_seconds: float = setting(
        25.0, "Time that running calls have to end when the server stops; then they are cancelled.", minimum=0
    )


class Server:
    """One gRPC server. Add services, `start`, and `stop` (or `run_until_stopped`). It starts once.

    It may be made outside of an event loop; what belongs to one is made in `start`.
    """

    def __init__(
        self,
        settings: ServerSettings | None = None,
        access: AccessSettings | None = None,
        tls: TlsSettings | None = None,
        metrics: MetricsSettings | None = None,
    ) -> None:
        """
        Args:
            settings: where it listens, and its bounds.
            access: who may call it. None: everyone, on an address that only this machine reaches.
            tls: its certificates. None: plain text.
            metrics: where they can be read. None: nowhere.

        Raises:
            CredentialsError: The credentials file cannot be used.
            BadCertificateError: A certificate or key cannot be used.
            OpenToAllError: Others can reach the address, and everyone could do everything.
        """
        self.settings = settings or ServerSettings()
        self.metrics = Metrics()
        self._metrics_settings = metrics or MetricsSettings()
        self._access = Access(access or AccessSettings())
        self._certificates = ServerCertificates(tls) if tls is not None and tls.certificate_file is not None else None
        self._check_openness(insecure=access is not None and access.insecure)
        self._drain_callbacks: list[Callable[[], None]] = []
        self._lifespans: list[Callable[[], AbstractAsyncContextManager[object]]] = []
        self._entered = AsyncExitStack()
        self._services: dict[str, Callable[[grpc.aio.Server], None]] = {}
        self._health = HealthServicer()
        self._calls = CallInterceptor(self.settings.max_concurrent_rpcs, self._access, self.metrics)
        self.metrics.count_running(lambda: self._calls.running)
        self._server: grpc.aio.Server | None = None
        self._stopped = False
        self._port = 0
        for method in ("Check", "Watch", "List"):
            self._access.add(f"/{HEALTH_SERVICE_NAME}/{method}", OPEN)  # probes have no credentials
        self._access.add(f"/{reflection.SERVICE_NAME}/ServerReflectionInfo", ANY_ROLE)

    def _check_openness(self, *, insecure: bool) -> None:
        host = self.settings.host
        if ipaddress.ip_address(host).is_loopback:
            return
        if not self._access.checked:
            if not insecure:
                raise OpenToAllError(
                    f"{host} can be reached by others, and without credentials everyone could do everything: set "
                    "--credentials-file, or listen on 127.0.0.1, or say --insecure if this is meant"
                )
            _LOGGER.warning("INSECURE: everyone who reaches %s may do everything on this server", host)
        elif self._certificates is None:
            _LOGGER.warning("tokens will cross the network as plain text: set --tls-certificate-file, or see to TLS")

    def add(
        self,
        service_full_name: str,
        add_to_server: Callable[[grpc.aio.Server], None],
        rules: Mapping[str, Rule] | None = None,
    ) -> None:
        """Adds a service, before `start`.

        Args:
            service_full_name: For health and reflection, such as `interlock.bootstrap.v1.BootstrapService`.
            add_to_server: Registers the servicer, such as `partial(add_BootstrapServiceServicer_to_server, servicer)`.
                Its methods must be coroutines or async generators.
            rules: Who may call each of its methods, by the methods' names. None: admins alone.

        Raises:
            RuntimeError: The server was started before.
            LookupError: No imported module describes the service, so reflection could not either; or `rules` has not
                exactly one rule for each method.
        """
        if self._server is not None:
            raise RuntimeError(f"{service_full_name} was added to a server that had been started")
        try:
            described = descriptor_pool.Default().FindServiceByName(service_full_name)
        except KeyError:
            raise LookupError(
                f"no imported module describes {service_full_name}; import its `..._service_pb2` beside its "
                "`..._service_pb2_grpc`, which does not import it"
            ) from None
        methods = {method.name for method in described.methods}
        if rules is not None and rules.keys() != methods:
            raise LookupError(f"rules of {service_full_name}: {sorted(rules.keys() ^ methods)} are not in both")
        for method, rule in (rules or {}).items():
            self._access.add(f"/{service_full_name}/{method}", rule)
        self._services[service_full_name] = add_to_server
        self._health.add(service_full_name)

    def on_drain(self, callback: Callable[[], None]) -> None:
        """Has `callback` called when the server begins to stop: a service ends its endless streams there (DRAINING)."""
        self._drain_callbacks.append(callback)

    def add_lifespan(self, lifespan: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        """Has what a service needs while it serves, such as its store, entered before the server listens and left
        after its last call. What entering raises comes out of `start`."""
        self._lifespans.append(lifespan)

    def set_serving(self, service_full_name: str, serving: bool) -> None:
        """Says whether a service is well, for example that it lost its store; the server is ready only if all are."""
        self._health.set_serving(service_full_name, serving)

    @property
    def running_calls(self) -> int:
        """Calls that run now, streams included; health checks are not counted."""
        return self._calls.running

    async def start(self) -> int:
        """Listens and takes calls. Starting a started server changes nothing.

        Returns:
            The port, the real one where the settings say 0.

        Raises:
            PortTakenError: Something else listens on it.
            CannotListenError: The address cannot be used for another reason.
            RuntimeError: The server was stopped.
        """
        if self._stopped:
            raise RuntimeError("a stopped server does not start again")
        if self._server is not None:
            return self._port
        host, port = self.settings.host, self.settings.port
        _check_can_listen(host, port)
        async with AsyncExitStack() as entered:
            await entered.enter_async_context(self._access.watching())
            await entered.enter_async_context(self._exposed_metrics())
            for lifespan in self._lifespans:
                await entered.enter_async_context(lifespan())
            await entered.enter_async_context(self._probed())
            await self._listen(host, port)
            self._entered = entered.pop_all()
        self._health.take_calls()
        _LOGGER.info(
            "serving on %s",
            _address(host, self._port),
            extra={"host": host, "port": self._port, "services": [*self._services]},
        )
        return self._port

    @asynccontextmanager
    async def _exposed_metrics(self) -> AsyncIterator[None]:
        host, port = self._metrics_settings.host, self._metrics_settings.port
        if port:
            _check_can_listen(host, port)
        async with exposed(self.metrics, self._metrics_settings):
            yield

    @asynccontextmanager
    async def _probed(self) -> AsyncIterator[None]:
        """Answers health checks on the port for them: not ready before calls are taken, to the very end."""
        host, port = self.settings.host, self.settings.health_port
        if port is None:
            yield
            return
        _check_can_listen(host, port)
        probes = grpc.aio.server(
            interceptors=[CallInterceptor(_MAX_PROBES, Access(AccessSettings()), Metrics())],
            options=_options(ServerSettings(max_connections=_MAX_PROBES)),
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, probes)
        port = probes.add_insecure_port(_address(host, port))
        await probes.start()
        _LOGGER.info("health checks on %s", _address(host, port), extra={"host": host, "health_port": port})
        try:
            yield
        finally:
            await probes.stop(0)

    async def _listen(self, host: str, port: int) -> None:
        server = grpc.aio.server(interceptors=[self._calls], options=_options(self.settings))
        address = _address(host, port)
        try:
            if self._certificates is None:
                self._port = server.add_insecure_port(address)
            else:
                self._port = server.add_secure_port(address, self._certificates.credentials())
        except RuntimeError as error:
            raise CannotListenError(f"cannot listen on {address}: {error}") from None
        for add_to_server in self._services.values():
            add_to_server(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((*self._services, HEALTH_SERVICE_NAME, reflection.SERVICE_NAME), server)
        await server.start()
        self._server = server

    async def stop(self, grace: float | None = None) -> None:
        """Stops: not ready any more, watches end, running calls have `grace` seconds, then they are cancelled.

        Args:
            grace: Seconds. None: as the settings say.
        """
        if self._server is None:
            return
        grace = self.settings.grace_seconds if grace is None else grace
        _LOGGER.info("stopping; running calls have %g s to end", grace, extra={"grace_seconds": grace})
        self._stopped = True
        self._health.drain()
        for callback in self._drain_callbacks:
            callback()
        await self._server.stop(grace)
        await self._entered.aclose()
        _LOGGER.info("stopped")


async def run_until_stopped(server: Server) -> None:
    """Starts the server if it was not, and serves until SIGTERM or SIGINT; then stops it within its grace.

    A second signal ends the process at once, whatever runs, with exit code 128 + its number (143 or 130).

    Raises:
        CannotListenError: As `Server.start`.
    """
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        if stopping.is_set():
            _LOGGER.warning("second %s: ending at once", number.name)
            logging.shutdown()
            # By hand: the default action of a signal does nothing to the first process of a container.
            os._exit(128 + number)
        _LOGGER.info("%s received", number.name)
        stopping.set()

    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, on_signal, number)
    try:
        await server.start()
        await stopping.wait()
        await server.stop()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def _check_can_listen(host: str, port: int) -> None:
    """Tries the port with a socket of our own: gRPC does not say why it cannot listen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does; connections that linger are no bar
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortTakenError(
                    f"{_address(host, port)} is taken: something else listens there, perhaps another server of this "
                    "kind; stop it or choose another port"
                ) from None
            raise CannotListenError(f"cannot listen on {_address(host, port)}: {error.strerror}") from None


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _options(settings: ServerSettings) -> list[tuple[str, int]]:
    ages = []
    if settings.max_connection_age_seconds is not None:
        ages = [
            ("grpc.max_connection_age_ms", round(settings.max_connection_age_seconds * 1e3)),
            ("grpc.max_connection_age_grace_ms", round(settings.grace_seconds * 1e3)),
        ]
    return [
        *ages,
        ("grpc.so_reuseport", 0),  # a second server on the port fails loudly
        ("grpc.max_receive_message_length", settings.max_receive_message_bytes),
        ("grpc.max_concurrent_streams", settings.max_connection_streams),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        # Calls that came and were not looked at yet. By default gRPC cancels some, without a word, from 1,000 on: of
        # all the watchers that come back after a restart.
        ("grpc.server.max_pending_requests", settings.max_concurrent_rpcs),
        ("grpc.server.max_pending_requests_hard_limit", settings.max_concurrent_rpcs),
        ("grpc.max_metadata_size", _METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
        # Our pings find callers that vanished without a word, also between calls.
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        # Callers may ping as often as they like and are not sent away for it.
        ("grpc.http2.max_ping_strikes", 0),
    ]
