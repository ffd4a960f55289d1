"""What every kernel checks before it touches a byte: a wrong call is refused by name and nothing outside is read."""

import numpy as np
from numpy.typing import NDArray

from interlock.reasons import Reason
from interlock.vision.errors import VisionError
from interlock.vision.plan import Plan, check_plan
from interlock.vision.profiles import VisionProfile, check_profile


def checked_patches(
    rgb: NDArray[np.uint8], plan: Plan, profile: VisionProfile, out: NDArray[np.uint16] | None
) -> NDArray[np.uint16]:
    """The array that a kernel is to fill: `out` in the shape of patches, or a new one if `out` is None.

    Raises:
        VisionError: INVALID_PROFILE or INVALID_PLAN, naming the field; `rgb` and `out` for the buffers.
    """
    check_profile(profile)
    if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8:
        raise VisionError(
            Reason.INVALID_PLAN, "rgb", f"rgb is {rgb.dtype}{list(rgb.shape)}; expected uint8[height, width, 3]"
        )
    check_plan(plan, rgb.shape[1], rgb.shape[0], profile)
    shape = (plan.grid_height, plan.grid_width, 3, profile.patch_size, profile.patch_size)
    if out is None:
        return np.empty(shape, np.uint16)
    words = plan.canvas_width * plan.canvas_height * 3
    if out.dtype != np.uint16 or out.size != words or not (out.flags.c_contiguous and out.flags.writeable):
        raise VisionError(
            Reason.INVALID_PLAN,
            "out",
            f"out is {out.dtype}{list(out.shape)}; expected {words} words of uint16, contiguous and writeable",
        )
    return out.reshape(shape)
