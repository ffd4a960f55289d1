import struct
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageSequence

from interlock.reasons import Reason
from interlock.vision import (
    FORMATS,
    AlphaHandling,
    DecodeOptions,
    ExifOrientation,
    SixteenBitGrey,
    VisionError,
    decode,
    probe,
    raw_picture,
)
from vision import corpus

UPRIGHT = DecodeOptions(exif_orientation=ExifOrientation.APPLY)
HIGH_BYTE = DecodeOptions(sixteen_bit_grey=SixteenBitGrey.HIGH_BYTE)


def encoded(image: Image.Image, file_format: str, **options) -> bytes:
    file = BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def noise(width: int, height: int) -> np.ndarray:
    return np.random.default_rng(width + height).integers(0, 256, (height, width, 3), dtype=np.uint8)


def over(background: tuple[int, int, int]) -> DecodeOptions:
    return DecodeOptions(alpha_handling=AlphaHandling.COMPOSITE, background=background)


# Formats and limits


def test_the_formats_are_the_listed_ones_and_never_eps():
    assert FORMATS == ("JPEG", "PNG", "WEBP", "GIF", "AVIF", "BMP", "TIFF", "PPM")


@pytest.mark.parametrize("file_format", ["ICO", "TGA", "PCX", "SGI", "DIB", "JPEG2000"])
def test_a_format_that_is_not_listed_is_refused(file_format):
    with pytest.raises(VisionError, match="known are JPEG") as refused:
        decode(encoded(Image.fromarray(noise(20, 16)), file_format))
    assert refused.value.reason is Reason.IMAGE_UNRECOGNIZED


@pytest.mark.parametrize("ask", [probe, decode])
def test_a_picture_over_the_pixel_limit_is_refused_before_it_is_decoded(ask, monkeypatch):
    data = encoded(Image.fromarray(noise(20, 16)), "PNG")
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda _: pytest.fail("decoded"))
    with pytest.raises(VisionError, match="20x16 = 320 pixels; at most 319") as refused:
        ask(data, max_pixels=319)
    assert (refused.value.reason, refused.value.field) == (Reason.IMAGE_TOO_MANY_PIXELS, "encoded")


def test_a_picture_at_the_pixel_limit_is_decoded():
    assert decode(encoded(Image.fromarray(noise(20, 16)), "PNG"), max_pixels=320).rgb.shape == (16, 20, 3)


@pytest.mark.parametrize("name", [name for name, entry in corpus.FILES.items() if entry["expect"]["ok"]])
def test_probing_decodes_no_pixel(name, monkeypatch):
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda _: pytest.fail("decoded"))
    assert probe(corpus.read(name)).decode_bytes > 0


def tiff_of_one_pixel(tile_side: int) -> bytes:
    """A grey TIFF of 1x1 pixels in one packed tile that claims to be far larger, as an attacker would make it."""
    tile = zlib.compress(bytes([77]) * min(tile_side * tile_side, 256))
    tags = {256: 1, 257: 1, 258: 8, 259: 8, 262: 1, 277: 1, 322: tile_side, 323: tile_side, 324: 8, 325: len(tile)}
    directory = struct.pack("<H", len(tags)) + b"".join(
        struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items()
    )
    return b"II*\0" + struct.pack("<I", 8 + len(tile)) + tile + directory + bytes(4)


def test_a_tiff_with_tiles_over_the_limit_is_refused_however_small_the_picture():
    assert decode(tiff_of_one_pixel(tile_side=16)).rgb.tolist() == [[[77, 77, 77]]]
    with pytest.raises(VisionError, match="16384x16384") as refused:
        probe(tiff_of_one_pixel(tile_side=16_384))
    assert refused.value.reason is Reason.IMAGE_TOO_MANY_PIXELS


def test_large_tiles_of_a_small_tiff_count_as_memory():
    assert probe(tiff_of_one_pixel(tile_side=8192)).decode_bytes > 8192 * 8192


