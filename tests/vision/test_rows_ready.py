"""Kernels on a picture that is filled while they work: no row is read before it was asked for."""

import numpy as np
import pytest

from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, VisionProfile, kernels, plan

PROFILE = PROFILES[DEFAULT_PROFILE_NAME]
SIZES = [(640, 480), (1200, 1800), (2000, 700), (1512, 2016), (476, 644), (37, 900), (900, 37), (28, 28), (3000, 2500)]


class _FaultError(Exception):
    pass


def filled_on_demand(kernel: str, profile: VisionProfile, width: int, height: int, threads: int) -> None:
    rgb = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), np.uint8)
    geometry = plan(width, height, profile)
    expected = kernels.get("reference").resize_patchify(rgb, geometry, profile)
    growing = np.full_like(rgb, 0xA5)

    def rows_ready(rows: int) -> None:
        assert 0 <= rows <= height
        growing[:rows] = rgb[:rows]

    patches = kernels.get(kernel).resize_patchify(growing, geometry, profile, threads=threads, rows_ready=rows_ready)
    assert np.array_equal(patches, expected)


@pytest.mark.parametrize("kernel", kernels.available())
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("threads", [1, 2])
def test_no_row_is_read_before_it_is_asked_for(kernel, size, threads):
    filled_on_demand(kernel, PROFILE, *size, threads)


@pytest.mark.parametrize("kernel", kernels.available())
@pytest.mark.parametrize("patch_size", [8, 16, 20])
def test_nor_with_other_patch_sizes(kernel, patch_size):
    filled_on_demand(kernel, VisionProfile(patch_size, 2, 2000, 0, None), 1100, 1300, 1)


def test_simd_asks_for_the_first_rows_first():
    if "simd" not in kernels.available():
        assert kernels.available()[0] == "numexpr"
        return
    asked: list[int] = []
    rgb = np.zeros((3024, 4032, 3), np.uint8)
    kernels.get("simd").resize_patchify(rgb, plan(4032, 3024, PROFILE), PROFILE, rows_ready=asked.append)
    assert asked == sorted(asked)
    assert asked[0] < 3024 // 4
    assert asked[-1] == 3024


@pytest.mark.parametrize("kernel", kernels.available())
def test_what_it_raises_ends_the_work(kernel):
    def rows_ready(rows: int) -> None:
        raise _FaultError

    with pytest.raises(_FaultError):
        kernels.get(kernel).resize_patchify(
            np.zeros((900, 900, 3), np.uint8), plan(900, 900, PROFILE), PROFILE, rows_ready=rows_ready
        )
