"""Where the patches of a picture go: into chunks of the answer, or wherever else a caller asked for."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from interlock_preprocess.frames import MAX_CHUNK_BYTES, chunk_frame
from interlock_preprocess.regions import RegionRange, Regions, Target
from interlock_preprocess.requests import PictureRequest
from interlock_preprocess.settings import MIB

_MAX_WRITE_BYTES = 16 * MIB
"""Any picture of the published profiles at once: each write is a way to a thread and back. (10 MiB from the cache took
1.5 ms so, and 2.0 ms in pieces of 4 MiB.)"""

Send = Callable[[bytes], Awaitable[None]]
"""Hands one frame to the caller."""


def destination_of(request: PictureRequest, image_id: str, regions: Regions, scope: str, send: Send) -> "Destination":
    """Where the patches of a picture go.

    Args:
        request: says where.
        image_id: the picture's id in its frames.
        regions: shared memory.
        scope: whose regions it may be.
        send: hands one frame to the caller.
    """
    if request.region is not None:
        return SharedMemory(regions, request.region, scope, request.patch_bytes)
    return Chunks(image_id, request.patch_bytes, send)


class Destination(Protocol):
    """Takes the patches of one picture, in order and without gaps.

    `begin` is called once, then `put` for every piece, each after the one before has ended. `release` is called in
    the end, however that comes, and may be called twice.
    """

    most_patches: int
    """Patches that one `put` takes at the most; pieces are as large as that, but for the last one."""

    async def begin(self, total_bytes: int) -> None:
        """The picture is decoded; its patches will have so many bytes. Called before the header is sent.

        Raises:
            ImageFault: it cannot take them.
        """
        ...

    async def put(self, first_patch: int, patches: NDArray[np.uint8]) -> None:
        """Take the bytes of whole patches; afterwards `patches` may be overwritten.

        Raises:
            ImageFault: it cannot take them.
        """
        ...

    def release(self) -> None:
        """No more patches come."""
        ...


class Chunks:
    """Chunk frames of the answer.

    Args:
        image_id: the picture's id in its frames.
        patch_bytes: bytes of a patch.
        send: hands one frame to the caller.
    """

    def __init__(self, image_id: str, patch_bytes: int, send: Send) -> None:
        self.most_patches = MAX_CHUNK_BYTES // patch_bytes  # several of the largest that a profile may have
        self._image_id = image_id
        self._send = send

    async def begin(self, total_bytes: int) -> None:
        """Nothing to do: chunks need no place set aside."""

    async def put(self, first_patch: int, patches: NDArray[np.uint8]) -> None:
        """Send them as one chunk."""
        await self._send(chunk_frame(self._image_id, first_patch, patches))

    def release(self) -> None:
        """Nothing to do."""


class SharedMemory:
    """A range of a region.

    Args:
        regions: shared memory.
        target: where in it.
        scope: whose region it is.
        patch_bytes: bytes of a patch.
    """

    def __init__(self, regions: Regions, target: Target, scope: str, patch_bytes: int) -> None:
        self.most_patches = _MAX_WRITE_BYTES // patch_bytes
        self._regions = regions
        self._target = target
        self._scope = scope
        self._patch_bytes = patch_bytes
        self._range: RegionRange | None = None

    async def begin(self, total_bytes: int) -> None:
        """Claim the range."""
        self._range = self._regions.claim(self._target, self._scope, total_bytes)

    async def put(self, first_patch: int, patches: NDArray[np.uint8]) -> None:
        """Write them; once, from where they are."""
        assert self._range is not None
        await self._range.write(first_patch * self._patch_bytes, patches.data)

    def release(self) -> None:
        """Let others write to the range."""
        if self._range is not None:
            self._range.release()
