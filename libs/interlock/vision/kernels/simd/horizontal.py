"""The horizontal pass: 16 rows of the source at a time, into the ring of rows that the vertical pass reads.

The rows are transposed first, so that a lane is a row: then a pair of taps is one load and one weight that is the same
in all lanes, whatever the position. Afterwards they are transposed back, so that the vertical pass has the same luck.

    source   [row][pixel][channel]
    tile     [pair of pixels][channel][16 rows][left, right]           a window of it, in the first-level cache
    columns  [16 positions][channel][16 rows]                          of one block of the canvas
    ring     [block][channel][pair of rows][16 columns][upper, lower]  in the second-level cache
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from interlock.vision.kernels.simd import vectors as v
from interlock.vision.kernels.simd.axis import AXIS, Axis
from interlock.vision.kernels.simd.compiling import compiled, intrinsic
from interlock.vision.kernels.simd.layout import (
    BLOCK,
    LAYOUT,
    PAIR_BYTES,
    PAIRS_AT_ONCE,
    PIXELS,
    ROWS,
    WORKSPACE,
    Layout,
    Workspace,
)
from interlock.vision.kernels.simd.vectors import move
from interlock.vision.quantise import PADDING_VALUE

_PREFETCH_BYTES = 256
"""How far ahead the source is asked for. The processor follows a few rows by itself, not 16: 7.4 ms became 5.8 at 12
megapixels. 128 to 768 bytes are much alike."""


@intrinsic
def _spread_pixels(typing: Any, pixels: Any, at: Any, pitch: Any, tile: Any, to: Any) -> Any:
    """10 pairs of pixels of 16 rows into the tile.

    Reads 64 bytes of each row, from `pixels[at + row * pitch]`. Writes 1,024 bytes at `tile[to]`, of which the first
    960 are the pairs; the next 10 pairs are to be written over the rest.
    """
    signature = types.void(pixels, types.int64, types.int64, tile, types.int64)

    def generate(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        pixels, at, pitch, tile, to = arguments
        source = v.address(context, b, signature.args[0], pixels, at)
        target = v.address(context, b, signature.args[3], tile, to)
        # A channel's left and right byte of a pair become one word; so three stages transpose it, not four.
        order = [6 * pair + channel + side for pair in range(PAIRS_AT_ONCE) for channel in range(3) for side in (0, 3)]
        order += range(6 * PAIRS_AT_ONCE, 64)
        rows = []
        for row in range(ROWS):
            loaded = v.load(b, b.gep(source, [b.mul(pitch, v.integer(row))]), v.I8, 64)
            rows.append(b.bitcast(v.shuffle(b, loaded, loaded, order), ir.VectorType(v.I16, 32)))
        for first in (0, 8):
            for number, words in enumerate(v.transposed_words(b, rows[first : first + 8])):
                for lane in range(4):
                    where = (lane * 8 + number) * ROWS * 2 + first * 2
                    v.store(b, v.part(b, words, lane * 8, 8), b.gep(target, [v.integer(where)]))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _weigh_columns(
    typing: Any, tile: Any, at: Any, weights: Any, weight: Any, pairs: Any, columns: Any, to: Any
) -> Any:
    """One position of 16 rows.

    Reads `pairs * PAIR_BYTES` bytes at `tile[at]` and `pairs * 2` weights at `weights[weight]`; writes 48 bytes at
    `columns[to]`.
    """
    signature = types.void(tile, types.int64, weights, types.int64, types.int64, columns, types.int64)

    def generate(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        tile, at, weights, weight, pairs, columns, to = arguments
        source = v.address(context, b, signature.args[0], tile, at)
        first_weight = v.address(context, b, signature.args[2], weights, weight)
        plane, step = v.integer(ROWS * 2), v.integer(PAIR_BYTES)
        sums = v.sums_of_weighted_pairs(context, b, source, plane, step, first_weight, pairs)
        v.store_bytes(b, sums, v.address(context, b, signature.args[5], columns, to))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _turn_block(typing: Any, columns: Any, ring: Any, to: Any, plane: Any) -> Any:
    """A block's columns into the ring.

    Reads 784 bytes of `columns`, of which 768 mean something; writes 256 bytes at `ring[to + channel * plane]`.
    """
    signature = types.void(columns, ring, types.int64, types.int64)

    def generate(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        columns, ring, to, plane = arguments
        source = v.address(context, b, signature.args[0], columns, v.integer(0))
        target = v.address(context, b, signature.args[1], ring, to)
        # A word is two rows of a column. A vector has three channels of 16 bytes each, and 16 bytes that are not used.
        vectors = [v.load(b, b.gep(source, [v.integer(column * 3 * ROWS)]), v.I16, 32) for column in range(BLOCK)]
        for first in (0, 8):
            for pair, words in enumerate(v.transposed_words(b, vectors[first : first + 8])):
                for channel in range(3):
                    where = b.add(b.mul(plane, v.integer(channel)), v.integer(pair * BLOCK * 2 + first * 2))
                    v.store(b, v.part(b, words, channel * 8, 8), b.gep(target, [where]))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _prefetch_rows(typing: Any, pixels: Any, at: Any, pitch: Any) -> Any:
    """Ask for the cache lines of 16 rows at `pixels[at + row * pitch]`. Nothing happens where there is no memory."""
    signature = types.void(pixels, types.int64, types.int64)

    def generate(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        pixels, at, pitch = arguments
        source = v.address(context, b, signature.args[0], pixels, at)
        kind = ir.FunctionType(ir.VoidType(), [v.I8.as_pointer(), v.I32, v.I32, v.I32])
        prefetch = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
        to_read, keep, data = (ir.Constant(v.I32, value) for value in (0, 3, 1))
        for row in range(ROWS):
            b.call(prefetch, [b.gep(source, [b.mul(pitch, v.integer(row))]), to_read, keep, data])
        return context.get_dummy_value()

    return signature, generate


@compiled(types.void(PIXELS, types.int64, types.int64, LAYOUT, AXIS, WORKSPACE, types.int64))
def widen_rows(
    source: NDArray[np.uint8], at: int, pitch: int, layout: Layout, axis: Axis, work: Workspace, position: int
) -> None:
    """The horizontal pass of 16 rows.

    Args:
        source: bytes. Row r begins at `source[at + r * pitch]` with the first pixel of pair 0, and `layout.row_bytes`
            bytes of each row are there.
        at, pitch: in bytes.
        layout, axis, work: the picture, its horizontal axis, and the memory to work in.
        position: row of the ring to write to, a multiple of 16.
    """
    tile, columns, ring = work.tile, work.columns, work.ring
    plane = (layout.ring_rows + layout.mirror_rows) * BLOCK
    step = layout.patch if layout.block_a_patch else BLOCK
    first, filled = 0, 0  # the pairs in the tile
    for block in range(layout.blocks):
        to = block * 3 * plane + position * BLOCK
        block_left = block * step - layout.left  # in columns of the resized picture
        # Of a block that makes a patch of 14, the last two columns are nobody's.
        left, right = max(block_left, 0), min(block_left + step, layout.resize_width)
        if left >= right:
            for channel in range(3):
                for n in range(ROWS * BLOCK):
                    ring[to + channel * plane + n] = PADDING_VALUE
            continue

        # The tile holds what a block needs and 10 pairs more (`layout.tile_pairs`), so that there is always room after
        # the pairs before this block's first were moved out. Windows overlap: `filled` is never less than that first.
        end = axis.starts[right - 1] + axis.pairs
        if end + PAIRS_AT_ONCE - first > layout.tile_pairs:
            keep = axis.starts[left]
            move(tile, 0, (keep - first) * PAIR_BYTES, (filled - keep) * PAIR_BYTES)
            first = keep
        while filled < end:
            # Ends at most at the last pair of the axis, rounded up to 10 pairs, and 4 bytes: `layout.row_bytes`.
            here = at + filled * 6
            _prefetch_rows(source, here + _PREFETCH_BYTES, pitch)
            _spread_pixels(source, here, pitch, tile, (filled - first) * PAIR_BYTES)
            filled += PAIRS_AT_ONCE

        if right - left < step:
            # The weights of padding come to 1 (`axis.py`), so the vertical pass leaves it what it is.
            for n in range(BLOCK * 3 * ROWS):
                columns[n] = PADDING_VALUE
        for x in range(left, right):
            tap = (axis.starts[x] - first) * PAIR_BYTES
            weight = x * axis.pairs * 2
            _weigh_columns(tile, tap, axis.weights, weight, axis.pairs, columns, (x - block_left) * 3 * ROWS)
        _turn_block(columns, ring, to, plane)

    if position < layout.mirror_rows:
        for channel in range(layout.blocks * 3):
            beginning = channel * plane + position * BLOCK
            move(ring, beginning + layout.ring_rows * BLOCK, beginning, ROWS * BLOCK)
