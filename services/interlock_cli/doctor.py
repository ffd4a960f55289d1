"""The checks of `interlock doctor`, one after another; what needs an earlier one is left out without it."""

import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from interlock import __version__
from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.client import Credentials
from interlock.preprocess.v1 import preprocess_pb2
from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from interlock_cli.texts import seconds_text

_VERSION_KEY, _TIME_KEY = "interlock-version", "interlock-unix-time-ns"
_CLOCK_TOLERANCE = 5.0
"""Seconds. A launcher whose clock leads by a minute is refused (STALE_INSTANCE comes of one that lags)."""
_EXPIRES_SOON_DAYS = 14
_BOOTSTRAP, _PREPROCESS = "interlock.bootstrap.v1.BootstrapService", "interlock.preprocess.v1.PreprocessService"
_NOBODY = "not-a-group-"
"""No name of a group: what is asked about it is refused before anything happens, but only after the caller's role."""
_DENIALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


class Verdict(StrEnum):
    """What a check came to."""

    WELL = "well"
    NOTE = "note"
    WRONG = "wrong"


class Finding(NamedTuple):
    """One check."""

    check: str
    verdict: Verdict
    seen: str


def examine(address: str, credentials: Credentials, timeout: float) -> Iterator[Finding]:
    """Looks at a server from outside in. Changes nothing.

    Args:
        address: host:port.
        credentials: to call it with.
        timeout: seconds for each step.
    """
    host, port = _split(address)
    try:
        started = time.monotonic()
        with socket.create_connection((host, port), timeout):
            pass
    except OSError as error:
        yield Finding("reached", Verdict.WRONG, f"no TCP connection: {error.strerror or error}")
        return
    yield Finding("reached", Verdict.WELL, f"TCP connection in {seconds_text(time.monotonic() - started)}")
    yield _tls(host, port, credentials, timeout)
    channel_credentials = credentials.channel_credentials()
    with (
        grpc.insecure_channel(address)
        if channel_credentials is None
        else grpc.secure_channel(address, channel_credentials)
    ) as channel:
        yield from _Examination(channel, credentials.metadata(), timeout).findings()


def _split(address: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^:/\[\]]+)):(?P<port>[0-9]{1,5})", address)
    if match is None or not 1 <= int(match["port"]) <= 65535:
        raise ValueError(f"address is {address!r}; expected host:port with a port of 1 to 65535")
    return match["six"] or match["host"], int(match["port"])


