from fractions import Fraction

import numpy as np
import pytest

from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, VisionProfile
from interlock.vision.quantise import bf16_bits, bf16_codes

DEFAULT = PROFILES[DEFAULT_PROFILE_NAME]


def nearest_bf16(value: Fraction) -> int:
    """The bfloat16 bits nearest to a number, ties to even, by search among all of them."""
    if value < 0:
        return 0x8000 | nearest_bf16(-value)
    low, high = 0, 0x7F80
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if exact_value(middle) <= value else (low, middle)
    below, above = value - exact_value(low), exact_value(high) - value
    return low if below < above or (below == above and low % 2 == 0) else high


def exact_value(bits: int) -> Fraction:
    exponent, fraction = bits >> 7, bits & 0x7F
    if exponent == 0:
        return Fraction(fraction, 128) * Fraction(2) ** -126
    return (1 + Fraction(fraction, 128)) * Fraction(2) ** (exponent - 127)


def test_the_codes_of_the_published_profiles_are_the_known_ones():
    codes = bf16_codes(DEFAULT)
    assert codes.shape == (3, 256)
    for channel in codes:
        assert [int(channel[byte]) for byte in (0, 127, 128, 255)] == [0xBF80, 0xBB81, 0x3B81, 0x3F80]
        assert len(set(channel.tolist())) == 256


def test_all_256_codes_are_the_nearest_bf16_of_the_float32_value():
    for byte, code in enumerate(bf16_codes(DEFAULT)[0].tolist()):
        single = (np.float32(byte) / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
        assert code == nearest_bf16(Fraction(float(single)))


def test_multiplying_by_the_reciprocal_would_give_the_padding_value_another_code():
    reciprocal = np.float32(1) / np.float32(255)
    value = (np.arange(256, dtype=np.float32) * reciprocal - np.float32(0.5)) / np.float32(0.5)
    assert np.flatnonzero(bf16_bits(value) != bf16_codes(DEFAULT)[0]).tolist() == [127]


def test_each_channel_has_the_codes_of_its_own_mean_and_deviation():
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    codes = bf16_codes(VisionProfile(14, 3, 1024, 0, None, mean, std))
    for channel in range(3):
        for byte in range(256):
            single = np.float32(np.float32(byte) / np.float32(255)) - np.float32(mean[channel])
            single = single / np.float32(std[channel])
            assert codes[channel, byte] == nearest_bf16(Fraction(float(single)))


@pytest.mark.parametrize(
    ("bits", "rounded"),
    [
        (0x3F80_7FFF, 0x3F80),
        (0x3F80_8000, 0x3F80),  # a tie goes to the even one below
        (0x3F80_8001, 0x3F81),
        (0x3F81_8000, 0x3F82),  # a tie goes to the even one above
        (0xBF81_8000, 0xBF82),
        (0x0000_0000, 0x0000),
        (0x8000_0000, 0x8000),
    ],
)
def test_rounding_is_to_nearest_and_ties_go_to_even(bits, rounded):
    assert bf16_bits(np.array([bits], np.uint32).view(np.float32)).tolist() == [rounded]


def test_the_codes_cannot_be_changed_by_who_asked_for_them():
    with pytest.raises(ValueError, match="read-only"):
        bf16_codes(DEFAULT)[0, 0] = 0
