"""A full disk refuses and changes nothing; any other fault is settled by opening the file again."""

import asyncio
import contextlib
import resource
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.stores.histories import changed, commit, large_group
from bootstrap.stores.sqlite.holding import disk_held, until_waiting
from interlock.topology import Topology
from interlock_bootstrap.commits import Commit
from interlock_bootstrap.stores import CommitUnknownError, StoreFullError, StoreUnavailableError
from interlock_bootstrap.stores.sqlite import writer as writer_module
from interlock_bootstrap.stores.sqlite.database import Database
from topology.examples import register, route


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of 1 MiB at `folder`.

    Raises:
        CalledProcessError: Nobody may mount anything here.
    """
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "interlock-test", str(folder)]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def can_mount() -> bool:
    try:
        with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder)):
            return True
    except (subprocess.CalledProcessError, FileNotFoundError):
        return False


class SmallDisk:
    """A real file system that is filled up."""

    def __init__(self, folder: Path) -> None:
        self._filler = folder / "filler"

    def fill(self, store) -> None:
        with self._filler.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))

    def free(self, store) -> None:
        self._filler.unlink()


class PageLimit:
    """SQLite's own limit, which it meets as it meets a full disk."""

    def fill(self, store) -> None:
        self._pragma(store, "PRAGMA max_page_count = 1")  # taken as: no more than there are

    def free(self, store) -> None:
        self._pragma(store, "PRAGMA max_page_count = 1000000")

    def _pragma(self, store, pragma: str) -> None:
        store.writer._database._connection.execute(pragma)


@pytest.fixture(params=["page limit", *(["small disk"] if can_mount() else [])])
def disk(request, open_store) -> Iterator[SmallDisk | PageLimit]:
    """Upon which `open_store` opens its stores."""
    if request.param == "page limit":
        yield PageLimit()
        return
    open_store.folder.mkdir()
    with small_disk(open_store.folder):
        yield SmallDisk(open_store.folder)


async def test_a_full_disk_refuses_changes_nothing_and_is_no_more_once_there_is_space(open_store, disk):
    store = await open_store()
    batches = large_group(400)
    before = await commit(store, "a", *batches[0])
    after = changed(before, *batches[1])
    disk.fill(store)
    with store.watch("a") as watch:
        for _ in range(2):
            with pytest.raises(StoreFullError, match=r"no space is left for .*bootstrap\.db; nothing was changed"):
                await store.compare_and_swap(before, after)
            with pytest.raises(StoreFullError):
                await store.register_rooms("a", 1, dict.fromkeys(range(10_000), 0))
        assert await store.load("a", fresh=True) == before
        assert await store.compare_and_swap(before, before)
        disk.free(store)
        assert await store.compare_and_swap(before, after)
        assert await watch.next() == Commit(before, after)
    assert await store.register_rooms("a", 1, {1: 2}) == (1, 0)
    assert open_store.listener.availabilities == []
    assert await (await open_store()).load("a") == after
    assert open_store.listener.told == [("a", 1, {1: 2})]
    await open_store.close()


async def test_a_server_that_restarts_on_a_full_disk_serves_what_it_has(open_store, disk):
    store = await open_store()
    for requests in large_group(400):
        before = await commit(store, "a", *requests)
    disk.fill(store)
    store = await open_store()
    assert await store.load("a") == before
    disk.free(store)
    after = await commit(store, "a", register(route(1, rank_port=1, sizes=before.sizes)))
    assert await (await open_store()).load("a") == after
    await open_store.close()


@contextlib.contextmanager
def no_writes() -> Iterator[None]:
    """Every write to a file fails (EFBIG), as on a disk with a fault. Python ignores the signal that comes with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_disk_that_cannot_write_refuses_changes_nothing_and_is_served_again_once_it_can(open_store, store):
    before = await commit(store, "a", register(route(0)))
    after = changed(before, register(route(1)))
    with no_writes():
        for _ in range(3):
            with pytest.raises(StoreUnavailableError, match=r"writing .* failed: disk I/O error; nothing was changed"):
                await store.compare_and_swap(before, after)
            assert await store.load("a", fresh=True) == before
    assert await store.compare_and_swap(before, after)
    assert open_store.listener.availabilities == []
    assert await (await open_store()).load("a") == after


class Faults:
    """Has the next transaction fail: with its commit on the disk, or without."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
        self._monkeypatch = monkeypatch
        self._file = file
        self._away = file.with_name("away")
        self._write = Database.write

    def next_write(self, *, committed: bool, lose_file: bool = False) -> None:
        def write(database: Database, statements) -> None:
            self._monkeypatch.setattr(Database, "write", self._write)
            if committed:
                self._write(database, statements)
                database.transactions -= 1  # which it does not learn when the disk has a fault
            if lose_file:
                self._file.rename(self._away)
            raise sqlite3.OperationalError("disk I/O error")

        self._monkeypatch.setattr(Database, "write", write)

    def bring_file_back(self) -> None:
        self._away.rename(self._file)


