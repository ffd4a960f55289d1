"""How tables and lines call things."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.topology import GroupState, Instance


def address_text(host: str, port: int) -> str:
    """An address with its port; an IPv6 one gets its brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def state_word(state: "GroupState") -> str:
    """How far a group has come: empty, incomplete (ranks are missing), undeclared (all came), or ready."""
    if state.ready:
        return "ready"
    if not state.registered:
        return "empty"
    return "incomplete" if state.missing_count else "undeclared"


def moment_text(nanoseconds: int) -> str:
    """A Unix time in nanoseconds as a date and time in UTC, to the second."""
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def instance_text(instance: "Instance | None") -> str | None:
    """An instance with its time for people beside the number."""
    return None if instance is None else f"{instance} ({moment_text(instance.started_at)})"


def clock_text(seconds: float) -> str:
    """The time of day, here, of a Unix time."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def seconds_text(seconds: float) -> str:
    """A short time: milliseconds below a second."""
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
