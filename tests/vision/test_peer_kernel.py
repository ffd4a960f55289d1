"""The kernels against the compiled peer itself: `dsv41.resize_patchify` of SGLang's wheel.

Set INTERLOCK_PEERS to a folder that `pip install --no-deps --target FOLDER sglang==0.5.23` filled.
"""

import os
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from interlock.vision import kernels
from vision.cases import random_case


@pytest.fixture(scope="module")
def peer():
    folder = os.environ.get("INTERLOCK_PEERS")
    if not folder:
        pytest.skip("INTERLOCK_PEERS names no folder with the peer's wheel")
    found = sorted((Path(folder) / "sglang" / "srt" / "rust_extensions").glob("_multimodal.*.so"))
    if not found:
        pytest.skip(f"the peer's wheel in {folder} has no compiled kernel for this platform")
    spec = spec_from_file_location("_multimodal", found[0])
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.dsv41.resize_patchify


@pytest.mark.parametrize("name", kernels.available())
def test_400_random_cases_differ_in_no_word_from_the_peer(peer, name):
    kernel = kernels.get(name).resize_patchify
    rng = np.random.default_rng(23)
    compared = 0
    while compared < 400:
        rgb, geometry, profile = random_case(rng)
        if profile.image_mean != (0.5, 0.5, 0.5):
            continue  # the peer knows no other mean
        words = peer(
            np.ascontiguousarray(rgb),
            (geometry.canvas_height, geometry.canvas_width),
            (geometry.resize_height, geometry.resize_width),
            (geometry.top, geometry.left),
            profile.patch_size,
        )
        made = kernel(rgb, geometry, profile)
        assert np.count_nonzero(made.ravel() != words) == 0, (rgb.shape, geometry, profile)
        compared += 1
