"""The SQLite store: what it acknowledged survives `kill -9` and a loss of power.

All of the file is read at the start and kept in memory; reads never touch it. One process owns the file, so what it
keeps in memory is the truth, and only what is on its way to the disk in this process can be first with a group.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from interlock.serving import Refusal
from interlock.topology import Topology
from interlock_bootstrap.commits import CommitWatch
from interlock_bootstrap.stores import CommitUnknownError, Lease, StoreListener, StoreUnavailableError
from interlock_bootstrap.stores.copies import Copies
from interlock_bootstrap.stores.sqlite.database import FILE_NAME
from interlock_bootstrap.stores.sqlite.rows import Contents, change_statements, forget_rooms_statement, rooms_statement
from interlock_bootstrap.stores.sqlite.state_folder import StateFolder
from interlock_bootstrap.stores.sqlite.writer import REOPEN_SECONDS, Writer

_SWEEPS_A_TTL = 30
"""How often in the life of a room old rooms are looked for in the file."""

_FRESH_SECONDS = 5 * REOPEN_SECONDS
"""For how long a caller who needs the truth waits for a file that was lost."""

_LOGGER = logging.getLogger(__name__)


class SqliteStore:
    """Keeps the topologies and rooms in a file; see `Store`."""

    keeps_leases = False

    def __init__(self, folder: Path, watch_buffer: int, room_ttl: float) -> None:
        """
        Args:
            folder: Where the file is, or is to be made.
            watch_buffer: Commits that one watch may fall behind before it loses them.
            room_ttl: Seconds that a room is kept at least.
        """
        self.path = folder / FILE_NAME
        self._room_ttl = room_ttl
        self._copies = Copies(watch_buffer)
        self._under_way: dict[str, asyncio.Future[None]] = {}
        """The commit of each group that has one on its way to the disk."""
        self._last_rooms = 0
        """Number of the row with the rooms that came last."""
        self._trouble = ""
        """Why the file cannot be used; empty if it can."""
        self._usable = asyncio.Event()
        self._closing = contextlib.AsyncExitStack()

    async def start(self, listener: StoreListener) -> None:
        """
        Raises:
            StoreFileError: The file cannot be used.
        """
        self._listener = listener
        folder = await asyncio.to_thread(StateFolder, self.path.parent)
        self._closing.callback(folder.release)
        self.writer = Writer(self.path, self._lost, self._found)
        self._closing.push_async_callback(self.writer.close)
        contents = await self.writer.start()
        self._take_over(contents)
        for row in contents.rooms:
            self._last_rooms = row.number
            if self._copies.current(row.group).epoch == row.epoch:
                listener.rooms_committed(row.group, row.epoch, row.dp_ranks)
        sweeper = asyncio.create_task(self._forget_rooms())
        self._closing.callback(sweeper.cancel)
        _LOGGER.info("keeping groups in %s", self.path, extra={"groups": len(contents.topologies)})

    async def close(self) -> None:
        await self._closing.aclose()

    # The file

    def _take_over(self, contents: Contents) -> None:
        for group, topology in contents.topologies.items():
            if topology != self._copies.current(group):
                self._copies.put(topology)
        self._trouble = ""
        self._usable.set()

    def _lost(self, trouble: str) -> None:
        self._trouble = trouble
        self._usable.clear()
        self._listener.availability(False)

    def _found(self, contents: Contents) -> None:
        self._take_over(contents)
        self._listener.availability(True)

    def _check_usable(self) -> None:
        if self._trouble:
            raise StoreUnavailableError(self._trouble)

    # Topologies

    async def load(self, group: str, *, fresh: bool = False) -> Topology:
        if fresh and self._trouble:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FRESH_SECONDS):
                    await self._usable.wait()
        self._check_usable()
        return self._copies.current(group)

    async def compare_and_swap(self, before: Topology, after: Topology) -> bool:
        group = before.group
        while (other := self._under_way.get(group)) is not None:
            await asyncio.wait([other])
        self._check_usable()
        if not self._copies.still(before):
            return False
        if after is not before:
            committed = self.writer.submit(change_statements(before, after))
            self._under_way[group] = committed
            committed.add_done_callback(partial(self._settled, after))
            await asyncio.shield(committed)
        return True

    def _settled(self, after: Topology, committed: "asyncio.Future[None]") -> None:
        """Runs before the caller goes on, and also if the caller was cancelled."""
        del self._under_way[after.group]
        if committed.exception() is None:
            self._copies.put(after)

    def watch(self, group: str) -> CommitWatch:
        return self._copies.watch(group)

    async def groups(self, after: str, limit: int) -> list[Topology]:
        self._check_usable()
        return self._copies.page(after, limit)

    async def group_count(self) -> int:
        return len(self._copies)

    def end_watches(self) -> None:
        self._copies.end_watches()

    async def renew(self, group: str, leases: Sequence[Lease]) -> list[int]:
        raise NotImplementedError("this store keeps no leases")

    # Rooms

    async def register_rooms(self, group: str, epoch: int, dp_ranks: Mapping[int, int]) -> tuple[int, int]:
        self._check_usable()
        self._last_rooms += 1
        committed = self.writer.submit([rooms_statement(self._last_rooms, group, epoch, dp_ranks)])
        counts = (0, 0)

        def tell(committed: "asyncio.Future[None]") -> None:
            """Runs before the caller goes on, in the order of the commits, and also if the caller was cancelled."""
            nonlocal counts
            if committed.exception() is None:
                counts = self._listener.rooms_committed(group, epoch, dp_ranks)

        committed.add_done_callback(tell)
        try:
            await asyncio.shield(committed)
        except CommitUnknownError as error:
            raise StoreUnavailableError(f"{error}; register the rooms again") from None
        return counts

    async def _forget_rooms(self) -> None:
        """Drops rows from the file whose rooms are all over. What was there at the start has its full time anew."""
        clock = asyncio.get_running_loop().time
        past: deque[tuple[float, int]] = deque()  # times, and the row that was the last one then
        while True:
            await asyncio.sleep(self._room_ttl / _SWEEPS_A_TTL)
            past.append((clock(), self._last_rooms))
            over = None
            while clock() - past[0][0] > self._room_ttl:
                _, over = past.popleft()
            if over is not None:
                with contextlib.suppress(Refusal, CommitUnknownError):  # what stays goes with the next ones
                    await self.writer.submit([forget_rooms_statement(over)])
