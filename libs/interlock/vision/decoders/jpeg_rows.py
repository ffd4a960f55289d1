"""A JPEG whose first rows are used while the others are still decoded.

Whole decoders keep the kernel, and whoever waits for the first patches, until the last row is there. libjpeg need not:
given a file piece by piece it decodes as far as the bytes go. Pillow's decoder passes that on; simplejpeg does not. So
this is Pillow's decoder, in a thread of its own, and its pixels are Pillow's by nature. It takes a third more CPU than
simplejpeg (12 megapixels: 33 ms for 25), on two threads, so it is for a picture that has the machine to itself: its
first rows are there after a tenth of that time, and the kernel and the sending of patches hide behind the rest.

Whatever does not go as it should (a file that ends early or is damaged) is decoded once more as a whole, so that
it becomes what `decode` makes of it. Rows that were used by then are the same: the same decoder read the same bytes.
"""

import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, JpegImagePlugin

from interlock.vision.decoders.jpeg import frame_marker

_PIECE_BYTES = 64 * 1024
"""Of the file, at a time: about 1 ms of decoding."""

_PACKED_ROWS = 256
"""Rows that are taken out of the decoder's memory at a time."""

_BASELINE = (0xC0, 0xC1)
"""Frames whose rows come in order; a progressive one has none before its last scan."""


def comes_by_rows(image: ImageFile.ImageFile, data: bytes) -> bool:
    """Whether an opened picture is a JPEG whose rows can be had while it is decoded."""
    expected = [("jpeg", (0, 0, *image.size), 0, ("RGB", ""))]
    return (
        isinstance(image, JpegImagePlugin.JpegImageFile)
        and image.mode == "RGB"
        and image.tile == expected
        and frame_marker(data) in _BASELINE
    )


def decoded_rows(image: ImageFile.ImageFile, data: bytes, pixels: NDArray[np.uint8]) -> Iterator[int]:
    """Decode piece by piece; gives the number of rows that are done, whenever it has grown.

    The last row is done when the decoder is content with the whole file. Where it is not, or the file ends early, this
    ends before.

    Args:
        image: as opened; one that `comes_by_rows`.
        data: the whole file.
        pixels: uint8[height, width, 4], to be filled: red, green, blue, 255.
    """
    last_bytes = pixels[:, -1, 3]
    last_bytes[:] = 0  # the decoder writes a row at once, from left to right, so this tells which are done
    ((name, extents, _, arguments),) = image.tile
    decoder = Image._getdecoder(image.mode, name, arguments, image.decoderconfig)
    try:
        decoder.setimage(_seen_by_pillow(pixels).im, extents)
        rows = position = 0
        size = _PIECE_BYTES
        while True:
            consumed, fault = decoder.decode(data[position : position + size])
            if consumed < 0:  # it has ended
                if fault == 0:
                    yield len(pixels)
                return
            if consumed == 0:  # it needs more at once
                if position + size >= len(data):
                    return
                size += _PIECE_BYTES
                continue
            position, size = position + consumed, _PIECE_BYTES
            if more := int(np.count_nonzero(last_bytes[rows:-1])):
                rows += more
                yield rows
    finally:
        decoder.cleanup()


def _seen_by_pillow(pixels: NDArray[np.uint8]) -> Image.Image:
    """Pixels of four bytes as a picture of Pillow's that has them for its memory."""
    height, width, _ = pixels.shape
    return Image.frombuffer("RGBX", (width, height), pixels, "raw", "RGBX", 0, 1)


class GrowingPicture:
    """A picture that is being decoded by another thread, from the top to the bottom. Leave its block to end that.

    Args:
        image: as opened; one that `comes_by_rows`.
        data: the whole file.
        whole: decodes it as a whole, where it cannot be had by rows. What it raises comes out of `wait_for`.

    Attributes:
        rgb: uint8[height, width, 3]; its rows are there once they were waited for.
        format: as in `Picture`.
    """

    def __init__(self, image: ImageFile.ImageFile, data: bytes, whole: Callable[[], NDArray[np.uint8]]) -> None:
        self.format = str(image.format)
        self.rgb = np.empty((image.height, image.width, 3), np.uint8)
        self._image = image
        self._data = data
        self._whole = whole
        self._pixels = np.empty((image.height, image.width, 4), np.uint8)
        self._changed = threading.Condition()
        self._decoded = 0
        self._over = False
        self._ready = 0
        self._thread = threading.Thread(target=self._decode, name="jpeg-rows", daemon=True)

    @property
    def width(self) -> int:
        """Pixels a row."""
        return int(self.rgb.shape[1])

    @property
    def height(self) -> int:
        """Rows."""
        return int(self.rgb.shape[0])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._over = True
        self._thread.join()

    def wait_for(self, rows: int) -> None:
        """Return when so many rows of `rgb` are there. One thread at a time.

        Raises:
            VisionError: the picture is damaged.
        """
        rows = min(rows, self.height)
        while self._ready < rows:
            with self._changed:
                self._changed.wait_for(lambda: self._decoded >= rows or self._over)
                decoded = self._decoded
            if decoded < rows:
                self._thread.join()
                self._pixels = self._pixels[:0]  # its memory is for the other decoder
                self.rgb[self._ready :] = self._whole()[self._ready :]
                self._ready = self.height
            while self._ready < decoded:
                first, last = self._ready, min(self._ready + _PACKED_ROWS, decoded)
                packed = _seen_by_pillow(self._pixels[first:last]).tobytes("raw", "RGB")
                self.rgb[first:last] = np.frombuffer(packed, np.uint8).reshape(last - first, self.width, 3)
                self._ready = last

    def _decode(self) -> None:
        try:
            for rows in decoded_rows(self._image, self._data, self._pixels):
                with self._changed:
                    self._decoded = rows
                    self._changed.notify()
                    if self._over:
                        return
        finally:
            with self._changed:
                self._over = True
                self._changed.notify()
