"""The frames that a picture is answered with: a header, chunks of whole patches as they are done, a trailer."""

from collections.abc import AsyncGenerator

import google_crc32c
from google.protobuf.duration_pb2 import Duration

from interlock.preprocess.v1.preprocess_pb2 import (
    PATCH_DTYPE_BF16,
    ImageSize,
    PatchChunk,
    PatchFrame,
    PatchHeader,
    PatchTrailer,
)
from interlock_preprocess.requests import plan_message
from interlock_preprocess.settings import MIB
from interlock_preprocess.work import Work

_MAX_CHUNK_BYTES = MIB  # many of the largest patch that a profile may have


async def patch_frames(image_id: str, work: Work) -> AsyncGenerator[PatchFrame, None]:
    """The frames of one picture, in order, each as soon as its patches are there.

    Raises:
        ImageFault: the picture failed or was stopped.
    """
    cut = await work.until_cut()
    patch_size = work.request.profile.patch_size
    patch_count = cut.plan.grid_width * cut.plan.grid_height
    patch_bytes = patch_size * patch_size * 3 * 2
    yield PatchFrame(
        image_id=image_id,
        header=PatchHeader(
            plan=plan_message(cut.plan),
            patch_size=patch_size,
            dtype=PATCH_DTYPE_BF16,
            total_bytes=patch_count * patch_bytes,
            source_size=ImageSize(width=cut.width, height=cut.height),
            source_format=cut.source_format,
        ),
    )
    crc32c = 0
    patches_a_chunk = _MAX_CHUNK_BYTES // patch_bytes
    for first in range(0, patch_count, patches_a_chunk):
        data = await work.patches(first, min(first + patches_a_chunk, patch_count))
        crc32c = google_crc32c.extend(crc32c, data)
        yield PatchFrame(image_id=image_id, chunk=PatchChunk(first_patch=first, data=data))
    timings = await work.until_done()
    yield PatchFrame(
        image_id=image_id,
        trailer=PatchTrailer(
            crc32c=crc32c,
            queue_time=_duration(timings.queue),
            decode_time=_duration(timings.decode),
            kernel_time=_duration(timings.kernel),
        ),
    )


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration
