import numpy as np
import pytest

from interlock.reasons import Reason
from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, VisionError, VisionProfile, kernels, preview
from interlock.vision.quantise import bf16_codes
from vision.cases import geometry

DEFAULT = PROFILES[DEFAULT_PROFILE_NAME]


def test_the_patches_of_an_unresized_picture_are_drawn_back_to_its_very_pixels():
    rgb = np.random.default_rng(0).integers(0, 256, (50, 60, 3), dtype=np.uint8)
    patches = kernels.get().resize_patchify(rgb, geometry((70, 56), (60, 50), (3, 2), DEFAULT), DEFAULT)
    drawn = np.asarray(preview(patches, DEFAULT))
    expected = np.full((56, 70, 3), 127, np.uint8)
    expected[2:52, 3:63] = rgb
    assert np.array_equal(drawn, expected)


def test_every_byte_comes_back_under_another_mean_where_bf16_tells_it_apart():
    profile = VisionProfile(16, 3, 1024, 0, None, (0.48, 0.46, 0.41), (0.27, 0.26, 0.28))
    codes = bf16_codes(profile)
    patches = codes.reshape(1, 1, 3, 16, 16)
    drawn = np.asarray(preview(patches, profile)).reshape(256, 3)
    for channel in range(3):
        assert np.array_equal(codes[channel][drawn[:, channel]], codes[channel])


def test_codes_that_no_byte_has_are_drawn_as_the_nearest():
    patches = np.zeros((1, 1, 3, 14, 14), np.uint16)
    patches[0, 0, :, 0, :6] = [0x7F80, 0xFF80, 0x7FC0, 0x7F7F, 0x0000, 0x3F7F]  # inf, -inf, nan, huge, 0, below 1
    drawn = np.asarray(preview(patches, DEFAULT))
    assert drawn[0, :6, 0].tolist() == [255, 0, 0, 255, 128, 255]


@pytest.mark.parametrize(
    "patches",
    [
        np.zeros((2, 2, 3, 14, 14), np.int16),
        np.zeros((2, 2, 3, 16, 16), np.uint16),
        np.zeros((2, 2, 4, 14, 14), np.uint16),
        np.zeros((4, 3, 14, 14), np.uint16),
        np.zeros((0, 2, 3, 14, 14), np.uint16),
    ],
)
def test_what_is_no_patches_of_the_profile_is_refused(patches):
    with pytest.raises(VisionError, match="expected uint16") as refused:
        preview(patches, DEFAULT)
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_FIELD, "patches")
