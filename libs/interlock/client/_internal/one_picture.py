"""A picture that goes in one message, or is named in one, as the faces send it."""

from interlock.client._internal.assembly import PatchAssembly
from interlock.client._internal.picture_messages import hash_request, image_request
from interlock.client._internal.ready_pictures import ReadyPicture
from interlock.client._internal.regions import SharedMemory
from interlock.client._internal.retry import Attempts
from interlock.client._internal.statuses import as_image_failed
from interlock.client.errors import InterlockError, RefusedError
from interlock.client.pictures import Picture
from interlock.preprocess.v1 import preprocess_pb2
from interlock.reasons import Reason

_ONE_MESSAGE_BYTES = 3 * 1024 * 1024
"""Larger sources go in parts, which any server takes in, whatever bound on messages it has."""


class OnePicture:
    """One picture, without the I/O: what is sent at each attempt, and what an answer means."""

    def __init__(self, picture: Picture, ready: ReadyPicture, max_patch_bytes: int, memory: SharedMemory) -> None:
        self._picture = picture
        self._ready = ready
        self._max_patch_bytes = max_patch_bytes
        self._memory = memory
        self._in_chunks = False
        self.request: preprocess_pb2.PreprocessImageRequest | None = None
        """What is sent next. None: it does not fit in one message, and has to go on a stream."""
        if ready.begin.HasField("source_sha256"):
            self.request = hash_request(picture, ready.upload, ready.begin.source_sha256)
        else:
            self._send_source()

    def assembly(self) -> PatchAssembly:
        """That of the next attempt; the request says where the patches go."""
        assert self.request is not None
        place = None if self._in_chunks else self._memory.take(self._ready.most_patch_bytes)
        self.request.ClearField("region")
        if place is not None:
            self.request.region.CopyFrom(place.target())
        return PatchAssembly(self._picture.image_id, self._max_patch_bytes, place)

    def pause_after(self, error: InterlockError, assembly: PatchAssembly, attempts: Attempts) -> float:
        """Seconds to wait before the next attempt.

        Raises:
            InterlockError: there is to be none.
        """
        if isinstance(error, RefusedError) and error.reason:
            if assembly.refused(error.reason, self._memory):
                self._in_chunks = True
                return 0.0
            if error.reason == Reason.SOURCE_NEEDED:
                self._send_source()
                return 0.0
        return attempts.pause_after(as_image_failed(error))

    def _send_source(self) -> None:
        self._ready.begin.ClearField("source_sha256")  # what was just asked for is not asked for again
        fits = len(self._ready.upload.data) <= _ONE_MESSAGE_BYTES
        self.request = image_request(self._picture, self._ready.upload) if fits else None
