"""Who calls, and until when."""

import asyncio

from interlock.serving.access import current_caller
from interlock.serving.calls import Context


def caller_scope(context: Context) -> str:
    """Whose pictures and regions a caller's are: those of its credential's id; of everyone where none are asked for."""
    return current_caller().id


def call_deadline(context: Context) -> float | None:
    """When a call ends at the latest, by the clock of the event loop; None: whenever it likes."""
    remaining = context.time_remaining()
    return None if remaining is None else asyncio.get_running_loop().time() + remaining
