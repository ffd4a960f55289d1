"""JPEG without Pillow gives Pillow's pixels, and is refused where Pillow refuses it."""

import itertools
import logging
import struct
from collections.abc import Iterator
from functools import cache
from io import BytesIO

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from interlock.vision import DecodeOptions, ExifOrientation
from interlock.vision.decoders import jpeg
from vision import corpus
from vision.decoders.beside_pillow import as_pillow_does

EOI, SOS, APP0 = b"\xff\xd9", b"\xff\xda", b"\xff\xe0"
ADOBE = {transform: b"\xff\xee\x00\x0eAdobe\x00\x64\0\0\0\0" + bytes([transform]) for transform in (0, 1, 2)}
SIZES = ((1, 1), (7, 5), (8, 8), (17, 16), (33, 65), (129, 40), (250, 131))


def scene(width: int, height: int) -> np.ndarray:
    """Waves that go beyond black and white, and noise."""
    rng = np.random.default_rng((width, height))
    rows, columns = np.mgrid[0:height, 0:width]
    waves = 128 + 160 * np.sin(np.stack((rows / 11, columns / 6, (rows - columns) / 17), axis=-1))
    return np.clip(waves + rng.normal(0, 25, waves.shape), 0, 255).astype(np.uint8)


def saved(pixels: np.ndarray, **options) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **options)
    return file.getvalue()


def segments(data: bytes) -> list[bytes]:
    """Marker segments up to the first scan, and then all the rest."""
    parts, at = [], 2
    while data[at : at + 2] != SOS:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4])
        parts.append(data[at:end])
        at = end
    return [data[:2], *parts, data[at:]]


def without(data: bytes, marker: bytes) -> bytes:
    return b"".join(part for part in segments(data) if not part.startswith(marker))


def generated() -> Iterator[tuple[str, bytes]]:
    codings = [
        {"quality": 90},
        {"quality": 30, "optimize": True},
        {"quality": 75, "progressive": True},
        {"quality": 85, "restart_marker_blocks": 3},
        {"quality": 85, "progressive": True, "restart_marker_rows": 1},
        {"quality": 100},
    ]
    for (width, height), coding, sampling in itertools.product(SIZES, codings, ("4:4:4", "4:2:2", "4:2:0")):
        yield f"{width}x{height} {sampling} {coding}", saved(scene(width, height), subsampling=sampling, **coding)
    for (width, height), coding in itertools.product(SIZES, codings):
        yield f"{width}x{height} grey {coding}", saved(scene(width, height)[..., 0], **coding)
        yield f"{width}x{height} RGB {coding}", saved(scene(width, height), keep_rgb=True, **coding)
    for (width, height), sampling, quality in itertools.product(SIZES, ("440", "411", "422", "420"), (40, 80, 95)):
        yield (
            f"{width}x{height} {sampling} {quality}",
            simplejpeg.encode_jpeg(scene(width, height), quality, "RGB", sampling, fastdct=False),
        )
    for (width, height), progressive in itertools.product(SIZES, (False, True)):
        plain = saved(scene(width, height), quality=85, progressive=progressive)
        bare = without(plain, APP0)
        yield f"{width}x{height} no JFIF", bare
        for transform in (0, 1):
            marker = ADOBE[transform]
            yield f"{width}x{height} Adobe {transform}", bare[:2] + marker + bare[2:]
            yield f"{width}x{height} Adobe {transform} and JFIF", plain[:2] + marker + plain[2:]
        for names in (b"RGB", b"\x00\x01\x02", b"\x01\x22\x23", b"rgb", b"YUV"):
            yield f"{width}x{height} components {names!r}", with_component_names(bare, names)
    for (width, height), grey in itertools.product(SIZES, (False, True)):
        pixels = scene(width, height)
        file = saved(pixels[..., 0] if grey else pixels, progressive=True, quality=70)
        scans = file.split(SOS)
        for count in range(2, len(scans)):
            yield f"{width}x{height} {count - 1} scans of {len(scans) - 1}", SOS.join(scans[:count]) + EOI
    for (width, height), tables in itertools.product(SIZES[2:], (8, 16)):
        yield f"{width}x{height} fine tables {tables}", saved(scene(width, height), qtables=[[tables * 20] * 64] * 2)


