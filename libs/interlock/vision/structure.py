"""Bounds on what a picture file says besides its pixels, where Pillow has none.

Pillow takes headers apart in Python, piece by piece, and keeps the pieces; some decoders do their work again for
each piece. Without these bounds 16 MB of one-byte comments took 680 MB before anything was admitted, and 0.5 MB of
empty scans held a thread for minutes (Pillow 13.0). Real files are far below them.
"""

import re
import struct
from io import BytesIO

from PIL import ImageFile, TiffTags

_MAX_HEADER_READS = 10_000
"""A JPEG of many segments, or a GIF with a page of XMP, takes a few hundred."""

_BYTES_A_PNG_READ = 64
"""On average, at the least: three reads take a chunk, and chunks of pixels have kilobytes."""

_MAX_SCANNED_PIXELS = 4 * 10**9
"""Pixels of a JPEG times its scans, which usually are 10: a few seconds of work."""

_MAX_PLAIN_COMMENTS = 1_000
"""Each makes the decoder of plain PPM copy a megabyte."""

_MAX_TIFF_VALUES = 1 << 17
"""Of one tag, such as the offsets of all strips. Pillow makes some 300 bytes of each."""

_JPEG_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")  # a byte of the pixels, a restart and a filler are none
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_WITHOUT_LENGTH = (0x01, 0xD8)

_TIFF_BYTES = (TiffTags.BYTE, TiffTags.ASCII, TiffTags.UNDEFINED)
"""Types of a tag that is kept as it is, however long."""

_FIRST_PRIVATE_TIFF_TAG = 32_768
"""From there on tags are no part of decoding, and are left as they are."""


class PictureFile(BytesIO):
    """The bytes of a picture file, which may be read in so many pieces only.

    Raises:
        ValueError: from reading on. Not what Pillow catches to go on with the next format.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._size = len(data)
        self._reads_left = float(_MAX_HEADER_READS)

    def read(self, size: int | None = -1, /) -> bytes:
        """As any file; counted."""
        self._reads_left -= 1
        if self._reads_left < 0:
            raise ValueError("what it says besides its pixels is in too many pieces")
        return super().read(size)

    def header_is_read(self, source_format: str | None) -> None:
        """From now on pixels are read. Decoders of PPM and BMP do that byte by byte; only a PNG has pieces here too."""
        more_reads = self._size / _BYTES_A_PNG_READ if source_format == "PNG" else float("inf")
        self._reads_left = _MAX_HEADER_READS + more_reads


def check_before_opening(data: bytes) -> None:
    """Refuse a TIFF with tags of too many values.

    Raises:
        ValueError: it has some.
    """
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None:
        return
    try:
        big = data[2] == 43  # as Pillow tells BigTIFF, which it reads in little-endian order only
        (directory,) = struct.unpack_from(f"{order}Q" if big else f"{order}I", data, 8 if big else 4)
        (tags,) = struct.unpack_from(f"{order}Q" if big else f"{order}H", data, directory)
        entry = struct.Struct(f"{order}HHQ8x" if big else f"{order}HHI4x")
        first = directory + (8 if big else 2)
        for offset in range(first, min(first + tags * entry.size, len(data) - entry.size + 1), entry.size):
            tag, kind, count = entry.unpack_from(data, offset)
            if count > _MAX_TIFF_VALUES and kind not in _TIFF_BYTES and tag < _FIRST_PRIVATE_TIFF_TAG:
                raise ValueError(f"tag {tag} has {count} values; at most {_MAX_TIFF_VALUES}")
    except (IndexError, struct.error):
        pass  # no TIFF, or one that ends early: Pillow says so


def check_before_decoding(image: ImageFile.ImageFile, data: bytes) -> None:
    """Refuse a file that would make its decoder do its work many times over.

    Raises:
        ValueError: the file is one.
    """
    match image.format:
        case "JPEG" | "MPO":
            most = min(_MAX_SCANNED_PIXELS // (image.width * image.height), _MAX_HEADER_READS)
            if not _has_at_most(data, most):
                raise ValueError(f"more than {most} scans of {image.width}x{image.height} pixels")
        case "PPM" if data[:2] in (b"P1", b"P2", b"P3") and data.count(b"#") > _MAX_PLAIN_COMMENTS:
            raise ValueError(f"more than {_MAX_PLAIN_COMMENTS} comments")


def _has_at_most(data: bytes, scans: int) -> bool:
    """Whether a JPEG has at most so many scans, and with all other segments no more than a header may have pieces."""
    position = 0
    for _ in range(_MAX_HEADER_READS):
        found = _JPEG_MARKER.search(data, position)
        if found is None:
            return True
        marker, position = found[0][1], found.end()
        if marker == _END_OF_IMAGE:
            return True
        if marker in _WITHOUT_LENGTH:
            continue
        if marker == _START_OF_SCAN:
            scans -= 1
            if scans < 0:
                return False
        position += int.from_bytes(data[position : position + 2])
    return False
