"""Where the patches of a picture go: into chunks of the answer, or wherever else a caller asked for."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from interlock_preprocess.frames import MAX_CHUNK_BYTES, chunk_frame


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

    def __init__(self, image_id: str, patch_bytes: int, send: Callable[[bytes], Awaitable[None]]) -> None:
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
