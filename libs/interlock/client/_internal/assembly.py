"""Puts the patches of one picture together from its frames, or says why they cannot be trusted.

The only module that needs NumPy and google-crc32c; both are imported when the first patches are asked for.
"""

import math
from typing import TYPE_CHECKING

from interlock.client._internal.frames import Chunk, Frame
from interlock.client._internal.picture_messages import plan_from_message, timings_from_message
from interlock.client._internal.regions import REGION_REASONS, RegionRange, SharedMemory
from interlock.client.errors import MissingPackageError, PatchesDamagedError
from interlock.client.pictures import Patches
from interlock.preprocess.v1 import preprocess_pb2

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD_BYTES = 2


def require_packages() -> None:
    """Makes sure that patches can be put together, before anything is sent.

    Raises:
        MissingPackageError: NumPy or google-crc32c is not installed.
    """
    try:
        import google_crc32c  # noqa: F401
        import numpy as np  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            f"patches need NumPy and google-crc32c ({error}): pip install 'interlock[patches]'"
        ) from error


class PatchAssembly:
    """The patches of one picture, on their way in.

    Args:
        image_id: names the picture in errors and in the result.
        max_patch_bytes: bytes that are set aside for one picture at the most; the header comes from outside.
        place: where in shared memory the server puts them. None: they come in chunks. Either `settled` or `lost` has
            to be called in the end.
    """

    def __init__(self, image_id: str, max_patch_bytes: int, place: RegionRange | None = None) -> None:
        self._image_id = image_id
        self._max_patch_bytes = max_patch_bytes
        self.place = place
        self._header: preprocess_pb2.PatchHeader | None = None
        self._filled = 0
        self._crc = 0
        self._patches: Patches | None = None

    def add(self, frame: Frame) -> Patches | None:
        """Takes one frame. The patches, if it was the trailer; else None.

        Raises:
            PatchesDamagedError: the frame does not go with those before it.
        """
        if self._patches is not None:
            raise self._damaged("a frame came after the trailer")
        if isinstance(frame, Chunk):
            self._add_chunk(frame)
            return None
        match frame.WhichOneof("frame"):
            case "header":
                self._add_header(frame.header)
            case "trailer":
                self._patches = self._checked(frame.trailer)
            case kind:
                raise self._damaged(f"a frame of kind {kind} came where patches were expected")
        return self._patches

    def patches(self) -> Patches:
        """The patches, now that no more frames come.

        Raises:
            PatchesDamagedError: no trailer came.
        """
        if self._patches is None:
            got = "no header" if self._header is None else f"{self._filled} of {self._header.total_bytes} bytes"
            raise self._damaged(f"no trailer came ({got})")
        return self._patches

    def settled(self) -> None:
        """The server has said its last word on the picture: it writes no more."""
        if self.place is not None:
            self.place.give_back()

    def refused(self, reason: str, memory: SharedMemory) -> bool:
        """The server's last word is a refusal. True: it only could not put the patches into shared memory; ask again,
        for chunks."""
        if self.place is None or reason not in REGION_REASONS:
            self.settled()
            return False
        memory.refused(self.place, reason)
        return True

    def lost(self) -> None:
        """The server's last word will not come."""
        if self.place is not None:
            self.place.lose()

    def _add_header(self, header: preprocess_pb2.PatchHeader) -> None:
        """Checks the header and sets the whole buffer aside.

        Raises:
            PatchesDamagedError: a second header, numbers that contradict each other, or too many bytes.
        """
        import numpy as np

        if self._header is not None:
            raise self._damaged("a second header came")
        if header.dtype != preprocess_pb2.PATCH_DTYPE_BF16:
            raise self._damaged(f"the header has dtype {header.dtype}; only PATCH_DTYPE_BF16 is known")
        side = header.patch_size
        shape = (header.plan.grid_height, header.plan.grid_width, 3, side, side)
        total_bytes = math.prod(shape) * _WORD_BYTES
        if not total_bytes or header.total_bytes != total_bytes:
            raise self._damaged(f"the header has {header.total_bytes} bytes for patches of shape {shape}")
        if total_bytes > self._max_patch_bytes:
            raise self._damaged(
                f"the header has {total_bytes} bytes, and max_patch_bytes of this client is {self._max_patch_bytes}"
            )
        self._header = header
        self._shape = shape
        self._patch_bytes = 3 * side * side * _WORD_BYTES
        if self.place is not None:
            if total_bytes > self.place.size:
                raise self._damaged(f"the header has {total_bytes} bytes, put to {self.place.size} of shared memory")
            self.place.shrink(total_bytes)
        else:
            self._words: NDArray[np.uint16] = np.empty(total_bytes // _WORD_BYTES, "<u2")
            self._bytes: NDArray[np.uint8] = self._words.view(np.uint8)

    def _add_chunk(self, chunk: Chunk) -> None:
        """Puts a chunk in its place.

        Raises:
            PatchesDamagedError: it comes before the header, leaves a gap, is no whole patches, or runs over the end.
        """
        import google_crc32c
        import numpy as np

        if self._header is None:
            raise self._damaged("a chunk came before the header")
        if self.place is not None:
            raise self._damaged("a chunk came of patches that go into shared memory")
        size = len(chunk.data)
        if not size or size % self._patch_bytes:
            raise self._damaged(f"a chunk has {size} bytes, and a patch has {self._patch_bytes}")
        begin = chunk.first_patch * self._patch_bytes
        if begin != self._filled:
            raise self._damaged(
                f"a chunk begins at patch {chunk.first_patch}; expected {self._filled // self._patch_bytes}"
            )
        if begin + size > self._bytes.size:
            raise self._damaged(f"a chunk ends at byte {begin + size} of {self._bytes.size}")
        place = self._bytes[begin : begin + size]
        place[:] = np.frombuffer(chunk.data, np.uint8)
        # Over what lies in the array, not over what came in; bit by bit, so that an event loop is not held up.
        self._crc = google_crc32c.extend(self._crc, place)
        self._filled += size

    def _checked(self, trailer: preprocess_pb2.PatchTrailer) -> Patches:
        """The patches, complete and checked.

        Raises:
            PatchesDamagedError: chunks are missing, or the CRC-32C differs.
        """
        import google_crc32c

        if self._header is None:
            raise self._damaged("the trailer came before the header")
        if self.place is not None:
            self._words = self.place.words(self._header.total_bytes // _WORD_BYTES)
            self._crc = google_crc32c.value(self._words)
        elif self._filled != self._bytes.size:
            raise self._damaged(f"the trailer came after {self._filled} of {self._bytes.size} bytes")
        if self._crc != trailer.crc32c:
            raise self._damaged(f"the CRC-32C is {self._crc:#010x}; the server has {trailer.crc32c:#010x}")
        return Patches(
            array=self._words.reshape(self._shape),
            plan=plan_from_message(self._header.plan),
            source_width=self._header.source_size.width,
            source_height=self._header.source_size.height,
            source_format=self._header.source_format,
            timings=timings_from_message(trailer),
            in_shared_memory=self.place is not None,
            image_id=self._image_id,
        )

    def _damaged(self, what: str) -> PatchesDamagedError:
        name = f"picture {self._image_id!r}" if self._image_id else "the picture"
        return PatchesDamagedError(f"{name}: {what}")
