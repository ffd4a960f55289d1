"""What goes into `PreprocessClient` and what comes out of it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, Union

from interlock.client.errors import ImageFailedError, InterlockError
from interlock.vision.plan import Plan
from interlock.vision.profiles import VisionProfile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from interlock.vision import DecodeOptions


@dataclass(frozen=True)
class RawRgb:
    """Raw pixels: rows from the top, red, green, blue, one byte each, no padding."""

    width: int
    """Pixels a row."""
    height: int
    """Rows."""
    data: bytes | bytearray | memoryview
    """Exactly width * height * 3 bytes."""


Source: TypeAlias = Union[bytes, bytearray, memoryview, str, "os.PathLike[str]", RawRgb, "NDArray[np.uint8]"]
"""A picture: the bytes of a file, the path of one, or raw pixels as `RawRgb` or as an array (height, width, 3)."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A source with what is to be done to it. None: what holds for the whole call."""

    source: Source
    image_id: str = ""
    """Label for the caller's own use; handed back with the result."""
    profile: str | VisionProfile | None = None
    """Name of a profile that the server has, or a profile in full."""
    decode_options: "DecodeOptions | None" = None
    """Only for files."""
    plan: Plan | None = None
    """Geometry to use instead of the one that the profile gives."""
    timeout: float | None = None
    """Seconds from when it is first sent, after which it fails."""

    def with_defaults(self, defaults: "Picture") -> "Picture":
        """This picture, with profile, decode options and timeout of `defaults` where it has none of its own."""
        return replace(
            self,
            profile=self.profile if self.profile is not None else defaults.profile,
            decode_options=self.decode_options if self.decode_options is not None else defaults.decode_options,
            timeout=self.timeout if self.timeout is not None else defaults.timeout,
        )


@dataclass(frozen=True)
class Timings:
    """Where the server's time went, in seconds."""

    queue: float
    """From the arrival of the whole source to the start of the work."""
    decode: float
    """Decoding; 0 for raw pixels."""
    kernel: float
    """Resizing and cutting into patches."""
    from_cache: bool
    """The patches came from the server's cache."""


@dataclass(frozen=True, eq=False)
class Patches:
    """The patches of one picture, complete and checked against the server's CRC-32C."""

    array: "NDArray[np.uint16]"
    """Bits of bfloat16 numbers, shape (grid_height, grid_width, 3, patch_size, patch_size).

    Where it lies in shared memory, its place is used for another picture once this array and all views of it are gone,
    and never before: `array.copy()` and letting go of these patches frees it early. Until then there is less room for
    further pictures; when there is none, they come in chunks.
    """
    plan: Plan
    """Geometry used."""
    source_width: int
    """Pixels a row of the decoded picture, after orientation."""
    source_height: int
    """Rows of the decoded picture, after orientation."""
    source_format: str
    """Format of the file, for example `JPEG`. Empty for raw pixels."""
    timings: Timings
    image_id: str
    """As handed in."""
    in_shared_memory: bool = False
    """The server has put the patches into memory that it shares with this process; they did not come in chunks."""


@dataclass(frozen=True, eq=False)
class ImageResult:
    """What became of one picture of many: exactly one of `patches` and `error` is set."""

    index: int
    """Position among the sources, from 0."""
    image_id: str
    """As handed in with a `Picture`; else empty."""
    patches: Patches | None = None
    error: InterlockError | None = None
    """`ImageFailedError`: refused by the server; `PatchesDamagedError`: damaged on the way; `SourceError`: not read."""

    def unwrap(self) -> Patches:
        """The patches.

        Raises:
            InterlockError: the picture's error, if it failed.
        """
        if self.patches is None:
            raise self.error or InterlockError("the picture has neither patches nor an error")
        return self.patches


@dataclass(frozen=True)
class PlannedImage:
    """The plan of one size: exactly one of `plan` and `error` is set."""

    width: int
    """Pixels a row, as asked."""
    height: int
    """Rows, as asked."""
    plan: Plan | None = None
    error: ImageFailedError | None = None
    """Why the size has no legal plan."""
    token_types: bytes = b""
    """One byte a token, values of `TokenType`. Empty unless asked for."""


@dataclass(frozen=True)
class ServedProfiles:
    """What a Preprocess server works with."""

    profiles: Mapping[str, VisionProfile]
    """By name, in the order of names."""
    default: str
    """Name of the profile used where a call names none. Empty: the server has none."""
    kernel: str
    """Kernel in use."""
    available_kernels: tuple[str, ...]
    """Kernels that the server's machine could use; all give the same bytes."""
    max_pixels: int
    """Most pixels that a source may have."""
    max_source_bytes: int
    """Most bytes that a source may have."""
