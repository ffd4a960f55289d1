"""Files of a command: read whole but bounded, written whole or not at all."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from interlock_cli.errors import CommandError, os_error_text, printable


def read_bounded(file: Path, max_bytes: int) -> bytes:
    """The bytes of a file.

    Raises:
        CommandError: It cannot be read, or has more than `max_bytes`.
    """
    try:
        with file.open("rb") as handle:
            data = handle.read(max_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise cannot("read", file, error) from None
    if len(data) > max_bytes:
        raise CommandError(f"{printable(str(file))}: more than {max_bytes} bytes, the most that is read")
    return data


@contextmanager
def written_whole(file: Path) -> Iterator[BinaryIO]:
    """A file to write into that takes its name only when all of it is on the disk.

    It is written beside its place under a temporary name. If the block raises, nothing is left and what stood under the
    name before is untouched.

    Raises:
        CommandError: It cannot be written.
    """
    try:
        if file.is_dir() or (file.exists() and not file.is_file()):
            raise CommandError(f"cannot write {printable(str(file))}: it is no regular file")
        mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o666 & ~_umask()
        descriptor, temporary = tempfile.mkstemp(prefix=".interlock-", suffix=".part", dir=file.parent)
    except (OSError, ValueError) as error:
        raise cannot("write", file, error) from None
    try:
        with os.fdopen(descriptor, "wb") as handle:
            yield handle
            handle.flush()
            os.fchmod(handle.fileno(), mode)
            os.fsync(handle.fileno())
        os.replace(temporary, file)
    except OSError as error:
        _forget(temporary)
        raise cannot("write", file, error) from None
    except BaseException:
        _forget(temporary)
        raise


def cannot(what: str, file: Path, error: Exception) -> CommandError:
    """The error for a file that the system refuses."""
    why = os_error_text(error) if isinstance(error, OSError) else str(error)
    return CommandError(f"cannot {what} {printable(str(file))}: {why}")


def _forget(temporary: str) -> None:
    with suppress(OSError):
        os.unlink(temporary)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    current = os.umask(0)
    os.umask(current)
    return current
