"""Compiled loops that undo the filters of a PNG's rows, straight into RGB.

Each row is a byte that names its filter, and then its bytes as differences from those of the pixel to the left (a),
above (b) and above left (c): 1 from a, 2 from b, 3 from their mean, 4 from whichever of the three is nearest to
a + b - c. So pixels of a row wait for each other, but the channels of a pixel do not: three chains run side by side.

`filtered` must have `height * (1 + width * pixel_bytes)` bytes; with that every index stays inside its array by the
bounds of the loops. Indices are unsigned: for a signed one the compiler must ask whether it counts from the end.
"""

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from interlock.vision.decoders.compiled import compiled

_SIGNATURE = types.int64(
    types.Array(types.uint8, 1, "C", readonly=True), types.int64, types.uint8[:, ::1], types.uint8[:, :, ::1]
)
_BYTE, _HALF = np.int32(255), np.int32(1)
_ONE, _TWO = np.uint64(1), np.uint64(2)


@njit(inline="always")
def _nearest(a, b, c):  # type: ignore[no-untyped-def]
    """The Paeth predictor: the nearest to a + b - c; of those equally near, the first."""
    from_b, from_a = b - c, a - c
    to_a, to_b, to_c = abs(from_b), abs(from_a), abs(from_a + from_b)
    b_or_c = c if to_c < to_b else b
    return a if to_a <= to_b and to_a <= to_c else b_or_c


@njit(inline="always")
def _add_left(source, pixel_bytes, row, width):  # type: ignore[no-untyped-def]
    red = green = blue = np.uint8(0)
    for x in range(width):
        at, to = np.uint64(x * pixel_bytes), np.uint64(x * 3)
        red = np.uint8(source[at] + red)
        green = np.uint8(source[at + _ONE] + green)
        blue = np.uint8(source[at + _TWO] + blue)
        row[to], row[to + _ONE], row[to + _TWO] = red, green, blue


@njit(inline="always")
def _add_mean(source, pixel_bytes, above, row, width):  # type: ignore[no-untyped-def]
    red = green = blue = np.int32(0)
    for x in range(width):
        at, to = np.uint64(x * pixel_bytes), np.uint64(x * 3)
        red = (np.int32(source[at]) + ((red + np.int32(above[to])) >> _HALF)) & _BYTE
        green = (np.int32(source[at + _ONE]) + ((green + np.int32(above[to + _ONE])) >> _HALF)) & _BYTE
        blue = (np.int32(source[at + _TWO]) + ((blue + np.int32(above[to + _TWO])) >> _HALF)) & _BYTE
        row[to], row[to + _ONE], row[to + _TWO] = red, green, blue


@njit(inline="always")
def _add_nearest(source, pixel_bytes, above, row, width):  # type: ignore[no-untyped-def]
    red = green = blue = np.int32(0)
    left_red = left_green = left_blue = np.int32(0)  # above left
    for x in range(width):
        at, to = np.uint64(x * pixel_bytes), np.uint64(x * 3)
        up_red, up_green, up_blue = np.int32(above[to]), np.int32(above[to + _ONE]), np.int32(above[to + _TWO])
        red = (np.int32(source[at]) + _nearest(red, up_red, left_red)) & _BYTE
        green = (np.int32(source[at + _ONE]) + _nearest(green, up_green, left_green)) & _BYTE
        blue = (np.int32(source[at + _TWO]) + _nearest(blue, up_blue, left_blue)) & _BYTE
        row[to], row[to + _ONE], row[to + _TWO] = red, green, blue
        left_red, left_green, left_blue = up_red, up_green, up_blue


@compiled(_SIGNATURE)
def unfilter_colour(
    filtered: NDArray[np.uint8], pixel_bytes: int, colours: NDArray[np.uint8], rgb: NDArray[np.uint8]
) -> int:
    """Unfilter pixels of red, green, blue and perhaps a fourth byte, which is left out.

    Args:
        filtered: uint8[height * (1 + width * pixel_bytes)].
        pixel_bytes: 3 or 4.
        colours: not used; both functions are called alike.
        rgb: uint8[height, width, 3], filled.

    Returns:
        Rows done: fewer than all if the next one names no filter.
    """
    height, width, _ = rgb.shape
    row_bytes = width * pixel_bytes
    rows = rgb.reshape(height, width * 3)
    above = np.zeros(width * 3, np.uint8)
    for y in range(height):
        start = y * (1 + row_bytes)
        kind = filtered[start]
        source = filtered[start + 1 : start + 1 + row_bytes]
        row = rows[y]
        if kind == 0 and pixel_bytes == 3:
            for i in range(width * 3):
                row[i] = source[i]
        elif kind == 0:
            for x in range(width):
                at, to = np.uint64(x * 4), np.uint64(x * 3)
                row[to], row[to + _ONE], row[to + _TWO] = source[at], source[at + _ONE], source[at + _TWO]
        elif kind == 2 and pixel_bytes == 3:
            for i in range(width * 3):
                row[i] = source[i] + above[i]
        elif kind == 2:
            for x in range(width):
                at, to = np.uint64(x * 4), np.uint64(x * 3)
                row[to] = source[at] + above[to]
                row[to + _ONE] = source[at + _ONE] + above[to + _ONE]
                row[to + _TWO] = source[at + _TWO] + above[to + _TWO]
        elif kind == 1:
            _add_left(source, pixel_bytes, row, width)
        elif kind == 3:
            _add_mean(source, pixel_bytes, above, row, width)
        elif kind == 4:
            _add_nearest(source, pixel_bytes, above, row, width)
        else:
            return int(y)
        above = row
    return int(height)


@compiled(_SIGNATURE)
def unfilter_single(
    filtered: NDArray[np.uint8], pixel_bytes: int, colours: NDArray[np.uint8], rgb: NDArray[np.uint8]
) -> int:
    """Unfilter pixels of one level of grey or index, and perhaps a second byte, which is left out.

    Args:
        filtered: uint8[height * (1 + width * pixel_bytes)].
        pixel_bytes: 1 or 2.
        colours: uint8[256, 3]: what each level or index stands for.
        rgb: uint8[height, width, 3], filled.

    Returns:
        Rows done: fewer than all if the next one names no filter.
    """
    height, width, _ = rgb.shape
    row_bytes = width * pixel_bytes
    levels = np.zeros(width, np.int32)  # of the row above, until they are of this one
    for y in range(height):
        start = y * (1 + row_bytes)
        kind = filtered[start]
        source = filtered[start + 1 : start + 1 + row_bytes]
        a = c = np.int32(0)
        if kind > 4:
            return int(y)
        for x in range(width):
            column = np.uint64(x)
            b = levels[column]
            if kind == 0:
                predicted = np.int32(0)
            elif kind == 1:
                predicted = a
            elif kind == 2:
                predicted = b
            elif kind == 3:
                predicted = (a + b) >> np.int32(1)
            else:
                predicted = _nearest(a, b, c)
            a = (np.int32(source[np.uint64(x * pixel_bytes)]) + predicted) & _BYTE
            levels[column] = a
            c = b
            for channel in range(3):
                rgb[np.uint64(y), column, np.uint64(channel)] = colours[np.uint64(a), np.uint64(channel)]
    return int(height)
