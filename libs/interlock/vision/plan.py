"""From the size of a picture to the geometry of its patches.

The formulas, and the order of their floating-point operations, are those of the published DeepSeek-V4.1 image
processor: `height / width * canvas_width` and `height * canvas_width / width` round differently for some sizes.
"""

import math
from dataclasses import dataclass

from interlock.reasons import Reason
from interlock.vision.errors import VisionError
from interlock.vision.limits import MAX_INTERMEDIATE_BYTES, MAX_OUTPUT_BYTES, MAX_SIDE
from interlock.vision.profiles import VisionProfile

TOKEN_START, TOKEN_IMAGE, TOKEN_NEW_LINE, TOKEN_END = range(4)
"""The model's token types."""


@dataclass(frozen=True)
class Plan:
    """Where the resized picture lies on the canvas, and how the canvas is cut. Pixels, but for grids and tokens.

    Attributes:
        canvas_width, canvas_height: the canvas; multiples of the patch size.
        resize_width, resize_height: what the picture is resized to; at least 1, at most the canvas.
        top, left: canvas row and column of the resized picture's first pixel.
        grid_width, grid_height: patches a row, rows of patches.
        token_grid_width, token_grid_height: image tokens a row, rows of image tokens.
        token_count: all tokens, with start, new-line and end tokens.
    """

    canvas_width: int
    canvas_height: int
    resize_width: int
    resize_height: int
    top: int
    left: int
    grid_width: int
    grid_height: int
    token_grid_width: int
    token_grid_height: int
    token_count: int


def plan(width: int, height: int, profile: VisionProfile) -> Plan:
    """The plan of a picture of `width` x `height` pixels under a profile that `check_profile` accepts.

    Raises:
        VisionError: NO_LEGAL_PLAN, naming the size: a side is not 1..2^32-1, the shape is so extreme that the resized
            picture would have no pixels, or the profile makes a patch buffer over the limit.
    """
    if not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE):
        raise _no_legal_plan(width, height, f"sides are 1 to {MAX_SIDE} pixels")
    canvas_width, canvas_height = _canvas(width, height, profile)
    if canvas_width == 0 or canvas_height == 0:
        raise _no_legal_plan(width, height, "the shape is too extreme: the canvas would have no pixels")
    resize_width, resize_height = _fitted(width, height, canvas_width, canvas_height, profile)
    if resize_width == 0 or resize_height == 0:
        raise _no_legal_plan(
            width, height, f"the shape is too extreme: it would be resized to {resize_width}x{resize_height}"
        )
    if canvas_width * canvas_height * 6 > MAX_OUTPUT_BYTES:
        raise _no_legal_plan(
            width, height, f"the canvas {canvas_width}x{canvas_height} takes over {MAX_OUTPUT_BYTES} bytes of patches"
        )
    grid_width, grid_height = canvas_width // profile.patch_size, canvas_height // profile.patch_size
    token_grid_width, token_grid_height = _token_grid(grid_width, grid_height, profile)
    return Plan(
        canvas_width=canvas_width,
        canvas_height=canvas_height,
        resize_width=resize_width,
        resize_height=resize_height,
        top=round((canvas_height - resize_height) / 2),
        left=round((canvas_width - resize_width) / 2),
        grid_width=grid_width,
        grid_height=grid_height,
        token_grid_width=token_grid_width,
        token_grid_height=token_grid_height,
        token_count=_token_count(token_grid_width, token_grid_height),
    )


