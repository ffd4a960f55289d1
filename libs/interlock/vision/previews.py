"""Patches drawn back as the picture that the model sees."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from interlock.reasons import Reason
from interlock.vision.errors import VisionError
from interlock.vision.profiles import VisionProfile, check_profile


def preview(patches: NDArray[np.uint16], profile: VisionProfile) -> Image.Image:
    """The canvas that `patches` were cut from, padding included.

    Each value goes back to the nearest byte. Under a mean and deviation of 0.5 that is the very byte it came from.

    Args:
        patches: uint16[grid_height, grid_width, 3, patch_size, patch_size], bfloat16 bits.

    Raises:
        VisionError: INVALID_FIELD, naming `patches`: another shape or type. INVALID_PROFILE.
    """
    check_profile(profile)
    patch = profile.patch_size
    if patches.dtype != np.uint16 or patches.ndim != 5 or patches.shape[2:] != (3, patch, patch) or not patches.size:
        raise VisionError(
            Reason.INVALID_FIELD,
            "patches",
            f"patches are {patches.dtype}{list(patches.shape)}; "
            f"expected uint16[grid_height, grid_width, 3, {patch}, {patch}]",
        )
    grid_height, grid_width = patches.shape[:2]
    canvas = np.empty((grid_height, patch, grid_width, patch, 3), np.uint8)
    for channel, (mean, std) in enumerate(zip(profile.image_mean, profile.image_std, strict=True)):
        byte_of_code = _bytes_of_codes(mean, std)
        canvas[..., channel] = byte_of_code[patches[:, :, channel]].transpose(0, 2, 1, 3)
    return Image.fromarray(canvas.reshape(grid_height * patch, grid_width * patch, 3))


def _bytes_of_codes(mean: float, std: float) -> NDArray[np.uint8]:
    """The nearest byte of all 65,536 codes; 0 for those that are no number."""
    values = (np.arange(65_536, dtype=np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        levels = np.rint((np.nan_to_num(values, nan=-np.inf) * np.float32(std) + np.float32(mean)) * np.float32(255))
    nearest: NDArray[np.uint8] = np.clip(levels, 0, 255).astype(np.uint8)
    return nearest
