"""Every kernel against the reference kernel, and what all kernels promise.

INTERLOCK_KERNEL_CASES sets how many random cases are compared: `make kernel-cases` takes 20,000.
"""

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from interlock.reasons import Reason
from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, VisionError, VisionProfile, kernels, plan
from vision.cases import geometry, random_case

DEFAULT = PROFILES[DEFAULT_PROFILE_NAME]
REFERENCE = kernels.get("reference").resize_patchify
numexpr_kernel = import_module("interlock.vision.kernels.numexpr")
simd_kernel = import_module("interlock.vision.kernels.simd.kernel")
CASES = int(os.environ.get("INTERLOCK_KERNEL_CASES", "2000"))

each_kernel = pytest.mark.parametrize(
    "kernel", [kernels.get(name) for name in kernels.available()], ids=lambda k: k.name
)


@pytest.fixture
def small_strips(monkeypatch):
    """Strips so small that a small picture has many."""
    monkeypatch.setattr(numexpr_kernel, "_LARGEST_STRIP", 3000)
    monkeypatch.setattr(numexpr_kernel, "_CODED_AT_ONCE", 2000)
    monkeypatch.setattr(simd_kernel, "_STRIP_BYTES", 3000)
    monkeypatch.setattr(simd_kernel, "_SHARED_PIXELS", 1)


def picture(width: int, height: int) -> np.ndarray:
    return np.random.default_rng(width * height).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_the_default_is_the_first_available_kernel():
    assert kernels.available() == ("simd", "numexpr", "reference")
    assert kernels.get().name == "simd"


def test_an_unknown_kernel_is_refused_naming_the_known_ones():
    with pytest.raises(ValueError, match="no kernel 'cuda' here; available: simd, numexpr, reference"):
        kernels.get("cuda")


@pytest.mark.parametrize("strips", ["whole pictures", "small strips"])
def test_random_cases_differ_in_no_word_from_the_reference(strips, request):
    if strips == "small strips":
        request.getfixturevalue("small_strips")
    rng = np.random.default_rng([7, len(strips)])
    fast = [kernels.get("simd").resize_patchify, numexpr_kernel.resize_patchify]
    seen = Counter()
    for number in range(CASES):
        rgb, geometry_, profile = random_case(rng)
        height, width = rgb.shape[:2]
        expected = REFERENCE(rgb, geometry_, profile)
        for resize_patchify in fast:
            made = resize_patchify(rgb, geometry_, profile, threads=1 + (number % 8 == 0))
            assert made.dtype == np.uint16
            assert made.shape == expected.shape
            assert np.count_nonzero(made != expected) == 0, (number, resize_patchify, rgb.shape, geometry_, profile)

        lost_height, lost_width = height - geometry_.resize_height, width - geometry_.resize_width
        seen[f"patch {profile.patch_size}"] += 1
        seen["one pixel"] += 1 in (height, width, geometry_.resize_width, geometry_.resize_height)
        seen["vertical first in Pillow 13"] += lost_height > 0 and lost_height > 2 * lost_width and lost_width != 0
        seen["upscale"] += lost_height < 0 and lost_width < 0
        seen["one pass skipped"] += (lost_height == 0) != (lost_width == 0)
        seen["not resized"] += lost_height == lost_width == 0
        seen["odd padding"] += geometry_.top % 2 == 1 or geometry_.left % 2 == 1
        seen["all 0"] += not rgb.any()
        seen["all 255"] += int(rgb.min()) == 255
        seen["own mean and deviation"] += profile.image_mean != (0.5, 0.5, 0.5)
    assert set(seen) >= {f"patch {size}" for size in (5, 8, 14, 16, 28)}
    assert min(seen.values()) >= CASES // 60, seen


@each_kernel
def test_a_real_plan_with_a_tall_picture_is_resized_horizontally_first(kernel):
    rgb = picture(108, 640)
    geometry_ = plan(108, 640, replace(DEFAULT, min_pixels=0, max_image_tokens=64))
    made = kernel.resize_patchify(rgb, geometry_, DEFAULT)
    assert np.array_equal(made, REFERENCE(rgb, geometry_, DEFAULT))


@each_kernel
def test_the_words_are_put_into_the_given_buffer(kernel):
    rgb, geometry_ = picture(60, 50), geometry((70, 56), (60, 50), (3, 2), DEFAULT)
    flat = np.zeros(70 * 56 * 3, np.uint16)
    made = kernel.resize_patchify(rgb, geometry_, DEFAULT, flat)
    assert np.shares_memory(made, flat)
    assert np.array_equal(flat, REFERENCE(rgb, geometry_, DEFAULT).ravel())


