"""The frames that a picture is answered with, as the bytes of `PatchFrame` messages.

Bytes, and not messages, because of the chunks: a message copies what is put into it, again when it becomes part of
another, and again when it is serialised. Here a chunk's patches are copied once, by the join of what stands before
them and themselves. gRPC copies those bytes once more, into memory of its own, and the system the third time, into
the socket.
"""

import numpy as np
from google.protobuf.duration_pb2 import Duration
from numpy.typing import NDArray

from interlock.preprocess.v1.preprocess_pb2 import (
    PATCH_DTYPE_BF16,
    ImageError,
    ImageSize,
    PatchChunk,
    PatchFrame,
    PatchHeader,
    PatchTrailer,
    SourceNeeded,
    StreamSettings,
)
from interlock.vision import Plan
from interlock_preprocess.requests import plan_message
from interlock_preprocess.settings import MIB
from interlock_preprocess.subscription import Summary

MAX_CHUNK_BYTES = MIB

_LENGTH_DELIMITED = 2  # the wire type of bytes and of messages


def settings_frame(max_images_in_flight: int, max_bytes_in_flight: int) -> bytes:
    """The first frame of a stream."""
    settings = StreamSettings(max_images_in_flight=max_images_in_flight, max_bytes_in_flight=max_bytes_in_flight)
    return PatchFrame(settings=settings).SerializeToString()


def header_frame(image_id: str, plan: Plan, patch_size: int, source_size: tuple[int, int], source_format: str) -> bytes:
    """What the patch buffer is.

    Args:
        image_id: the picture's id.
        plan: the geometry used.
        patch_size: side of a patch in pixels.
        source_size: width and height of the decoded picture.
        source_format: format of the file; empty for raw pixels.
    """
    width, height = source_size
    header = PatchHeader(
        plan=plan_message(plan),
        patch_size=patch_size,
        dtype=PATCH_DTYPE_BF16,
        total_bytes=plan.canvas_width * plan.canvas_height * 3 * 2,
        source_size=ImageSize(width=width, height=height),
        source_format=source_format,
    )
    return PatchFrame(image_id=image_id, header=header).SerializeToString()


def chunk_frame(image_id: str, first_patch: int, patches: NDArray[np.uint8]) -> bytes:
    """A part of the patch buffer."""
    chunk = PatchChunk(first_patch=first_patch).SerializeToString()
    chunk += _tag(PatchChunk.DATA_FIELD_NUMBER) + _varint(len(patches))
    frame = PatchFrame(image_id=image_id).SerializeToString()
    frame += _tag(PatchFrame.CHUNK_FIELD_NUMBER) + _varint(len(chunk) + len(patches))
    return b"".join((frame, chunk, patches.data))


def trailer_frame(image_id: str, summary: Summary) -> bytes:
    """The patch buffer is complete."""
    trailer = PatchTrailer(
        crc32c=summary.crc32c,
        queue_time=_duration(summary.queue),
        decode_time=_duration(summary.decode),
        kernel_time=_duration(summary.kernel),
        from_cache=summary.from_cache,
    )
    return PatchFrame(image_id=image_id, trailer=trailer).SerializeToString()


def source_needed_frame(image_id: str) -> bytes:
    """The picture was begun by its hash, and its parts are needed."""
    return PatchFrame(image_id=image_id, source_needed=SourceNeeded()).SerializeToString()


def error_frame(image_id: str, error: ImageError) -> bytes:
    """The picture failed."""
    return PatchFrame(image_id=image_id, error=error).SerializeToString()


def _tag(field_number: int) -> bytes:
    return _varint(field_number << 3 | _LENGTH_DELIMITED)


def _varint(number: int) -> bytes:
    """A number as protobuf writes it: seven bits a byte, the lowest first; a set high bit says that more follow."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration
