"""Vision profiles: the image settings of a model, as data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from interlock.reasons import Reason
from interlock.vision.errors import VisionError
from interlock.vision.limits import (
    DOWNSAMPLE_RATIO_RANGE,
    IMAGE_MEAN_RANGE,
    IMAGE_STD_RANGE,
    MAX_IMAGE_TOKENS_RANGE,
    MAX_PIXELS,
    MAX_WH_RATIO_RANGE,
    PATCH_SIZE_RANGE,
)


@dataclass(frozen=True)
class VisionProfile:
    """The vision settings of a model. Two profiles with the same values are the same profile.

    Attributes:
        patch_size: side of one patch, in pixels.
        downsample_ratio: patches a side that become one token.
        max_image_tokens: token budget of one picture.
        min_pixels: smaller pictures are enlarged to about this many pixels; 0 never.
        max_wh_ratio: pictures wider than this many times their height are squeezed; None never.
        image_mean: mean of each channel (red, green, blue), in units of full scale.
        image_std: deviation of each channel, likewise.
    """

    patch_size: int
    downsample_ratio: int
    max_image_tokens: int
    min_pixels: int
    max_wh_ratio: int | None = None
    image_mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    image_std: tuple[float, float, float] = (0.5, 0.5, 0.5)


PROFILES: Mapping[str, VisionProfile] = MappingProxyType(
    {
        "deepseek-v4-flash-vision-exp": VisionProfile(14, 3, 384, 147_456, 8),
        "deepseek-v4.1": VisionProfile(14, 3, 1024, 295_936),
    }
)
"""The published profiles, by name."""

DEFAULT_PROFILE_NAME = "deepseek-v4.1"


def check_profile(profile: VisionProfile, max_pixels: int = MAX_PIXELS) -> None:
    """Refuse a profile with a value out of bounds.

    Raises:
        VisionError: INVALID_PROFILE, naming the field, its value and its bounds.
    """
    _check_range("patch_size", profile.patch_size, PATCH_SIZE_RANGE)
    _check_range("downsample_ratio", profile.downsample_ratio, DOWNSAMPLE_RATIO_RANGE)
    _check_range("max_image_tokens", profile.max_image_tokens, MAX_IMAGE_TOKENS_RANGE)
    _check_range("min_pixels", profile.min_pixels, (0, max_pixels))
    if profile.max_wh_ratio is not None:
        _check_range("max_wh_ratio", profile.max_wh_ratio, MAX_WH_RATIO_RANGE)
    _check_channels("image_mean", profile.image_mean, IMAGE_MEAN_RANGE)
    _check_channels("image_std", profile.image_std, IMAGE_STD_RANGE)


def _check_channels(field: str, values: tuple[float, ...], bounds: tuple[float, float]) -> None:
    if len(values) != 3:
        raise VisionError(
            Reason.INVALID_PROFILE,
            f"profile.{field}",
            f"{field} has {len(values)} values; expected three: red, green, blue",
        )
    for value in values:
        _check_range(field, value, bounds)


def _check_range(field: str, value: float, bounds: tuple[float, float]) -> None:
    low, high = bounds
    if not (math.isfinite(value) and low <= value <= high):
        raise VisionError(
            Reason.INVALID_PROFILE, f"profile.{field}", f"{field} is {value}; expected {low:g} to {high:.10g}"
        )