@each_kernel
def test_padding_goes_through_the_same_codes(kernel):
    profile = replace(DEFAULT, image_mean=(0.1, 0.5, 0.9), image_std=(0.5, 0.25, 1.0))
    made = kernel.resize_patchify(picture(1, 1), geometry((28, 28), (1, 1), (20, 20), profile), profile)
    grey = np.float32(127) / np.float32(255)
    for channel in range(3):
        value = (grey - np.float32(profile.image_mean[channel])) / np.float32(profile.image_std[channel])
        bits = int(value.view(np.uint32))
        assert set(made[0, 0, channel].ravel().tolist()) == {(bits + 0x7FFF + (bits >> 16 & 1)) >> 16}


@each_kernel
def test_pixels_that_are_not_contiguous_or_not_writeable_give_the_same_words(kernel):
    rgb, geometry_ = picture(60, 50), geometry((70, 56), (40, 30), (3, 2), DEFAULT)
    with_alpha = np.zeros((50, 60, 4), np.uint8)
    with_alpha[..., :3] = rgb
    larger = np.zeros((52, 64, 3), np.uint8)
    larger[1:51, 2:62] = rgb
    layouts = {
        "every other pixel": np.repeat(rgb, 2, axis=1)[:, ::2],
        "upside down": rgb[::-1].copy()[::-1],
        "mirrored": rgb[:, ::-1].copy()[:, ::-1],
        "blue first": rgb[..., ::-1].copy()[..., ::-1],
        "with a fourth byte": with_alpha[..., :3],
        "part of a larger one": larger[1:51, 2:62],
        "planes": np.ascontiguousarray(rgb.transpose(2, 0, 1)).transpose(1, 2, 0),
        "Fortran order": np.asfortranarray(rgb),
        "read-only": np.frombuffer(rgb.tobytes(), np.uint8).reshape(rgb.shape),
        "not aligned": np.frombuffer(b"." + rgb.tobytes(), np.uint8, offset=1).reshape(rgb.shape),
    }
    expected = REFERENCE(rgb, geometry_, DEFAULT)
    for name, pixels in layouts.items():
        assert np.array_equal(pixels, rgb), name
        assert np.array_equal(kernel.resize_patchify(pixels, geometry_, DEFAULT), expected), name


@each_kernel
def test_a_buffer_at_an_odd_address_is_filled(kernel):
    rgb, geometry_ = picture(60, 50), geometry((70, 56), (40, 30), (3, 2), DEFAULT)
    memory = bytearray(1 + 70 * 56 * 6)
    kernel.resize_patchify(rgb, geometry_, DEFAULT, np.frombuffer(memory, np.uint16, offset=1))
    assert memory[1:] == REFERENCE(rgb, geometry_, DEFAULT).tobytes()


LEGAL = geometry((70, 56), (60, 50), (3, 2), DEFAULT)


@each_kernel
@pytest.mark.parametrize(
    ("changed_plan", "changed_profile", "field"),
    [
        ({}, {"patch_size": 0}, "profile.patch_size"),
        ({}, {"image_std": (0.0, 1.0, 1.0)}, "profile.image_std"),
        ({"canvas_width": 71}, {}, "plan.canvas_width"),
        ({"canvas_height": 0}, {}, "plan.canvas_height"),
        ({"resize_width": 71}, {}, "plan.resize_width"),
        ({"resize_height": 0}, {}, "plan.resize_height"),
        ({"top": 7}, {}, "plan.top"),
        ({"left": -1}, {}, "plan.left"),
        ({"grid_width": 6}, {}, "plan.grid_width"),
        ({"canvas_width": 14 * 2**40}, {}, "plan.canvas_width"),
    ],
)
def test_illegal_geometry_is_refused_by_name(kernel, changed_plan, changed_profile, field):
    with pytest.raises(VisionError) as refused:
        kernel.resize_patchify(picture(60, 50), replace(LEGAL, **changed_plan), replace(DEFAULT, **changed_profile))
    assert refused.value.field == field


@each_kernel
@pytest.mark.parametrize(
    "rgb",
    [
        np.zeros((50, 60), np.uint8),
        np.zeros((50, 60, 4), np.uint8),
        np.zeros((50, 60, 3), np.int8),
        np.zeros(50 * 60 * 3, np.uint8),
    ],
    ids=["two axes", "four channels", "signed", "flat"],
)
def test_pixels_of_another_shape_or_type_are_refused(kernel, rgb):
    with pytest.raises(VisionError, match="expected uint8") as refused:
        kernel.resize_patchify(rgb, LEGAL, DEFAULT)
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_PLAN, "rgb")


@each_kernel
def test_a_picture_without_pixels_is_refused(kernel):
    with pytest.raises(VisionError, match="0x50") as refused:
        kernel.resize_patchify(np.zeros((50, 0, 3), np.uint8), LEGAL, DEFAULT)
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_PLAN, "source")


def _read_only(words: int) -> np.ndarray:
    out = np.zeros(words, np.uint16)
    out.flags.writeable = False
    return out


