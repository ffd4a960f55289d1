"""A JPEG whose rows are used while it is decoded: the pixels and the faults of `decode`, and rows before the end."""

import io
import threading
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from interlock.reasons import Reason
from interlock.vision import (
    DEFAULT_PROFILE_NAME,
    PROFILES,
    DecodeOptions,
    ExifOrientation,
    GrowingPicture,
    VisionError,
    decode,
    decode_by_rows,
    kernels,
    plan,
)
from interlock.vision.decoders.jpeg_rows import comes_by_rows, decoded_rows

PROFILE = PROFILES[DEFAULT_PROFILE_NAME]
WIDTH, HEIGHT = 1801, 1203


def pixels(width: int = WIDTH, height: int = HEIGHT) -> NDArray[np.uint8]:
    """Waves with grain, so that a file has about as many bytes a row everywhere."""
    rows, columns = np.mgrid[0:height, 0:width]
    waves = 128 + 120 * np.sin(np.stack((rows / 9, columns / 7, (rows + columns) / 5), axis=-1))
    return np.clip(waves + np.random.default_rng(1).normal(0, 12, waves.shape), 0, 255).astype(np.uint8)


def saved(**options) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels()).save(file, "JPEG", **{"quality": 85, **options})
    return file.getvalue()


def rows_of(data: bytes) -> GrowingPicture:
    growing = decode_by_rows(data)
    assert growing is not None
    return growing


def all_rows(data: bytes) -> NDArray[np.uint8]:
    with rows_of(data) as growing:
        growing.wait_for(growing.height)
        return growing.rgb


BASELINE = {
    "4:2:0": saved(subsampling="4:2:0"),
    "4:2:2": saved(subsampling="4:2:2"),
    "4:4:4": saved(subsampling="4:4:4"),
    "restarts": saved(restart_marker_rows=1),
    "optimized": saved(optimize=True),
    "best quality": saved(quality=100, subsampling="4:4:4"),
    "with a profile": saved(icc_profile=bytes(150_000)),
}


@pytest.mark.parametrize("name", BASELINE)
def test_the_rows_together_are_the_picture_that_decode_gives(name):
    assert np.array_equal(all_rows(BASELINE[name]), decode(BASELINE[name]).rgb)


@pytest.mark.parametrize("name", BASELINE)
def test_rows_come_in_order_and_the_first_long_before_the_last(name):
    data = BASELINE[name]
    buffer = np.empty((HEIGHT, WIDTH, 4), np.uint8)
    with Image.open(io.BytesIO(data)) as image:
        assert comes_by_rows(image, data)
        done = list(decoded_rows(image, data, buffer))
    assert all(before < after for before, after in pairwise(done))
    assert done[0] < HEIGHT // 2
    assert done[-1] == HEIGHT


def test_rows_that_were_waited_for_are_there_while_the_others_are_not():
    data, expected = BASELINE["4:2:0"], decode(BASELINE["4:2:0"]).rgb
    with rows_of(data) as growing:
        for rows in (0, 1, 100, 100, 50, 700, HEIGHT, HEIGHT + 16):
            growing.wait_for(rows)
            assert np.array_equal(growing.rgb[:rows], expected[:rows])


def test_other_modes_formats_and_small_pictures_are_left_to_decode():
    for picture, file_format in (
        (Image.fromarray(pixels()).convert("L"), "JPEG"),
        (Image.fromarray(pixels()).convert("CMYK"), "JPEG"),
        (Image.fromarray(pixels()), "PNG"),
        (Image.fromarray(pixels(400, 300)), "JPEG"),
        (Image.fromarray(pixels()), "JPEG, progressive"),
    ):
        file = io.BytesIO()
        picture.save(file, file_format.partition(",")[0], progressive=file_format.endswith("progressive"))
        assert decode_by_rows(file.getvalue()) is None


def test_a_picture_that_is_to_be_turned_is_left_to_decode_and_one_that_stands_upright_is_not():
    upright = DecodeOptions(exif_orientation=ExifOrientation.APPLY)
    turned = Image.Exif()
    turned[0x0112] = 6
    assert decode_by_rows(saved(exif=turned.tobytes()), upright) is None
    assert decode_by_rows(saved(exif=turned.tobytes())) is not None
    assert decode_by_rows(saved(), upright) is not None


def outcome(decoder: Callable[[bytes], NDArray[np.uint8]], data: bytes) -> bytes | tuple[Reason, str]:
    try:
        return decoder(data).tobytes()
    except VisionError as error:
        return error.reason, str(error)


def damaged(data: bytes, at: float) -> bytes:
    middle = int(len(data) * at)
    return data[:middle] + bytes(range(256)) + data[middle + 256 :]


@pytest.mark.parametrize("left_out", [1, 2, 3, 1_000, 100_000, 300_000])
def test_a_file_that_ends_early_fails_as_in_decode(left_out):
    data = BASELINE["4:2:0"][:-left_out]
    with pytest.raises(VisionError) as expected:
        decode(data)
    with pytest.raises(VisionError) as error:
        all_rows(data)
    assert expected.value.reason == Reason.IMAGE_TRUNCATED
    assert (error.value.reason, str(error.value)) == (expected.value.reason, str(expected.value))


@pytest.mark.parametrize("name", ["4:2:0", "restarts"])
@pytest.mark.parametrize("at", [0.01, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_damaged_file_gives_what_decode_makes_of_it(name, at):
    data = damaged(BASELINE[name], at)
    assert outcome(all_rows, data) == outcome(lambda data: decode(data).rgb, data)


def test_bytes_behind_the_end_are_of_no_account():
    data = BASELINE["4:2:0"] + b"\xff\xd8 and another" * 50
    assert np.array_equal(all_rows(data), decode(data).rgb)


def test_a_picture_that_is_left_early_leaves_no_thread_behind():
    before = threading.active_count()
    for _ in range(3):
        with rows_of(BASELINE["best quality"]) as growing:
            growing.wait_for(1)
    assert threading.active_count() == before


@pytest.mark.parametrize("kernel", kernels.available())
@pytest.mark.parametrize("name", ["4:2:0", "4:4:4"])
def test_a_kernel_that_works_behind_the_decoder_gives_the_patches_of_the_whole_picture(kernel, name):
    whole = decode(BASELINE[name]).rgb
    geometry = plan(WIDTH, HEIGHT, PROFILE)
    expected = kernels.get("reference").resize_patchify(whole, geometry, PROFILE)
    with rows_of(BASELINE[name]) as growing:
        growing.rgb[:] = 0xA5  # what is read too early shows
        patches = kernels.get(kernel).resize_patchify(growing.rgb, geometry, PROFILE, rows_ready=growing.wait_for)
    assert np.array_equal(patches, expected)
