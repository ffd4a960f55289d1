"""Pictures to bf16 patches: profiles, plans, decoding, kernels. Pure: no transport, no clock, no files.

    picture = decode(data)
    geometry = plan(picture.width, picture.height, PROFILES[DEFAULT_PROFILE_NAME])
    patches = kernels.get().resize_patchify(picture.rgb, geometry, PROFILES[DEFAULT_PROFILE_NAME])

Every refusal is a `VisionError` with a reason and a field.
"""

from interlock.vision import kernels
from interlock.vision.decode import (
    FORMATS,
    AlphaHandling,
    DecodeOptions,
    ExifOrientation,
    Picture,
    SixteenBitGrey,
    SourceInfo,
    decode,
    probe,
    raw_picture,
)
from interlock.vision.errors import VisionError
from interlock.vision.limits import MAX_INTERMEDIATE_BYTES, MAX_OUTPUT_BYTES, MAX_PIXELS
from interlock.vision.plan import Plan, check_plan, plan, token_types
from interlock.vision.preview import preview
from interlock.vision.profiles import DEFAULT_PROFILE_NAME, PROFILES, VisionProfile, check_profile

__all__ = [
    "DEFAULT_PROFILE_NAME",
    "FORMATS",
    "MAX_INTERMEDIATE_BYTES",
    "MAX_OUTPUT_BYTES",
    "MAX_PIXELS",
    "PROFILES",
    "AlphaHandling",
    "DecodeOptions",
    "ExifOrientation",
    "Picture",
    "Plan",
    "SixteenBitGrey",
    "SourceInfo",
    "VisionError",
    "VisionProfile",
    "check_plan",
    "check_profile",
    "decode",
    "kernels",
    "plan",
    "preview",
    "probe",
    "raw_picture",
    "token_types",
]
