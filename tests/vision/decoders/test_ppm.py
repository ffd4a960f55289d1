"""PPM without Pillow gives Pillow's pixels, and is refused where Pillow refuses it."""

import itertools

import numpy as np
import pytest

from interlock.reasons import Reason
from interlock.vision import DecodeOptions, SixteenBitGrey, VisionError, decode
from interlock.vision.decoders import ppm
from vision.decoders.beside_pillow import as_pillow_does

OPTIONS = [DecodeOptions(sixteen_bit_grey=option) for option in SixteenBitGrey]
GREATEST = (1, 2, 7, 100, 254, 255, 256, 1_000, 4_095, 65_534, 65_535)
WIDTH, HEIGHT = 13, 7


def head(kind: int, greatest: int | None, width: int = WIDTH, height: int = HEIGHT) -> bytes:
    return f"P{kind}\n{width} {height}\n".encode() + (b"" if greatest is None else b"%d\n" % greatest)


def some_samples(kind: int, most: int) -> np.ndarray:
    """Every level up to some, then any."""
    count = WIDTH * HEIGHT * (3 if kind in (3, 6) else 1)
    samples = np.random.default_rng(most).integers(0, most + 1, count)
    samples[: min(count // 2, most + 1)] = np.arange(min(count // 2, most + 1))
    return samples


@pytest.mark.parametrize("options", OPTIONS, ids=list(SixteenBitGrey))
@pytest.mark.parametrize("greatest", GREATEST)
@pytest.mark.parametrize("kind", [5, 6])
def test_samples_in_bytes_are_scaled_as_pillow_does(kind, greatest, options):
    most = 255 if greatest < 256 else 65_535  # more than the greatest, too
    samples = some_samples(kind, most).astype(np.uint8 if greatest < 256 else ">u2")
    seen = as_pillow_does(head(kind, greatest) + samples.tobytes() + b"surplus", options)
    assert seen.without_pillow == (greatest != 255 and (kind, greatest) != (5, 65_535))


@pytest.mark.parametrize("options", OPTIONS, ids=list(SixteenBitGrey))
@pytest.mark.parametrize("greatest", GREATEST)
@pytest.mark.parametrize("kind", [2, 3])
def test_samples_in_text_are_scaled_as_pillow_does(kind, greatest, options):
    text = " ".join(map(str, some_samples(kind, greatest))).encode()
    assert as_pillow_does(head(kind, greatest) + text, options).without_pillow


@pytest.mark.parametrize("space", [b"", b" ", b"\n", b" \t\r\n\x0b\x0c"])
def test_bits_in_text_are_read_with_and_without_spaces(space):
    bits = space.join(b"%d" % bit for bit in some_samples(1, 1))
    assert as_pillow_does(head(1, None) + bits).without_pillow


FILL = b" 3" * (WIDTH * HEIGHT - 3)
TEXTS = {
    "as it should be": (b"1 2 3" + FILL, True),
    "a comment": (b"1 2 # two 2\n3" + FILL, True),
    "a comment within a number": (b"1 2 0#\n3" + FILL, True),
    "a comment to the end of the file": (b"1 2 3" + FILL + b"#", True),
    "a comment that returns end": (b"1 2 #7\r3" + FILL, True),
    "leading zeros": (b"1 2 0000000003" + FILL, True),
    "eleven digits": (b"1 2 00000000003" + FILL, False),
    "spaces at the end": (b"1 2 3" + FILL + b" \n\n ", True),
    "a sample too many": (b"1 2 3" + FILL + b" 3", False),
    "half a sample too many": (b"1 2 3" + FILL + b"3 x", False),
    "a sample too few": (b"1 2" + FILL, False),
    "no samples": (b"", False),
    "a sample too great": (b"1 2 8" + FILL, False),
    "a sign": (b"1 2 +3" + FILL, False),
    "a negative sample": (b"1 2 -3" + FILL, False),
    "a line between digits": (b"1 2 0_3" + FILL, False),
    "letters": (b"1 2 x" + FILL, False),
    "a byte beyond ASCII": (b"1 2 \xb2" + FILL, False),
    "a null byte": (b"1 2\x003" + FILL, False),
    "letters behind the end": (b"1 2 3" + FILL + b" the end", False),
    "a long word behind the end": (b"1 2 3" + FILL + b" Donaudampfschiff", False),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_is_good_or_odd_is_taken_or_refused_as_pillow_does(name):
    text, without_pillow = TEXTS[name]
    assert as_pillow_does(head(2, 7) + text).without_pillow == without_pillow


@pytest.mark.parametrize("text", [b"2", b"x", b"1", b"", b"#", b"0#1\n1"])
def test_bits_that_are_none_or_missing_are_refused_as_pillow_does(text):
    bits = b"01" * (WIDTH * HEIGHT // 2)
    for data in (text + bits, bits + text, bits[:9] + text + bits[9:]):
        as_pillow_does(head(1, None) + data)


def test_random_text_is_taken_or_refused_as_pillow_does():
    rng = np.random.default_rng(17)
    taken, refused = 0, 0
    for _ in range(2_000):
        kind = int(rng.integers(1, 4))
        width, height = (int(side) for side in rng.integers(1, 4, 2))
        count = width * height * (3 if kind == 3 else 1) + int(rng.integers(0, 20) == 0)
        pieces = itertools.chain.from_iterable(
            (
                b"%d" % rng.integers(0, 2),
                rng.choice([b" ", b"\n", b"#c\n", b" #9 9\r", b"x"], p=[0.6, 0.3, 0.04, 0.04, 0.02]),
            )
            for _ in range(count)
        )
        seen = as_pillow_does(head(kind, None if kind == 1 else 9, width, height) + b"".join(pieces))
        taken += seen.without_pillow
        refused += seen.rgb is None
    assert min(taken, refused) > 100, (taken, refused)


@pytest.mark.parametrize("kind", [5, 6])
@pytest.mark.parametrize("greatest", [100, 1_000])
def test_bytes_that_are_missing_are_refused_as_pillow_does(kind, greatest):
    data = head(kind, greatest) + some_samples(kind, 99).astype(np.uint8 if greatest < 256 else ">u2").tobytes()
    for end in (len(data) - 1, len(data) - 5, len(head(kind, greatest))):
        assert as_pillow_does(data[:end]).rgb is None


@pytest.mark.parametrize(
    "data",
    [
        head(2, 7, 1025, 1024) + b" +1" * (1025 * 1024),
        b"P0CMYK\n1024 257\n100\n" + bytes(1024 * 257 * 4),
    ],
    ids=["signs", "inks"],
)
def test_what_only_pillow_reads_is_refused_beyond_a_million_samples(data):
    with pytest.raises(VisionError, match="samples in a form that is slow to read; at most 1048576") as refused:
        decode(data)
    assert refused.value.reason is Reason.IMAGE_DAMAGED


def test_pillows_own_models_of_colour_are_left_to_it_while_small():
    seen = as_pillow_does(b"P0CMYK\n4 2\n100\n" + bytes(range(32)))
    assert seen.rgb is not None
    assert not seen.without_pillow


def test_without_numba_text_is_pillows_and_bytes_are_not(monkeypatch):
    monkeypatch.setattr(ppm, "module", lambda _: None)
    assert not as_pillow_does(head(2, 7) + TEXTS["as it should be"][0]).without_pillow
    assert as_pillow_does(head(5, 7) + bytes(WIDTH * HEIGHT)).without_pillow