# Options


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(7, 5), (300, 400)])
def test_each_camera_orientation_is_turned_upright(orientation, size):
    stored = noise(*size)
    exif = Image.Exif()
    exif[274] = orientation
    data = encoded(Image.fromarray(stored), "PNG", exif=exif)
    upright = {
        1: stored,
        2: stored[:, ::-1],
        3: stored[::-1, ::-1],
        4: stored[::-1],
        5: stored.swapaxes(0, 1),
        6: np.rot90(stored, -1),
        7: stored[::-1, ::-1].swapaxes(0, 1),
        8: np.rot90(stored),
    }[orientation]
    assert np.array_equal(decode(data, UPRIGHT).rgb, upright)
    assert np.array_equal(decode(data).rgb, stored)
    assert decode(data, UPRIGHT).rgb.flags.c_contiguous


@pytest.mark.parametrize("orientation", [0, 9, 65_535])
def test_an_orientation_that_means_nothing_is_ignored(orientation):
    exif = Image.Exif()
    exif[274] = orientation
    stored = noise(7, 5)
    assert np.array_equal(decode(encoded(Image.fromarray(stored), "PNG", exif=exif), UPRIGHT).rgb, stored)


def test_camera_notes_that_cannot_be_read_say_nothing():
    stored = noise(7, 5)
    data = encoded(Image.fromarray(stored), "PNG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert np.array_equal(decode(data, UPRIGHT).rgb, stored)


def test_a_tiff_is_upright_either_way():
    stored = noise(7, 5)
    data = encoded(Image.fromarray(stored), "TIFF", tiffinfo={274: 6})
    for options in (None, UPRIGHT):
        assert np.array_equal(decode(data, options).rgb, np.rot90(stored, -1))


def test_transparency_is_composited_over_the_background_asked_for():
    rgba = np.zeros((1, 3, 4), np.uint8)
    rgba[0] = [(200, 100, 0, 0), (200, 100, 0, 255), (200, 100, 0, 51)]
    data = encoded(Image.fromarray(rgba), "PNG")
    assert decode(data, over((0, 50, 250))).rgb.tolist() == [[[0, 50, 250], [200, 100, 0], [40, 60, 200]]]
    assert decode(data).rgb.tolist() == [[[200, 100, 0]] * 3]


def test_a_palette_with_transparency_of_several_steps_is_composited_or_dropped():
    image = Image.new("P", (3, 1))
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.putdata([0, 1, 2])
    data = encoded(image, "PNG", transparency=bytes([0, 255, 255]))
    assert decode(data, over((255, 0, 0))).rgb.tolist() == [[[255, 0, 0], [40, 50, 60], [70, 80, 90]]]
    assert decode(data).rgb.tolist() == [[[10, 20, 30], [40, 50, 60], [70, 80, 90]]]


def test_a_grey_colour_key_is_composited_or_dropped():
    data = encoded(Image.fromarray(np.array([[9, 10]], np.uint8)), "PNG", transparency=9)
    assert decode(data, over((1, 2, 3))).rgb.tolist() == [[[1, 2, 3], [10, 10, 10]]]
    assert decode(data).rgb.tolist() == [[[9, 9, 9], [10, 10, 10]]]


def test_compositing_changes_nothing_where_all_is_opaque():
    stored = noise(7, 5)
    assert np.array_equal(decode(encoded(Image.fromarray(stored), "PNG"), over((1, 2, 3))).rgb, stored)


@pytest.mark.parametrize("background", [(256, 0, 0), (0, -1, 0)])
def test_a_background_that_is_no_colour_is_refused(background):
    with pytest.raises(VisionError, match="levels of 0 to 255") as refused:
        decode(corpus.read("png_rgb8.png"), over(background))
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_FIELD, "decode_options.background")


GREY = np.array([[0, 200, 255], [256, 0x1234, 65_535]], np.uint16)


@pytest.mark.parametrize(
    "data",
    [
        encoded(Image.fromarray(GREY), "PNG"),
        encoded(Image.fromarray(GREY), "TIFF"),
        encoded(Image.frombytes("I;16B", (3, 2), GREY.astype(">u2").tobytes()), "TIFF"),
        encoded(Image.fromarray(GREY), "PPM"),
    ],
    ids=["PNG", "TIFF", "big-endian TIFF", "PGM"],
)
def test_16_bit_grey_is_clipped_or_gives_its_high_byte(data):
    clipped, high = decode(data).rgb, decode(data, HIGH_BYTE).rgb
    for channel in range(3):
        assert clipped[..., channel].tolist() == [[0, 200, 255], [255, 255, 255]]
        assert high[..., channel].tolist() == [[0, 0, 0], [1, 0x12, 255]]


