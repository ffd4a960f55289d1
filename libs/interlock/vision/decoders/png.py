"""PNG of 8 bits a channel by zlib-ng and compiled unfiltering; by Pillow where that could differ.

The rule: grey, RGB and palette, with or without alpha, not interlaced, not animated; one whole zlib stream, checksum
included, of exactly the bytes of the picture; filters 0 to 4; then the end of the file, or a text or a time before it.
All others are Pillow's. Alpha is left out without being unfiltered, since every channel is filtered by itself.

What there is to check before the pixels, Pillow checked when it opened the file: order, sizes and checksums of all
chunks. Of the pixels' chunks it looks at no checksum, and at nothing behind the last row but what notes say. So a file
that is whole by the rule above is whole to Pillow, which inflates with the same zlib-ng; other inflaters accept streams
that this one refuses. At most the bytes of the picture are inflated, whatever the stream holds.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin

from interlock.vision.decoders.compiled import module

try:
    from zlib_ng import zlib_ng
except ImportError:  # no wheel for this platform
    zlib_ng = None  # type: ignore[assignment]

_BYTES_A_PIXEL = {"L": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4}

_MAX_CHUNKS = 2_500
"""Of pixels, and after them; Pillow takes three reads for each, of which `structure` gives it 10,000."""

_NOTES = (b"tEXt", b"tIME")
"""Chunks that often follow the pixels, and say nothing of them but, in a text, the camera's orientation."""


def decode_png(image: PngImagePlugin.PngImageFile, data: bytes, *, notes_matter: bool) -> NDArray[np.uint8] | None:
    """The pixels of a PNG that Pillow has opened, without their alpha.

    Args:
        image: as opened, not loaded. Its size is what was checked against the pixel limit.
        data: the whole file.
        notes_matter: whether the orientation will be looked for.

    Returns:
        uint8[height, width, 3], as stored; None: Pillow is to decode it.
    """
    width, height = image.size
    pixel_bytes = _BYTES_A_PIXEL.get(image.mode)
    rows = module("png_rows") if zlib_ng is not None else None
    if rows is None or pixel_bytes is None or len(image.tile) != 1 or image.is_animated or "interlace" in image.info:
        return None
    codec, extents, offset, raw_mode = image.tile[0]
    if (codec, extents, raw_mode) != ("zip", (0, 0, width, height), image.mode):
        return None  # more or fewer than 8 bits a channel, or a frame of its own size
    colours = _colours(image)
    filtered = _inflated(_pixel_chunks(image, data, offset, notes_matter), (1 + width * pixel_bytes) * height)
    if filtered is None or colours is None:
        return None
    rgb = np.empty((height, width, 3), np.uint8)
    unfilter = rows.unfilter_colour if pixel_bytes >= 3 else rows.unfilter_single
    return rgb if unfilter(np.frombuffer(filtered, np.uint8), pixel_bytes, colours, rgb) == height else None


def _pixel_chunks(
    image: PngImagePlugin.PngImageFile, data: bytes, offset: int, notes_matter: bool
) -> list[memoryview] | None:
    """What the chunks of pixels hold, where nothing but notes stands between them and the end of the file."""
    parts = []
    chunks = _chunks(data, offset - 8)
    kind, content = next(chunks, (b"", memoryview(b"")))
    while kind == b"IDAT":
        parts.append(content)
        kind, content = next(chunks, (b"", content))
    text_bytes = image.png.text_memory if image.png else 0  # of texts before the pixels; Pillow refuses too many
    while kind in _NOTES and not notes_matter:
        text_bytes += len(content)
        kind, content = next(chunks, (b"", content))
    return parts if kind == b"IEND" and text_bytes <= PngImagePlugin.MAX_TEXT_MEMORY else None


def _chunks(data: bytes, at: int) -> Iterator[tuple[bytes, memoryview]]:
    """Kind and content of the whole chunks from there on."""
    view = memoryview(data)
    for _ in range(_MAX_CHUNKS):
        begin = at + 8
        end = begin + int.from_bytes(view[at : at + 4])
        at = end + 4  # behind the checksum
        if at > len(data):
            return
        yield data[begin - 4 : begin], view[begin:end]


def _inflated(parts: list[memoryview] | None, size: int) -> bytes | None:
    """What a zlib stream holds, if it is whole and holds exactly so many bytes."""
    if not parts:
        return None
    stream = parts[0] if len(parts) == 1 else b"".join(parts)
    inflater = zlib_ng.decompressobj()
    try:
        filtered = inflater.decompress(stream, size)
        surplus = b"" if inflater.eof else inflater.decompress(inflater.unconsumed_tail, 1)
    except zlib_ng.error:  # type: ignore[misc] # its stub says that it is an instance
        return None
    return filtered if inflater.eof and not surplus and len(filtered) == size else None


def _colours(image: PngImagePlugin.PngImageFile) -> NDArray[np.uint8] | None:
    """uint8[256, 3]: the colour of each level of grey or index, as Pillow has it; None: there is no palette."""
    ramp = Image.frombytes("L", (256, 1), bytes(range(256)))
    if image.mode == "P":
        if image.palette is None:
            return None
        ramp = Image.frombytes("P", ramp.size, ramp.tobytes())
        ramp.palette = image.palette.copy()
    colours: NDArray[np.uint8] = np.array(ramp.convert("RGB"))
    return colours.reshape(256, 3)
