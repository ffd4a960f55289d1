"""The pictures that every program sends, and what must come back.

Pictures in lossy formats depend on the version of a decoder: the reference kernel says here what comes of them. What
comes of the others is the same everywhere: `vectors/patches.json` says it.
"""

import hashlib
import json
import shutil
from pathlib import Path

import google_crc32c
import numpy as np

from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, VisionError, decode, kernels, plan
from interlock_cli.demo.clients.checkout import Checkout

MADE_HERE = ("png_rgb8.png", "jpeg_baseline_444.jpg", "webp_lossless_alpha.webp", "png_wide_2400x1080.png")
"""The last one comes back in several chunks."""

MOST_PIXELS = 10_000_000
"""Pictures of the vectors that are larger are left out: they take seconds."""

DAMAGED = ("jpeg_truncated.jpg", "text.jpg")

_FIRST_VALUES = 8


def write_pictures(checkout: Checkout, folder: Path) -> None:
    """Copies the pictures into a folder and writes its `expected.json`."""
    published = _published(checkout)
    for name in (*MADE_HERE, *DAMAGED, *published):
        shutil.copy(checkout.corpus / name, folder / name)
    made = {name: _expected(folder / name) for name in MADE_HERE}
    expected = {
        "pictures": [*made.values(), *(entry for name, entry in published.items() if name not in made)],
        "damaged": [{"file": name, "reason": _reason(folder / name)} for name in DAMAGED],
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")


def _published(checkout: Checkout) -> dict[str, dict[str, object]]:
    """What the vectors say of pictures that are decoded as the reference does, by file name."""
    expected = {}
    for entry in json.loads(checkout.patches.read_text()):
        if "patches" not in entry or entry["decode_options"]:
            continue
        header, patches, name = entry["header"], entry["patches"], Path(entry["file"]).name
        if header["sourceSize"]["width"] * header["sourceSize"]["height"] > MOST_PIXELS:
            continue
        expected[name] = {
            "file": name,
            "profile": DEFAULT_PROFILE_NAME,
            "patches_sha256": patches["sha256"],
            "crc32c": patches["crc32c"],
            "grid_width": header["plan"]["gridWidth"],
            "grid_height": header["plan"]["gridHeight"],
            "first_values": patches["first_values"],
        }
    return expected


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