def test_a_16_bit_colour_key_is_transparent_where_the_high_byte_is_taken():
    data = encoded(Image.fromarray(GREY), "PNG", transparency=0x1234)
    options = DecodeOptions(
        alpha_handling=AlphaHandling.COMPOSITE, background=(1, 2, 3), sixteen_bit_grey=SixteenBitGrey.HIGH_BYTE
    )
    assert decode(data, options).rgb.tolist() == [[[0] * 3] * 3, [[1] * 3, [1, 2, 3], [255] * 3]]
    assert decode(data, HIGH_BYTE).rgb.tolist() == [[[0] * 3] * 3, [[1] * 3, [0x12] * 3, [255] * 3]]


def test_8_bit_grey_has_no_high_byte():
    data = encoded(Image.fromarray(np.array([[9, 200]], np.uint8)), "PNG")
    assert decode(data, HIGH_BYTE).rgb.tolist() == [[[9] * 3, [200] * 3]]


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_only_the_first_frame_is_decoded(file_format):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    options = {"lossless": True} if file_format == "WEBP" else {}
    data = encoded(frames[0], file_format, save_all=True, append_images=frames[1:], **options)
    assert len(list(ImageSequence.Iterator(Image.open(BytesIO(data))))) == 2
    assert (decode(data).rgb == np.array([255, 0, 0])).all()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "LAB", "I;16", "I", "F"])
def test_every_mode_of_pixels_is_converted_as_pillow_converts_the_whole_picture(mode):
    grey = Image.fromarray(noise(301, 400)[..., 0])
    image = Image.fromarray(noise(301, 400))
    match mode:
        case "I;16":
            image = Image.fromarray(np.asarray(grey).astype(np.uint16) * 3)
        case "LAB":
            image = Image.frombytes("LAB", image.size, image.tobytes())
        case _:
            image = image.convert(mode)
    data = encoded(image, "PNG" if mode in ("LA", "RGBA") else "TIFF")
    with Image.open(BytesIO(data)) as whole:
        assert whole.mode == mode
        assert np.array_equal(decode(data).rgb, np.asarray(whole.convert("RGB")))


# Damage


@pytest.mark.parametrize("name", [name for name, entry in corpus.FILES.items() if entry["expect"]["ok"]])
def test_a_file_cut_short_is_refused_or_lacks_nothing_that_matters(name):
    data = corpus.read(name)
    whole = decode(data).rgb.shape
    for part in (0.1, 0.5, 0.9):
        try:
            assert decode(data[: int(len(data) * part)]).rgb.shape == whole
        except VisionError as refused:
            if refused.reason not in (Reason.IMAGE_TRUNCATED, Reason.IMAGE_DAMAGED, Reason.IMAGE_UNRECOGNIZED):
                raise


def test_a_png_chunk_that_unpacks_to_too_much_is_damage():
    text = b"Comment\0\0" + zlib.compress(bytes(8 << 20))
    chunk = struct.pack(">I", len(text)) + b"zTXt" + text + struct.pack(">I", zlib.crc32(b"zTXt" + text))
    data = corpus.read("png_rgb8.png")
    with pytest.raises(VisionError) as refused:
        probe(data[:33] + chunk + data[33:])
    assert refused.value.reason is Reason.IMAGE_DAMAGED


def test_truncated_pictures_are_not_completed_with_grey():
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


def test_the_message_of_a_refusal_is_short():
    with pytest.raises(VisionError) as refused:
        decode(b"\x89PNG\r\n\x1a\n" + bytes(10_000))
    assert len(str(refused.value)) < 300


# Raw pixels


