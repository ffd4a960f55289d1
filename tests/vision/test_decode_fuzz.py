"""Hostile bytes: whatever a decoder throws becomes a VisionError, and nothing else comes out."""

import struct
import zlib

import numpy as np
import pytest

from interlock.vision import AlphaHandling, DecodeOptions, ExifOrientation, SixteenBitGrey, VisionError, decode, probe
from vision import corpus

SEEDS = [
    name
    for name, entry in corpus.FILES.items()
    if entry["bytes"] > 24 and entry["expect"].get("width", 1) * entry["expect"].get("height", 1) < 100_000
]
OPTIONS = (
    DecodeOptions(),
    DecodeOptions(ExifOrientation.APPLY, AlphaHandling.COMPOSITE, (1, 2, 3), SixteenBitGrey.HIGH_BYTE),
)
MAX_PIXELS = 1_000_000


def mutated(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    """The file with a few bytes changed, most often near its beginning, or cut, grown, repeated or spliced."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        reach = len(changed) if rng.random() < 0.5 else min(len(changed), 200)
        at = int(rng.integers(0, max(reach, 1)))
        match rng.integers(0, 8):
            case 0:
                changed[at : at + 1] = rng.bytes(1)
            case 1:
                changed[at : at + 4] = struct.pack(
                    rng.choice(["<I", ">I"]), int(rng.choice([0, 1, 255, 65_536, 2**31, 2**32 - 1]))
                )
            case 2:
                del changed[at : at + int(rng.integers(1, 20))]
            case 3:
                changed[at:at] = rng.bytes(int(rng.integers(1, 20)))
            case 4:
                del changed[at + 20 :]
            case 5:
                changed[at:at] = changed[at : at + int(rng.integers(1, 200))]
            case 6:
                changed[at:] = other[at:]
            case 7 if changed:
                changed[at % len(changed)] ^= 1 << int(rng.integers(0, 8))
    return bytes(changed)


def with_right_checksums(png: bytes) -> bytes:
    """The PNG with the checksum of each chunk made right, so that the decoder looks further than that."""
    fixed, at = bytearray(png), 8
    while at + 12 <= len(fixed):
        (length,) = struct.unpack_from(">I", fixed, at)
        if at + 12 + length > len(fixed):
            break
        struct.pack_into(">I", fixed, at + 8 + length, zlib.crc32(fixed[at + 4 : at + 8 + length]))
        at += 12 + length
    return bytes(fixed)


@pytest.mark.filterwarnings("ignore")  # a warning must not stop a decoder before it comes to the damage
def test_2000_mutated_files_give_a_picture_or_a_vision_error():
    rng = np.random.default_rng(29)
    pictures = refusals = 0
    for _ in range(2000):
        name, other = rng.choice(SEEDS, 2)
        data = mutated(rng, corpus.read(name), corpus.read(other))
        if name.endswith(".png"):
            data = with_right_checksums(data)
        options = OPTIONS[rng.integers(0, 2)]
        try:
            info = probe(data, MAX_PIXELS)
            picture = decode(data, options, MAX_PIXELS)
        except VisionError:
            refusals += 1
        else:
            assert {picture.width, picture.height} == {info.width, info.height}
            assert picture.rgb.dtype == np.uint8
            pictures += 1
    assert pictures > 200
    assert refusals > 200