@pytest.fixture
def faults(monkeypatch, open_store) -> Faults:
    monkeypatch.setattr(writer_module, "REOPEN_SECONDS", 0.05)
    return Faults(monkeypatch, open_store.file)


async def test_a_fault_after_the_commit_is_success(open_store, store, faults):
    before = await commit(store, "a", register(route(0)))
    after = changed(before, register(route(1)))
    faults.next_write(committed=True)
    with store.watch("a") as watch:
        assert await store.compare_and_swap(before, after)
        assert await watch.next() == Commit(before, after)
    assert await store.load("a") == after
    assert await (await open_store()).load("a") == after


async def test_a_fault_before_the_commit_changes_nothing(open_store, store, faults):
    before = await commit(store, "a", register(route(0)))
    after = changed(before, register(route(1)))
    faults.next_write(committed=False)
    with pytest.raises(StoreUnavailableError, match="nothing was changed"):
        await store.compare_and_swap(before, after)
    assert await store.load("a") == before
    assert await (await open_store()).load("a") == before


async def test_a_fault_while_the_log_is_copied_loses_nothing(open_store, store, faults, monkeypatch):
    monkeypatch.setattr(writer_module, "_JOURNAL_PAGES", 0)
    copy_journal = Database.copy_journal

    def failing(database: Database) -> None:
        monkeypatch.setattr(Database, "copy_journal", copy_journal)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(Database, "copy_journal", failing)
    await commit(store, "a", register(route(0)))
    after = await commit(store, "a", register(route(1)))
    assert Database.copy_journal is copy_journal
    assert await (await open_store()).load("a") == after


@pytest.mark.parametrize("committed", [True, False])
async def test_a_file_that_is_lost_is_looked_for_and_tells_what_became_of_the_last_commit(
    open_store, store, faults, committed
):
    before = await commit(store, "a", register(route(0)))
    after = changed(before, register(route(1)))
    faults.next_write(committed=committed, lose_file=True)
    with store.watch("a") as watch:
        with pytest.raises(CommitUnknownError):
            await store.compare_and_swap(before, after)
        assert open_store.listener.availabilities == [False]
        for call in (
            store.load("a"),
            store.compare_and_swap(before, after),
            store.compare_and_swap(before, before),
            store.groups("", 10),
            store.register_rooms("a", 1, {1: 1}),
        ):
            with pytest.raises(StoreUnavailableError, match=r"cannot use .*bootstrap\.db"):
                await call
        assert not open_store.file.exists()  # and no empty one in its place
        fresh = asyncio.create_task(store.load("a", fresh=True))
        await asyncio.sleep(0.2)
        assert not fresh.done()
        faults.bring_file_back()
        assert await fresh == (after if committed else before)
        assert open_store.listener.availabilities == [False, True]
        if committed:
            assert await watch.next() == Commit(before, after)
        else:
            assert await store.compare_and_swap(before, after)
    assert await (await open_store()).load("a") == after


async def test_what_waited_while_the_file_was_lost_was_not_written(open_store, store, faults):
    empty = Topology.empty("a")
    faults.next_write(committed=False, lose_file=True)
    with disk_held(store):
        committing = asyncio.create_task(store.compare_and_swap(empty, changed(empty, register(route(0)))))
        await until_waiting(store, 1)
    with pytest.raises(StoreUnavailableError, match=r"cannot use .*bootstrap\.db"):
        await committing
    faults.bring_file_back()
    assert await store.load("a", fresh=True) == empty
    assert await (await open_store()).load("a") == empty


async def test_a_store_that_is_lost_can_be_closed(store, faults):
    faults.next_write(committed=True, lose_file=True)
    with pytest.raises(CommitUnknownError):
        await store.compare_and_swap(Topology.empty("a"), changed(Topology.empty("a"), register(route(0))))
    await store.close()
    faults.bring_file_back()


async def test_rooms_whose_commit_got_no_answer_are_to_be_registered_again(store, faults):
    faults.next_write(committed=True, lose_file=True)
    with pytest.raises(StoreUnavailableError, match="register the rooms again"):
        await store.register_rooms("a", 1, {1: 1})
    faults.bring_file_back()
    await store.load("a", fresh=True)
    assert await store.register_rooms("a", 1, {1: 1}) == (1, 0)
