"""How to decode a picture, as values. Kept apart from the decoders, so that a client needs neither NumPy nor Pillow."""

from dataclasses import dataclass
from enum import StrEnum


class ExifOrientation(StrEnum):
    """What to do with the orientation that a camera noted."""

    IGNORE = "ignore"
    APPLY = "apply"


class AlphaHandling(StrEnum):
    """What to do with transparency: let hidden colours show, or composite over a background."""

    DROP = "drop"
    COMPOSITE = "composite"


class SixteenBitGrey(StrEnum):
    """How 16-bit grey becomes 8-bit: clipped at 255, as Pillow does, or its high byte."""

    CLIP = "clip"
    HIGH_BYTE = "high_byte"


@dataclass(frozen=True)
class DecodeOptions:
    """How to decode. The defaults are what the reference implementation does.

    Attributes:
        exif_orientation: camera orientation. TIFF alone is always upright, for Pillow turns it.
        alpha_handling: transparency, be it a channel, a palette entry or a colour key.
        background: the colour (red, green, blue; 0 to 255) under transparent pixels, where they are composited.
        sixteen_bit_grey: 16-bit grey. 16-bit colour always gives its high byte.
    """

    exif_orientation: ExifOrientation = ExifOrientation.IGNORE
    alpha_handling: AlphaHandling = AlphaHandling.DROP
    background: tuple[int, int, int] = (255, 255, 255)
    sixteen_bit_grey: SixteenBitGrey = SixteenBitGrey.CLIP
