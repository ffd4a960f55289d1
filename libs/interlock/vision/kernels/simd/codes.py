"""bfloat16 codes by arithmetic instead of by table, where that gives the same 256 codes.

A table cannot be looked up 16 values at once, a product and a sum can be computed. So a code is the upper half of

    bits(value * factor + term) + 0x8000

in float32, each step rounded by itself: to the nearest code, ties away from zero. That is not the definition of a code
(`interlock.vision.quantise`: three roundings in another order, ties to even), but a byte has only 256 values, so all
of them are tried before it is used.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from interlock.vision.profiles import VisionProfile
from interlock.vision.quantise import bf16_codes


def affine_codes(profile: VisionProfile) -> NDArray[np.float32] | None:
    """float32[6]: the factors of red, green and blue, then their terms; None: only the table is right."""
    return _affine(profile.image_mean, profile.image_std, bf16_codes(profile).tobytes())


@lru_cache(maxsize=64)
def _affine(image_mean: tuple[float, ...], image_std: tuple[float, ...], codes: bytes) -> NDArray[np.float32] | None:
    table = np.frombuffer(codes, np.uint16).reshape(3, 256)
    found = [_channel(*channel) for channel in zip(image_mean, image_std, table, strict=True)]
    if any(channel is None for channel in found):
        return None
    return np.array(found, np.float32).T.reshape(-1)


def _channel(mean: float, std: float, codes: NDArray[np.uint16]) -> tuple[np.float32, np.float32] | None:
    for factor in _near(1 / (255 * std)):
        for term in _near(-mean / std):
            single = np.arange(256, dtype=np.float32) * factor + term
            if np.array_equal((single.view(np.uint32) + np.uint32(0x8000)) >> 16, codes):
                return factor, term
    return None


def _near(value: float) -> list[np.float32]:
    """The float32 nearest to a value, and two on either side."""
    near = [np.float32(value)]
    for direction in (np.float32(np.inf), np.float32(-np.inf)):
        step = near[0]
        for _ in range(2):
            step = np.nextafter(step, direction)
            near.append(step)
    return near
