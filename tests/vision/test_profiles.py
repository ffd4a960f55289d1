import math
from dataclasses import replace

import pytest

from interlock.reasons import Reason
from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, VisionError, VisionProfile, check_profile

DEFAULT = PROFILES[DEFAULT_PROFILE_NAME]


def test_the_published_profiles_have_their_published_values():
    assert dict(PROFILES) == {
        "deepseek-v4.1": VisionProfile(14, 3, 1024, 544 * 544, None, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        "deepseek-v4-flash-vision-exp": VisionProfile(14, 3, 384, 384 * 384, 8, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    }
    assert DEFAULT_PROFILE_NAME == "deepseek-v4.1"


@pytest.mark.parametrize("name", PROFILES)
def test_the_published_profiles_are_legal(name):
    check_profile(PROFILES[name])


@pytest.mark.parametrize(
    ("field", "legal", "illegal"),
    [
        ("patch_size", (1, 128), (0, -1, 129)),
        ("downsample_ratio", (1, 16), (0, 17)),
        ("max_image_tokens", (4, 16_384), (3, 16_385)),
        ("min_pixels", (0, 1_000_000), (-1, 1_000_001)),
        ("max_wh_ratio", (None, 1, 1000), (0, 1001)),
        (
            "image_mean",
            ((0.0, 1.0, 0.5),),
            ((-0.01, 0, 0), (0, 1.01, 0), (0, 0, math.nan), (math.inf, 0, 0), (0.5,), ()),
        ),
        (
            "image_std",
            ((2**-10, 1.0, 1024.0),),
            ((0.0, 1, 1), (1, -1, 1), (1, 1, 1025), (math.nan, 1, 1), (1, 1, 1, 1)),
        ),
    ],
)
def test_each_value_is_held_to_its_bounds_and_named_when_outside(field, legal, illegal):
    for value in legal:
        check_profile(replace(DEFAULT, **{"min_pixels": 0, field: value}), max_pixels=1_000_000)
    for value in illegal:
        with pytest.raises(VisionError) as refused:
            check_profile(replace(DEFAULT, **{"min_pixels": 0, field: value}), max_pixels=1_000_000)
        assert refused.value.reason is Reason.INVALID_PROFILE
        assert refused.value.field == f"profile.{field}"
        assert field in str(refused.value)
