"""Files that say far more than their pixels: refused before they cost memory or time."""

import struct
import zlib
from io import BytesIO

import pytest
from PIL import Image

from interlock.reasons import Reason
from interlock.vision import VisionError, decode, probe


def _saved(source_format, size=(8, 8), mode="L", **options):
    file = BytesIO()
    Image.new(mode, size).save(file, source_format, **options)
    return file.getvalue()


def _refused(call, data):
    with pytest.raises(VisionError) as caught:
        call(data)
    assert (caught.value.reason, caught.value.field) == (Reason.IMAGE_DAMAGED, "encoded")
    return str(caught.value)


def _chunk(kind, content=b""):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _gif_with_comments(count):
    gif = _saved("GIF")
    first_block = gif.index(b"\x2c", 13 + 3 * 2 ** ((gif[10] & 7) + 1))
    return gif[:first_block] + b"\x21\xfe\x01a\x00" * count + gif[first_block:]


def _jpeg_with_comments(count):
    jpeg = _saved("JPEG")
    return jpeg[:2] + b"\xff\xfe\x00\x02" * count + jpeg[2:]


def _jpeg_with_fillers(count):
    jpeg = _saved("JPEG")
    return jpeg[:2] + b"\xff" * count + jpeg[2:]


def _png_with_chunks(count):
    png = _saved("PNG")
    pixels = png.index(b"IDAT") - 4
    return png[:pixels] + _chunk(b"prVt") * count + png[pixels:]


def _png_with_chunks_after_its_pixels(count):
    png = _saved("PNG")
    return png[:-12] + _chunk(b"prVt") * count + png[-12:]


@pytest.mark.parametrize(
    "made", [_gif_with_comments, _jpeg_with_comments, _jpeg_with_fillers, _png_with_chunks]
)  # fmt: skip
def test_a_header_in_very_many_pieces_is_refused_before_anything_is_admitted(made):
    assert decode(made(1_000)).rgb.shape == (8, 8, 3)
    assert "in too many pieces" in _refused(probe, made(10_000))


def test_so_are_chunks_after_the_pixels_of_a_png():
    assert decode(_png_with_chunks_after_its_pixels(1_000)).rgb.shape == (8, 8, 3)
    assert "in too many pieces" in _refused(decode, _png_with_chunks_after_its_pixels(10_000))


def test_a_png_in_many_small_chunks_of_pixels_is_decoded():
    pixels = zlib.compress(b"\0" * 101 * 100, 0)
    chunks = b"".join(_chunk(b"IDAT", pixels[at : at + 16]) for at in range(0, len(pixels), 16))
    data = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", 100, 100, 8, 0, 0, 0, 0)) + chunks
    assert not decode(data + _chunk(b"IEND")).rgb.any()


def _jpeg_of_scans(count, width=8_000, height=8_000):
    """A progressive JPEG whose last scan comes again and again; its size is only told."""
    jpeg = _saved("JPEG", progressive=True)
    size = jpeg.index(b"\xff\xc2") + 5
    jpeg = jpeg[:size] + struct.pack(">HH", height, width) + jpeg[size + 4 :]
    last = jpeg.rindex(b"\xff\xc4", 0, jpeg.rindex(b"\xff\xda"))
    scans = jpeg.count(b"\xff\xda")
    return jpeg[:-2] + jpeg[last:-2] * (count - scans) + jpeg[-2:]


def test_a_jpeg_has_at_most_4_gigapixels_of_scans():
    assert probe(_jpeg_of_scans(62)).width == 8_000
    assert "more than 62 scans of 8000x8000 pixels" in _refused(probe, _jpeg_of_scans(63))
    assert probe(_jpeg_of_scans(1_000, 200, 200)).width == 200
    assert "more than 10000 scans of 8x8 pixels" in _refused(probe, _jpeg_of_scans(20_000, 8, 8))


def test_what_follows_a_jpeg_or_stands_in_its_segments_is_no_scan():
    jpeg = _jpeg_of_scans(62)
    assert probe(jpeg + b"\xff\xda" * 100).width == 8_000
    assert probe(jpeg[:2] + b"\xff\xe5\x00\xca" + b"\xff\xda" * 100 + jpeg[2:]).width == 8_000


@pytest.mark.parametrize("kind", [b"P1", b"P2", b"P3"])
def test_a_plain_ppm_has_at_most_1000_comments(kind):
    header = kind + (b"\n2 1\n" if kind == b"P1" else b"\n2 1\n255\n")
    assert decode(header + b"#\n" * 1_000 + b"0 " * 6).rgb.shape == (1, 2, 3)
    assert "more than 1000 comments" in _refused(probe, header + b"#\n" * 1_001 + b"0 " * 6)


def _tiff_of_strips(count, order, big):
    """A row of eight pixels a strip. All strips are the same bytes; two tables say where they are and how many."""
    entry, word = (f"{order}HHQQ", 8) if big else (f"{order}HHII", 4)
    values = {256: 8, 257: count, 258: 8, 259: 1, 262: 1, 277: 1, 278: 1}
    tables = (24 if big else 10) + (len(values) + 2) * struct.calcsize(entry) + word
    entries = [struct.pack(f"{order}HH{'Q' if big else 'I'}I", tag, 4, 1, value) for tag, value in values.items()]
    entries[5:5] = [struct.pack(entry, 273, 4, count, tables)]
    entries += [struct.pack(entry, 279, 4, count, tables + 4 * count)]
    mark, tags = b"II" if order == "<" else b"MM", len(entries)
    head = struct.pack(f"{order}HHHQQ", 43, 8, 0, 16, tags) if big else struct.pack(f"{order}HIH", 42, 8, tags)
    directory = b"".join(entry.ljust(struct.calcsize(f"{order}HH") + 2 * word, b"\0") for entry in entries)
    return mark + head + directory + bytes(word) + struct.pack(f"{order}I", 8) * (2 * count)


@pytest.mark.parametrize(("order", "big"), [("<", False), (">", False), ("<", True)])
def test_a_tiff_has_at_most_131072_strips(order, big):
    assert probe(_tiff_of_strips(1 << 17, order, big)).height == 1 << 17
    assert "tag 273 has 131073 values; at most 131072" in _refused(probe, _tiff_of_strips((1 << 17) + 1, order, big))
