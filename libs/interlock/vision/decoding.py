"""From the bytes of a picture file, or raw pixels, to RGB pixels.

The defaults do what the reference implementation does: Pillow's first frame, converted to RGB, with no camera
orientation applied, alpha dropped and colour profiles ignored. Bytes from outside are hostile: only the formats listed
here are tried, the pixel limit holds before anything is decoded, and whatever a decoder throws is a `VisionError`.
"""

from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

# Each import registers its format. Without them the first picture of a rarer format makes Pillow load all its plugins.
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    ExifTags,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from interlock.reasons import Reason
from interlock.vision.errors import VisionError
from interlock.vision.limits import MAX_PIXELS
from interlock.vision.options import AlphaHandling, DecodeOptions, ExifOrientation, SixteenBitGrey

FORMATS = tuple(
    plugin.format
    for plugin in (
        JpegImagePlugin.JpegImageFile,  # opens MPO too
        PngImagePlugin.PngImageFile,
        WebPImagePlugin.WebPImageFile,
        GifImagePlugin.GifImageFile,
        AvifImagePlugin.AvifImageFile,
        BmpImagePlugin.BmpImageFile,
        TiffImagePlugin.TiffImageFile,
        PpmImagePlugin.PpmImageFile,
    )
)
"""The formats that are tried. Never EPS, which starts an external interpreter."""