def check_plan(plan: Plan, width: int, height: int, profile: VisionProfile) -> None:
    """Refuse a plan that is no legal geometry for a source of `width` x `height` pixels, whoever made it.

    The token budget is no part of this: an explicit plan may go over it, up to the limit of the patch buffer.

    Raises:
        VisionError: INVALID_PLAN, naming the field; `source` where the source has no pixels.
    """
    patch = profile.patch_size
    if width < 1 or height < 1:
        raise VisionError(Reason.INVALID_PLAN, "source", f"the source is {width}x{height}; it needs at least one pixel")
    for field, side in (("canvas_width", plan.canvas_width), ("canvas_height", plan.canvas_height)):
        if side < 1 or side % patch:
            raise _invalid_plan(field, side, f"a positive multiple of patch size {patch}")
    for field, resized, canvas in (
        ("resize_width", plan.resize_width, plan.canvas_width),
        ("resize_height", plan.resize_height, plan.canvas_height),
    ):
        if not 1 <= resized <= canvas:
            raise _invalid_plan(field, resized, f"1 to {canvas}, the canvas")
    for field, offset, gap in (
        ("top", plan.top, plan.canvas_height - plan.resize_height),
        ("left", plan.left, plan.canvas_width - plan.resize_width),
    ):
        if not 0 <= offset <= gap:
            raise _invalid_plan(field, offset, f"0 to {gap}, the gap between canvas and resized picture")
    output = plan.canvas_width * plan.canvas_height * 6
    if output > MAX_OUTPUT_BYTES:
        raise VisionError(
            Reason.INVALID_PLAN,
            "plan.canvas_width",
            f"canvas {plan.canvas_width}x{plan.canvas_height} makes {output} bytes of patches; "
            f"at most {MAX_OUTPUT_BYTES}",
        )
    intermediate = height * plan.resize_width * 3
    if intermediate > MAX_INTERMEDIATE_BYTES:
        raise VisionError(
            Reason.INVALID_PLAN,
            "plan.resize_width",
            f"{height} source rows resized to {plan.resize_width} columns take {intermediate} bytes; "
            f"at most {MAX_INTERMEDIATE_BYTES}",
        )
    grid_width, grid_height = plan.canvas_width // patch, plan.canvas_height // patch
    token_grid_width, token_grid_height = _token_grid(grid_width, grid_height, profile)
    for field, value, derived in (
        ("grid_width", plan.grid_width, grid_width),
        ("grid_height", plan.grid_height, grid_height),
        ("token_grid_width", plan.token_grid_width, token_grid_width),
        ("token_grid_height", plan.token_grid_height, token_grid_height),
        ("token_count", plan.token_count, _token_count(token_grid_width, token_grid_height)),
    ):
        if value != derived:
            raise _invalid_plan(field, value, f"{derived}, as the canvas gives")


def token_types(plan: Plan) -> bytes:
    """One byte a token, in order: start, rows of image tokens that each end in a new-line token, end."""
    row = bytes([TOKEN_IMAGE]) * plan.token_grid_width + bytes([TOKEN_NEW_LINE])
    return bytes([TOKEN_START]) + row * plan.token_grid_height + bytes([TOKEN_END])


def _canvas(width: int, height: int, profile: VisionProfile) -> tuple[int, int]:
    """Width and height of the canvas; a side may come out as 0."""
    patch, budget = profile.patch_size, profile.max_image_tokens
    if profile.max_wh_ratio is not None and width > height * profile.max_wh_ratio:
        width = height * profile.max_wh_ratio
    if width * height < profile.min_pixels:
        enlargement = (profile.min_pixels / (width * height)) ** 0.5
        width, height = int(width * enlargement), int(height * enlargement)
    canvas_width, canvas_height = -(-width // patch) * patch, -(-height // patch) * patch
    if _token_count(*_token_grid(canvas_width // patch, canvas_height // patch, profile)) <= budget:
        return canvas_width, canvas_height

    # Over budget: the widest token grid of this shape that costs at most `budget`.
    cell = patch * profile.downsample_ratio
    ratio = height / width
    most_columns = math.sqrt((budget - 2) / ratio + 0.25) - 0.5
    most_rows = most_columns * ratio
    if most_columns < 1:
        return cell, (budget - 2) // 2 * cell
    if most_rows < 1:
        return (budget - 3) * cell, cell
    scale = min(math.floor(most_columns) * cell / width, math.floor(most_rows) * cell / height)
    return math.floor(width * scale / patch) * patch, math.floor(height * scale / patch) * patch


def _fitted(width: int, height: int, canvas_width: int, canvas_height: int, profile: VisionProfile) -> tuple[int, int]:
    """Width and height of the resized picture: stretched over the canvas, or the largest that fits in its own shape."""
    if profile.max_wh_ratio is not None and width >= height * profile.max_wh_ratio:
        return canvas_width, canvas_height
    if width / height > canvas_width / canvas_height:
        return canvas_width, round(height / width * canvas_width)
    if width / height < canvas_width / canvas_height:
        return round(width / height * canvas_height), canvas_height
    return canvas_width, canvas_height


def _token_grid(grid_width: int, grid_height: int, profile: VisionProfile) -> tuple[int, int]:
    ratio = profile.downsample_ratio
    return -(-grid_width // ratio), -(-grid_height // ratio)


def _token_count(token_grid_width: int, token_grid_height: int) -> int:
    return token_grid_height * (token_grid_width + 1) + 2


def _no_legal_plan(width: int, height: int, why: str) -> VisionError:
    return VisionError(Reason.NO_LEGAL_PLAN, "size", f"no legal plan for a picture of {width}x{height}: {why}")


def _invalid_plan(field: str, value: int, expected: str) -> VisionError:
    return VisionError(Reason.INVALID_PLAN, f"plan.{field}", f"{field} is {value}; expected {expected}")
