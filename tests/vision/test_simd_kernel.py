"""What only the simd kernel has: its own layouts, limits, machines."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding

from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, Plan, VisionProfile, kernels
from interlock.vision.kernels.simd import layout as layouts
from vision.cases import geometry

DEFAULT = PROFILES[DEFAULT_PROFILE_NAME]
REFERENCE = kernels.get("reference").resize_patchify
SIMD = kernels.get("simd").resize_patchify
simd_kernel = import_module("interlock.vision.kernels.simd.kernel")


def noise(width: int, height: int) -> np.ndarray:
    return np.random.default_rng([width, height]).integers(0, 256, (height, width, 3), dtype=np.uint8)


@st.composite
def pictures(draw: st.DrawFn) -> tuple[np.ndarray, Plan, VisionProfile]:
    """Any picture and any legal geometry; hypothesis looks for the odd ones itself."""
    patch = draw(st.sampled_from([14, 14, 16, 1, 2, 13, 15, 17, 28, 31]))
    canvas = [patch * draw(st.integers(1, max(1, 200 // patch))) for _ in range(2)]
    resized = [draw(st.integers(1, side)) for side in canvas]
    offset = [draw(st.integers(0, side - inner)) for side, inner in zip(canvas, resized, strict=True)]
    size = [draw(st.integers(1, 300) | st.just(side)) for side in resized]
    channel = st.floats(0, 1, allow_subnormal=False)
    mean = draw(st.just((0.5,) * 3) | st.tuples(channel, channel, channel))
    std = draw(st.just((0.5,) * 3) | st.tuples(*[st.floats(2**-10, 2**10)] * 3))
    profile = VisionProfile(patch, draw(st.integers(1, 4)), 1024, 0, None, mean, std)
    high = draw(st.sampled_from([2, 256]))
    rgb = np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, high, (size[1], size[0], 3), dtype=np.uint8)
    return rgb * np.uint8(255 // (high - 1)), geometry(tuple(canvas), tuple(resized), tuple(offset), profile), profile


@settings(max_examples=500)
@given(pictures())
def test_hypothesis_finds_no_difference_from_the_reference(case):
    assert np.array_equal(SIMD(*case), REFERENCE(*case))


@pytest.mark.parametrize(
    ("size", "resized"),
    [
        ((9000, 40), (28, 28)),
        ((40, 9000), (28, 28)),
        ((5000, 30), (4900, 42)),
        ((30, 5000), (42, 4900)),
        ((1, 1), (1400, 1400)),
        ((3, 2000), (3, 14)),
        ((1300, 1700), (1300, 28)),
        ((1300, 1700), (28, 1700)),
    ],
    ids=lambda size: f"{size[0]}x{size[1]}",
)
@pytest.mark.parametrize("threads", [1, 2])
def test_long_pictures_go_round_the_tile_and_the_ring_many_times(size, resized, threads):
    canvas = tuple(-(-side // 14) * 14 for side in resized)
    plan = geometry(canvas, resized, tuple((c - r) // 2 for c, r in zip(canvas, resized, strict=True)), DEFAULT)
    rgb = noise(*size)
    assert np.array_equal(SIMD(rgb, plan, DEFAULT, threads=threads), REFERENCE(rgb, plan, DEFAULT))


@pytest.mark.parametrize("size", [(2, 300_000), (300_000, 2)], ids=["tall", "wide"])
def test_pictures_of_extreme_shapes_are_left_to_the_next_kernel(size, monkeypatch):
    asked = []
    numexpr_kernel = kernels.get("numexpr")

    def get(name):
        asked.append(name)
        return numexpr_kernel

    monkeypatch.setattr(kernels, "get", get)
    rgb, plan = noise(*size), geometry((28, 28), (28, 28), (0, 0), DEFAULT)
    assert np.array_equal(SIMD(rgb, plan, DEFAULT), REFERENCE(rgb, plan, DEFAULT))
    assert asked == ["numexpr"]


def test_strips_are_about_a_mebibyte_so_that_the_first_are_sent_early():
    heard = []
    rgb, plan = noise(2016, 1512), geometry((2016, 1512), (2016, 1512), (0, 0), DEFAULT)
    SIMD(rgb, plan, DEFAULT, checkpoint=heard.append)
    row_bytes = plan.grid_width * 3 * 14 * 14 * 2
    assert heard[-1] == plan.grid_height
    assert max(np.diff([0, *heard])) * row_bytes <= 1.1 * 2**20


def test_workspaces_are_used_again_and_large_ones_are_let_go():
    layouts._spare.clear()
    small = (noise(300, 300), geometry((140, 140), (140, 140), (0, 0), DEFAULT), DEFAULT)
    SIMD(*small)
    (kept,) = layouts._spare
    SIMD(*small)
    assert [memory is kept for memory in layouts._spare] == [True]
    tall = geometry((1400, 14), (1400, 14), (0, 0), DEFAULT)
    SIMD(noise(1400, 3000), tall, DEFAULT)
    assert sum(memory.size for memory in layouts._spare) <= layouts._LARGEST_SPARE


def _machines() -> dict[str, Mapping[str, str]]:
    """Variables for numba: kinds of CPU whose instructions the one here has too."""
    machines: dict[str, Mapping[str, str]] = {"spelled out": {"INTERLOCK_TEST_MACHINE": "other"}}
    if platform.machine() != "x86_64":
        return machines
    machines["SSE2"] = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "+sse2"}
    here = {name for name, there in binding.get_host_cpu_features().items() if there}
    for name, cpu, features in (
        ("AVX2", "haswell", ["avx2", "fma", "bmi2"]),
        ("AVX-512 of 2017", "skylake-avx512", ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"]),
    ):
        if here.issuperset(features):
            listed = ",".join(f"+{feature}" for feature in features)
            machines[name] = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": listed}
    return machines


@pytest.mark.parametrize("machine", _machines())
def test_other_machines_code_makes_the_same_words(machine, tmp_path):
    environment = os.environ | _machines()[machine] | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "vision.other_machine", "200"],
        cwd=Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["200", "compared"]), done.stderr[-2000:]