_STRIP_PIXELS = 1 << 16
"""Pixels converted at a time: what a strip needs stays in the cache, and no second whole picture is made."""

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What turns a picture upright, by the value of its EXIF orientation; 1 needs nothing."""


@dataclass(frozen=True)
class SourceInfo:
    """What the header of a picture file says.

    Attributes:
        width, height: pixels, before any camera orientation is applied.
        format: as Pillow calls it, for example `JPEG`.
        mode: Pillow's mode of the stored pixels, for example `RGBA`.
        decode_bytes: upper bound of the memory that `decode` takes, its result included, the file itself not.
    """

    width: int
    height: int
    format: str
    mode: str
    decode_bytes: int


@dataclass(frozen=True, eq=False)
class Picture:
    """Decoded pixels.

    Attributes:
        rgb: uint8[height, width, 3], C order.
        format: format of the file, as in `SourceInfo`; empty for raw pixels.
    """

    rgb: NDArray[np.uint8]
    format: str

    @property
    def width(self) -> int:
        """Pixels a row."""
        return int(self.rgb.shape[1])

    @property
    def height(self) -> int:
        """Rows."""
        return int(self.rgb.shape[0])


def probe(data: bytes, max_pixels: int = MAX_PIXELS) -> SourceInfo:
    """Read the header of a picture file; no pixel is decoded.

    Raises:
        VisionError: IMAGE_EMPTY, IMAGE_UNRECOGNIZED, IMAGE_TOO_MANY_PIXELS, IMAGE_TRUNCATED or IMAGE_DAMAGED.
    """
    with _open(data, max_pixels) as image:
        return SourceInfo(image.width, image.height, str(image.format), image.mode, _decode_bytes(image))


def decode(data: bytes, options: DecodeOptions | None = None, max_pixels: int = MAX_PIXELS) -> Picture:
    """Decode the first frame of a picture file.

    Raises:
        VisionError: as `probe`; INVALID_FIELD, naming `decode_options.background`.
    """
    options = options or DecodeOptions()
    if not all(0 <= level <= 255 for level in options.background):
        raise VisionError(
            Reason.INVALID_FIELD,
            "decode_options.background",
            f"background is {options.background}; expected levels of 0 to 255",
        )
    with _open(data, max_pixels) as file:
        source_format = str(file.format)
        try:
            file.load()
            image: Image.Image = file
            if options.exif_orientation is ExifOrientation.APPLY:
                image = _upright(file)
            return Picture(_rgb(image, options), source_format)
        except Exception as error:
            raise _damage(error) from error


def raw_picture(data: bytes, width: int, height: int, max_pixels: int = MAX_PIXELS) -> Picture:
    """The picture of raw RGB pixels: rows from the top, no padding. Nothing is copied.

    Raises:
        VisionError: INVALID_FIELD (a side below 1), IMAGE_TOO_MANY_PIXELS or SOURCE_LENGTH_MISMATCH, naming the field.
    """
    for field, side in (("raw.width", width), ("raw.height", height)):
        if side < 1:
            raise VisionError(Reason.INVALID_FIELD, field, f"{field} is {side}; expected at least 1")
    _check_pixels(width, height, max_pixels, "raw.width")
    if len(data) != width * height * 3:
        raise VisionError(
            Reason.SOURCE_LENGTH_MISMATCH,
            "raw.data",
            f"{len(data)} bytes of raw pixels; {width}x{height} RGB takes exactly {width * height * 3}",
        )
    return Picture(np.frombuffer(data, np.uint8).reshape(height, width, 3), "")


def _open(data: bytes, max_pixels: int) -> ImageFile.ImageFile:
    if len(data) == 0:
        raise VisionError(Reason.IMAGE_EMPTY, "encoded", "the picture has no bytes")
    try:
        image = Image.open(BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise VisionError(
            Reason.IMAGE_UNRECOGNIZED,
            "encoded",
            f"no picture of a known format (begins with {bytes(data[:12])!r}); known are {', '.join(FORMATS)}",
        ) from None
    except Image.DecompressionBombError as error:
        raise VisionError(Reason.IMAGE_TOO_MANY_PIXELS, "encoded", str(error)) from None
    except Exception as error:
        raise _damage(error) from error
    try:
        _check_pixels(image.width, image.height, max_pixels, "encoded")
    except VisionError:
        image.close()
        raise
    return image


def _check_pixels(width: int, height: int, max_pixels: int, field: str) -> None:
    if width * height > max_pixels:
        raise VisionError(
            Reason.IMAGE_TOO_MANY_PIXELS,
            field,
            f"the picture has {width}x{height} = {width * height} pixels; at most {max_pixels}",
        )


def _damage(error: Exception) -> VisionError:
    """Pillow has no type for a file that ends early; it says so in words."""
    truncated = isinstance(error, EOFError) or "truncated" in str(error).lower()
    reason = Reason.IMAGE_TRUNCATED if truncated else Reason.IMAGE_DAMAGED
    return VisionError(reason, "encoded", f"the picture cannot be decoded: {type(error).__name__}: {error!s:.200}")


def _upright(image: ImageFile.ImageFile) -> Image.Image:
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:
        return image  # camera notes that cannot be read say nothing; the pixels are sound
    method = _UPRIGHT.get(orientation) if isinstance(orientation, int) else None
    return image if method is None else image.transpose(method)


def _rgb(image: Image.Image, options: DecodeOptions) -> NDArray[np.uint8]:
    if options.alpha_handling is AlphaHandling.DROP:
        image.info.pop("transparency", None)  # else Pillow looks for a colour to stand for it, and warns
    # PPM is the one format whose 16-bit grey Pillow keeps in 32 bits.
    sixteen_bit = image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM")
    high_byte = sixteen_bit and options.sixteen_bit_grey is SixteenBitGrey.HIGH_BYTE
    rgb = np.empty((image.height, image.width, 3), np.uint8)
    rows = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        rgb[top : top + rows] = _high_bytes(strip) if high_byte else np.asarray(_converted(strip, options))
    return rgb


def _converted(strip: Image.Image, options: DecodeOptions) -> Image.Image:
    if options.alpha_handling is AlphaHandling.COMPOSITE and strip.has_transparency_data:
        background = Image.new("RGBA", strip.size, (*options.background, 255))
        strip = Image.alpha_composite(background, strip.convert("RGBA"))
    return strip.convert("RGB")


def _high_bytes(strip: Image.Image) -> NDArray[np.uint8]:
    return (np.asarray(strip) >> 8).astype(np.uint8)[:, :, None]


def _decode_bytes(image: ImageFile.ImageFile) -> int:
    return image.width * image.height * 32
