"""JPEG by libjpeg-turbo alone, through simplejpeg; by Pillow where that could differ.

The rule: grey and three-component files in Huffman-coded sequential or progressive DCT (SOF0 to SOF2), decoded without
a single warning, in the size that Pillow read. All others are Pillow's: four components, whose inks it inverts;
arithmetic coding, lossless and hierarchical files; and whatever is cut, damaged or carries something between its parts.

Why both give the same pixels: both are libjpeg-turbo with its defaults (exact DCT, smooth upsampling, block smoothing),
both let it choose the colour space from JFIF and Adobe markers and the components' names, and Pillow only adds a fourth
byte to each pixel and takes it away again. Why both accept the same files: simplejpeg's strict mode raises on every
warning of libjpeg, an early end among them; Pillow stops at its errors only.

The evidence: tests/vision/decoders/test_jpeg.py has them agree on the corpus and on some thousand generated, cut and
damaged files. But each wheel bundles a libjpeg-turbo of its own (Pillow 13.0: 3.2.0, simplejpeg 1.9: 3.1.2), and
versions have differed in pixels before: 2.1 smooths blocks of unfinished progressive files in another way than 2.0.
So before the first use both decode a few small pictures here, and if any pixel differs all JPEG is Pillow's.
"""

import logging
from collections.abc import Iterator
from functools import cache
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile

try:
    import simplejpeg
except ImportError:  # no wheel for this platform
    simplejpeg = None

_log = logging.getLogger(__name__)

_SAMPLINGS = ("444", "422", "420", "440", "411", "Gray")
_START_OF_SCAN = 0xDA
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""Markers that begin a frame, of whatever coding."""

_FRAMES_TAKEN = (0xC0, 0xC1, 0xC2)


def decode_jpeg(image: ImageFile.ImageFile, data: bytes) -> NDArray[np.uint8] | None:
    """The pixels of a JPEG that Pillow has opened; the first picture of an MPO.

    Args:
        image: as opened, not loaded. Its size is what was checked against the pixel limit.
        data: the whole file.

    Returns:
        uint8[height, width, 3], as stored; None: Pillow is to decode it.
    """
    width, height = image.size
    expected = [("jpeg", (0, 0, width, height), 0, (image.mode, ""))]
    if image.mode not in ("L", "RGB") or image.tile != expected or frame_marker(data) not in _FRAMES_TAKEN:
        return None
    return _decoded(data, width, height) if agrees_with_pillow() else None


@cache
def agrees_with_pillow() -> bool:
    """Whether simplejpeg is here and gives the pixels that Pillow gives; says so in the log if not."""
    if simplejpeg is None:
        _log.warning("simplejpeg is not installed: JPEG is decoded by Pillow, which takes half as long again")
        return False
    for name, data in _samples():
        with Image.open(BytesIO(data), formats=("JPEG",)) as image:
            expected = np.asarray(image.convert("RGB"))
            pixels = _decoded(data, image.width, image.height)
        if pixels is None or not np.array_equal(pixels, expected):
            _log.warning(
                "simplejpeg %s does not give Pillow's pixels (%s JPEG): JPEG is decoded by Pillow, which takes half as "
                "long again. Install another version of either",
                simplejpeg.__version__,
                name,
            )
            return False
    return True


def _decoded(data: bytes, width: int, height: int) -> NDArray[np.uint8] | None:
    rgb = np.empty((height, width, 3), np.uint8)
    try:
        filled = simplejpeg.decode_jpeg(data, "RGB", buffer=rgb, strict=True)
    except Exception:  # be it damage, a warning, or a size that does not fit: Pillow says what it is
        return None
    return rgb if filled.shape == rgb.shape else None


def frame_marker(data: bytes) -> int | None:
    """The marker of the frame, as far as the segments before it follow each other without a gap."""
    position = 2
    while len(data) - position >= 4 and data[position] == 0xFF:
        marker = data[position + 1]
        if marker in _FRAMES:
            return marker
        if marker == _START_OF_SCAN:
            return None
        position += 2 + int.from_bytes(data[position + 2 : position + 4])
    return None


def _samples() -> Iterator[tuple[str, bytes]]:
    """Small files that take every way through the decoder: samplings at an odd size, scans, scans that are missing."""
    # Waves and noise, so that there are smooth blocks, rough ones, and levels beyond the ends to be clipped.
    rows, columns = np.mgrid[0:53, 0:67]
    waves = 128 + 150 * np.sin(np.stack((rows / 9, columns / 7, (rows + columns) / 5), axis=-1))
    noise = np.random.default_rng(0).normal(0, 20, waves.shape)
    pixels = np.clip(waves + noise, 0, 255).astype(np.uint8)
    for sampling in _SAMPLINGS:
        grey = sampling == "Gray"
        source = np.ascontiguousarray(pixels[..., :1]) if grey else pixels
        yield sampling, simplejpeg.encode_jpeg(source, 85, "Gray" if grey else "RGB", sampling, fastdct=False)
    file = BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", progressive=True, quality=60)
    yield "progressive", file.getvalue()
    scan = bytes((0xFF, _START_OF_SCAN))
    yield "unfinished progressive", scan.join(file.getvalue().split(scan)[:3]) + b"\xff\xd9"
