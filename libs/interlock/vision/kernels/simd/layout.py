"""How a picture lies in memory for the compiled passes: its numbers and its workspace, each one tuple."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from interlock.vision.kernels.simd.axis import Axis
from interlock.vision.plan import Plan

ROWS = 16
"""Rows of the source that go through the horizontal pass at once: one in each 32-bit lane."""

BLOCK = 16
"""Columns of the canvas that go through the vertical pass at once."""

PAIRS_AT_ONCE = 10
"""Pairs of pixels that the horizontal pass takes from a row at once: 60 bytes, the most whole pairs in 64."""

PAIR_BYTES = 3 * ROWS * 2
"""Of the tile: one pair of pixels."""

PIXELS = types.Array(types.uint8, 1, "C", readonly=True)
"""numba's type of a source. Arrays that may be written fit too."""


class Layout(NamedTuple):
    """The numbers of a picture. Pixels, where nothing else is said.

    Attributes:
        width, height: of the source.
        row_bytes: what the horizontal pass reads of a row, from the first pixel of pair 0.
        resize_width, resize_height: of the resized picture.
        top, left: of the resized picture on the canvas.
        canvas_width: of the canvas.
        patch: side of a patch.
        blocks: blocks of 16 columns that the canvas is computed in.
        block_a_patch: 1 where each block makes a patch, and so begins where one begins; 0 where they lie side by side.
        tile_pairs: pairs of pixels that the tile holds.
        ring_rows: rows of the ring, a multiple of 16.
        mirror_rows: how many rows at the beginning of the ring are repeated after its end, a multiple of 16: so the
            vertical pass reads on without looking for the end.
    """

    width: int
    height: int
    row_bytes: int
    resize_width: int
    resize_height: int
    top: int
    left: int
    canvas_width: int
    patch: int
    blocks: int
    block_a_patch: int
    tile_pairs: int
    ring_rows: int
    mirror_rows: int


LAYOUT = types.NamedUniTuple(types.int64, len(Layout._fields), Layout)
"""numba's type of it."""


def layout_of(width: int, height: int, plan: Plan, patch: int, across: Axis, down: Axis, block_a_patch: bool) -> Layout:
    """The numbers of a picture of `width` x `height` pixels under a plan.

    Args:
        width, height: of the source.
        plan: the geometry.
        patch: side of a patch.
        across, down: its axes.
        block_a_patch: whether each block of 16 columns makes one patch.
    """
    columns = np.arange(plan.resize_width)
    block_pairs = _widest(across, np.minimum(columns + BLOCK - 1, columns[-1]))
    rows = np.arange(plan.resize_height)
    patch_rows = 2 * _widest(down, np.minimum(rows + patch - 1, rows[-1]))
    last_pair = int(across.starts[-1]) + across.pairs
    return Layout(
        width=width,
        height=height,
        # 64 bytes at once, 60 bytes apart.
        row_bytes=-(-last_pair // PAIRS_AT_ONCE) * PAIRS_AT_ONCE * 6 + 4,
        resize_width=plan.resize_width,
        resize_height=plan.resize_height,
        top=plan.top,
        left=plan.left,
        canvas_width=plan.canvas_width,
        patch=patch,
        blocks=plan.grid_width if block_a_patch else -(-plan.canvas_width // BLOCK),
        block_a_patch=int(block_a_patch),
        # Twice what is needed: then the pairs that stay are moved once in a few blocks. A few hundred are 30 KiB.
        tile_pairs=max(160, 2 * block_pairs + PAIRS_AT_ONCE),
        # Rows come 16 at a time, so up to 15 more than a row of patches needs are in the ring with it.
        ring_rows=_rounded_up(patch_rows + ROWS - 1),
        mirror_rows=_rounded_up(2 * down.pairs),
    )


def _widest(axis: Axis, lasts: NDArray[np.int64]) -> int:
    """The most pairs that positions n to `lasts[n]` need together."""
    return int((axis.starts[lasts] + axis.pairs - axis.starts).max())


def _rounded_up(rows: int) -> int:
    return -(-rows // ROWS) * ROWS


class Workspace(NamedTuple):
    """Memory that one thread works in; uint8 but for `state`. What was there before never shows in what is made.

    Attributes:
        tile: the window of the source's columns that the horizontal pass is at, and 64 bytes: see `_spread_pixels`.
        columns: [16 positions][channel][16 rows] of one block, and 16 bytes: see `_turn_block`.
        rows: 16 rows of the source, where reading them in place would touch what lies outside.
        ring: [blocks][channel][ring_rows + mirror_rows][16].
        state: int64, what the next strip goes on with. See `strips.py`.
    """

    tile: NDArray[np.uint8]
    columns: NDArray[np.uint8]
    rows: NDArray[np.uint8]
    ring: NDArray[np.uint8]
    state: NDArray[np.int64]


WORKSPACE = types.NamedTuple([types.uint8[::1]] * 4 + [types.int64[::1]], Workspace)
"""numba's type of it."""

LARGEST_WORKSPACE = 32 << 20
"""Bytes. A photo of 100 megapixels needs 1.4 MB; more than this only pictures that are all but one column."""

_LARGEST_SPARE = 4 << 20
"""Bytes of the largest workspace that is kept for the next picture."""

_spare: deque[NDArray[np.uint8]] = deque(maxlen=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4)
"""Workspaces kept between pictures: fresh memory costs a page fault every 4 KiB."""

_LINE = 64
"""Bytes of a cache line, at which each part of a workspace begins."""


def workspace_parts(layout: Layout) -> tuple[slice, ...]:
    """Where tile, columns, rows and ring lie in the memory of a thread that works on this picture."""
    sizes = (
        layout.tile_pairs * PAIR_BYTES + 64,
        BLOCK * 3 * ROWS + 16,
        ROWS * layout.row_bytes,
        layout.blocks * 3 * (layout.ring_rows + layout.mirror_rows) * BLOCK,
    )
    begins = accumulate((-(-size // _LINE) * _LINE for size in sizes), initial=0)
    return tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=False))


@contextmanager
def workspace(parts: tuple[slice, ...], patch: int) -> Iterator[Workspace]:
    """A workspace of these parts, in memory that was used before if there is enough of it."""
    try:
        memory = _spare.pop()
    except IndexError:
        memory = _aligned(0)
    if memory.size < parts[-1].stop:
        memory = _aligned(parts[-1].stop)
    try:
        tile, columns, rows, ring = (memory[part] for part in parts)
        yield Workspace(tile, columns, rows, ring, np.full(3 + patch, -1, np.int64))
    finally:
        if memory.size <= _LARGEST_SPARE:
            _spare.append(memory)


def _aligned(size: int) -> NDArray[np.uint8]:
    memory = np.empty(size + _LINE, np.uint8)
    begin = -memory.ctypes.data % _LINE
    return memory[begin : begin + size]
