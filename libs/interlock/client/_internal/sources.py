"""What a caller hands in as a picture, made ready to be sent: bytes and what they are."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from interlock.client.errors import SourceError
from interlock.client.pictures import RawRgb, Source
from interlock.preprocess.v1 import preprocess_pb2

PART_BYTES = 1024 * 1024
"""Size of the parts that a large picture is sent in."""

LARGEST_FILE_BYTES = 512 * 1024 * 1024
"""A larger file is not read: raw pixels at the server's default pixel limit take about as many bytes."""

_LARGEST_SIDE = 2**32 - 1


@dataclass(frozen=True)
class Upload:
    """A source, ready to be sent."""

    kind: preprocess_pb2.SourceKind.ValueType
    data: memoryview
    width: int = 0
    height: int = 0

    def parts(self) -> Iterator[tuple[int, memoryview]]:
        """Offset and bytes of each part, in order."""
        for offset in range(0, len(self.data), PART_BYTES):
            yield offset, self.data[offset : offset + PART_BYTES]


def upload_of(source: Source) -> Upload:
    """Makes a source ready to be sent. Reads the file if it is a path.

    Raises:
        SourceError: the file cannot be read or is too large, or an array is not (height, width, 3) of uint8.
        TypeError: `source` is nothing that can be a picture.
    """
    if isinstance(source, RawRgb):
        return _raw(source.width, source.height, memoryview(source.data).cast("B"))
    if isinstance(source, str | os.PathLike):
        return Upload(preprocess_pb2.SOURCE_KIND_ENCODED, memoryview(_read(source)))
    try:
        # An array of NumPy has the buffer protocol; its types say so only from Python 3.12 on.
        view = memoryview(source)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"a picture is bytes, a path, RawRgb or an array (height, width, 3) of uint8, not {type(source).__name__}"
        ) from None
    if view.ndim == 1 and view.format in ("B", "b", "c"):
        return Upload(preprocess_pb2.SOURCE_KIND_ENCODED, view.cast("B") if view.c_contiguous else _packed(view))
    if view.ndim == 3 and view.format == "B" and view.shape is not None and view.shape[2] == 3:
        height, width, _ = view.shape
        return _raw(width, height, view.cast("B") if view.c_contiguous and view.nbytes else _packed(view))
    raise SourceError(
        f"an array of shape {view.shape} and format {view.format!r} is no picture; "
        "expected (height, width, 3) of uint8, or encoded bytes"
    )


def _packed(view: memoryview) -> memoryview:
    return memoryview(view.tobytes("C"))


def _raw(width: int, height: int, data: memoryview) -> Upload:
    if not (1 <= width <= _LARGEST_SIDE and 1 <= height <= _LARGEST_SIDE):
        raise SourceError(f"raw pixels of {width}x{height}: both sides must be at least 1")
    if len(data) != width * height * 3:
        raise SourceError(
            f"raw pixels of {width}x{height} take {width * height * 3} bytes (width * height * 3), not {len(data)}"
        )
    return Upload(preprocess_pb2.SOURCE_KIND_RAW_RGB, data, width, height)


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        with open(path, "rb") as file:
            # One byte more than allowed tells a file that is too large, and a device that never ends.
            data = file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot read {os.fspath(path)!r}: {error}") from error
    if len(data) > LARGEST_FILE_BYTES:
        raise SourceError(f"{os.fspath(path)!r} has more than {LARGEST_FILE_BYTES} bytes")
    return data
