"""Codes by arithmetic: only where all 256 are those of the table, which is nearly always."""

import numpy as np
import pytest

from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, VisionProfile
from interlock.vision.kernels.simd.codes import affine_codes
from interlock.vision.quantise import bf16_codes


def profile(mean: tuple[float, ...], std: tuple[float, ...]) -> VisionProfile:
    return VisionProfile(14, 3, 1024, 0, None, mean, std)


def codes_of(affine: np.ndarray) -> np.ndarray:
    factors, terms = affine.reshape(2, 3, 1)
    single = np.arange(256, dtype=np.float32) * factors + terms
    return (single.view(np.uint32) + np.uint32(0x8000)) >> 16


PUBLISHED = {
    "DeepSeek": PROFILES[DEFAULT_PROFILE_NAME],
    "CLIP": profile((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "ImageNet": profile((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "as it is": profile((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_profiles_need_no_table(name):
    affine = affine_codes(PUBLISHED[name])
    assert affine is not None
    assert np.array_equal(codes_of(affine), bf16_codes(PUBLISHED[name]))


def test_what_is_given_is_right_in_all_256_codes_and_few_profiles_get_nothing():
    rng = np.random.default_rng(1)
    without = 0
    for _ in range(300):
        some = profile(tuple(rng.uniform(0, 1, 3).tolist()), tuple(rng.uniform(0.05, 2, 3).tolist()))
        affine = affine_codes(some)
        if affine is None:
            without += 1
        else:
            assert np.array_equal(codes_of(affine), bf16_codes(some))
    assert 1 <= without <= 30  # the way by table is needed, and rare
