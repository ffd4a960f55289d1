"""Where machine code is kept, and what becomes of it where nothing can be written."""

import logging
import shutil
import tempfile
from pathlib import Path

import numba
import pytest

from interlock.vision.kernels import disk_cache

BEFORE = numba.config.CACHE_DIR


@pytest.fixture
def chosen(monkeypatch, tmp_path) -> Path:
    """The folder that the settings name; nothing else is set."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(disk_cache, "_chosen", tmp_path / "kernels")
    monkeypatch.setattr(disk_cache, "_kept_in", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    return tmp_path / "kernels"


@pytest.fixture
def read_only(monkeypatch):
    """Folders under which nothing can be written, to root neither: as a read-only file system answers."""
    folders: list[Path] = []
    temporary_file, mkdir = tempfile.TemporaryFile, Path.mkdir

    def refuse(inside: Path) -> None:
        if any(inside.is_relative_to(folder) for folder in folders):
            raise OSError(30, "Read-only file system")

    def file(*args, **options):
        refuse(Path(options.get("dir") or "/"))
        return temporary_file(*args, **options)

    def folder(path, *args, **options):
        if not path.exists():
            refuse(path)
        mkdir(path, *args, **options)

    monkeypatch.setattr(tempfile, "TemporaryFile", file)
    monkeypatch.setattr(Path, "mkdir", folder)
    return folders


def used() -> Path:
    with disk_cache.kept_on_disk():
        return Path(numba.config.CACHE_DIR)


def test_the_chosen_folder_goes_before_numbas_variable_and_that_before_the_package(chosen, monkeypatch, tmp_path):
    assert used().parent == chosen
    assert disk_cache.kept_in() == used()
    monkeypatch.setattr(disk_cache, "_chosen", None)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "numba"))
    assert used().parent == tmp_path / "numba"
    assert str(tmp_path / "numba") == numba.config.CACHE_DIR
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    assert used().parent == Path(disk_cache.__file__).parent / "simd" / "__pycache__"
    assert numba.config.CACHE_DIR == ""


def test_a_changed_file_of_the_package_gets_another_folder(chosen, monkeypatch, tmp_path):
    package = shutil.copytree(disk_cache._PACKAGE, tmp_path / "simd", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(disk_cache, "_PACKAGE", package)
    before = used()
    assert used() == before
    (package / "vectors.py").write_text((package / "vectors.py").read_text() + "\n")
    assert used() != before


def test_on_a_read_only_file_system_the_code_that_is_there_is_used_from_a_copy(chosen, read_only, caplog):
    folder = used()
    (folder / "simd_1234").mkdir()
    (folder / "simd_1234" / "strips.nbi").write_bytes(b"machine code")
    (folder / "simd_1234").chmod(0o555)
    read_only.append(chosen)
    with caplog.at_level(logging.INFO), disk_cache.kept_on_disk():
        copy = Path(numba.config.CACHE_DIR)
        assert copy != folder
        assert (copy / "simd_1234" / "strips.nbi").read_bytes() == b"machine code"
        # numba writes to it, whoever runs this, although nobody may write to the image.
        assert [path.stat().st_mode & 0o777 for path in (copy, copy / "simd_1234")] == [0o700, 0o700]
    assert not copy.exists()
    assert [record.getMessage() for record in caplog.records] == [
        f"compiled kernels are used from a copy of {folder}, which cannot be written to: Read-only file system"
    ]


def test_where_nothing_is_kept_and_nothing_can_be_the_users_folder_is_next(chosen, caplog, tmp_path):
    (tmp_path / "kernels").write_text("a file in the place of the folder")
    with caplog.at_level(logging.INFO):
        folder = used()
    assert folder.parent == tmp_path / "user" / "interlock"
    assert disk_cache.kept_in() == folder
    assert [(record.levelname, "they are kept in" in record.getMessage()) for record in caplog.records] == [
        ("INFO", True)
    ]


def test_without_a_folder_of_the_users_there_is_a_temporary_one_and_a_warning(chosen, read_only, caplog, tmp_path):
    read_only += [tmp_path / "kernels", tmp_path / "user"]
    with caplog.at_level(logging.INFO), disk_cache.kept_on_disk():
        folder = Path(numba.config.CACHE_DIR)
        assert folder.is_dir()
    assert not folder.exists()
    assert disk_cache.kept_in() is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.records[0].getMessage().endswith("Read-only file system; they are compiled at every start")


def test_a_user_without_a_home_has_no_folder(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    assert disk_cache._folder_of_user("name") is None
