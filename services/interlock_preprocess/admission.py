"""Bytes of memory, admitted before they are used.

A budget belongs to the whole server. What was taken from it is a grant, and a grant belongs to the work that uses the
memory, never to the call that asked for it: a call may be cancelled while a thread is still decoding for it.
"""

import asyncio
import io
from collections import deque
from hashlib import sha256
from threading import Lock

from interlock.reasons import Reason
from interlock_preprocess.faults import RETRY_DELAY, ImageFault

BOOKKEEPING_BYTES = 16 * 1024
"""Counted for every picture besides its bytes: task, request, ids. So many tiny pictures are bounded too."""


class Grant:
    """Bytes taken from a budget, until they are given back."""

    def __init__(self, budget: "Budget", size: int) -> None:
        self._budget = budget
        self.size = size

    def shrink(self, size: int) -> None:
        """Give back all but `size` bytes."""
        if size > self.size:
            raise ValueError(f"a grant of {self.size} bytes cannot grow to {size}")
        freed, self.size = self.size - size, size
        self._budget.receive(freed)

    def give_back(self) -> None:
        """Give back what is left. Doing it twice is harmless."""
        self.shrink(0)


class Budget:
    """A number of bytes that are handed out whole or not at all, first come first served.

    It belongs to the event loop, but for `take_now`, which any thread may call.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self._lock = Lock()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take_now(self, size: int) -> Grant | None:
        """`size` bytes at once, or None."""
        with self._lock:
            if self._waiting or self.taken + size > self.limit:
                return None
            self.taken += size
            return Grant(self, size)

    async def take(self, size: int) -> Grant:
        """`size` bytes, as soon as all who asked before have theirs and enough came back.

        Raises:
            ValueError: more than the whole budget, which no waiting would ever give.
        """
        if size > self.limit:
            raise ValueError(f"{size} bytes are more than the whole budget of {self.limit}")
        if grant := self.take_now(size):
            return grant
        turn = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(entry)
                self._serve_waiting()
            else:
                self.receive(size)
            raise
        return Grant(self, size)

    def receive(self, size: int) -> None:
        """Take bytes back; only grants call it."""
        with self._lock:
            self.taken -= size
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if turn.cancelled():  # its task has not run yet; it takes itself out
                return
            with self._lock:
                if self.taken + size > self.limit:
                    return
                self.taken += size
            self._waiting.popleft()
            turn.set_result(None)


class Source:
    """The bytes of one picture as they arrive, their hash, and the grant for them.

    Args:
        budget: what they are admitted from, at once or not at all.
        total_bytes: how many will arrive.
        data: those that are here already; not copied.
        retry_delay: seconds after which there may be room, where there is none.

    Raises:
        ImageFault: OVERLOADED, the budget has not enough left.
    """

    def __init__(
        self, budget: Budget, total_bytes: int, data: bytes = b"", *, retry_delay: float = RETRY_DELAY
    ) -> None:
        grant = budget.take_now(total_bytes + BOOKKEEPING_BYTES)
        if grant is None:
            raise ImageFault(
                Reason.OVERLOADED,
                f"pictures hold {budget.taken} of {budget.limit} bytes on this server; no room for {total_bytes} more",
                retry_delay=retry_delay,
            )
        self._grant = grant
        self.total_bytes = total_bytes
        self.received = len(data)
        # A BytesIO grows in place and hands out what it holds without a copy.
        self._buffer = io.BytesIO(data)
        self._buffer.seek(0, io.SEEK_END)
        self._hash = sha256(data)

    def append(self, data: bytes) -> None:
        """Add the next bytes; the caller has checked that they are not too many."""
        self._buffer.write(data)
        self._hash.update(data)
        self.received += len(data)

    def whole(self) -> bytes:
        """All bytes that arrived."""
        return self._buffer.getvalue()

    @property
    def sha256(self) -> bytes:
        """SHA-256 of the bytes that arrived. It is made as they come, so that none is read twice."""
        return self._hash.digest()

    def drop(self) -> None:
        """Free the bytes and give back the grant. Doing it twice is harmless."""
        self._buffer = io.BytesIO()
        self._grant.give_back()
