"""Channel options, the same for both faces."""

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


def check_address(address: str) -> str:
    """The address, if it can be one.

    Raises:
        ValueError: it is empty, or has white space.
    """
    if not address or any(character.isspace() for character in address):
        raise ValueError(f"address is {address!r}; expected host:port, for example 'localhost:50051'")
    return address
