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


def keep_compiled_in(folder: Path) -> None:
    """Keep machine code under this folder. Call it before the kernel is first used: what is loaded stays where it is.

    Whoever can write to the folder can have this process run what they like.
    """
    global _chosen
    _chosen = folder


@contextmanager
def kept_on_disk() -> Iterator[None]:
    """Around the import of what numba compiles: its machine code is taken from disk, or made and kept there.

    The folder is the first that can be written to of

    1. `keep_compiled_in`'s; if there is none, `NUMBA_CACHE_DIR`; if there is none, `__pycache__` beside the package;
    2. the user's own, `$XDG_CACHE_HOME/interlock` or `~/.cache/interlock`;
    3. a temporary one that is gone afterwards.

    If it is not the first, that is logged.
    """
    from numba import config

    before = config.CACHE_DIR
    name = f"interlock-simd-{_state()}"
    wanted = (_chosen or Path(before or _PACKAGE / "__pycache__")) / name
    with ExitStack() as stack:
        folder = wanted
        if fault := _unusable(wanted):
            if os.path.isdir(wanted):  # not that of `Path`, which may raise
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="interlock-")), name)
                shutil.copytree(wanted, folder)
                _log.info("compiled kernels are in %s, which cannot be written to: using a copy", wanted)
            else:
                folder = _folder_of_user(name) or Path(stack.enter_context(tempfile.TemporaryDirectory()), name)
                _log.warning("compiled kernels cannot be kept in %s (%s); using %s", wanted, fault, folder)
        config.CACHE_DIR = str(folder)
        try:
            yield
        finally:
            config.CACHE_DIR = before


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
