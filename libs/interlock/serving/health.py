"""The standard health service, `grpc.health.v1.Health`, with liveness and readiness apart.

Names that can be asked for:

- `liveness`: SERVING as long as the process answers. A NOT_SERVING server is to be left alone, not restarted.
- `readiness` and the empty name: SERVING while the server takes calls and all its services are well.
- the full name of each service, such as `interlock.bootstrap.v1.BootstrapService`.
"""

import asyncio
import time
from collections.abc import AsyncIterator

from grpc_health.v1 import health_pb2, health_pb2_grpc

from interlock import __version__
from interlock.reasons import Reason
from interlock.serving.calls import Context
from interlock.serving.refusals import Refusal

LIVENESS = "liveness"
READINESS = "readiness"
OVERALL = ""
SERVICE_NAME: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

VERSION_KEY = "interlock-version"
TIME_KEY = "interlock-unix-time-ns"
"""What a check tells besides its answer, in the metadata before it: for `interlock doctor`."""

_SERVING: int = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: int = health_pb2.HealthCheckResponse.NOT_SERVING
_SERVICE_UNKNOWN: int = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # grpc_health ships no types
    """Answers health checks and watches.

    Unlike the servicer of grpcio-health-checking, a watcher that stops reading holds nobody up, and watches end when
    the server drains, so that they do not use up its grace period.
    """

    def __init__(self) -> None:
        self._services: dict[str, bool] = {}
        self._taking_calls = False
        self._draining = False
        self._changed = asyncio.Event()

    def add(self, service: str) -> None:
        """Makes a service known. It counts as well until `set_serving` says otherwise."""
        self._services[service] = True

    def set_serving(self, service: str, serving: bool) -> None:
        """Says whether a service is well, for example that it lost its store.

        Raises:
            KeyError: The service was never added.
        """
        if service not in self._services:
            raise KeyError(service)
        self._services[service] = serving
        self._tell()

    def take_calls(self) -> None:
        """The server is up: ready, if all services are well."""
        self._taking_calls = True
        self._tell()

    def drain(self) -> None:
        """The server stops: never ready again. Watches get this last status and end."""
        self._taking_calls = False
        self._draining = True
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _status(self, service: str) -> int:
        if service == LIVENESS:
            return _SERVING
        if service in (READINESS, OVERALL):
            well = all(self._services.values())
        elif service in self._services:
            well = self._services[service]
        else:
            return _SERVICE_UNKNOWN
        return _SERVING if well and self._taking_calls else _NOT_SERVING

    async def Check(  # noqa: N802 - the method's name in the proto
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        status = self._status(request.service)
        if status == _SERVICE_UNKNOWN:
            known = ", ".join([LIVENESS, READINESS, *self._services])
            raise Refusal(Reason.UNKNOWN_SERVICE, f"no service {request.service[:128]!r} here; known are {known}")
        await context.send_initial_metadata(((VERSION_KEY, __version__), (TIME_KEY, str(time.time_ns()))))
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(  # noqa: N802 - the method's name in the proto
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        told = None
        while True:
            changed, draining, status = self._changed, self._draining, self._status(request.service)
            if status != told:
                yield health_pb2.HealthCheckResponse(status=status)
                told = status
            if draining:
                raise Refusal(Reason.DRAINING, "the server stops; watch another one")
            await changed.wait()
