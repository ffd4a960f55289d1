"""How tables and lines call things."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.topology import GroupState


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
