"""The store's file: made, opened, checked and written.

A damaged file is refused, never mended: what a mended one would lack, nobody could tell.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from interlock_bootstrap.stores import StoreFullError
from interlock_bootstrap.stores.sqlite.errors import StoreFileError
from interlock_bootstrap.stores.sqlite.state_folder import sync_folder

FILE_NAME = "bootstrap.db"

SCHEMA_VERSION = 1
"""Kept in the file as `user_version`. A file of another one is refused."""

APPLICATION_ID = 0x494C434B
"""`ILCK`; kept in the file, where `file` and other tools find it."""

_SCHEMA = f"""
-- Rows end in a checksum of what is before it: SQLite notices a damaged structure, not a damaged value.
CREATE TABLE groups (
    name TEXT PRIMARY KEY,
    header BLOB NOT NULL,       -- interlock.bootstrap.v1.GroupState, but for what follows from the routes
    checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE routes (           -- of each group's present epoch
    group_name TEXT NOT NULL,
    dp INTEGER NOT NULL,
    cp INTEGER NOT NULL,
    tp INTEGER NOT NULL,
    pp INTEGER NOT NULL,
    route BLOB NOT NULL,        -- interlock.bootstrap.v1.Route
    lease_ttl INTEGER,          -- milliseconds; NULL: the route stays until it is removed
    checksum INTEGER NOT NULL,
    PRIMARY KEY (group_name, dp, cp, tp, pp)
);
CREATE TABLE departed (         -- the last life that left, of each key that one left in the present epoch
    group_name TEXT NOT NULL,
    dp INTEGER NOT NULL,
    cp INTEGER NOT NULL,
    tp INTEGER NOT NULL,
    pp INTEGER NOT NULL,
    incarnation TEXT NOT NULL,  -- decimal: SQLite's integers end at 2^63
    deregistered INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (group_name, dp, cp, tp, pp)
) WITHOUT ROWID;
CREATE TABLE rooms (            -- one row a call of RegisterDpRanks
    id INTEGER PRIMARY KEY,     -- in the order of the calls, and so of their end
    group_name TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    dp_ranks BLOB NOT NULL,     -- for each room its number (8 bytes, little-endian) and its DP rank (4)
    checksum INTEGER NOT NULL
);
CREATE TABLE transactions (number INTEGER NOT NULL);
INSERT INTO transactions VALUES (0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""

Row = tuple[str | int | bytes | None, ...]

Statement = tuple[str, Sequence[Row]]
"""An SQL statement, and the rows to run it with."""


def sealed(*values: str | int | bytes | None) -> Row:
    """A row as it is kept: with its checksum."""
    return (*values, _checksum(values))


class Database:
    """The open file; this process alone has it. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            StoreFileError: It is missing, damaged, of a newer version or another program, in use, or out of reach.
        """
        self.path = path
        with _explained(path):
            uri = f"{path.absolute().as_uri()}?mode=rw"
            self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=1)
            try:
                self._prepare()
                self.transactions: int = self._value("SELECT number FROM transactions")
                """Transactions that the file has seen in its life; each waited for the disk once."""
            except BaseException:
                self.close()
                raise

    def write(self, statements: Iterable[Statement]) -> None:
        """Runs statements as one transaction, on the disk when this returns.

        Raises:
            StoreFullError: There is no space for it; nothing was changed.
            sqlite3.Error: Any other fault. Only opening the file again tells, by `transactions`, what became of it.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for sql, rows in statements:
                self._connection.executemany(sql, rows)
            self._connection.execute("UPDATE transactions SET number = number + 1")
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if _code(error) != sqlite3.SQLITE_FULL:
                raise
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise StoreFullError(f"no space is left for {self.path}; nothing was changed") from None
        self.transactions += 1

    def copy_journal(self) -> None:
        """Copies the write-ahead log into the file, and lets the log begin anew in its place.

        Where the disk or a quota is full, what is in the log stays there: once synced, which comes first, it is as good
        as in the file.

        Raises:
            sqlite3.Error: Any other fault.
        """
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE):
                raise

    def rows(self, table: str) -> Iterator[list[Any]]:
        """All rows of a table in the order of its key, without their checksums.

        Raises:
            StoreFileError: One is not as it was written.
        """
        query = f"SELECT * FROM {table} ORDER BY 1"
        with _explained(self.path), contextlib.closing(self._connection.execute(query)) as rows:
            for *values, checksum in rows:
                if _checksum(values) != checksum:
                    raise damaged(self.path, f"a row of {table} is not as it was written")
                yield values

    def close(self) -> None:
        """Copies the log into the file and closes it. A fault of the disk is left to who opens it next."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _prepare(self) -> None:
        # One connection for life: no other process reads or writes, and no shared memory beside the file is needed.
        self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        if self.path.stat().st_size == 0:
            raise damaged(self.path, "it is empty")
        if self._value("PRAGMA application_id") != APPLICATION_ID:
            raise StoreFileError(
                f"{self.path} is a database of something else: move it away, or name another folder by --state-folder"
            )
        if (version := self._value("PRAGMA user_version")) != SCHEMA_VERSION:
            raise StoreFileError(
                f"{self.path} was written by a newer version of Interlock (schema {version}; this version has schema "
                f"{SCHEMA_VERSION}): run that version, or name another folder by --state-folder"
            )
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA wal_autocheckpoint = 0")  # the writer does it when nobody waits
        if (fault := self._value("PRAGMA quick_check(1)")) != "ok":
            raise damaged(self.path, fault)
        # Shows now, not at the first registration, whether the file can be written.
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("ROLLBACK")
        # What a killed process wrote and never saw reach the disk is there from here on, whatever happens to the power.
        self.copy_journal()

    def _value(self, query: str) -> Any:
        return self._connection.execute(query).fetchone()[0]


def make_database(path: Path) -> None:
    """Makes an empty store, unless there is one.

    It is made under another name first, so that a file by the store's own name always is a whole one.

    Raises:
        StoreFileError: It cannot be made, or was there and is gone.
    """
    with _explained(path):
        if path.exists():
            return
        journal = path.with_name(f"{path.name}-wal")
        if journal.exists():
            raise StoreFileError(
                f"{path} is gone, but its log {journal.name} is there: bring the file back; or move the log away to "
                "begin with no groups, and have all ranks register again"
            )
        new = path.with_name(f"{path.name}.new")
        for leftover in (new, new.with_name(f"{new.name}-journal")):
            leftover.unlink(missing_ok=True)
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as connection:
            connection.executescript(f"BEGIN; {_SCHEMA} COMMIT; PRAGMA journal_mode = WAL;")
        new.rename(path)
        sync_folder(path.parent)


def damaged(path: Path, fault: str) -> StoreFileError:
    """The refusal of a file that holds something else than was written."""
    return StoreFileError(
        f"{path} is damaged ({fault}): bring it back from a backup, together with its -wal file if that has one; or "
        "move both away to begin with no groups, and have all ranks register again"
    )


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Says of SQLite's and the system's errors what they mean to who starts the server."""
    try:
        yield
    except OSError as error:
        raise StoreFileError(f"cannot use {path}: {error.strerror}") from None
    except sqlite3.Error as error:
        match _code(error):
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                raise damaged(path, str(error)) from None
            case sqlite3.SQLITE_BUSY:
                trouble = f"{path} is open in another program, such as a SQLite shell: close it there"
            case sqlite3.SQLITE_FULL:
                trouble = f"no space is left for {path}: make some, or name another folder by --state-folder"
            case _:
                trouble = (
                    f"cannot use {path} ({error}): let this user read and write it and its folder, or name another "
                    "folder by --state-folder"
                )
        raise StoreFileError(trouble) from None


def _checksum(values: Sequence[str | int | bytes | None]) -> int:
    crc = 0
    for value in values:
        crc = crc32(value if isinstance(value, bytes) else repr(value).encode(), crc)
    return crc


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; errors of the Python module itself have none."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
