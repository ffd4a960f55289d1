"""Hostile bytes: whatever a decoder throws becomes a VisionError, and nothing else comes out."""

import numpy as np
import pytest

from interlock.vision import AlphaHandling, DecodeOptions, ExifOrientation, SixteenBitGrey, VisionError, decode, probe
from vision.decoders.beside_pillow import as_pillow_does
from vision.mutations import mutated
from vision.small_pictures import small_pictures

SEED = 29
OPTIONS = (
    DecodeOptions(),
    DecodeOptions(ExifOrientation.APPLY, AlphaHandling.COMPOSITE, (1, 2, 3), SixteenBitGrey.HIGH_BYTE),
)
MAX_PIXELS = 1_000_000


def mutated_picture(number: int, kinds: tuple[str, ...]) -> bytes:
    rng = np.random.default_rng((SEED, number))
    pictures = small_pictures()
    name, other = rng.choice([name for name in pictures if name.endswith(kinds)], 2)
    return mutated(rng, pictures[name], pictures[other])


@pytest.mark.filterwarnings("ignore")  # a warning must not stop a decoder before it comes to the damage
def test_2000_mutated_files_give_a_picture_or_a_vision_error():
    pictures = refusals = 0
    for number in range(2_000):
        data = mutated_picture(number, ("",))
        try:
            info = probe(data, MAX_PIXELS)
            picture = decode(data, OPTIONS[number % 2], MAX_PIXELS)
        except VisionError:
            refusals += 1
        else:
            assert {picture.width, picture.height} == {info.width, info.height}
            assert picture.rgb.dtype == np.uint8
            pictures += 1
    assert pictures > 200
    assert refusals > 200


@pytest.mark.filterwarnings("ignore")
def test_2000_mutated_files_of_formats_with_a_decoder_of_their_own_are_taken_or_refused_as_pillow_does():
    without_pillow = refusals = 0
    for number in range(2_000):
        data = mutated_picture(number, (".jpg", ".png", ".ppm", ".pgm", ".pbm"))
        try:
            probe(data, MAX_PIXELS // 3)  # so few samples that Pillow may read them in its slowest way
        except VisionError:
            refusals += 1
            continue
        seen = as_pillow_does(data, OPTIONS[number % 2])
        without_pillow += seen.without_pillow
        refusals += seen.rgb is None
    assert without_pillow > 100
    assert refusals > 200
