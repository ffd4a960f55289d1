"""The modules of compiled loops, imported when first asked for: numba takes a third of a second and 100 MB."""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


@cache
def module(name: str) -> ModuleType | None:
    """The module of that name in this package; None where numba is not installed."""
    return import_module(f"interlock.vision.decoders.{name}") if find_spec("numba") else None
