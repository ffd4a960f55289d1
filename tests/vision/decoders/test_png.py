"""PNG without Pillow gives Pillow's pixels, and is refused where Pillow refuses it."""

import itertools
import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from interlock.vision import AlphaHandling, DecodeOptions, ExifOrientation, decode
from interlock.vision.decoders import png as decoder
from vision import corpus
from vision.decoders.beside_pillow import as_pillow_does
from vision.decoders.png_files import (
    COLOUR_TYPES,
    SIGNATURE,
    chunk,
    dynamic_stream,
    filtered_rows,
    header,
    palette,
    png,
)

COMPOSITE = DecodeOptions(alpha_handling=AlphaHandling.COMPOSITE)
UPRIGHT = DecodeOptions(exif_orientation=ExifOrientation.APPLY)
NOT_TAKEN = {
    "png_1bit.png",
    "png_gray16.png",
    "png_interlaced.png",
    "png_palette.png",  # of 4 bits
    "png_palette_trns_index.png",
    "png_rgb16.png",
    "png_warn_90mp.png",  # of 1 bit
}


@pytest.mark.parametrize("options", [None, COMPOSITE, UPRIGHT], ids=["default", "composite", "upright"])
@pytest.mark.parametrize("name", [name for name in corpus.FILES if name.startswith("png_")])
def test_a_png_of_the_corpus_gives_pillows_pixels_or_refusal(name, options):
    entry = corpus.FILES[name]
    seen = as_pillow_does(corpus.read(name), options)
    if options is None:
        assert seen.without_pillow == (entry["expect"]["ok"] and name not in NOT_TAKEN)


@pytest.mark.parametrize("kinds", [[0], [1], [2], [3], [4], [4, 3, 2, 1, 0, 1, 2, 3, 4, 0]])
@pytest.mark.parametrize("mode", COLOUR_TYPES)
def test_every_filter_is_undone_in_every_mode(mode, kinds):
    for width, height in ((1, 1), (1, 9), (2, 3), (16, 5), (33, 20), (257, 11)):
        for seed in range(3):
            rows = filtered_rows(mode, width, height, kinds, seed)
            assert as_pillow_does(png(mode, width, height, zlib.compress(rows, 1))).without_pillow


@pytest.mark.parametrize("mode", COLOUR_TYPES)
def test_ties_and_extremes_of_the_paeth_filter_are_pillows(mode):
    levels = np.array([0, 1, 127, 128, 254, 255], np.uint8)
    width, height = 60, 40
    rows = np.random.default_rng(3).choice(levels, (height, 1 + width * COLOUR_TYPES[mode][1]))
    rows[:, 0] = 4
    assert as_pillow_does(png(mode, width, height, zlib.compress(rows.tobytes()))).without_pillow


MODE, WIDTH, HEIGHT = "RGB", 20, 30
ROWS = filtered_rows(MODE, WIDTH, HEIGHT, [0, 1, 2, 3, 4])
STREAM = zlib.compress(ROWS)


def whole(stream: bytes = STREAM, **options) -> bytes:
    return png(MODE, WIDTH, HEIGHT, stream, **options)


def compressed(data: bytes, level: int = 6, strategy: int = zlib.Z_DEFAULT_STRATEGY, dictionary: bytes = b"") -> bytes:
    deflate = zlib.compressobj(level, strategy=strategy, **({"zdict": dictionary} if dictionary else {}))
    return deflate.compress(data) + deflate.flush()


LITERALS = [0] * 257
LITERALS[0], LITERALS[1], LITERALS[256] = 1, 2, 2
LENGTHS = [1, 2, 2] + [0] * 16
TWO_PIXELS = bytes([0, 1, 0, 0, 1, 0, 1])


def of_block(literals=LITERALS, distances=(1,), lengths=LENGTHS) -> bytes:
    """A picture of two pixels whose stream has such code lengths."""
    return png("RGB", 2, 1, dynamic_stream(TWO_PIXELS, list(literals), list(distances), list(lengths)))


