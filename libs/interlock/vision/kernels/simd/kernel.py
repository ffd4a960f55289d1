"""`resize_patchify` of the simd kernel: what runs in Python, once a picture or once a strip."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlock.vision import kernels
from interlock.vision.kernels.geometry import checked_patches
from interlock.vision.kernels.sharing import Strip, share
from interlock.vision.kernels.simd.axis import Axis, axis, within_bounds
from interlock.vision.kernels.simd.codes import affine_codes
from interlock.vision.kernels.simd.layout import LARGEST_WORKSPACE, ROWS, Layout, layout_of, workspace, workspace_parts
from interlock.vision.kernels.simd.strips import resize_strip
from interlock.vision.kernels.simd.unresized import copy_strip
from interlock.vision.plan import Plan
from interlock.vision.profiles import VisionProfile
from interlock.vision.quantise import bf16_codes

_STRIP_BYTES = 1 << 20
"""Bytes of patches in a strip: about a chunk of the service, and 0.3 ms."""

_STRIP_PIXELS = 1 << 21
"""Pixels of the source behind a strip: about 0.7 ms."""

_SHARED_PIXELS = 1 << 17
"""Pixels of source and canvas for each thread, below which a helper costs more than it brings."""

_STRIPS_A_THREAD = 4
"""Most strips for each of several threads; one that does not follow its thread's last one widens some rows again."""

_PATCHES_BY_ARITHMETIC = (14, 16)
"""Patch sizes for which there are inner loops of their own."""

_KEPT_SIDE = 8192
"""Longest side, before or after, of a picture whose axes are kept for the next of its size: an axis is at most 0.4 MB
then, and those of 64 pictures 50 MB. To make both takes 0.3 ms at 12 megapixels."""

_NO_FACTORS = np.zeros(6, np.float32)


def resize_patchify(
    rgb: NDArray[np.uint8],
    plan: Plan,
    profile: VisionProfile,
    out: NDArray[np.uint16] | None = None,
    *,
    threads: int = 1,
    checkpoint: Callable[[int], None] | None = None,
    rows_ready: Callable[[int], None] | None = None,
) -> NDArray[np.uint16]:
    """See `interlock.vision.kernels.ResizePatchify`. Pictures of extreme shapes are left to the next kernel."""
    patches = checked_patches(rgb, plan, profile, out)
    height, width = rgb.shape[:2]
    affine = affine_codes(profile) if profile.patch_size in _PATCHES_BY_ARITHMETIC else None
    longest = max(width, height, plan.resize_width, plan.resize_height)
    prepare = _prepared_before if longest <= _KEPT_SIDE else _prepared
    picture = prepare(width, height, plan, profile.patch_size, affine is not None)
    if picture is None or not patches.flags.aligned:
        return _next_kernel()(rgb, plan, profile, out, threads=threads, checkpoint=checkpoint, rows_ready=rows_ready)

    wait_for = rows_ready or (lambda rows: None)
    if not rgb.flags.c_contiguous:
        wait_for(height)  # they are copied now
    pixels = np.ascontiguousarray(rgb).reshape(-1)
    words = patches.reshape(-1)
    layout, parts, across, down = picture
    table = bf16_codes(profile).reshape(-1)

    factors = _NO_FACTORS if affine is None else affine

    @contextmanager
    def begin() -> Iterator[Callable[[int, int], None]]:
        def copy(first: int, last: int) -> None:
            wait_for(min(max(last * profile.patch_size - plan.top, 0), height))
            copy_strip(pixels, layout, factors, table, first, last, words)

        def resize(first: int, last: int) -> None:
            wait_for(_rows_read(last, plan, profile.patch_size, height, down))
            resize_strip(pixels, layout, across, down, factors, table, work, first, last, words)

        if affine is not None and (width, height) == (plan.resize_width, plan.resize_height):
            yield copy
            return
        with workspace(parts, layout.patch) as work:
            yield resize

    share(begin, _strips(plan, width * height, threads), threads, checkpoint or (lambda patch_rows_done: None))
    return patches


class _Picture(NamedTuple):
    layout: Layout
    parts: tuple[slice, ...]
    across: Axis
    down: Axis


def _prepared(width: int, height: int, plan: Plan, patch: int, by_arithmetic: bool) -> _Picture | None:
    """What the compiled passes know of a picture; None: too extreme for them."""
    if not (within_bounds(width, plan.resize_width) and within_bounds(height, plan.resize_height)):
        return None
    across, down = axis(width, plan.resize_width), axis(height, plan.resize_height)
    layout = layout_of(width, height, plan, patch, across, down, by_arithmetic)
    parts = workspace_parts(layout)
    return _Picture(layout, parts, across, down) if parts[-1].stop <= LARGEST_WORKSPACE else None


_prepared_before = lru_cache(maxsize=64)(_prepared)


def _rows_read(last: int, plan: Plan, patch: int, height: int, down: Axis) -> int:
    """Rows of the source that count for the patch rows before `last`, or are read on the way."""
    bottom = min(last * patch - plan.top, plan.resize_height)
    if bottom <= 0:
        return 0
    # The ring is filled by so many rows at once, and strips that follow find there what came too early for this one.
    return min(int(2 * (down.starts[bottom - 1] + down.pairs)) - down.phase + ROWS - 1, height)


def _next_kernel() -> kernels.ResizePatchify:
    return kernels.get(next(name for name in kernels.available() if name != "simd")).resize_patchify


def _strips(plan: Plan, source_pixels: int, threads: int) -> list[Strip]:
    """Patch rows in strips: so long that calls cost little, so short that the first are soon done."""
    canvas_pixels = plan.canvas_width * plan.canvas_height
    count = -(-max(canvas_pixels * 6 * _STRIP_PIXELS, source_pixels * _STRIP_BYTES) // (_STRIP_BYTES * _STRIP_PIXELS))
    threads = max(1, min(threads, (source_pixels + canvas_pixels) // _SHARED_PIXELS))
    if threads == 1:
        shares = [1] * count
    elif count >= 2 * threads:
        shares = [1] * (threads * min(count // threads, _STRIPS_A_THREAD))
    else:
        # Helpers begin later than this thread, and whoever is done first takes the short one: so none waits long.
        shares = [9, *[7] * (threads - 1), 4]
    ends = [plan.grid_height * done // sum(shares) for done in accumulate(shares)]
    return [(first, last) for first, last in pairwise([0, *ends]) if first < last]
