"""The thread that writes: all that waits goes into one transaction, and is answered after its commit.

So however many registrations arrive while one commit is on its way to the disk, the next commit takes them all.

A full disk leaves everything as it was, and the writer goes on. After any other fault of the disk only the file tells
what became of the transaction, so the writer opens it again before it answers. If that fails too, the store is lost
until it succeeds, which is tried again and again.
"""

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from interlock_bootstrap.stores import CommitUnknownError, StoreFullError, StoreUnavailableError
from interlock_bootstrap.stores.sqlite.database import Database, Statement, make_database
from interlock_bootstrap.stores.sqlite.errors import StoreFileError
from interlock_bootstrap.stores.sqlite.rows import Contents, read_contents

REOPEN_SECONDS = 1.0
"""Between two attempts to open a file that was lost."""

_PAGE_BYTES = 4096

_JOURNAL_PAGES = 1_000
"""Pages written to the log, about, after which it is copied into the file as soon as nobody waits (some 10 ms); after
four times as many it is in any case, so that it does not grow for as long as a storm lasts."""

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Job:
    statements: Sequence[Statement]
    committed: "asyncio.Future[None]"


class Writer:
    """Owns the open file from `start` to `close`. Made, and used, on an event loop."""

    def __init__(self, path: Path, on_lost: Callable[[str], None], on_found: Callable[[Contents], None]) -> None:
        """
        Args:
            path: The file.
            on_lost: Called on the loop, with the reason, when the file cannot be used any more.
            on_found: Called on the loop when it can be used again, with all that it holds.
        """
        self._path = path
        self._on_lost = on_lost
        self._on_found = on_found
        self._database: Database | None = None
        self._trouble = ""
        """Why there is no database."""
        self._next_attempt = 0.0
        self._journal_pages = 0
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[Contents] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="sqlite-writer", daemon=True)

    @property
    def transactions(self) -> int:
        """Transactions that the file has seen in its life; each waited for the disk once."""
        assert self._database is not None
        return self._database.transactions

    @property
    def waiting(self) -> int:
        """Jobs that wait for the next transaction."""
        return self._jobs.qsize()

    async def start(self) -> Contents:
        """Opens the file, which is made if it is missing, and reads all that it holds.

        Raises:
            StoreFileError: It cannot be used.
        """
        self._thread.start()
        return await asyncio.shield(self._opened)

    def submit(self, statements: Sequence[Statement]) -> "asyncio.Future[None]":
        """Has statements run, all or none of them.

        Returns:
            Done once they are on the disk. Else it has a StoreFullError or StoreUnavailableError, and nothing was
            changed; or a CommitUnknownError.
        """
        committed: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put(_Job(statements, committed))
        return committed

    async def close(self) -> None:
        """Commits what waits, and closes the file."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    # All below runs in the thread.

    def _run(self) -> None:
        try:
            make_database(self._path)
            self._call(self._opened.set_result, self._open())
        except Exception as error:
            self._call(self._opened.set_exception, error)
            return
        while (jobs := self._waiting()) is not None:
            if self._database is None and time.monotonic() >= self._next_attempt:
                self._find()
            if self._database is None:
                self._answer(jobs, StoreUnavailableError(self._trouble))
            elif jobs:
                self._commit(self._database, jobs)
        if self._database is not None:
            self._database.close()

    def _open(self) -> Contents:
        database = Database(self._path)
        try:
            contents = read_contents(database)
        except BaseException:
            database.close()
            raise
        self._database, self._journal_pages = database, 0
        return contents

    def _waiting(self) -> list[_Job] | None:
        """Takes all jobs that are there, or waits for one; without the file only for a while. None: this is the end."""
        jobs: list[_Job] = []
        try:
            job = self._jobs.get(timeout=None if self._database is not None else REOPEN_SECONDS)
            while job is not None:
                jobs.append(job)
                job = self._jobs.get_nowait()
        except queue.Empty:
            return jobs
        if not jobs:
            return None
        self._jobs.put(None)  # to be met again when these are done
        return jobs

    def _commit(self, database: Database, jobs: list[_Job]) -> None:
        statements = list(chain.from_iterable(job.statements for job in jobs))
        try:
            database.write(statements)
        except StoreFullError as error:
            self._answer(jobs, error)
        except Exception as error:
            self._answer(jobs, self._settle(database, f"writing {self._path} failed: {error}"))
        else:
            self._answer(jobs, None)
            self._journal_pages += _pages(statements)
            if self._journal_pages >= _JOURNAL_PAGES * (1 if self._jobs.empty() else 4):
                self._copy_journal(database)

    def _copy_journal(self, database: Database) -> None:
        self._journal_pages = 0
        try:
            database.copy_journal()
        except sqlite3.Error as error:
            self._settle(database, f"copying the log into {self._path} failed: {error}")

    def _settle(self, database: Database, trouble: str) -> Exception | None:
        """Opens the file again after a fault. Returns the outcome of the transaction that met it."""
        _LOGGER.error("%s; opening it again", trouble)
        database.close()
        if self._reopen() is None:
            self._call(self._on_lost, self._trouble)
            return CommitUnknownError(trouble)
        if self.transactions == database.transactions:
            return StoreUnavailableError(f"{trouble}; nothing was changed")
        return None

    def _find(self) -> None:
        if (contents := self._reopen()) is not None:
            _LOGGER.warning("%s is open again", self._path)
            self._call(self._on_found, contents)

    def _reopen(self) -> Contents | None:
        self._database = None
        try:
            return self._open()
        except StoreFileError as error:
            if str(error) != self._trouble:  # said once, not once a second
                _LOGGER.error("%s", error)
            self._trouble = str(error)
            self._next_attempt = time.monotonic() + REOPEN_SECONDS
            return None

    def _answer(self, jobs: Sequence[_Job], error: Exception | None) -> None:
        """Hands one outcome to all of them, in one call on the loop."""
        self._call(_resolve, jobs, error)

    def _call(self, callback: Callable[..., None], *values: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed before the writer
            self._loop.call_soon_threadsafe(callback, *values)


def _resolve(jobs: Iterable[_Job], error: Exception | None) -> None:
    for job in jobs:
        if job.committed.cancelled():
            continue
        if error is None:
            job.committed.set_result(None)
        else:
            job.committed.set_exception(error)


def _pages(statements: Iterable[Statement]) -> int:
    """About how many pages they write: for each row one, one of an index, and those of a long value."""
    return sum(
        2 + sum(len(value) for value in row if isinstance(value, bytes)) // _PAGE_BYTES
        for _, rows in statements
        for row in rows
    )
