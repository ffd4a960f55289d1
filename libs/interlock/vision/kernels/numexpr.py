"""The fast kernel that needs nothing compiled at run time: NumPy, Pillow and numexpr, over strips, on several threads.

Two passes, each over strips that do not depend on one another, so that threads can share them and the bytes stay the
same: rows of the source through Pillow's horizontal pass; then columns of that, as wide as some patches, through its
vertical pass and through tables of codes into the patches. `docs/decisions/kernels.md` has the figures.
"""

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache, partial

import numexpr
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from interlock.vision.kernels.geometry import checked_patches
from interlock.vision.kernels.sharing import share
from interlock.vision.plan import Plan
from interlock.vision.profiles import VisionProfile
from interlock.vision.quantise import PADDING_VALUE, bf16_codes

_LARGEST_STRIP = 1 << 19
"""Pixels of a strip: about 3 ms of work, and 2 MiB of scratch before and after a pass."""

_SMALLEST_STRIP = 1 << 16
"""Below this many pixels another thread costs more than it brings."""

_CODED_AT_ONCE = 1 << 16
"""Pixels quantised at once: their indices and codes stay in the second-level cache."""

_LARGEST_SPARE = 8 << 20
"""Pixels of the largest image that is kept for the next call, 32 MiB: what a photo of 16 megapixels needs."""

_spare: deque[Image.Image] = deque(maxlen=2)
"""Images kept between calls, for fresh memory costs a page fault every 4 KiB: 1/8 of the time at 12 megapixels."""


def resize_patchify(
    rgb: NDArray[np.uint8],
    plan: Plan,
    profile: VisionProfile,
    out: NDArray[np.uint16] | None = None,
    *,
    threads: int = 1,
    checkpoint: Callable[[int], None] | None = None,
    rows_ready: Callable[[int], None] | None = None,
) -> NDArray[np.uint16]:
    """See `interlock.vision.kernels.ResizePatchify`."""
    patches = checked_patches(rgb, plan, profile, out)
    report = checkpoint or (lambda patch_rows_done: None)
    if rows_ready is not None:
        rows_ready(len(rgb))  # no patch is done before the last row was read, so nothing is won by going ahead
    height, width = rgb.shape[:2]

    def no_rows_yet(lines_done: int) -> None:
        report(0)  # columns are done one after the other, so no row is final before the last of them

    wide = None
    if width != plan.resize_width:
        wide = _blank(plan.resize_width, height)
        widen = partial(_resize_rows, rgb, wide, plan.resize_width)
        share(lambda: nullcontext(widen), _strips(height, width, threads), threads, no_rows_yet)

    tables = [_pair_table(codes.tobytes()) for codes in bf16_codes(profile)]
    cut = partial(_patchify_columns, rgb, wide, plan, tables, patches)
    strips = _strips(plan.grid_width, max(height, plan.canvas_height) * profile.patch_size, threads)
    share(lambda: nullcontext(cut), strips, threads, no_rows_yet)
    report(plan.grid_height)
    if wide is not None and wide.width * wide.height <= _LARGEST_SPARE:
        _spare.append(wide)
    return patches


def _blank(width: int, height: int) -> Image.Image:
    """An image of at least this size, with anything in it."""
    try:
        spare = _spare.pop()
    except IndexError:
        return Image.new("RGB", (width, height))
    fits = spare.width >= width and spare.height >= height
    return spare if fits else Image.new("RGB", (width, height))


def _resize_rows(rgb: NDArray[np.uint8], wide: Image.Image, resize_width: int, top: int, bottom: int) -> None:
    """The horizontal pass of the rows from `top` to `bottom`, into `wide`."""
    wide.paste(_image(rgb[top:bottom]).resize((resize_width, bottom - top), Image.Resampling.BICUBIC), (0, top))


def _patchify_columns(
    rgb: NDArray[np.uint8],
    wide: Image.Image | None,
    plan: Plan,
    tables: list[NDArray[np.uint32]],
    patches: NDArray[np.uint16],
    first: int,
    last: int,
) -> None:
    """The vertical pass, the canvas and the patches of the columns of patches from `first` to `last`.

    `wide` is what the horizontal pass made of `rgb`; None if it had nothing to do.
    """
    patch = patches.shape[-1]
    # A plane a channel, with rows of even length, for pixels are quantised in pairs.
    width = (last - first) * patch
    canvas = np.full((3, plan.canvas_height, width + width % 2), PADDING_VALUE, np.uint8)
    left, right = max(first * patch - plan.left, 0), min(last * patch - plan.left, plan.resize_width)
    if left < right:
        columns = _image(rgb[:, left:right]) if wide is None else wide.crop((left, 0, right, len(rgb)))
        columns = columns.resize((right - left, plan.resize_height), Image.Resampling.BICUBIC)
        canvas_left = plan.left + left - first * patch
        placed = canvas[:, plan.top : plan.top + plan.resize_height, canvas_left : canvas_left + right - left]
        for plane, band in zip(placed, columns.split(), strict=True):
            plane[...] = np.asarray(band)

    patch_row = np.dtype((np.void, patch * 2))  # copied as one item
    rows_of_patches = patches[:, first:last].view(patch_row)[..., 0]
    at_once = max(1, _CODED_AT_ONCE // (patch * width))
    for top in range(0, plan.grid_height, at_once):
        bottom = min(top + at_once, plan.grid_height)
        for channel, table in enumerate(tables):
            pairs = canvas[channel, top * patch : bottom * patch].view(np.uint16)
            codes = table.take(pairs, mode="wrap").view(np.uint16)[:, :width]
            cut = codes.view(patch_row).reshape(bottom - top, patch, last - first)
            rows_of_patches[top:bottom, :, channel] = cut.transpose(0, 2, 1)


@lru_cache(maxsize=64)
def _pair_table(codes: bytes) -> NDArray[np.uint32]:
    """The codes of two neighbouring bytes at once, by their 16 bits in memory: half as many look-ups, 256 KiB."""
    code = np.frombuffer(codes, np.uint16).astype(np.int64)
    # The first byte of a pair is the low one, and so is its code: patches are little-endian.
    pair = {"first": code[None, :], "second": code[:, None]}
    table = np.empty((256, 256), np.uint32)
    numexpr.evaluate("first + second * 65536", local_dict=pair, global_dict={}, out=table, casting="unsafe")
    return table.reshape(-1)


def _image(pixels: NDArray[np.uint8]) -> Image.Image:
    height, width = pixels.shape[:2]
    return Image.frombuffer("RGB", (width, height), np.ascontiguousarray(pixels), "raw", "RGB", 0, 1)


def _strips(lines: int, line_pixels: int, threads: int) -> list[tuple[int, int]]:
    """Cut so many rows or columns into strips, if they are large enough at least one for each thread."""
    pixels = lines * line_pixels
    strip_pixels = min(max(pixels // threads, _SMALLEST_STRIP), _LARGEST_STRIP)
    count = min(max(1, pixels // strip_pixels), lines)
    return [(lines * n // count, lines * (n + 1) // count) for n in range(count)]
