"""The pictures that every program sends, and what must come back, as the reference kernel makes it here."""

import hashlib
import json
import shutil
from pathlib import Path

import google_crc32c
import numpy as np

from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, VisionError, decode, kernels, plan

PICTURES = ("png_rgb8.png", "jpeg_baseline_444.jpg", "webp_lossless_alpha.webp", "png_wide_2400x1080.png")
"""The last one comes back in several chunks."""

DAMAGED = ("jpeg_truncated.jpg", "text.jpg")

_FIRST_VALUES = 8


def write_pictures(corpus: Path, folder: Path) -> None:
    """Copies the pictures into a folder and writes its `expected.json`."""
    for name in (*PICTURES, *DAMAGED):
        shutil.copy(corpus / name, folder / name)
    expected = {
        "pictures": [_expected(folder / name) for name in PICTURES],
        "damaged": [{"file": name, "reason": _reason(folder / name)} for name in DAMAGED],
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")


def _expected(file: Path) -> dict[str, object]:
    profile = PROFILES[DEFAULT_PROFILE_NAME]
    picture = decode(file.read_bytes())
    geometry = plan(picture.width, picture.height, profile)
    words = kernels.get("reference").resize_patchify(picture.rgb, geometry, profile).astype("<u2")
    data = words.tobytes()
    first = words.reshape(-1)[:_FIRST_VALUES]
    return {
        "file": file.name,
        "profile": DEFAULT_PROFILE_NAME,
        "patches_sha256": hashlib.sha256(data).hexdigest(),
        "crc32c": google_crc32c.value(data),
        "grid_width": geometry.grid_width,
        "grid_height": geometry.grid_height,
        "first_values": (first.astype(np.uint32) << 16).view(np.float32).tolist(),
    }


def _reason(file: Path) -> str:
    try:
        decode(file.read_bytes())
    except VisionError as error:
        return error.reason
    raise AssertionError(f"{file.name} is not damaged")