def _tls(host: str, port: int, credentials: Credentials, timeout: float) -> Finding:
    """Whether the server speaks TLS and we do alike, and how long its certificate is good."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host, port), timeout) as plain,
            context.wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            version, shown = wrapped.version(), wrapped.getpeercert(binary_form=True)
    except OSError:
        if credentials.channel_credentials() is None:
            return Finding("TLS", Verdict.NOTE, "none: whoever can read the network can read everything")
        return Finding("TLS", Verdict.WRONG, "the server speaks plain text; leave out --tls and the certificates")
    if credentials.channel_credentials() is None:
        seen = f"the server speaks {version}; give --ca-file, or --tls for this machine's CAs"
        return Finding("TLS", Verdict.WRONG, seen)
    assert shown is not None
    from cryptography import x509

    certificate = x509.load_der_x509_certificate(shown)
    until = certificate.not_valid_after_utc
    days = (until - datetime.now(UTC)).days
    verdict = Verdict.WELL if days >= _EXPIRES_SOON_DAYS else Verdict.NOTE if days >= 0 else Verdict.WRONG
    name = certificate.subject.rfc4514_string()
    return Finding("TLS", verdict, f"{version}, {name}, valid until {until:%Y-%m-%d %H:%M} UTC ({days} days)")


class _Examination:
    def __init__(self, channel: grpc.Channel, metadata: tuple[tuple[str, str], ...], timeout: float) -> None:
        self._options: dict[str, Any] = {"timeout": timeout, "metadata": metadata}
        self._health = health_pb2_grpc.HealthStub(channel)
        self._bootstrap = BootstrapServiceStub(channel)
        self._preprocess = PreprocessServiceStub(channel)

    def findings(self) -> Iterator[Finding]:
        started = time.time()
        try:
            _, call = self._health.Check.with_call(health_pb2.HealthCheckRequest(service="liveness"), **self._options)
        except grpc.RpcError as error:
            yield Finding("answers", Verdict.WRONG, f"{error.code().name}: {error.details()}")
            return
        ended = time.time()
        yield Finding("answers", Verdict.WELL, f"a call in {seconds_text(ended - started)}")
        told = dict(call.initial_metadata())
        yield self._version(told.get(_VERSION_KEY))
        if _TIME_KEY in told:
            yield self._clock(int(told[_TIME_KEY]) / 1e9, started, ended)
        if (ready := self._service("ready", "readiness")) is not None:
            yield ready
        for name, service, examined in (
            ("Bootstrap", _BOOTSTRAP, self._roles_at_bootstrap),
            ("Preprocess", _PREPROCESS, self._at_preprocess),
        ):
            finding = self._service(name, service)
            if finding is not None:
                yield finding
                yield from examined()

    def _version(self, version: object) -> Finding:
        if version is None:
            seen = f"none is told: no server of Interlock, or an old one; this is {__version__}"
            return Finding("version", Verdict.NOTE, seen)
        verdict = Verdict.WELL if version == __version__ else Verdict.NOTE
        return Finding("version", verdict, f"{version}; this is {__version__}")

    def _clock(self, theirs: float, started: float, ended: float) -> Finding:
        apart = max(started - theirs, theirs - ended, 0.0)
        verdict = Verdict.WELL if apart <= _CLOCK_TOLERANCE else Verdict.WRONG
        direction = "behind" if theirs < started else "ahead of"
        return Finding("clock", verdict, f"{seconds_text(apart)} {direction} this one" if apart else "as this one")

    def _service(self, check: str, service: str) -> Finding | None:
        try:
            answer = self._health.Check(health_pb2.HealthCheckRequest(service=service), **self._options)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            return Finding(check, Verdict.WRONG, f"{error.code().name}: {error.details()}")
        status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        return Finding(check, Verdict.WELL if status == "SERVING" else Verdict.WRONG, status)

    def _roles_at_bootstrap(self) -> Iterator[Finding]:
        """What the caller may do, tried with requests that are refused for their group's name at the latest."""
        tries: dict[str, tuple[Callable[..., Any], object]] = {
            "read": (self._bootstrap.GetPrefillServerInfo, bootstrap_pb2.GetPrefillServerInfoRequest(group=_NOBODY)),
            "register": (self._bootstrap.DeregisterRoute, bootstrap_pb2.DeregisterRouteRequest(group=_NOBODY)),
            "admin": (self._bootstrap.ForceEpoch, bootstrap_pb2.ForceEpochRequest(group=_NOBODY)),
        }
        allowed = [role for role, (method, request) in tries.items() if not self._denied(method, request)]
        yield _roles("Bootstrap", allowed)
        try:
            groups = self._bootstrap.ListGroups(bootstrap_pb2.ListGroupsRequest(page_size=1000), **self._options)
        except grpc.RpcError as error:
            if error.code() not in _DENIALS:
                yield Finding("groups", Verdict.WRONG, f"{error.code().name}: {error.details()}")
            return
        ready = sum(state.ready for state in groups.groups)
        more = " of the first 1,000" if groups.next_page_token else ""
        verdict = Verdict.WELL if ready == len(groups.groups) else Verdict.NOTE
        yield Finding("groups", verdict, f"{ready} ready{more} of {len(groups.groups)}")

    def _at_preprocess(self) -> Iterator[Finding]:
        try:
            served = self._preprocess.ListProfiles(preprocess_pb2.ListProfilesRequest(), **self._options)
        except grpc.RpcError as error:
            if error.code() in _DENIALS:
                yield _roles("Preprocess", [])
            else:
                yield Finding("kernel", Verdict.WRONG, f"{error.code().name}: {error.details()}")
            return
        yield _roles("Preprocess", ["preprocess"])
        best = served.available_kernels[0] if served.available_kernels else served.kernel
        verdict = Verdict.WELL if served.kernel == best else Verdict.NOTE
        yield Finding("kernel", verdict, f"{served.kernel}; there are {', '.join(served.available_kernels)}")
        try:
            self._preprocess.ListRegions(preprocess_pb2.ListRegionsRequest(), **self._options)
            yield Finding("shared memory", Verdict.WELL, "on")
        except grpc.RpcError as error:
            off = error.code() is grpc.StatusCode.UNIMPLEMENTED
            seen = "off" if off else f"{error.code().name}: {error.details()}"
            yield Finding("shared memory", Verdict.NOTE if off else Verdict.WRONG, seen)

    def _denied(self, method: Callable[..., Any], request: object) -> bool:
        try:
            method(request, **self._options)
        except grpc.RpcError as error:
            return error.code() in _DENIALS
        return False


def _roles(service: str, allowed: list[str]) -> Finding:
    seen = " and ".join(allowed) if allowed else "nothing: no credentials, or none that the server knows"
    return Finding(f"may at {service}", Verdict.WELL if allowed else Verdict.WRONG, seen)
