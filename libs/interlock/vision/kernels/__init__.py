"""The kernels: implementations of one function that give the same bytes.

    resize_patchify(rgb, plan, profile, out=None, *, threads=1, checkpoint=None)
        -> uint16[grid_height, grid_width, 3, patch_size, patch_size]

`reference` is plain Pillow and NumPy; `numexpr` is the fast one that needs nothing compiled at run time; `simd` is
compiled by numba when it is first used, or taken from disk (`keep_compiled_in`), and by far the fastest.
"""

import logging
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from interlock.vision.kernels.disk_cache import keep_compiled_in, kept_in
from interlock.vision.plan import Plan, plan
from interlock.vision.profiles import VisionProfile

__all__ = ["Kernel", "ResizePatchify", "available", "get", "keep_compiled_in", "kept_in", "warm_up"]

_log = logging.getLogger(__name__)


class ResizePatchify(Protocol):
    """Resize a picture (bicubic, horizontal pass first), place it on the canvas, quantise it, cut it into patches."""

    def __call__(
        self,
        rgb: NDArray[np.uint8],
        plan: Plan,
        profile: VisionProfile,
        out: NDArray[np.uint16] | None = None,
        *,
        threads: int = 1,
        checkpoint: Callable[[int], None] | None = None,
        rows_ready: Callable[[int], None] | None = None,
    ) -> NDArray[np.uint16]:
        """Make the patches of `rgb`.

        Args:
            rgb: uint8[height, width, 3], C order.
            plan: the geometry; checked again.
            profile: patch size, means and deviations; checked again.
            out: contiguous uint16 array of exactly the words of the patches, to fill instead of a new one.
            threads: threads to use, this one included. 1 starts none.
            checkpoint: called between strips with the number of patch rows of `out` that are final, from the first
                on; never fewer than before. It may be called from any of the kernel's threads, but from one at a time.
                What it raises ends the work and comes out of this call, when all threads have stopped.
            rows_ready: for a `rgb` that is filled from the top while it is used: called with a number of rows before
                they are read, by whichever thread is to read them. It returns when they are there; what it raises
                ends the work too.

        Returns:
            uint16[grid_height, grid_width, 3, patch_size, patch_size]: bfloat16 bits, channels first in each patch. A
            view of `out` if it was given.

        Raises:
            VisionError: INVALID_PROFILE or INVALID_PLAN, naming what is wrong.
        """
        ...


class Kernel(NamedTuple):
    """An implementation by name."""

    name: str
    resize_patchify: ResizePatchify


# From the fastest to the plainest, each with the module it needs beyond NumPy and Pillow.
_KERNELS = {"simd": "numba", "numexpr": "numexpr", "reference": None}

_broken: dict[str, str] = {}
"""Kernels that were tried and do not work here, and why."""


def available() -> tuple[str, ...]:
    """Names of the kernels that can be used here, from the fastest on, but for those that turned out not to work."""
    installed = (name for name, needs in _KERNELS.items() if needs is None or find_spec(needs))
    return tuple(name for name in installed if name not in _broken)


def get(name: str | None = None) -> Kernel:
    """The kernel of that name, ready to be used; without a name the fastest that works here.

    The first time takes a while: modules are imported, machine code is loaded or made, the kernel is tried out. One
    that does not work is logged, once, and the next one taken in its place.

    Raises:
        ValueError: there is no such kernel here, or it does not work; the message says why.
    """
    if name is None:
        return next(kernel for kernel in map(_working, available()) if kernel is not None)
    if name in available() and (kernel := _working(name)) is not None:
        return kernel
    why = f", it does not work: {_broken[name]}" if name in _broken else ""
    raise ValueError(f"no kernel {name!r} here{why}; available: {', '.join(available())}")


def warm_up() -> tuple[Kernel, ...]:
    """Load every kernel that works here, the fastest first. Afterwards machine code is on disk for the next process."""
    return tuple(kernel for kernel in map(_working, available()) if kernel is not None)


@cache
def _working(name: str) -> Kernel | None:
    """The kernel of that name, if it gives what the reference gives. The reference is taken as it is."""
    if name == "reference":
        return _load(name)
    reference = _load("reference")
    try:
        kernel = _load(name)
        _try_out(kernel, reference)
    except Exception as error:  # whatever a compiler may raise
        _broken[name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
        _log.warning("kernel %s does not work here, %s takes its place: %s", name, available()[0], _broken[name])
        return None
    return kernel


def _load(name: str) -> Kernel:
    return Kernel(name, import_module(f"{__name__}.{name}").resize_patchify)


def _try_out(kernel: Kernel, reference: Kernel) -> None:
    """Run a kernel once on each of its ways. Also shows whether a compiler got a kind of CPU right that nobody tried.

    Raises:
        RuntimeError: its words are not those of the reference.
    """
    for patch in (14, 16, 5):
        profile = VisionProfile(patch_size=patch, downsample_ratio=1, max_image_tokens=100, min_pixels=0)
        for width, height in ((patch * 4, patch * 3), (150, 103)):  # keeps its size; is resized
            rgb = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
            geometry = plan(width, height, profile)
            words = kernel.resize_patchify(rgb, geometry, profile)
            if not np.array_equal(words, reference.resize_patchify(rgb, geometry, profile)):
                raise RuntimeError(f"it makes other patches than the reference of {width}x{height} at {patch}")
