"""Where a client connects to, and how; the same for both faces."""

import re
from typing import Any

import grpc
import grpc.aio

from interlock.client._internal.authorized import AuthorizedChannel
from interlock.client.credentials import Credentials

OPTIONS: tuple[tuple[str, int], ...] = (
    # The SDK tries again by itself, by rules that know the reasons; two layers of retries would multiply.
    ("grpc.enable_retries", 0),
    # A peer that went without a word is noticed within 30 s, also while a watch is silent.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A server that comes back is found again soon: the default grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 3_000),
    # Channels of one process do not share a connection: closing one client leaves the others alone.
    ("grpc.use_local_subchannel_pool", 1),
)
"""The 4 MiB bound on a received message stays as it is: every answer of the services is smaller."""


_SCHEMES = ("dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:", "vsock:", "xds:")
"""What gRPC's own names of servers begin with; it checks them itself."""

_HOST_AND_PORT = re.compile(r"(?:\[[^\[\]]+\]|[^:/\[\]]+):([0-9]{1,5})")


def check_address(address: str) -> str:
    """The address, if it can be one: gRPC takes a port over 65535 for another port, and a missing one for 443.

    Raises:
        ValueError: it is no host:port, and no name with a scheme of gRPC.
    """
    host_and_port = _HOST_AND_PORT.fullmatch(address)
    meant = 1 <= int(host_and_port[1]) <= 65535 if host_and_port else address.startswith(_SCHEMES)
    if not meant or any(character.isspace() for character in address):
        raise ValueError(
            f"address is {address!r}; expected host:port with a port of 1 to 65535, for example 'localhost:50051'"
        )
    return address


def sync_channel(address: str, credentials: Credentials) -> Any:
    """A `grpc.Channel`."""
    channel_credentials = credentials.channel_credentials()
    if channel_credentials is None:
        return _authorized(grpc.insecure_channel(address, OPTIONS), credentials)
    return _authorized(grpc.secure_channel(address, channel_credentials, OPTIONS), credentials)


def async_channel(address: str, credentials: Credentials) -> Any:
    """A `grpc.aio.Channel`."""
    channel_credentials = credentials.channel_credentials()
    if channel_credentials is None:
        return _authorized(grpc.aio.insecure_channel(address, OPTIONS), credentials)
    return _authorized(grpc.aio.secure_channel(address, channel_credentials, OPTIONS), credentials)


def _authorized(channel: Any, credentials: Credentials) -> Any:
    return AuthorizedChannel(channel, credentials.metadata) if credentials.has_token else channel
