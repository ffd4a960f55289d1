"""What a picture costs, and how its source becomes pixels. Both run in the threads of the pool."""

from interlock.vision import (
    ExifOrientation,
    GrowingPicture,
    Picture,
    Plan,
    VisionError,
    decode,
    decode_by_rows,
    probe,
    raw_picture,
)
from interlock_preprocess.requests import PictureRequest


def work_bytes(request: PictureRequest, data: bytes) -> int:
    """Upper bound of the memory that decoding, kernel and patches take together; the source is not in it.

    Of an encoded picture only the header is read. The plan is checked here, before anything is admitted or decoded.

    Raises:
        VisionError: the header is damaged, the picture has too many pixels, or no plan is legal.
    """
    if request.raw_size is not None:
        return _work_bytes(request.plan_for(*request.raw_size), *request.raw_size, decode_bytes=0)
    info = probe(data)
    stored, turned = (info.width, info.height), (info.height, info.width)
    if request.decode_options.exif_orientation is ExifOrientation.IGNORE:
        return _work_bytes(request.plan_for(*stored), *stored, info.decode_bytes)
    # Which of the two it will be is only known after decoding, and one of them may have no legal plan.
    bounds = []
    for size in (stored, turned):
        try:
            bounds.append(_work_bytes(request.plan_for(*size), *size, info.decode_bytes))
        except VisionError as error:
            refused = error
    if not bounds:
        raise refused
    return max(bounds)


def pixels(request: PictureRequest, data: bytes) -> Picture:
    """The picture, decoded.

    Raises:
        VisionError: it cannot be decoded.
    """
    if request.raw_size is not None:
        return raw_picture(data, *request.raw_size)
    return decode(data, request.decode_options)


def growing_pixels(request: PictureRequest, data: bytes) -> GrowingPicture | None:
    """The picture, to be decoded by a thread of its own while its first rows are used; None: only as a whole.

    Raises:
        VisionError: it cannot be decoded.
    """
    return None if request.raw_size is not None else decode_by_rows(data, request.decode_options)


def _work_bytes(plan: Plan, width: int, height: int, decode_bytes: int) -> int:
    """The kernel has the pixels, copies of them and of the horizontally resized rows at four bytes a pixel, the
    resized picture and the canvas; decoding is over by then."""
    canvas_pixels = plan.canvas_width * plan.canvas_height
    kernel_bytes = width * height * 7 + height * plan.resize_width * 4 + canvas_pixels * 7
    return max(decode_bytes, kernel_bytes) + canvas_pixels * 6