def with_component_names(data: bytes, names: bytes) -> bytes:
    """Other identifiers of the three components, in the frame and in all scans."""
    old = dict(zip(b"\x01\x02\x03", names, strict=True))
    changed = bytearray(data)
    at = next(data.index(marker) for marker in (b"\xff\xc0", b"\xff\xc2") if marker in data)
    for component in range(3):
        changed[at + 10 + 3 * component] = names[component]
    at = data.find(SOS)
    while at >= 0:
        for component in range(data[at + 4]):
            where = at + 5 + 2 * component
            changed[where] = old[data[where]]
        at = data.find(SOS, at + 2)
    return bytes(changed)


@cache
def generated_files() -> list[tuple[str, bytes]]:
    return list(generated())


@pytest.mark.parametrize(
    "name", [name for name, entry in corpus.FILES.items() if entry.get("pil_format") in ("JPEG", "MPO")]
)
@pytest.mark.parametrize("orientation", ExifOrientation)
def test_a_jpeg_of_the_corpus_gives_pillows_pixels_or_refusal(name, orientation):
    seen = as_pillow_does(corpus.read(name), DecodeOptions(exif_orientation=orientation))
    entry = corpus.FILES[name]
    assert seen.without_pillow == (entry["expect"]["ok"] and entry["pil_mode"] != "CMYK")


def test_at_least_500_generated_jpegs_give_pillows_pixels_without_pillow():
    assert len(generated_files()) >= 500
    for name, data in generated_files():
        seen = as_pillow_does(data)
        assert seen.rgb is not None, name
        assert seen.without_pillow, name


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_pillows(orientation):
    exif = Image.Exif()
    exif[274] = orientation
    data = saved(scene(65, 33), exif=exif)
    assert as_pillow_does(data, DecodeOptions(exif_orientation=ExifOrientation.APPLY)).without_pillow


def test_files_cut_anywhere_are_refused_or_taken_as_pillow_does():
    rng = np.random.default_rng(7)
    refused = 0
    for number in rng.integers(0, len(generated_files()), 300):
        _, data = generated_files()[number]
        end = int(rng.integers(4, len(data)))
        for cut in (data[:end], data[:end] + EOI, data[:-1], data[:-2]):
            refused += as_pillow_does(cut).rgb is None
    assert refused > 500


def test_damaged_files_are_refused_or_taken_as_pillow_does():
    rng = np.random.default_rng(11)
    taken = {True: 0, False: 0}
    refused = 0
    for number in rng.integers(0, len(generated_files()), 1_000):
        damaged = bytearray(generated_files()[number][1])
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(2, len(damaged)))
            match rng.integers(0, 4):
                case 0:
                    damaged[at] = rng.integers(0, 256)
                case 1:
                    damaged[at] ^= 1 << int(rng.integers(0, 8))
                case 2:
                    del damaged[at : at + int(rng.integers(1, 9))]
                case 3:
                    damaged[at:at] = rng.choice(
                        [b"\xff\xd9", b"\xff\xd0", b"\xff\xff", b"\xff\x00", b"\0", b"\xff\xda"]
                    )
        seen = as_pillow_does(bytes(damaged))
        refused += seen.rgb is None
        taken[seen.without_pillow] += seen.rgb is not None
    assert min(refused, taken[True], taken[False]) > 20, (refused, taken)


def between_segments(data: bytes, what: bytes) -> bytes:
    head, *rest = segments(data)
    return head + what + b"".join(rest)