def test_raw_pixels_are_taken_as_they_are():
    stored = noise(7, 5)
    picture = raw_picture(stored.tobytes(), 7, 5)
    assert np.array_equal(picture.rgb, stored)
    assert (picture.width, picture.height, picture.format) == (7, 5, "")


@pytest.mark.parametrize(
    ("length", "size", "reason", "field"),
    [
        (104, (7, 5), Reason.SOURCE_LENGTH_MISMATCH, "raw.data"),
        (106, (7, 5), Reason.SOURCE_LENGTH_MISMATCH, "raw.data"),
        (0, (0, 5), Reason.INVALID_FIELD, "raw.width"),
        (0, (7, 0), Reason.INVALID_FIELD, "raw.height"),
        (105, (2**32 - 1, 2**32 - 1), Reason.IMAGE_TOO_MANY_PIXELS, "raw.width"),
    ],
)
def test_raw_pixels_of_another_length_or_size_are_refused(length, size, reason, field):
    with pytest.raises(VisionError) as refused:
        raw_picture(bytes(length), *size)
    assert (refused.value.reason, refused.value.field) == (reason, field)


# Many at once, and memory


def test_decoding_on_several_threads_at_once_gives_the_same_pixels():
    names = [name for name, entry in corpus.FILES.items() if entry["expect"]["ok"] and not entry.get("heavy")]
    alone = [corpus.sha256(decode(corpus.read(name)).rgb) for name in names]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert list(pool.map(lambda name: corpus.sha256(decode(corpus.read(name)).rgb), names)) == alone


MEASURE = """
import ctypes, sys
from pathlib import Path
from interlock.vision import DecodeOptions, decode, probe, warm_up

def of_process(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024

warm_up()  # the compiler alone takes 100 MB
for_alpha = DecodeOptions("apply", "composite")
for path in sys.argv[1:]:
    data = Path(path).read_bytes()
    ctypes.CDLL(None).malloc_trim(0)  # else the next decoder lives on what the one before left
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = of_process("VmRSS:")
    decode(data, for_alpha if "clear" in path else DecodeOptions("apply"))
    print(of_process("VmHWM:") - before, probe(data).decode_bytes)
"""


def test_no_decoder_takes_more_memory_than_the_header_made_expect(tmp_path):
    size = (1500, 1000)
    smooth = Image.fromarray(noise(150, 100)).resize(size)
    clear = smooth.convert("RGBA")
    clear.putalpha(Image.fromarray(noise(*size)[..., 0]))
    exif = Image.Exif()
    exif[274] = 6
    files = {
        "baseline.jpg": encoded(smooth, "JPEG", exif=exif),
        "progressive.jpg": encoded(smooth, "JPEG", progressive=True, subsampling=0, quality=95, exif=exif),
        "cmyk.jpg": encoded(smooth.convert("CMYK"), "JPEG", progressive=True, quality=95),
        "grey.png": encoded(smooth.convert("L"), "PNG", compress_level=1),
        "alpha.png": encoded(clear, "PNG", compress_level=1),
        "palette.png": encoded(smooth.quantize(256), "PNG"),
        "colour.png": encoded(smooth, "PNG", compress_level=1),
        "clear.png": encoded(clear, "PNG", compress_level=1),
        "lossy.webp": encoded(clear, "WEBP", method=0),
        "lossless.webp": encoded(clear, "WEBP", method=0, lossless=True),
        "strips.tif": encoded(clear, "TIFF", compression="tiff_lzw"),
        "one_strip.tif": encoded(clear, "TIFF", compression="tiff_lzw", tiffinfo={278: size[1]}),
        "grey.tif": encoded(Image.fromarray(noise(*size)[..., 0].astype(np.uint16) * 257), "TIFF"),
        "palette.gif": encoded(smooth.quantize(256), "GIF"),
        "plain.bmp": encoded(smooth, "BMP"),
        "plain.ppm": encoded(smooth, "PPM"),
        "clear.avif": encoded(clear, "AVIF", speed=10, quality=90, subsampling="4:4:4"),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *(tmp_path / name for name in files)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(files)
    for name, line in zip(files, lines, strict=True):
        taken, expected = map(int, line.split())
        assert 0 < taken <= expected, (name, taken, expected)
