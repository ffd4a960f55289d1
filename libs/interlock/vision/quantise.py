"""bfloat16 codes: what a byte of a channel becomes under a profile's mean and deviation."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from interlock.vision.profiles import VisionProfile

PADDING_VALUE = 127
"""The byte that fills the canvas around the resized picture. It goes through the same codes as any other byte."""


def bf16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bfloat16 bits of finite float32 values, rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_codes(profile: VisionProfile) -> NDArray[np.uint16]:
    """uint16[3, 256], read-only: the code of each byte of red, green and blue.

    A byte becomes ((byte / 255) - mean) / std in float32, one rounding a step. Multiplying by 1/255 instead of dividing
    by 255 gives the padding value another code.
    """
    return _codes(profile.image_mean, profile.image_std)


@lru_cache(maxsize=64)
def _codes(image_mean: tuple[float, ...], image_std: tuple[float, ...]) -> NDArray[np.uint16]:
    mean = np.array(image_mean, np.float32)[:, None]
    std = np.array(image_std, np.float32)[:, None]
    codes = bf16_bits((np.arange(256, dtype=np.float32) / np.float32(255) - mean) / std)
    codes.flags.writeable = False
    return codes
