"""Every file of the corpus gives what its manifest promises, from its bytes to its patches."""

import numpy as np
import pytest

from interlock.reasons import Reason
from interlock.vision import (
    DEFAULT_PROFILE_NAME,
    PROFILES,
    AlphaHandling,
    DecodeOptions,
    ExifOrientation,
    SixteenBitGrey,
    VisionError,
    decode,
    kernels,
    plan,
    probe,
)
from vision import corpus

DEFAULT = PROFILES[DEFAULT_PROFILE_NAME]

GOOD = [name for name, entry in corpus.FILES.items() if entry["expect"]["ok"]]
BAD = [name for name, entry in corpus.FILES.items() if not entry["expect"]["ok"]]
REASONS = {
    "empty.bin": Reason.IMAGE_EMPTY,
    "text.jpg": Reason.IMAGE_UNRECOGNIZED,
    "html.png": Reason.IMAGE_UNRECOGNIZED,
    "svg.svg": Reason.IMAGE_UNRECOGNIZED,
    "heic_stub.heic": Reason.IMAGE_UNRECOGNIZED,
    "eps_stub.eps": Reason.IMAGE_UNRECOGNIZED,
    "png_zero_width.png": Reason.IMAGE_UNRECOGNIZED,
    "png_bomb_200mp.png": Reason.IMAGE_TOO_MANY_PIXELS,
    "png_truncated.png": Reason.IMAGE_TRUNCATED,
    "jpeg_truncated.jpg": Reason.IMAGE_TRUNCATED,
    "jpeg_no_eoi.jpg": Reason.IMAGE_TRUNCATED,
}
ALTERNATIVES = {
    "exif_transposed": DecodeOptions(exif_orientation=ExifOrientation.APPLY),
    "over_white": DecodeOptions(alpha_handling=AlphaHandling.COMPOSITE),
    "high_byte": DecodeOptions(sixteen_bit_grey=SixteenBitGrey.HIGH_BYTE),
}


def test_the_corpus_is_whole():
    assert len(corpus.FILES) == 57
    assert {path.name for path in corpus.FOLDER.iterdir()} == {*corpus.FILES, "manifest.json"}
    for name, entry in corpus.FILES.items():
        assert corpus.sha256(np.frombuffer(corpus.read(name), np.uint8)) == entry["file_sha256"], name


@pytest.mark.parametrize("name", GOOD)
def test_a_good_file_gives_the_pixels_of_the_manifest(name):
    entry = corpus.FILES[name]
    expected = entry["expect"]
    data = corpus.read(name)
    info = probe(data)
    assert (info.width, info.height) == (expected["width"], expected["height"])
    assert (info.format, info.mode) == (entry["pil_format"], entry["pil_mode"])

    picture = decode(data)
    assert (picture.width, picture.height, picture.format) == (expected["width"], expected["height"], info.format)
    if corpus.pixels_are_promised(entry):
        assert corpus.sha256(picture.rgb) == expected["rgb_sha256"]


@pytest.mark.parametrize("kernel", kernels.available())
@pytest.mark.parametrize("name", [name for name in GOOD if corpus.FILES[name].get("patches")])
def test_a_good_file_gives_the_patches_of_the_manifest(name, kernel):
    entry = corpus.FILES[name]
    picture = decode(corpus.read(name))
    geometry = plan(picture.width, picture.height, DEFAULT)
    patches = kernels.get(kernel).resize_patchify(picture.rgb, geometry, DEFAULT)
    assert patches.size == entry["patches"]["words"]
    if corpus.pixels_are_promised(entry):
        assert corpus.sha256(patches) == entry["patches"]["horizontal_first_sha256"]
    else:
        reference = kernels.get("reference").resize_patchify(picture.rgb, geometry, DEFAULT)
        assert np.array_equal(patches, reference)


@pytest.mark.parametrize(
    ("name", "alternative"),
    [(name, alternative) for name in GOOD for alternative in corpus.FILES[name].get("alternatives", {})],
)
def test_a_decode_option_gives_the_alternative_of_the_manifest(name, alternative):
    entry = corpus.FILES[name]
    expected = {**entry["expect"], **entry["alternatives"][alternative]}
    picture = decode(corpus.read(name), ALTERNATIVES[alternative])
    assert (picture.width, picture.height) == (expected["width"], expected["height"])
    if corpus.pixels_are_promised(entry):
        assert corpus.sha256(picture.rgb) == expected["rgb_sha256"]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_its_reason(name):
    with pytest.raises(VisionError) as refused:
        decode(corpus.read(name))
    assert (refused.value.reason, refused.value.field) == (REASONS[name], "encoded")


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_opened_is_refused_by_its_header_alone(name):
    if corpus.FILES[name]["expect"]["stage"] == "load" and name != "eps_stub.eps":
        assert probe(corpus.read(name)).width > 0
        return
    with pytest.raises(VisionError) as refused:
        probe(corpus.read(name))
    assert refused.value.reason is REASONS[name]


def test_a_picture_that_no_plan_fits_is_decoded_but_has_no_patches():
    picture = decode(corpus.read("png_1x42924.png"))
    with pytest.raises(VisionError, match="1x42924") as refused:
        plan(picture.width, picture.height, DEFAULT)
    assert refused.value.reason is Reason.NO_LEGAL_PLAN
