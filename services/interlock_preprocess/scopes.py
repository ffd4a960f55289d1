"""Whose a call is."""

from interlock.serving.calls import Context


def caller_scope(context: Context) -> str:
    """What a caller may find again is found by the same scope alone: its regions. Empty for all, for there are no
    tokens yet."""
    return ""
