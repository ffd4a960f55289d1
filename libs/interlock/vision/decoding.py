"""From the bytes of a picture file, or raw pixels, to RGB pixels.

The defaults do what the reference implementation does: Pillow's first frame, converted to RGB, with no camera
orientation applied, alpha dropped and colour profiles ignored. Bytes from outside are hostile: only the formats listed
here are tried, the pixel limit holds before anything is decoded, and whatever a decoder throws is a `VisionError`.
"""

from collections.abc import Callable
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
from interlock.vision.decoders.jpeg import agrees_with_pillow, decode_jpeg
from interlock.vision.decoders.jpeg_rows import GrowingPicture, comes_by_rows
from interlock.vision.decoders.png import decode_png
from interlock.vision.decoders.ppm import decode_ppm
from interlock.vision.errors import VisionError
from interlock.vision.limits import MAX_PIXELS
from interlock.vision.options import AlphaHandling, DecodeOptions, ExifOrientation, SixteenBitGrey
from interlock.vision.structure import PictureFile, check_before_decoding, check_before_opening

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

_FIXED_BYTES = 4 * 2**20
"""What the decoders take whatever the size: tables, stacks of their threads, buffers of rows."""

_LEAST_PIXELS_BY_ROWS = 1 << 21
"""Below, a thread of its own costs more than the wait for the last row."""

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

_SIDEWAYS = (5, 6, 7, 8)
"""Orientations whose stored rows are upright columns."""

_FROM_THE_END = (3, 4, 6, 7)
"""Orientations whose first stored row is the last upright row or column."""


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
        return SourceInfo(image.width, image.height, str(image.format), image.mode, _decode_bytes(image, len(data)))


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
    with _open(data, max_pixels) as image:
        source_format = str(image.format)
        try:
            return Picture(_rgb(image, data, options), source_format)
        except Exception as error:
            raise _damage(error) from error


def decode_by_rows(
    data: bytes, options: DecodeOptions | None = None, max_pixels: int = MAX_PIXELS
) -> GrowingPicture | None:
    """The picture that `decode` gives, of which the first rows are there while the others are still decoded.

    Returns:
        The picture, with rows to wait for; enter it, and it is decoded by another thread. None: this file, or one that
        small, is not for that; `decode` it.

    Raises:
        VisionError: as `probe`.
    """
    options = options or DecodeOptions()
    with _open(data, max_pixels) as image:
        if image.width * image.height < _LEAST_PIXELS_BY_ROWS or not comes_by_rows(image, data):
            return None
        if options.exif_orientation == ExifOrientation.APPLY and _orientation(type(image).getexif, image) != 1:
            return None
        return GrowingPicture(image, data, lambda: decode(data, options, max_pixels).rgb)


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


def warm_up() -> None:
    """Pay now what the first pictures would: loading or compiling of loops, comparison of the JPEG decoders."""
    agrees_with_pillow()
    for mode in ("RGB", "L"):
        file = BytesIO()
        Image.new(mode, (1, 1)).save(file, "PNG")
        decode(file.getvalue())
    decode(b"P1 1 1 0")


def _open(data: bytes, max_pixels: int) -> ImageFile.ImageFile:
    if len(data) == 0:
        raise VisionError(Reason.IMAGE_EMPTY, "encoded", "the picture has no bytes")
    try:
        check_before_opening(data)
        file = PictureFile(data)
        image = Image.open(file, formats=FORMATS)
        file.header_is_read(image.format)
        check_before_decoding(image, data)
        tile_width, tile_height = _tile_size(image)
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
    _check_pixels(image.width, image.height, max_pixels, "encoded")
    _check_pixels(tile_width, tile_height, max_pixels, "encoded", "each tile of the picture")
    return image


def _tile_size(image: ImageFile.ImageFile) -> tuple[int, int]:
    """Width and height of a tile of a TIFF, which may be far larger than the picture; 0 and 0 if it has none."""
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return 0, 0
    width, height = (image.tag_v2.get(tag, 0) for tag in (TiffImagePlugin.TILEWIDTH, TiffImagePlugin.TILELENGTH))
    if not (isinstance(width, int) and isinstance(height, int)):
        raise ValueError(f"tiles of {width} x {height}")
    return width, height


def _check_pixels(width: int, height: int, max_pixels: int, field: str, what: str = "the picture") -> None:
    if width * height > max_pixels:
        raise VisionError(
            Reason.IMAGE_TOO_MANY_PIXELS,
            field,
            f"{what} has {width}x{height} = {width * height} pixels; at most {max_pixels}",
        )


def _damage(error: Exception) -> VisionError:
    """Pillow has no type for a file that ends early; it says so in words."""
    truncated = isinstance(error, EOFError) or "truncated" in str(error).lower()
    reason = Reason.IMAGE_TRUNCATED if truncated else Reason.IMAGE_DAMAGED
    return VisionError(reason, "encoded", f"the picture cannot be decoded: {type(error).__name__}: {error!s:.200}")


def _rgb(image: ImageFile.ImageFile, data: bytes, options: DecodeOptions) -> NDArray[np.uint8]:
    """The pixels of an opened picture in RGB, upright if that is asked for."""
    apply = options.exif_orientation == ExifOrientation.APPLY
    rgb = _rgb_without_pillow(image, data, options)
    if rgb is not None:
        # Not what a PNG makes of it: that would decode the picture to look for notes behind the pixels.
        orientation = _orientation(Image.Image.getexif, image) if apply else 1
        if orientation == 1:
            return rgb
        return _gathered(lambda top, bottom: Image.fromarray(rgb[top:bottom]), image.size, orientation)
    image.load()
    orientation = _orientation(type(image).getexif, image) if apply else 1
    if options.alpha_handling == AlphaHandling.DROP:
        image.info.pop("transparency", None)  # else Pillow looks for a colour to stand for it, and warns

    def strip(top: int, bottom: int) -> Image.Image:
        return _converted(image.crop((0, top, image.width, bottom)), image.format, options)

    return _gathered(strip, image.size, orientation)


