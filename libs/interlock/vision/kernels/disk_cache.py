"""Where numba keeps the machine code of the simd kernel, so that it is made once (seconds) and not at every start.

numba takes the code it kept for good as long as the file of the jitted function itself is unchanged, and looks neither
at what that function calls in other files nor at the intrinsics. So there is a folder for each state of the package:
its name is a hash over all its files. To the names of its own files numba adds the CPU and its features.

numba uses only folders that it can write to, even to read. So where the code was put into an image whose file system
is read-only, it is copied to a temporary folder while it is loaded.
"""

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_log = logging.getLogger(__name__)

_PACKAGE = Path(__file__).parent / "simd"

_chosen: Path | None = None
_kept_in: Path | None = None


def keep_compiled_in(folder: Path) -> None:
    """Keep machine code under this folder. Call it before the kernel is first used: what is loaded stays where it is.

    Whoever can write to the folder can have this process run what they like.
    """
    global _chosen
    _chosen = folder


def kept_in() -> Path | None:
    """Where the machine code that this process uses is kept; None: nowhere, or it has not been used yet."""
    return _kept_in


@contextmanager
def kept_on_disk() -> Iterator[None]:
    """Around the import of what numba compiles: its machine code is taken from disk, or made and kept there.

    The folder is the first that can be written to of

    1. `keep_compiled_in`'s; if there is none, `NUMBA_CACHE_DIR`; if there is none, `__pycache__` beside the package;
    2. a temporary one with a copy of what the first has, if it has anything;
    3. the user's own, `$XDG_CACHE_HOME/interlock` or `~/.cache/interlock`;
    4. a temporary one.

    If it is not the first, that is logged.

    Raises:
        OSError: nothing at all can be written to.
    """
    from numba import config

    global _kept_in
    before = config.CACHE_DIR
    name = f"interlock-simd-{_state()}"
    folder = (_chosen or Path(before or _PACKAGE / "__pycache__")) / name
    with ExitStack() as stack:
        if fault := _unusable(folder):
            folder = _instead_of(folder, name, fault, stack)
        else:
            _kept_in = folder
        config.CACHE_DIR = str(folder)
        try:
            yield
        finally:
            config.CACHE_DIR = before


def _instead_of(folder: Path, name: str, fault: str, stack: ExitStack) -> Path:
    """Another folder than one that cannot be written to; a temporary one is gone when `stack` ends."""
    global _kept_in
    if folder.is_dir() and any(folder.iterdir()):
        copy = Path(stack.enter_context(_temporary_folder()), name)
        shutil.copytree(folder, copy, copy_function=shutil.copyfile)
        for copied in (copy, *copy.rglob("*/")):  # whose modes were copied too, and an image has nothing to write to
            copied.chmod(0o700)
        _log.info("compiled kernels are used from a copy of %s, which cannot be written to: %s", folder, fault)
        return copy
    of_user = _folder_of_user(name)
    if of_user is not None:
        _log.info("compiled kernels cannot be kept in %s: %s; they are kept in %s", folder, fault, of_user)
        _kept_in = of_user
        return of_user
    _log.warning("compiled kernels cannot be kept in %s: %s; they are compiled at every start", folder, fault)
    return Path(stack.enter_context(_temporary_folder()))


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="interlock-")
    except OSError:  # nothing can be written to but, in most containers, memory
        return tempfile.TemporaryDirectory(prefix="interlock-", dir="/dev/shm")


def _state() -> str:
    """A hash over the files of the package."""
    digest = hashlib.sha256()
    for file in sorted(_PACKAGE.glob("*.py")):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _folder_of_user(name: str) -> Path | None:
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home, as in many containers
        return None
    folder = caches / "interlock" / name
    return None if _unusable(folder) else folder


def _unusable(folder: Path) -> str | None:
    """Why nothing can be written to the folder, which is made if it is missing; None: it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