def with_bad_checksum(data: bytes, kind: bytes) -> bytes:
    at = data.index(kind)
    end = at + 4 + int.from_bytes(data[at - 4 : at])
    return data[:end] + bytes(4) + data[end + 4 :]


TEXT = chunk(b"tEXt", b"Comment\0hello")
APNG = chunk(b"acTL", struct.pack(">II", 2, 0))
FRAME = chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, WIDTH, HEIGHT, 0, 0, 1, 1, 0, 0))

FILES = {
    "as it should be": (whole(), True),
    "stored": (whole(compressed(ROWS, 0)), True),
    "fixed codes": (whole(compressed(ROWS, 9, zlib.Z_FIXED)), True),
    "no matches": (whole(compressed(ROWS, 9, zlib.Z_HUFFMAN_ONLY)), True),
    "a small window": (whole(bytes([0x18, 0x19]) + STREAM[2:]), True),
    "bytes of the stream in chunks of one": (whole(piece=1), True),
    "empty chunks of pixels": (whole(before=chunk(b"IDAT") * 5), True),
    "very many chunks of pixels": (whole(before=chunk(b"IDAT") * 2_600), False),
    "a wrong checksum of the pixels' chunk": (with_bad_checksum(whole(), b"IDAT"), True),
    "a wrong checksum of the end": (with_bad_checksum(whole(), b"IEND"), True),
    "a wrong checksum of the header": (with_bad_checksum(whole(), b"IHDR"), False),
    "a wrong checksum of a text": (with_bad_checksum(whole(before=TEXT), b"tEXt"), False),
    "a text before": (whole(before=TEXT), True),
    "texts and a time after": (whole(after=TEXT + chunk(b"tIME", bytes(7)) + TEXT), True),
    "a wrong checksum of a text after": (with_bad_checksum(whole(after=TEXT), b"tEXt"), True),
    "a packed text after": (whole(after=chunk(b"zTXt", b"k\0\0" + zlib.compress(b"v"))), False),
    "a damaged packed text after": (whole(after=chunk(b"zTXt", b"k\0\1")), False),
    "an unknown chunk after": (whole(after=chunk(b"prVt", b"1234")), False),
    "pixels after a text": (whole(STREAM[:50], after=TEXT + chunk(b"IDAT", STREAM[50:])), False),
    "a chunk of no name after": (whole(after=chunk(b"\0\0\0\0", b"1234")), False),
    "junk behind the end": (whole() + b"junk", True),
    "no end": (whole()[:-12], False),
    "half of an end": (whole()[:-6], False),
    "an end without a checksum": (whole()[:-4], False),
    "no pixels": (SIGNATURE + header(MODE, WIDTH, HEIGHT) + chunk(b"IEND"), False),
    "an empty stream": (whole(b""), False),
    "a stream cut short": (whole(STREAM[:-20]), False),
    "a stream without its checksum": (whole(STREAM[:-4]), False),
    "a stream with a wrong checksum": (whole(STREAM[:-1] + bytes([STREAM[-1] ^ 1])), False),
    "a damaged stream": (whole(STREAM[:300] + b"\xff\xff" + STREAM[302:]), False),
    "a stream with something behind": (whole(STREAM + b"more"), True),
    "two streams": (whole(STREAM + STREAM), True),
    "a row too few": (whole(zlib.compress(ROWS[: -(1 + 3 * WIDTH)])), False),
    "a byte too few": (whole(zlib.compress(ROWS[:-1])), False),
    "a byte too many": (whole(zlib.compress(ROWS + b"\0")), False),
    "a row too many": (whole(zlib.compress(ROWS + ROWS[: 1 + 3 * WIDTH])), False),
    "a stream that grows without end": (whole(zlib.compress(ROWS + bytes(1 << 24))), False),
    "a filter that is none": (whole(zlib.compress(filtered_rows(MODE, WIDTH, HEIGHT, [0, 1, 5]))), False),
    "a dictionary": (whole(compressed(ROWS, dictionary=b"abc")), False),
    "a compression method that is none": (whole(b"\x77" + STREAM[1:]), False),
    "a compression method in the header that is none": (
        whole(head=chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 1, 0, 0))),
        True,
    ),
    "interlacing": (whole(head=header(MODE, WIDTH, HEIGHT, interlaced=1)), False),
    "an animation": (whole(before=APNG + FRAME), False),
    "an animation of one frame": (whole(before=chunk(b"acTL", struct.pack(">II", 1, 0)) + FRAME), True),
    "an animation that says so twice": (whole(before=APNG + APNG), True),
    "a frame smaller than the picture": (
        whole(before=chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, WIDTH - 1, HEIGHT, 0, 0, 1, 1, 0, 0))),
        False,
    ),
    "an animation that begins after its pixels": (whole(after=APNG + FRAME), False),
    "two headers": (whole(before=header(MODE, WIDTH + 1, HEIGHT)), False),
    "a palette for colours": (whole(before=palette(4)), True),
    "a palette with holes": (
        png("P", 40, 3, zlib.compress(filtered_rows("P", 40, 3, [0, 2])), before=palette(3)),
        True,
    ),
    "a palette of a fraction": (
        png("P", 40, 3, zlib.compress(filtered_rows("P", 40, 3, [0])), before=chunk(b"PLTE", bytes(10))),
        True,
    ),
    "an empty palette": (png("P", 40, 3, zlib.compress(filtered_rows("P", 40, 3, [0])), before=chunk(b"PLTE")), True),
    "a palette too long": (
        png("P", 40, 3, zlib.compress(filtered_rows("P", 40, 3, [0])), before=chunk(b"PLTE", bytes(range(256)) * 4)),
        False,
    ),
    "no palette": (
        SIGNATURE + header("P", 4, 1) + chunk(b"IDAT", zlib.compress(bytes(5))) + chunk(b"IEND"),
        False,
    ),
    "a palette after the pixels": (
        SIGNATURE + header("P", 4, 1) + chunk(b"IDAT", zlib.compress(bytes(5))) + palette(8) + chunk(b"IEND"),
        False,
    ),
    "two palettes": (
        png("P", 9, 3, zlib.compress(filtered_rows("P", 9, 3, [0])), before=palette(3) + palette(200)),
        True,
    ),
    "a legal block": (of_block(), True),
    "287 literals": (of_block(LITERALS + [0] * 30), False),
    "31 distances": (of_block(distances=[1] + [0] * 30), False),
    "code lengths that leave codes unused": (of_block(lengths=[2, 2, 2] + [0] * 16), False),
    "literals that leave codes unused": (
        of_block([1, 3, *LITERALS[2:]], lengths=[1, 3, 3, 3, 3] + [0] * 14),
        False,
    ),
    "distances that leave codes unused": (of_block(distances=[2]), False),
    "more literals than codes": (of_block([1, 2, 2, *LITERALS[3:]]), False),
}


