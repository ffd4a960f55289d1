"""The reference kernel against the arithmetic itself, since both kernels leave the resize to Pillow."""

import math

import numpy as np
import pytest

from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, kernels
from interlock.vision.quantise import bf16_codes
from vision.cases import geometry, random_case

DEFAULT = PROFILES[DEFAULT_PROFILE_NAME]
REFERENCE = kernels.get("reference").resize_patchify
FRACTION_BITS = 22


def bicubic(distance: float) -> float:
    """Keys' cubic with a = -0.5, of support 2."""
    x = abs(distance)
    if x < 1:
        return ((-0.5 + 2) * x - (-0.5 + 3)) * x * x + 1
    if x < 2:
        return (((x - 5) * x + 8) * x - 4) * -0.5
    return 0.0


def taps(length: int, new_length: int, position: int) -> tuple[int, list[int]]:
    """Where the taps of one output position begin, and their weights in fixed point."""
    scale = length / new_length
    stretch = max(scale, 1.0)
    center = (position + 0.5) * scale
    first = max(int(center - 2 * stretch + 0.5), 0)
    last = min(int(center + 2 * stretch + 0.5), length)
    weights = [bicubic((tap - center + 0.5) * (1 / stretch)) for tap in range(first, last)]
    total = 0.0
    for weight in weights:
        total += weight
    fixed = [weight / total * (1 << FRACTION_BITS) for weight in weights]
    return first, [int(weight + math.copysign(0.5, weight)) for weight in fixed]


def resized_rows(picture: np.ndarray, new_height: int) -> np.ndarray:
    """The vertical pass. Skipped if the height stays."""
    height = picture.shape[0]
    if new_height == height:
        return picture
    result = np.empty((new_height, *picture.shape[1:]), np.uint8)
    for position in range(new_height):
        first, weights = taps(height, new_height, position)
        total = np.full(picture.shape[1:], 1 << (FRACTION_BITS - 1), np.int64)
        for tap, weight in enumerate(weights):
            total += picture[first + tap].astype(np.int64) * weight
        assert abs(total).max() < 2**31, "Pillow sums in 32 bits"
        result[position] = np.clip(total >> FRACTION_BITS, 0, 255)
    return result


def patches_by_hand(rgb, geometry_, profile):
    turned = resized_rows(rgb.transpose(1, 0, 2), geometry_.resize_width).transpose(1, 0, 2)
    resized = resized_rows(turned, geometry_.resize_height)
    codes = bf16_codes(profile)
    patch = profile.patch_size
    patches = np.empty((geometry_.grid_height, geometry_.grid_width, 3, patch, patch), np.uint16)
    for row, column, channel, y, x in np.ndindex(patches.shape):
        from_top, from_left = row * patch + y - geometry_.top, column * patch + x - geometry_.left
        inside = 0 <= from_top < geometry_.resize_height and 0 <= from_left < geometry_.resize_width
        patches[row, column, channel, y, x] = codes[channel, resized[from_top, from_left, channel] if inside else 127]
    return patches


def test_60_random_cases_are_what_the_arithmetic_gives():
    rng = np.random.default_rng(3)
    checked = 0
    while checked < 60:
        rgb, geometry_, profile = random_case(rng)
        if rgb.size > 60_000 or geometry_.canvas_width * geometry_.canvas_height > 8_000:
            continue  # slow by hand
        assert np.array_equal(REFERENCE(rgb, geometry_, profile), patches_by_hand(rgb, geometry_, profile))
        checked += 1


@pytest.mark.parametrize(
    ("size", "resized"),
    [((20, 300), (28, 28)), ((1, 200), (1, 42)), ((300, 20), (42, 14)), ((3, 3), (42, 28)), ((45, 42), (42, 42))],
    ids=["tall", "one column", "wide", "enlarged", "one pass skipped"],
)
def test_each_shape_is_resized_horizontally_first_in_fixed_point(size, resized):
    hard_edges = np.random.default_rng(5).integers(0, 2, (size[1], size[0], 3), dtype=np.uint8) * np.uint8(255)
    geometry_ = geometry((42, 42), resized, (0, 0), DEFAULT)
    assert np.array_equal(REFERENCE(hard_edges, geometry_, DEFAULT), patches_by_hand(hard_edges, geometry_, DEFAULT))


def test_the_tall_shape_tells_the_two_orders_apart():
    rgb = np.random.default_rng(5).integers(0, 256, (300, 20, 3), dtype=np.uint8)
    vertical_first = resized_rows(resized_rows(rgb, 28).transpose(1, 0, 2), 28).transpose(1, 0, 2)
    horizontal_first = resized_rows(resized_rows(rgb.transpose(1, 0, 2), 28).transpose(1, 0, 2), 28)
    assert np.count_nonzero(vertical_first != horizontal_first) > 100
