"""PPM, PGM and PBM whose samples Pillow takes apart in Python: as text, or with a greatest level that is no full byte.

For a megapixel in colour that takes Pillow a second, and most of the interpreter. The rule: samples are looked up here;
text is read by a compiled loop, where it is decimal numbers of at most ten digits, spaces and comments. What else there
is (signs, surplus, models of colour of Pillow's own) is left to Pillow while it is small, and refused beyond that.
"""

import numpy as np
from numpy.typing import NDArray
from PIL import PpmImagePlugin

from interlock.vision.decoders.compiled import module
from interlock.vision.options import SixteenBitGrey

_MAX_SAMPLES_IN_PYTHON = 1 << 20
"""A third of a second."""

_BLOCK = 1 << 16
"""Samples looked up at a time: NumPy makes 8 bytes of each."""


def decode_ppm(
    image: PpmImagePlugin.PpmImageFile, data: bytes, sixteen_bit_grey: SixteenBitGrey
) -> NDArray[np.uint8] | None:
    """The pixels of such a file that Pillow has opened.

    Args:
        image: as opened, not loaded. Its size is what was checked against the pixel limit.
        data: the whole file.
        sixteen_bit_grey: what to make of grey with more than 255 levels.

    Returns:
        uint8[height, width, 3], as stored; None: Pillow is to decode it.

    Raises:
        ValueError: samples are missing, in Pillow's words, or too many to be read by Pillow.
    """
    codec, _, offset, arguments = image.tile[0]
    if codec not in ("ppm", "ppm_plain"):
        return None
    greatest = int(arguments[1]) if isinstance(arguments, tuple) else None  # of bits there is none
    channels = len(image.getbands())
    count = image.width * image.height * channels
    samples = None
    if image.mode in ("1", "L", "I", "RGB"):
        levels = _levels(greatest, image.mode == "I", sixteen_bit_grey)
        if codec == "ppm_plain":
            samples = _read(data, offset, greatest, levels, count)
        elif greatest is not None:
            samples = _looked_up(data, offset, greatest, levels, count)
    if samples is not None:
        pixels = samples.reshape(image.height, image.width, channels)
        return pixels if channels == 3 else np.repeat(pixels, 3, axis=2)
    if count > _MAX_SAMPLES_IN_PYTHON:
        raise ValueError(f"{count} samples in a form that is slow to read; at most {_MAX_SAMPLES_IN_PYTHON}")
    return None


def _levels(greatest: int | None, deep: bool, sixteen_bit_grey: SixteenBitGrey) -> NDArray[np.uint8]:
    """uint8[...]: what each sample stands for; samples above the greatest level too, where they can occur.

    Args:
        greatest: the greatest level; None: the samples are bits, and 1 is black.
        deep: whether Pillow keeps 16 bits of it, as it does of grey.
        sixteen_bit_grey: what to make of those.
    """
    if greatest is None:
        return np.array([255, 0], np.uint8)
    full = 65_535 if deep else 255
    # As Pillow: in double precision, to the nearest, to the even one of two.
    scaled = np.rint(np.arange(256 if greatest < 256 else 65_536) / greatest * full)
    shades = np.minimum(scaled, full).astype(np.uint16)
    if deep and sixteen_bit_grey == SixteenBitGrey.HIGH_BYTE:
        shades >>= 8
    return np.minimum(shades, 255).astype(np.uint8)


def _looked_up(data: bytes, offset: int, greatest: int, levels: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
    sample_type = np.dtype(np.uint8 if greatest < 256 else ">u2")
    if len(data) - offset < count * sample_type.itemsize:
        raise ValueError("not enough image data")
    stored = np.frombuffer(data, sample_type, count, offset)
    samples = np.empty(count, np.uint8)
    for begin in range(0, count, _BLOCK):
        samples[begin : begin + _BLOCK] = levels[stored[begin : begin + _BLOCK]]
    return samples


def _read(
    data: bytes, offset: int, greatest: int | None, levels: NDArray[np.uint8], count: int
) -> NDArray[np.uint8] | None:
    loops = module("ppm_text")
    if loops is None:
        return None
    samples = np.empty(count, np.uint8)
    known = levels if greatest is None else levels[: greatest + 1]
    done = loops.read_samples(np.frombuffer(data, np.uint8), offset, greatest is None, known, samples)
    if done < 0:
        return None
    if done < count:
        raise ValueError("not enough image data")
    return samples