def _rgb_without_pillow(image: ImageFile.ImageFile, data: bytes, options: DecodeOptions) -> NDArray[np.uint8] | None:
    """The pixels as stored, where another decoder is known to give those of Pillow; they have no alpha any more."""
    if options.alpha_handling == AlphaHandling.COMPOSITE and (image.mode.endswith("A") or "transparency" in image.info):
        return None
    match image:
        case JpegImagePlugin.JpegImageFile():
            return decode_jpeg(image, data)
        case PngImagePlugin.PngImageFile():
            return decode_png(image, data, notes_matter=options.exif_orientation == ExifOrientation.APPLY)
        case PpmImagePlugin.PpmImageFile():
            return decode_ppm(image, data, options.sixteen_bit_grey)
    return None


def _orientation(getexif: Callable[[ImageFile.ImageFile], Image.Exif], image: ImageFile.ImageFile) -> int:
    try:
        orientation = getexif(image).get(ExifTags.Base.Orientation)
    except Exception:
        return 1  # camera notes that cannot be read say nothing; the pixels are sound
    return orientation if orientation in _UPRIGHT else 1


def _gathered(strip: Callable[[int, int], Image.Image], size: tuple[int, int], orientation: int) -> NDArray[np.uint8]:
    """The whole picture, upright, from RGB strips of its stored rows `top` to before `bottom`."""
    width, height = size
    rgb = np.empty((width, height, 3) if orientation in _SIDEWAYS else (height, width, 3), np.uint8)
    # Rows of `stored` are rows of the file, be they rows or columns of the result.
    stored = rgb.swapaxes(0, 1) if orientation in _SIDEWAYS else rgb
    rows = max(1, _STRIP_PIXELS // width)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        turned = strip(top, bottom)
        if orientation != 1:
            turned = turned.transpose(_UPRIGHT[orientation])
        pixels = np.asarray(turned)
        target = slice(height - bottom, height - top) if orientation in _FROM_THE_END else slice(top, bottom)
        stored[target] = pixels.swapaxes(0, 1) if orientation in _SIDEWAYS else pixels
    return rgb


def _converted(strip: Image.Image, source_format: str | None, options: DecodeOptions) -> Image.Image:
    # PPM is the one format whose 16-bit grey Pillow keeps in 32 bits.
    sixteen_bit_grey = strip.mode.startswith("I;16") or (strip.mode == "I" and source_format == "PPM")
    if sixteen_bit_grey and options.sixteen_bit_grey == SixteenBitGrey.HIGH_BYTE:
        strip = _high_byte(strip)
    if options.alpha_handling == AlphaHandling.COMPOSITE and strip.has_transparency_data:
        background = Image.new("RGBA", strip.size, (*options.background, 255))
        strip = Image.alpha_composite(background, strip.convert("RGBA"))
    return strip.convert("RGB")


def _high_byte(strip: Image.Image) -> Image.Image:
    samples = np.asarray(strip)
    grey = Image.fromarray((samples >> 8).astype(np.uint8))
    colour_key = strip.info.get("transparency")
    if colour_key is None:
        return grey
    alpha = np.where(samples == colour_key, 0, 255).astype(np.uint8)  # a key of 16 bits, so before they are lost
    return Image.merge("LA", (grey, Image.fromarray(alpha)))


def _decode_bytes(image: ImageFile.ImageFile, file_bytes: int) -> int:
    """Upper bound of what `decode` takes: the stored pixels, and the more of what the decoder and the result take.

    Measured as the peak of a process that decodes 2 to 6 megapixels, Pillow 13.0 on x86-64, in bytes a pixel with the
    stored ones: JPEG 4.1 grey, 7.1 baseline, 10.0 progressive 4:4:4, 12.0 progressive CMYK; PNG, GIF, BMP, PPM 4.1 to
    7.4; WebP 16.3 to 18.1 and a copy of the file; TIFF 4.1 to 8.0; AVIF 9.5 to 11.9 with 8 bits a channel. What a file
    says besides its pixels is bounded by Pillow (64 MiB of text in a PNG) and `structure`, and not part of this.
    """
    pixels = image.width * image.height
    match image.format:
        case "JPEG" | "MPO":  # a file of several scans keeps 16-bit coefficients of every channel
            decoder = 2 * len(image.getbands()) * pixels
        case "WEBP":  # its decoder copies the file
            decoder = 14 * pixels + file_bytes
        case "AVIF":  # room for planes of 16 bits, where 8 were measured
            decoder = 20 * pixels
        case "TIFF":  # one strip or tile of up to 16 bits in four channels
            tile_width, tile_height = _tile_size(image)
            decoder = 8 * max(pixels, tile_width * tile_height)
        case "PNG":  # chunks put together, rows with the byte of their filter
            decoder = 3 * pixels + image.height + file_bytes
        case _:
            decoder = 3 * pixels
    stored = 1 if image.mode in ("1", "L", "P") else 2 if image.mode.startswith("I;16") else 4
    strip = max(_STRIP_PIXELS, image.width)
    return stored * pixels + max(decoder, 3 * pixels) + 16 * strip + _FIXED_BYTES