@each_kernel
@pytest.mark.parametrize(
    "out",
    [
        np.zeros(70 * 56 * 3 - 1, np.uint16),
        np.zeros(70 * 56 * 3 + 1, np.uint16),
        np.zeros(70 * 56 * 3, np.int16),
        np.zeros(70 * 56 * 6, np.uint16)[::2],
        _read_only(70 * 56 * 3),
    ],
    ids=["short", "long", "signed", "strided", "read-only"],
)
def test_a_buffer_of_another_length_or_kind_is_refused(kernel, out):
    with pytest.raises(VisionError, match="expected 11760 words") as refused:
        kernel.resize_patchify(picture(60, 50), LEGAL, DEFAULT, out)
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_PLAN, "out")


@each_kernel
@pytest.mark.parametrize("threads", [1, 3])
def test_the_checkpoint_hears_of_final_rows_in_order_up_to_the_last(kernel, threads, small_strips):
    rgb, geometry_ = picture(90, 300), geometry((112, 140), (100, 120), (3, 9), DEFAULT)
    expected = REFERENCE(rgb, geometry_, DEFAULT)
    out = np.zeros_like(expected)
    heard = []

    def checkpoint(rows):
        heard.append(rows)
        assert np.array_equal(out[:rows], expected[:rows])

    kernel.resize_patchify(rgb, geometry_, DEFAULT, out, threads=threads, checkpoint=checkpoint)
    assert len(heard) >= 3
    assert heard == sorted(heard)
    assert heard[-1] == geometry_.grid_height


class StopError(Exception):
    pass


@pytest.fixture
def helpers_started(small_strips):
    """The threads that help, which are kept for all pictures, are there."""
    kernels.get("numexpr").resize_patchify(picture(90, 300), LEGAL, DEFAULT, threads=3)


@each_kernel
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_what_the_checkpoint_raises_ends_the_work_and_leaves_no_thread(kernel, threads, after, helpers_started):
    before = threading.active_count()
    heard = []

    def checkpoint(rows):
        heard.append(rows)
        if len(heard) >= after:
            raise StopError

    with pytest.raises(StopError):
        kernel.resize_patchify(picture(90, 300), LEGAL, DEFAULT, threads=threads, checkpoint=checkpoint)
    assert after <= len(heard) < after + threads  # others may finish the strip they were at
    assert threading.active_count() == before


def test_a_fault_in_a_helper_thread_comes_out_of_the_call_and_leaves_no_thread(helpers_started, monkeypatch):
    before = threading.active_count()
    caller = threading.current_thread()
    failed = threading.Event()

    def resize_rows(*_):
        if threading.current_thread() is not caller:
            failed.set()
            raise StopError
        assert failed.wait(timeout=30)

    monkeypatch.setattr(numexpr_kernel, "_resize_rows", resize_rows)
    with pytest.raises(StopError):
        numexpr_kernel.resize_patchify(picture(90, 300), LEGAL, DEFAULT, threads=2)
    assert threading.active_count() == before


@each_kernel
def test_one_thread_starts_none(kernel, small_strips, monkeypatch):
    def start(thread):
        raise AssertionError(f"{thread} was started")

    monkeypatch.setattr(threading.Thread, "start", start)
    kernel.resize_patchify(picture(90, 300), LEGAL, DEFAULT, threads=1)


@each_kernel
def test_500_mixed_calls_at_once_do_not_disturb_one_another(kernel, small_strips):
    rng = np.random.default_rng(11)
    cases = [random_case(rng) for _ in range(500)]
    expected = [REFERENCE(*case) for case in cases]

    def right(number: int) -> bool:
        return np.array_equal(kernel.resize_patchify(*cases[number], threads=1 + number % 2), expected[number])

    with ThreadPoolExecutor(8) as workers:
        assert list(workers.map(right, range(500))) == [True] * 500


@each_kernel
def test_pixels_of_an_earlier_and_larger_picture_never_show_through(kernel):
    large = geometry((140, 140), (130, 130), (5, 5), DEFAULT)
    small = geometry((56, 56), (50, 50), (1, 5), DEFAULT)
    kernel.resize_patchify(np.full((400, 400, 3), 255, np.uint8), large, DEFAULT)
    black = np.zeros((100, 100, 3), np.uint8)
    assert np.array_equal(kernel.resize_patchify(black, small, DEFAULT), REFERENCE(black, small, DEFAULT))


def test_the_table_of_pairs_holds_the_codes_of_both_bytes():
    profile = VisionProfile(14, 3, 1024, 0, None, (0.48, 0.46, 0.41), (0.27, 0.26, 0.28))
    pairs = np.arange(65_536, dtype=np.uint16)
    for codes in numexpr_kernel.bf16_codes(profile):
        table = numexpr_kernel._pair_table(codes.tobytes())
        assert np.array_equal(table[pairs].view(np.uint16), codes[pairs.view(np.uint8)])
