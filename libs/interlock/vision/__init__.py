"""Pictures to bf16 patches: profiles, plans, decoding, kernels. Pure: no transport, no clock, no files.

    picture = decode(data)
    geometry = plan(picture.width, picture.height, PROFILES[DEFAULT_PROFILE_NAME])
    patches = kernels.get().resize_patchify(picture.rgb, geometry, PROFILES[DEFAULT_PROFILE_NAME])

Every refusal is a `VisionError` with a reason and a field. What touches pixels is loaded when it is first asked for, so
that a client can plan, and name a profile or options, with neither NumPy nor Pillow installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from interlock.vision.errors import VisionError
from interlock.vision.limits import MAX_INTERMEDIATE_BYTES, MAX_OUTPUT_BYTES, MAX_PIXELS
from interlock.vision.options import AlphaHandling, DecodeOptions, ExifOrientation, SixteenBitGrey
from interlock.vision.plan import Plan, check_plan, plan, token_types
from interlock.vision.profiles import DEFAULT_PROFILE_NAME, PROFILES, VisionProfile, check_profile

if TYPE_CHECKING:
    from interlock.vision import kernels
    from interlock.vision.decoders.jpeg_rows import GrowingPicture
    from interlock.vision.decoding import (
        FORMATS,
        Picture,
        SourceInfo,
        decode,
        decode_by_rows,
        probe,
        raw_picture,
        warm_up,
    )
    from interlock.vision.previews import preview

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
    "GrowingPicture",
    "Picture",
    "Plan",
    "SixteenBitGrey",
    "SourceInfo",
    "VisionError",
    "VisionProfile",
    "check_plan",
    "check_profile",
    "decode",
    "decode_by_rows",
    "kernels",
    "plan",
    "preview",
    "probe",
    "raw_picture",
    "token_types",
    "warm_up",
]

_MODULE_OF = {
    **dict.fromkeys(
        ("FORMATS", "Picture", "SourceInfo", "decode", "decode_by_rows", "probe", "raw_picture", "warm_up"), "decoding"
    ),
    "GrowingPicture": "decoders.jpeg_rows",
    "preview": "previews",
}


def __getattr__(name: str) -> object:
    if name == "kernels":
        return import_module("interlock.vision.kernels")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"interlock.vision.{_MODULE_OF[name]}"), name)
