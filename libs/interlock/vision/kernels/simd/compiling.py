"""numba, as the passes use it: one way to compile, and one to put in vectors."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numba.extending

_F = TypeVar("_F", bound=Callable[..., None] | Callable[..., float])


def compiled(signature: Any) -> Callable[[_F], _F]:
    """Compile a function for these types at once, or take its machine code from disk.

    For fixed types: an array of another layout is then an error, and never a compilation in the middle of a request.
    Other threads run meanwhile. Nothing is checked at run time, so callers argue that what they ask for is there.
    """
    compiler = numba.njit(signature, nogil=True, cache=True, boundscheck=False, error_model="numpy")
    return cast(Callable[[_F], _F], compiler)


def intrinsic(function: Callable[..., Any]) -> Any:
    """A function whose body is LLVM's code: see `vectors.py`."""
    return numba.extending.intrinsic(function)
