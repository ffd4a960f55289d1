"""A picture that keeps its size: patches straight from the source, one pass, no workspace."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from interlock.vision.kernels.simd import vectors as v
from interlock.vision.kernels.simd.compiling import compiled, intrinsic
from interlock.vision.kernels.simd.layout import LAYOUT, PIXELS, Layout
from interlock.vision.kernels.simd.vertical import AFFINE, TABLE, WORDS
from interlock.vision.quantise import PADDING_VALUE

_READ_BYTES = 48
"""What is read of the source for one row of a patch."""


def _code_pixels(width: int) -> Any:
    """The intrinsic for patches of `width` (14 or 16) columns."""

    @intrinsic
    def code_pixels(typing: Any, pixels: Any, at: Any, affine: Any, words: Any, to: Any) -> Any:
        """One row of a patch in three channels.

        Reads 48 bytes at `pixels[at]`, whatever the width, and `affine`; writes `width` words at
        `words[to + channel * width * width]`.
        """
        signature = types.void(pixels, types.int64, affine, words, types.int64)

        def generate(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            pixels, at, affine, words, to = arguments
            loaded = v.load(b, v.address(context, b, signature.args[0], pixels, at), v.I8, _READ_BYTES)
            channels = [v.shuffle(b, loaded, loaded, range(channel, _READ_BYTES, 3)) for channel in range(3)]
            values = [b.zext(channel, ir.VectorType(v.I32, 16)) for channel in channels]
            factors = v.address(context, b, signature.args[2], affine, v.integer(0))
            v.store_codes(b, values, factors, width, v.address(context, b, signature.args[3], words, to))
            return context.get_dummy_value()

        return signature, generate

    return code_pixels


_code_pixels_14 = _code_pixels(14)
_code_pixels_16 = _code_pixels(16)


@compiled(types.void(PIXELS, LAYOUT, AFFINE, TABLE, types.int64, types.int64, WORDS))
def copy_strip(
    pixels: NDArray[np.uint8],
    layout: Layout,
    affine: NDArray[np.float32],
    table: NDArray[np.uint16],
    first: int,
    last: int,
    words: NDArray[np.uint16],
) -> None:
    """The patch rows from `first` to before `last` of a picture that keeps its size, in patches of 14 or 16.

    The arguments are those of `strips.resize_strip`.
    """
    patch = layout.patch
    area = patch * patch
    columns = layout.canvas_width // patch
    for row in range(first, last):
        for column in range(columns):
            left = column * patch - layout.left
            for inner in range(patch):
                y = row * patch + inner - layout.top
                at = (y * layout.width + left) * 3
                to = (row * columns + column) * 3 * area + inner * patch
                inside = 0 <= y < layout.height and left >= 0 and left + patch <= layout.width
                # The load of the last row of pixels may end behind the source; a row before it ends in the next.
                if inside and at + _READ_BYTES <= pixels.size:
                    if patch == 14:
                        _code_pixels_14(pixels, at, affine, words, to)
                    else:
                        _code_pixels_16(pixels, at, affine, words, to)
                    continue
                for n in range(patch):
                    x = left + n
                    on_picture = 0 <= y < layout.height and 0 <= x < layout.width
                    for channel in range(3):
                        value = pixels[(y * layout.width + x) * 3 + channel] if on_picture else PADDING_VALUE
                        words[to + channel * area + n] = table[channel * 256 + value]
