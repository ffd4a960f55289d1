"""Patches that are kept after they were handed on: chats send their pictures again with every turn."""

from collections import OrderedDict

from interlock_preprocess.admission import BOOKKEEPING_BYTES, Grant
from interlock_preprocess.counters import Counters
from interlock_preprocess.output import Output


class PatchCache:
    """Whole outputs by key, as many as the budget `Counters.cache` holds; the least recently used makes way.

    One that is just being handed on stays, and counts: its memory would not be free if it left. Where only such are
    left, a new one is not kept.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._outputs: OrderedDict[bytes, Output] = OrderedDict()

    def get(self, key: bytes) -> Output | None:
        """The output of that key, now the most recently used."""
        output = self._outputs.get(key)
        if output is not None:
            self._outputs.move_to_end(key)
        return output

    def keep(self, key: bytes, output: Output, size: int) -> Grant | None:
        """Keep an output of `size` bytes; the memory it now has, or None: there is no room.

        The cache has none of that key yet.
        """
        budget = self._counters.cache
        size += BOOKKEEPING_BYTES
        missing = budget.taken + size - budget.limit
        leaving = []
        for old_key, old in self._outputs.items():
            if missing <= 0:
                break
            if not old.taken:
                leaving.append(old_key)
                missing -= old.size + BOOKKEEPING_BYTES
        if missing > 0:
            return None
        for old_key in leaving:
            self._outputs.pop(old_key).drop()
        self._counters.cache_evictions += len(leaving)
        self._outputs[key] = output
        return budget.take_now(size)
