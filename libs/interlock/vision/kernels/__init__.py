"""The kernels: implementations of one function that give the same bytes.

    resize_patchify(rgb, plan, profile, out=None, *, threads=1, checkpoint=None)
        -> uint16[grid_height, grid_width, 3, patch_size, patch_size]

`reference` is plain Pillow and NumPy; `numexpr` is the fast one that needs nothing compiled at run time.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from interlock.vision.plan import Plan
from interlock.vision.profiles import VisionProfile


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
_KERNELS = {"numexpr": "numexpr", "reference": None}


def available() -> tuple[str, ...]:
    """Names of the kernels that can be used here; the first is the default."""
    return tuple(name for name, needs in _KERNELS.items() if needs is None or find_spec(needs))


def get(name: str | None = None) -> Kernel:
    """The kernel of that name, or the default one.

    Raises:
        ValueError: there is no such kernel here; the message lists those that are.
    """
    names = available()
    if name is None:
        name = names[0]
    if name not in names:
        raise ValueError(f"no kernel {name!r} here; available: {', '.join(names)}")
    return Kernel(name, import_module(f"{__name__}.{name}").resize_patchify)