PLAIN = saved(scene(65, 33))
ODDITIES = {
    "junk behind the end": (PLAIN + b"junk", True),
    "another picture behind the end": (PLAIN + PLAIN, True),
    "junk between segments": (between_segments(PLAIN, b"junk"), False),
    "zeros between segments": (between_segments(PLAIN, bytes(3)), False),
    "fill bytes between segments": (between_segments(PLAIN, b"\xff\xff\xff"), False),
    "an escaped byte between segments": (between_segments(PLAIN, b"\xff\x00"), False),
    "a restart between segments": (between_segments(PLAIN, b"\xff\xd3"), False),
    "a comment": (between_segments(PLAIN, b"\xff\xfe\x00\x04hi"), True),
    "an unknown application's segment": (between_segments(PLAIN, b"\xff\xe7\x00\x04hi"), True),
    "a segment of length 0": (between_segments(PLAIN, b"\xff\xe7\x00\x00"), False),
    "a number of lines": (between_segments(PLAIN, b"\xff\xdc\x00\x04\x00\x21"), True),
    "a hierarchical size": (between_segments(PLAIN, b"\xff\xde" + PLAIN[PLAIN.index(b"\xff\xc0") + 2 :][:17]), False),
    "two components of one name": (with_component_names(without(PLAIN, APP0), b"YCC"), True),
    "two frames": (between_segments(PLAIN, PLAIN[PLAIN.index(b"\xff\xc0") :][:19]), False),
    "no end": (PLAIN[:-2], False),
    "fill bytes before the end": (PLAIN[:-2] + b"\xff\xff\xff\xd9", True),
    "zeros before the end": (PLAIN[:-2] + b"\0\0\0\xff\xd9", True),
    "an Adobe transform of four components": (without(PLAIN, APP0)[:2] + ADOBE[2] + without(PLAIN, APP0)[2:], False),
    "a lossless frame": (PLAIN.replace(b"\xff\xc0", b"\xff\xc3", 1), False),
    "an arithmetic frame": (PLAIN.replace(b"\xff\xc0", b"\xff\xc9", 1), False),
    "an extended frame": (PLAIN.replace(b"\xff\xc0", b"\xff\xc1", 1), True),
    "a frame told to be progressive": (PLAIN.replace(b"\xff\xc0", b"\xff\xc2", 1), False),
}


@pytest.mark.parametrize("oddity", ODDITIES)
def test_an_odd_file_is_taken_or_refused_as_pillow_does(oddity):
    data, without_pillow = ODDITIES[oddity]
    assert as_pillow_does(data).without_pillow == without_pillow


@pytest.mark.parametrize("factors", [(v << 4 | h,) for v in range(1, 5) for h in range(1, 5)])
def test_sampling_factors_of_any_kind_are_taken_or_refused_as_pillow_does(factors):
    at = PLAIN.index(b"\xff\xc0") + 11
    for component in range(3):
        where = at + 3 * component
        as_pillow_does(PLAIN[:where] + bytes(factors) + PLAIN[where + 1 :])


@pytest.mark.parametrize("size", [(33, 64), (66, 33), (1, 1), (65, 200)])
def test_a_size_that_is_not_that_of_the_pixels_is_taken_or_refused_as_pillow_does(size):
    at = PLAIN.index(b"\xff\xc0") + 5
    as_pillow_does(PLAIN[:at] + struct.pack(">HH", size[1], size[0]) + PLAIN[at + 4 :])


def test_decoders_that_differ_leave_all_jpeg_to_pillow_and_say_so_once(monkeypatch, caplog):
    exact = simplejpeg.decode_jpeg
    jpeg.agrees_with_pillow.cache_clear()
    monkeypatch.setattr(jpeg.simplejpeg, "decode_jpeg", lambda data, *_, **options: exact(data, "BGR", **options))
    try:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                assert not as_pillow_does(PLAIN).without_pillow
        assert [record.message for record in caplog.records] == [
            f"simplejpeg {simplejpeg.__version__} does not give Pillow's pixels (444 JPEG): JPEG is decoded by Pillow, "
            "which takes half as long again. Install another version of either"
        ]
    finally:
        jpeg.agrees_with_pillow.cache_clear()


def test_without_simplejpeg_all_jpeg_is_pillows(monkeypatch, caplog):
    jpeg.agrees_with_pillow.cache_clear()
    monkeypatch.setattr(jpeg, "simplejpeg", None)
    try:
        assert not as_pillow_does(PLAIN).without_pillow
        assert "simplejpeg is not installed" in caplog.text
    finally:
        jpeg.agrees_with_pillow.cache_clear()
