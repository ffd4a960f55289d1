"""Which pictures are begun by their hash, so that what the server has in its cache is not sent again."""

import threading
from collections import OrderedDict
from typing import Literal

HashFirst = bool | Literal["auto"]

_LEAST_BYTES = 64 * 1024
"""Below, sending a picture costs less than asking for it."""

_REMEMBERED = 65_536


class HashFirstPolicy:
    """Decides by picture. May be used from many threads.

    A picture that the server does not have is delayed by a message there and back, and the hash takes time (0.5 ms a
    megabyte where the CPU has instructions for SHA-256). So "auto" asks only for what this client has sent before, as
    chats resend their pictures every turn; those are told by length and CRC-32C, which cost next to nothing. That two
    pictures may share them does no harm: what the server is asked for is always the SHA-256 of the bytes at hand.

    Args:
        mode: True: for every picture. "auto": as above. False: never.
    """

    def __init__(self, mode: HashFirst) -> None:
        self._mode = mode
        self._sent: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._lock = threading.Lock()

    def applies_to(self, source: memoryview) -> bool:
        """Whether a source is to be begun by its hash. Ask once for each picture: asking is what is remembered."""
        return self._mode is True or (self._mode == "auto" and self._sent_before(source))

    def _sent_before(self, source: memoryview) -> bool:
        import google_crc32c
        import numpy as np

        if len(source) < _LEAST_BYTES:
            return False
        mark = len(source), google_crc32c.value(np.frombuffer(source, np.uint8))  # takes no memoryview
        with self._lock:
            before = mark in self._sent
            self._sent[mark] = None
            self._sent.move_to_end(mark)
            if len(self._sent) > _REMEMBERED:
                self._sent.popitem(last=False)
        return before
