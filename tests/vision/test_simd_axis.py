"""The axes of the simd kernel against Pillow's formulas, written down once more in `test_reference_kernel`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.vision.kernels.simd.axis import LARGEST_AXIS, axis, within_bounds
from vision.test_reference_kernel import taps


def unpacked(length: int, new_length: int, position: int) -> dict[int, int]:
    """The taps of one position that weigh something, and their weights."""
    made = axis(length, new_length)
    words = made.weights.view(np.int16).reshape(new_length, made.pairs, 2, 2).astype(np.int64)
    lower, upper = words[position, :, 0].ravel(), words[position, :, 1].ravel()
    first = 2 * int(made.starts[position]) - made.phase
    return {first + tap: int(low + (high << 16)) for tap, (low, high) in enumerate(zip(lower, upper, strict=True))}


@given(st.integers(1, 3000), st.integers(1, 600), st.data())
def test_every_tap_has_pillows_weight_and_those_beyond_have_none(length, new_length, data):
    if length == new_length:
        new_length += 1
    position = data.draw(st.integers(0, new_length - 1))
    first, weights = taps(length, new_length, position)
    made = unpacked(length, new_length, position)
    expected = {first + tap: weight for tap, weight in enumerate(weights)}
    assert {tap: weight for tap, weight in made.items() if weight} == {t: w for t, w in expected.items() if w}
    assert set(expected) <= set(made)


@pytest.mark.parametrize("length", [1, 2, 777])
def test_an_axis_that_keeps_its_length_copies(length):
    for position in (0, length // 2, length - 1):
        assert {tap: weight for tap, weight in unpacked(length, length, position).items() if weight} == {
            position: 1 << 22
        }


def test_halving_takes_four_pairs_because_windows_begin_at_odd_taps():
    made = axis(4032, 2016)
    assert (made.pairs, made.phase) == (4, 1)


@given(st.integers(1, 1 << 28), st.integers(1, 1 << 17))
def test_an_axis_within_bounds_stays_within_them(length, new_length):
    if within_bounds(length, new_length) and length * 4 < 1 << 18:
        assert axis(length, new_length).pairs * new_length <= LARGEST_AXIS
    assert not within_bounds(1 << 28, 100)


@pytest.mark.parametrize(("length", "new_length"), [(1000, 7), (20_000, 3), (14, 100), (4032, 2016), (65_000, 4)])
def test_padding_weighs_one_in_every_position(length, new_length):
    made = axis(length, new_length)
    words = made.weights.view(np.int16).reshape(new_length, made.pairs, 2, 2).astype(np.int64)
    sums = (words[:, :, 0] + (words[:, :, 1] << 16)).sum(axis=(1, 2))
    assert set(((sums * 127 + (1 << 21)) >> 22).tolist()) == {127}
