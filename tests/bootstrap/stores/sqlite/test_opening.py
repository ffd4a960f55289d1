"""The store's file is opened only if all of it is as it was written; else the message says what to do."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bootstrap.stores.histories import commit, large_group
from interlock_bootstrap.stores.sqlite import SqliteStore, StoreFileError, default_state_folder
from topology.examples import FULL_ROUTE, register, route

PAGE = 4096


async def refusal(open_store) -> str:
    """What the store that does not open says; its file is left as it was."""
    before = open_store.file.read_bytes() if open_store.file.is_file() else None
    with pytest.raises(StoreFileError) as caught:
        await open_store()
    if before is not None:
        assert open_store.file.read_bytes() == before
    return str(caught.value)


@pytest.fixture
async def closed(open_store):
    """A closed store with a group of 500 ranks, some 16 pages."""
    store = await open_store()
    for requests in large_group(500):
        await commit(store, "a", *requests)
    await open_store.close()
    return open_store


async def test_the_folder_is_made_with_all_above_it_for_this_user_alone(tmp_path):
    folder = tmp_path / "var" / "lib" / "interlock"
    store = SqliteStore(folder, 256, 300.0)
    await store.start(None)
    try:
        assert store.path == folder / "bootstrap.db"
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    finally:
        await store.close()


async def test_a_store_that_was_closed_leaves_no_log_behind(closed):
    assert sorted(path.name for path in closed.folder.iterdir()) == ["bootstrap.db", "bootstrap.lock"]


async def test_a_copy_of_the_folder_of_a_running_store_has_all_that_was_acknowledged(open_store, tmp_path):
    store = await open_store()
    after = await commit(store, "a", register(FULL_ROUTE, lease_ttl=5_000))
    shutil.copytree(open_store.folder, tmp_path / "copy")
    await open_store.close()
    open_store.folder = tmp_path / "copy"
    assert await (await open_store()).load("a") == after


async def test_a_second_store_is_refused_with_the_file_and_the_process_that_holds_it(open_store, store):
    other = SqliteStore(open_store.folder, 256, 300.0)
    with pytest.raises(StoreFileError, match=re.escape(f"{open_store.folder} is in use by another process (pid ")) as e:
        await other.start(None)
    assert f"(pid {os.getpid()}, which holds bootstrap.lock there)" in str(e.value)
    await other.close()
    await commit(store, "a", register(route(0)))  # the first one was not disturbed


@pytest.mark.parametrize("folder", ["taken", "taken/below"])
async def test_a_folder_that_cannot_be_made_is_refused(tmp_path, folder):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StoreFileError, match=r"cannot keep the store in .*/taken.*: .*; make the folder writable"):
        await SqliteStore(tmp_path / folder, 256, 300.0).start(None)


async def test_a_file_that_is_no_database_is_refused(closed):
    closed.file.write_bytes(b"not a database, but longer than the header of one" * 100)
    assert "is damaged (file is not a database): bring it back from a backup" in await refusal(closed)


async def test_a_folder_in_place_of_the_file_is_refused(closed):
    closed.file.unlink()
    closed.file.mkdir()
    assert f"cannot use {closed.file} (unable to open database file)" in await refusal(closed)


async def test_an_empty_file_is_refused(closed):
    os.truncate(closed.file, 0)
    assert "is damaged (it is empty)" in await refusal(closed)


@pytest.mark.parametrize("kept", [100, PAGE, 3 * PAGE + 17, -PAGE])
async def test_a_truncated_file_is_refused(closed, kept):
    os.truncate(closed.file, kept % closed.file.stat().st_size)
    assert "is damaged (" in await refusal(closed)


async def test_every_damaged_page_is_found(closed):
    whole = closed.file.read_bytes()
    pages = len(whole) // PAGE
    assert pages > 10
    for page in range(pages):
        closed.file.write_bytes(whole[: page * PAGE] + os.urandom(PAGE) + whole[(page + 1) * PAGE :])
        assert "is damaged (" in await refusal(closed)
    closed.file.write_bytes(whole)
    assert (await (await closed()).load("a")).ready


async def test_a_page_that_lost_a_row_is_found(closed):
    whole = bytearray(closed.file.read_bytes())
    leaves = [at for at in range(PAGE, len(whole), PAGE) if whole[at] in (0x0A, 0x0D) and whole[at + 4]]
    assert len(leaves) > 10
    for leaf in leaves:
        whole[leaf + 4] -= 1  # the number of its rows
        closed.file.write_bytes(whole)
        assert "is damaged (" in await refusal(closed)
        whole[leaf + 4] += 1
    closed.file.write_bytes(whole)
    assert (await (await closed()).load("a")).ready


async def test_one_flipped_bit_in_a_value_is_found(closed):
    whole = closed.file.read_bytes()
    at = whole.index(b"10.0.0.1")
    closed.file.write_bytes(whole[:at] + b"10.0.0.3" + whole[at + 8 :])
    assert "is damaged (a row of routes is not as it was written)" in await refusal(closed)


@pytest.mark.parametrize(
    ("deletion", "fault"),
    [
        ("DELETE FROM routes WHERE tp = 7", "group 'a' has 499 of its 500 routes"),
        ("DELETE FROM groups", "group 'a' has rows and no header"),
    ],
)
async def test_a_row_that_was_taken_out_is_missed(closed, deletion, fault):
    with closing(sqlite3.connect(closed.file, isolation_level=None)) as connection:
        connection.execute(deletion)
    assert f"is damaged ({fault})" in await refusal(closed)


async def test_a_file_of_a_newer_version_is_refused_and_named_so(closed):
    with closing(sqlite3.connect(closed.file, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 2")
    assert "was written by a newer version of Interlock (schema 2; this version has schema 1)" in await refusal(closed)


async def test_a_database_of_another_program_is_refused(closed):
    closed.file.unlink()
    with closing(sqlite3.connect(closed.file, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE groups (name TEXT)")
    assert "is a database of something else" in await refusal(closed)


async def test_a_log_without_its_file_is_refused_instead_of_beginning_anew(open_store, tmp_path):
    store = await open_store()
    await commit(store, "a", register(route(0)))
    log = open_store.log.read_bytes()
    await open_store.close()
    open_store.file.unlink()
    open_store.log.write_bytes(log)
    assert "is gone, but its log bootstrap.db-wal is there: bring the file back" in await refusal(open_store)
    assert not open_store.file.exists()


async def test_a_first_start_that_was_killed_half_way_is_begun_anew(open_store):
    open_store.folder.mkdir()
    (open_store.folder / "bootstrap.db.new").write_bytes(b"half of a database")
    (open_store.folder / "bootstrap.db.new-journal").write_bytes(b"half of a journal")
    await commit(await open_store(), "a", register(route(0)))
    await open_store.close()
    assert sorted(path.name for path in open_store.folder.iterdir()) == ["bootstrap.db", "bootstrap.lock"]


async def test_a_file_that_another_program_holds_is_refused(closed):
    with closing(sqlite3.connect(closed.file, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        assert "is open in another program" in await refusal(closed)
    assert (await (await closed()).load("a")).ready


def test_a_folder_without_the_right_to_write_is_refused(tmp_path):
    """In a process of its own: who runs the tests may be root, whom no right is denied."""
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o555)
    script = (
        "import os, pathlib\n"
        "from interlock_bootstrap.stores.sqlite import StoreFileError\n"
        "from interlock_bootstrap.stores.sqlite.state_folder import StateFolder\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "try: StateFolder(pathlib.Path('.'))\n"
        "except StoreFileError as error: print(error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stdout.startswith("cannot keep the store in .: Permission denied; make the folder writable")


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"STATE_DIRECTORY": "/var/lib/interlock", "XDG_STATE_HOME": "/x"}, "/var/lib/interlock"),
        ({"STATE_DIRECTORY": "/var/lib/one:/var/lib/two"}, "/var/lib/one"),
        ({"XDG_STATE_HOME": "/x"}, "/x/interlock"),
        ({"XDG_STATE_HOME": "relative/is/ignored"}, "~/.local/state/interlock"),
        ({"STATE_DIRECTORY": "", "XDG_STATE_HOME": ""}, "~/.local/state/interlock"),
        ({}, "~/.local/state/interlock"),
    ],
)
def test_the_default_folder_is_that_of_the_system_or_the_user(environment, folder):
    assert default_state_folder(environment) == Path(folder).expanduser()
