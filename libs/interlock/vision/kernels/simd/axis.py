"""One axis of the resize: where each position's taps begin, and their weights, as Pillow computes them.

Pillow's `precompute_coeffs` and `normalize_coeffs_8bpc`, bicubic: double precision in the same order, then 22
fractional bits, rounded half away from zero.
"""

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from interlock.vision.kernels.simd.compiling import compiled
from interlock.vision.kernels.simd.vectors import FRACTION_BITS

LARGEST_AXIS = 1 << 18
"""Most pairs of an axis, over all positions: a source of 130,000 pixels. 4 MiB of weights, and as much to make them."""

_MOST_PAIRS = 1 << 13
"""Most pairs of one position. The rounded weights of a position add up to 1 but for half a unit each; with so few, the
padding value, 127 in all taps, still comes out as 127 (`horizontal.py` relies on that)."""


class Axis(NamedTuple):
    """An axis, for the compiled passes. Taps are read in pairs, from every position equally many.

    Attributes:
        starts: int64[new_length], the first pair of each position. Pair n has the taps 2n - phase and 2n - phase + 1.
        weights: int32[new_length * pairs * 2]: of both taps of each pair the lower words, then the upper words; the
            first tap in the lower half. Taps beyond a position's own weigh nothing, so that any byte may stand there.
        pairs: how many pairs of each position.
        phase: 0 or 1, whichever needs fewer pairs. Halving exactly, every window begins at an odd tap: 4 pairs or 5.
    """

    starts: NDArray[np.int64]
    weights: NDArray[np.int32]
    pairs: int
    phase: int


AXIS = types.NamedTuple([types.int64[::1], types.int32[::1], types.int64, types.int64], Axis)
"""numba's type of it."""


def within_bounds(length: int, new_length: int) -> bool:
    """Whether `axis` can be asked for this: only for pictures of extreme shapes it cannot."""
    most_pairs = 1 if length == new_length else 2 * max(-(-length // new_length), 1) + 2
    return most_pairs <= _MOST_PAIRS and most_pairs * new_length <= LARGEST_AXIS


def axis(length: int, new_length: int) -> Axis:
    """The axis that resizes `length` pixels to `new_length`. If they are equal it copies, for Pillow skips the pass."""
    firsts, counts = np.arange(new_length), np.ones(new_length, np.int64)
    weights = np.full((new_length, 1), 1 << FRACTION_BITS, np.int32)
    if length != new_length:
        _find_windows(length, new_length, firsts, counts)
        weights = np.zeros((new_length, int(counts.max())), np.int32)
        _weigh(length, new_length, firsts, counts, weights)

    def pairs_with(phase: int) -> int:
        return int(((firsts + counts + phase + 1) // 2 - (firsts + phase) // 2).max())

    phase = min((0, 1), key=pairs_with)
    pairs = pairs_with(phase)
    starts = (firsts + phase) // 2
    in_pairs = np.zeros((new_length, pairs * 2), np.int32)
    offsets = firsts + phase - starts * 2
    for offset in (0, 1):
        rows = np.flatnonzero(offsets == offset)
        taps = min(weights.shape[1], pairs * 2 - offset)  # a position with more has none that weigh
        in_pairs[rows, offset : offset + taps] = weights[rows, :taps]
    lower = in_pairs.astype(np.int16)
    upper = ((in_pairs - lower) >> 16).astype(np.int16)
    packed = np.stack((lower.view(np.int32), upper.view(np.int32)), axis=-1)
    return Axis(starts, packed.reshape(-1), pairs, phase)


@compiled(types.float64(types.float64))
def _bicubic(distance: float) -> float:
    """Keys' cubic with a = -0.5, of support 2."""
    x = abs(distance)
    if x < 1.0:
        return ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1
    if x < 2.0:
        return (((x - 5) * x + 8) * x - 4) * -0.5
    return 0.0


@compiled(types.void(types.int64, types.int64, types.int64[::1], types.int64[::1]))
def _find_windows(length: int, new_length: int, firsts: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
    """The first tap of each position and how many there are."""
    scale = length / new_length
    support = 2.0 * max(scale, 1.0)
    for position in range(new_length):
        center = (position + 0.5) * scale
        # int() cuts off, as the conversion in C does.
        firsts[position] = max(int(center - support + 0.5), 0)
        counts[position] = min(int(center + support + 0.5), length) - firsts[position]


@compiled(types.void(types.int64, types.int64, types.int64[::1], types.int64[::1], types.int32[:, ::1]))
def _weigh(
    length: int, new_length: int, firsts: NDArray[np.int64], counts: NDArray[np.int64], weights: NDArray[np.int32]
) -> None:
    """The weights of the taps, int32[new_length, most taps], in fixed point."""
    scale = length / new_length
    inverse = 1.0 / max(scale, 1.0)
    exact = np.empty(weights.shape[1])
    for position in range(new_length):
        center = (position + 0.5) * scale
        total = 0.0
        for tap in range(counts[position]):
            exact[tap] = _bicubic((tap + firsts[position] - center + 0.5) * inverse)
            total += exact[tap]
        for tap in range(counts[position]):
            weight = exact[tap]
            if total != 0.0:
                weight /= total
            weight *= 1 << FRACTION_BITS
            weights[position, tap] = int(weight - 0.5) if weight < 0.0 else int(weight + 0.5)
