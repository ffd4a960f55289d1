"""A picture that goes in one message, as the faces send it."""

from interlock.client._internal.assembly import PatchAssembly
from interlock.client._internal.picture_messages import image_request, most_patch_bytes
from interlock.client._internal.regions import SharedMemory
from interlock.client._internal.retry import Attempts
from interlock.client._internal.sources import Upload
from interlock.client._internal.statuses import as_image_failed
from interlock.client.errors import InterlockError, RefusedError
from interlock.client.pictures import Picture


class OnePicture:
    """One picture in one message, without the I/O: what is sent at each attempt, and what an answer means."""

    def __init__(self, picture: Picture, upload: Upload, max_patch_bytes: int, memory: SharedMemory) -> None:
        self.request = image_request(picture, upload)
        self._picture = picture
        self._max_patch_bytes = max_patch_bytes
        self._memory = memory
        self._in_chunks = False

    def assembly(self) -> PatchAssembly:
        """That of the next attempt; the request says where the patches go."""
        place = None if self._in_chunks else self._memory.take(most_patch_bytes(self._picture))
        self.request.ClearField("region")
        if place is not None:
            self.request.region.CopyFrom(place.target())
        return PatchAssembly(self._picture.image_id, self._max_patch_bytes, place)

    def pause_after(self, error: InterlockError, assembly: PatchAssembly, attempts: Attempts) -> float:
        """Seconds to wait before the next attempt.

        Raises:
            InterlockError: there is to be none.
        """
        if isinstance(error, RefusedError) and error.reason and assembly.refused(error.reason, self._memory):
            self._in_chunks = True
            return 0.0
        return attempts.pause_after(as_image_failed(error))
