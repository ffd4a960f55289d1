"""Strips of patch rows: what the compiled side is called for, by any thread, without the interpreter's lock."""

import numpy as np
from numba import types
from numpy.typing import NDArray

from interlock.vision.kernels.simd.axis import AXIS, Axis
from interlock.vision.kernels.simd.compiling import compiled
from interlock.vision.kernels.simd.horizontal import widen_rows
from interlock.vision.kernels.simd.layout import LAYOUT, PIXELS, ROWS, WORKSPACE, Layout, Workspace
from interlock.vision.kernels.simd.vertical import AFFINE, TABLE, WORDS, cut_blocks, cut_columns

# Words of `Workspace.state`; -1 at first.
_NEXT_STRIP = 0
"""The patch row that the rows in the ring are fit for."""
_RING_BEGIN = 1
"""The source row that lies at row 0 of the ring, or did before the ring went round."""
_NEXT_ROW = 2
"""The source row that comes next into the ring."""
_POSITIONS = 3
"""From here on: of each row of a patch, where in the ring its first pair is."""


@compiled(types.void(PIXELS, LAYOUT, AXIS, WORKSPACE, types.int64))
def _fill_ring(pixels: NDArray[np.uint8], layout: Layout, across: Axis, work: Workspace, end: int) -> None:
    """Widen source rows, 16 at a time, until all before `end` are in the ring."""
    state = work.state
    pitch = layout.width * 3
    margin = across.phase * 3  # pair 0 begins so many bytes before the first pixel
    while state[_NEXT_ROW] < end:
        row = state[_NEXT_ROW]
        position = (row - state[_RING_BEGIN]) % layout.ring_rows
        begin = row * pitch - margin
        # Wide loads read bytes of the rows before and after, which weigh nothing. They are fine inside `pixels`; in the
        # first rows and the last few they would lie outside, and there may be fewer than 16 rows: those are copied.
        if row >= 0 and begin >= 0 and begin + (ROWS - 1) * pitch + layout.row_bytes <= pixels.size:
            widen_rows(pixels, begin, pitch, layout, across, work, position)
        else:
            for n in range(max(-row, 0), min(ROWS, layout.height - row)):
                for byte in range(min(pitch, layout.row_bytes - margin)):
                    work.rows[n * layout.row_bytes + margin + byte] = pixels[(row + n) * pitch + byte]
            widen_rows(work.rows, 0, layout.row_bytes, layout, across, work, position)
        state[_NEXT_ROW] = row + ROWS


@compiled(types.void(PIXELS, LAYOUT, AXIS, AXIS, AFFINE, TABLE, WORKSPACE, types.int64, types.int64, WORDS))
def resize_strip(
    pixels: NDArray[np.uint8],
    layout: Layout,
    across: Axis,
    down: Axis,
    affine: NDArray[np.float32],
    table: NDArray[np.uint16],
    work: Workspace,
    first: int,
    last: int,
    words: NDArray[np.uint16],
) -> None:
    """The patch rows from `first` to before `last`, resized.

    Source rows go through the horizontal pass once, into a ring that holds as many as a row of patches needs. A strip
    that follows the last one of this workspace goes on with the rows that are there; any other begins anew.

    Args:
        pixels: the source, [height][width][channel], flat.
        layout: the picture.
        across, down: its horizontal and vertical axis.
        affine: factors and terms of the codes.
        table: codes of red, green and blue.
        work: this thread's memory.
        first, last: rows of patches.
        words: the patches, flat.
    """
    state = work.state
    positions = state[_POSITIONS:]
    if state[_NEXT_STRIP] != first:
        state[_RING_BEGIN] = state[_NEXT_ROW] = -2
    for row in range(first, last):
        top = max(row * layout.patch - layout.top, 0)
        bottom = min((row + 1) * layout.patch - layout.top, layout.resize_height)
        if top < bottom:
            if state[_NEXT_ROW] == -2:
                state[_RING_BEGIN] = state[_NEXT_ROW] = 2 * down.starts[top] - down.phase
            # Rows below the picture weigh nothing; what the ring has in their place does not matter.
            end = min(2 * (down.starts[bottom - 1] + down.pairs) - down.phase, layout.height)
            _fill_ring(pixels, layout, across, work, end)
            for y in range(top, bottom):
                begin = 2 * down.starts[y] - down.phase - state[_RING_BEGIN]
                positions[y + layout.top - row * layout.patch] = begin % layout.ring_rows
        if layout.block_a_patch:
            cut_blocks(layout, down, work, positions, affine, table, row, words)
        else:
            cut_columns(layout, down, work, positions, table, row, words)
    state[_NEXT_STRIP] = last
