"""The picture corpus and what its manifest promises."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from PIL import features

FOLDER = Path(__file__).parent.parent / "data" / "corpus"
MANIFEST: dict[str, Any] = json.loads((FOLDER / "manifest.json").read_text())
FILES: dict[str, dict[str, Any]] = {entry["file"]: entry for entry in MANIFEST["files"]}

SAME_DECODERS = (
    PIL.__version__ == MANIFEST["pillow"]  # its wheels pin the WebP and AVIF decoders
    and features.version("libjpeg_turbo") == MANIFEST["libjpeg_turbo"]
)
"""Whether lossy files must give the manifest's very pixels here."""


def read(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def sha256(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def pixels_are_promised(entry: dict[str, Any]) -> bool:
    return SAME_DECODERS or not entry["decoder_dependent"]
