"""Loops that numba compiles: imported when first asked for, since numba takes a third of a second and 100 MB."""

import logging
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar, cast

from interlock.vision.kernels.disk_cache import kept_on_disk

_log = logging.getLogger(__name__)

_F = TypeVar("_F", bound=Callable[..., int])


@cache
def module(name: str) -> ModuleType | None:
    """The module of that name in this package, its machine code taken from disk or made and kept there.

    None where numba is not installed, or does not work, which is logged: then Pillow decodes.
    """
    if find_spec("numba") is None:
        return None
    try:
        with kept_on_disk():
            return import_module(f"interlock.vision.decoders.{name}")
    except Exception as error:  # whatever a compiler may raise
        _log.warning("%s does not work here, Pillow takes its place: %s: %s", name, type(error).__name__, error)
        return None


def compiled(signature: Any) -> Callable[[_F], _F]:
    """Compile a function for these types at once; it lets other threads run. Nothing is checked at run time.

    What it calls must stand in its own file, be inlined or compiled: numba looks there alone for what has changed.
    """
    from numba import njit

    return cast(Callable[[_F], _F], njit(signature, nogil=True, cache=True))
