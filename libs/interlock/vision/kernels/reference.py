"""The reference kernel: as plain as it can be, to be seen right. The oracle of every other kernel."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from interlock.vision.kernels.geometry import checked_patches
from interlock.vision.plan import Plan
from interlock.vision.profiles import VisionProfile
from interlock.vision.quantise import PADDING_VALUE, bf16_codes


def resize_patchify(
    rgb: NDArray[np.uint8],
    plan: Plan,
    profile: VisionProfile,
    out: NDArray[np.uint16] | None = None,
    *,
    threads: int = 1,
    checkpoint: Callable[[int], None] | None = None,
    rows_ready: Callable[[int], None] | None = None,
) -> NDArray[np.uint16]:
    """See `interlock.vision.kernels.ResizePatchify`. Uses one thread whatever `threads` says."""
    patches = checked_patches(rgb, plan, profile, out)
    report = checkpoint or (lambda patch_rows_done: None)
    if rows_ready is not None:
        rows_ready(len(rgb))

    # One axis at a time: given both, Pillow 13 resizes tall pictures vertically first, which rounds differently.
    wide = Image.fromarray(rgb).resize((plan.resize_width, rgb.shape[0]), Image.Resampling.BICUBIC)
    report(0)
    resized = wide.resize((plan.resize_width, plan.resize_height), Image.Resampling.BICUBIC)
    report(0)

    canvas = np.full((plan.canvas_height, plan.canvas_width, 3), PADDING_VALUE, np.uint8)
    bottom, right = plan.top + plan.resize_height, plan.left + plan.resize_width
    canvas[plan.top : bottom, plan.left : right] = np.asarray(resized)

    patch = profile.patch_size
    cut = canvas.reshape(plan.grid_height, patch, plan.grid_width, patch, 3).transpose(0, 2, 4, 1, 3)
    for channel, codes in enumerate(bf16_codes(profile)):
        patches[:, :, channel] = codes[cut[:, :, channel]]
    report(plan.grid_height)
    return patches