@pytest.mark.parametrize("options", [None, COMPOSITE, UPRIGHT], ids=["default", "composite", "upright"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("ignore:Invalid APNG")
def test_a_file_that_is_good_or_odd_is_taken_or_refused_as_pillow_does(name, options):
    data, without_pillow = FILES[name]
    seen = as_pillow_does(data, options)
    if options is None:
        assert seen.without_pillow == without_pillow


@pytest.mark.parametrize("mode", COLOUR_TYPES)
@pytest.mark.parametrize("options", [None, COMPOSITE], ids=["drop", "composite"])
def test_transparency_of_every_kind_is_as_pillow_has_it(mode, options):
    keys = {"L": bytes([0, 7]), "RGB": bytes([0, 7, 0, 8, 0, 9]), "P": bytes([255, 0, 128])}
    stream = zlib.compress(filtered_rows(mode, 30, 30, [0, 4]))
    for before in (b"", chunk(b"tRNS", keys.get(mode, b""))):
        if mode == "P":
            before = palette(256) + before
        opaque = mode in keys and b"tRNS" not in before
        assert as_pillow_does(png(mode, 30, 30, stream, before=before), options).without_pillow == (
            options is None or opaque
        )


def test_an_orientation_is_found_before_and_after_the_pixels():
    exif = Image.Exif()
    exif[274] = 6
    note = chunk(b"eXIf", exif.tobytes()[6:])
    upright = np.rot90(decode(whole()).rgb, -1)
    for data, without_pillow in ((whole(before=note), True), (whole(after=note), False)):
        seen = as_pillow_does(data, UPRIGHT)
        assert seen.without_pillow == without_pillow
        assert np.array_equal(seen.rgb, upright)
    # A text may hold the notes as well, so where they matter all that follows the pixels is Pillow's.
    assert not as_pillow_does(whole(before=note, after=TEXT), UPRIGHT).without_pillow


def test_texts_after_the_pixels_count_to_pillows_limit(monkeypatch):
    data = whole(before=TEXT, after=TEXT)
    monkeypatch.setattr(PngImagePlugin, "MAX_TEXT_MEMORY", 2 * len(b"Comment\0hello"))
    assert as_pillow_does(data).without_pillow
    monkeypatch.setattr(PngImagePlugin, "MAX_TEXT_MEMORY", 2 * len(b"hello") - 1)
    assert as_pillow_does(data).rgb is None


def test_no_more_is_inflated_than_the_picture_has(monkeypatch):
    asked = []
    begin = decoder.zlib_ng.decompressobj

    class Watched:
        def __init__(self):
            self._inflater = begin()

        def decompress(self, data, most):
            asked.append(most)
            return self._inflater.decompress(data, most)

        def __getattr__(self, name):
            return getattr(self._inflater, name)

    monkeypatch.setattr(decoder.zlib_ng, "decompressobj", Watched)
    as_pillow_does(whole(zlib.compress(ROWS + bytes(1 << 24))))
    assert asked == [len(ROWS), 1]


def test_files_cut_anywhere_or_damaged_are_refused_or_taken_as_pillow_does():
    rng = np.random.default_rng(13)
    taken = {True: 0, False: 0}
    refused = 0
    for number, mode in itertools.product(range(300), COLOUR_TYPES):
        width, height = (int(side) for side in rng.integers(1, 40, 2))
        data = bytearray(
            png(
                mode,
                width,
                height,
                compressed(filtered_rows(mode, width, height, [0, 1, 2, 3, 4], number), int(rng.integers(0, 10))),
                before=palette(int(rng.integers(1, 257))),
                after=TEXT if number % 3 == 0 else b"",
                piece=int(rng.integers(8, 400)),
            )
        )
        at = int(rng.integers(8, len(data)))
        match number % 4:
            case 0:
                del data[at:]
            case 1:
                data[at] ^= 1 << int(rng.integers(0, 8))
            case 2:
                del data[at : at + int(rng.integers(1, 20))]
        seen = as_pillow_does(bytes(data))
        refused += seen.rgb is None
        taken[seen.without_pillow] += seen.rgb is not None
    assert min(refused, taken[True], taken[False]) > 20, (refused, taken)


def test_without_zlib_ng_or_numba_all_png_is_pillows(monkeypatch):
    monkeypatch.setattr(decoder, "module", lambda _: None)
    assert not as_pillow_does(whole()).without_pillow


def test_pictures_saved_by_pillow_are_taken_in_every_mode():
    pixels = np.random.default_rng(1).integers(0, 256, (50, 70, 4), np.uint8)
    for mode in COLOUR_TYPES:
        file = BytesIO()
        Image.fromarray(pixels).convert(mode).save(file, "PNG")
        assert as_pillow_does(file.getvalue()).without_pillow
