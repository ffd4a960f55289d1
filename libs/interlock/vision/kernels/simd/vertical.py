"""The vertical pass: from the ring of widened rows to the words of patches."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from interlock.vision.kernels.simd import vectors as v
from interlock.vision.kernels.simd.axis import AXIS, Axis
from interlock.vision.kernels.simd.compiling import compiled, intrinsic
from interlock.vision.kernels.simd.layout import BLOCK, LAYOUT, WORKSPACE, Layout, Workspace
from interlock.vision.quantise import PADDING_VALUE

AFFINE = types.float32[::1]
"""numba's type of `codes.affine_codes`."""

TABLE = types.Array(types.uint16, 1, "C", readonly=True)
"""numba's type of the 3 * 256 codes of a profile."""

WORDS = types.uint16[::1]
"""numba's type of the patches, flat."""


def _weigh_rows_to_codes(width: int) -> Any:
    """The intrinsic for patches of `width` (14 or 16) columns."""

    @intrinsic
    def weigh_rows(
        typing: Any,
        ring: Any,
        at: Any,
        plane: Any,
        weights: Any,
        weight: Any,
        pairs: Any,
        affine: Any,
        words: Any,
        to: Any,
    ) -> Any:
        """One row of a patch in three channels.

        Reads `pairs * 32` bytes at `ring[at + channel * plane]`, `pairs * 2` weights at `weights[weight]`, and
        `affine`; writes `width` words at `words[to + channel * width * width]`.
        """
        signature = types.void(
            ring, types.int64, types.int64, weights, types.int64, types.int64, affine, words, types.int64
        )

        def generate(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            ring, at, plane, weights, weight, pairs, affine, words, to = arguments
            source = v.address(context, b, signature.args[0], ring, at)
            first_weight = v.address(context, b, signature.args[3], weights, weight)
            factors = v.address(context, b, signature.args[6], affine, v.integer(0))
            target = v.address(context, b, signature.args[7], words, to)
            sums = v.sums_of_weighted_pairs(context, b, source, plane, v.integer(2 * BLOCK), first_weight, pairs)
            v.store_codes(b, [v.clipped(b, total) for total in sums], factors, width, target)
            return context.get_dummy_value()

        return signature, generate

    return weigh_rows


_weigh_rows_14 = _weigh_rows_to_codes(14)
_weigh_rows_16 = _weigh_rows_to_codes(16)


@intrinsic
def _weigh_rows(
    typing: Any, ring: Any, at: Any, plane: Any, weights: Any, weight: Any, pairs: Any, columns: Any
) -> Any:
    """One row of a block in three channels, as bytes.

    Reads `pairs * 32` bytes at `ring[at + channel * plane]` and `pairs * 2` weights at `weights[weight]`; writes 48
    bytes to `columns`, [channel][column].
    """
    signature = types.void(ring, types.int64, types.int64, weights, types.int64, types.int64, columns)

    def generate(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        ring, at, plane, weights, weight, pairs, columns = arguments
        source = v.address(context, b, signature.args[0], ring, at)
        first_weight = v.address(context, b, signature.args[3], weights, weight)
        sums = v.sums_of_weighted_pairs(context, b, source, plane, v.integer(2 * BLOCK), first_weight, pairs)
        v.store_bytes(b, sums, v.address(context, b, signature.args[6], columns, v.integer(0)))
        return context.get_dummy_value()

    return signature, generate


@compiled(types.void(LAYOUT, AXIS, WORKSPACE, types.int64[::1], AFFINE, TABLE, types.int64, WORDS))
def cut_blocks(
    layout: Layout,
    axis: Axis,
    work: Workspace,
    positions: NDArray[np.int64],
    affine: NDArray[np.float32],
    table: NDArray[np.uint16],
    row: int,
    words: NDArray[np.uint16],
) -> None:
    """A row of patches where each block of 16 columns makes a patch of 14 or 16, by arithmetic.

    Args:
        layout, axis, work: the picture, its vertical axis, and the ring.
        positions: for each row of pixels in the patches the ring's row where its first pair is; unused outside.
        affine: factors and terms of the codes.
        table: codes of red, green and blue.
        row: which row of patches.
        words: the patches.
    """
    patch = layout.patch
    area = patch * patch
    plane = (layout.ring_rows + layout.mirror_rows) * BLOCK
    for column in range(layout.blocks):
        block = column * 3 * plane
        first_word = (row * layout.blocks + column) * 3 * area
        for inner in range(patch):
            y = row * patch + inner - layout.top
            to = first_word + inner * patch
            if 0 <= y < layout.resize_height:
                at, weight = block + positions[inner] * BLOCK, y * axis.pairs * 2
                if patch == 14:
                    _weigh_rows_14(work.ring, at, plane, axis.weights, weight, axis.pairs, affine, words, to)
                else:
                    _weigh_rows_16(work.ring, at, plane, axis.weights, weight, axis.pairs, affine, words, to)
            else:
                for channel in range(3):
                    for n in range(patch):
                        words[to + channel * area + n] = table[channel * 256 + PADDING_VALUE]


@compiled(types.void(LAYOUT, AXIS, WORKSPACE, types.int64[::1], TABLE, types.int64, WORDS))
def cut_columns(
    layout: Layout,
    axis: Axis,
    work: Workspace,
    positions: NDArray[np.int64],
    table: NDArray[np.uint16],
    row: int,
    words: NDArray[np.uint16],
) -> None:
    """A row of patches of any size and any codes: blocks lie across patches, and each word is looked up by itself."""
    patch = layout.patch
    area = patch * patch
    plane = (layout.ring_rows + layout.mirror_rows) * BLOCK
    values = work.columns
    for block in range(layout.blocks):
        left = block * BLOCK
        for inner in range(patch):
            y = row * patch + inner - layout.top
            if 0 <= y < layout.resize_height:
                at = block * 3 * plane + positions[inner] * BLOCK
                _weigh_rows(work.ring, at, plane, axis.weights, y * axis.pairs * 2, axis.pairs, values)
            else:
                for n in range(3 * BLOCK):
                    values[n] = PADDING_VALUE
            for n in range(min(BLOCK, layout.canvas_width - left)):
                column, across = divmod(left + n, patch)
                to = (row * (layout.canvas_width // patch) + column) * 3 * area + inner * patch + across
                for channel in range(3):
                    words[to + channel * area] = table[channel * 256 + values[channel * BLOCK + n]]
