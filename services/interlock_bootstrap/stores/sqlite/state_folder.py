"""The folder that the store keeps its file in, and the lock by which one process at a time owns it."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

from interlock_bootstrap.stores.sqlite.errors import StoreFileError

LOCK_NAME = "bootstrap.lock"


def default_state_folder(environment: Mapping[str, str]) -> Path:
    """Where state is kept when nobody says where: as systemd tells, else as the XDG base directories have it.

    Raises:
        StoreFileError: Nothing tells, and the user has no home.
    """
    if folders := environment.get("STATE_DIRECTORY"):
        return Path(folders.split(":")[0])  # systemd names several if the unit has several
    state_home = Path(environment.get("XDG_STATE_HOME", ""))
    if state_home.is_absolute():  # the specification has relative ones ignored
        return state_home / "interlock"
    try:
        return Path.home() / ".local" / "state" / "interlock"
    except RuntimeError:
        raise StoreFileError(
            "there is no home folder to keep the store in: name a folder by --state-folder, or use --store memory"
        ) from None


class StateFolder:
    """The folder, made if missing, and owned by this process until `release`.

    The lock is one of the kernel on a file that stays: it ends with the process however that ends, and no other lock of
    the file system is lost when some part of the process opens and closes the same file.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            StoreFileError: The folder cannot be made or written, or another process owns it.
        """
        self.path = path
        try:
            missing = [folder for folder in (path, *path.parents) if not folder.exists()]
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in missing:
                sync_folder(folder.parent)
            self._lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreFileError(
                f"cannot keep the store in {path}: {error.strerror}; make the folder writable for this user, name "
                "another one by --state-folder, or use --store memory"
            ) from None
        try:
            self._claim()
        except BaseException:
            os.close(self._lock)
            raise

    def _claim(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise StoreFileError(f"cannot lock {self.path / LOCK_NAME}: {error.strerror}") from None
            owner = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip()
            raise StoreFileError(
                f"the store in {self.path} is in use by another process (pid {owner or 'unknown'}, which holds "
                f"{LOCK_NAME} there): stop that one, or give this one a folder of its own by --state-folder"
            ) from None
        os.ftruncate(self._lock, 0)
        with contextlib.suppress(OSError):  # a full disk: the lock holds without the number, which is for people
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Lets go of the folder. Releasing twice changes nothing."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sync_folder(path: Path) -> None:
    """Makes sure that names made or changed in a folder outlive a loss of power."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
