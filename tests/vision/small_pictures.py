"""Small files of every format and of what their encoders can make: what is damaged in tests of hostile bytes."""

from collections.abc import Iterator
from functools import cache
from io import BytesIO

import numpy as np
from PIL import Image

from vision import corpus


@cache
def small_pictures() -> dict[str, bytes]:
    """Files by name; those of the corpus too, if they are small, and be they bad."""
    small = (
        name
        for name, entry in corpus.FILES.items()
        if entry["bytes"] > 24 and entry["expect"].get("width", 1) * entry["expect"].get("height", 1) < 100_000
    )
    return {**{name: corpus.read(name) for name in small}, **dict(_made())}


def _made() -> Iterator[tuple[str, bytes]]:
    rows, columns = np.mgrid[0:48, 0:64]
    waves = 128 + 120 * np.sin(np.stack((rows / 5, columns / 9, (rows + columns) / 7, rows / 3), axis=-1))
    clear = Image.fromarray(waves.astype(np.uint8))
    colour = clear.convert("RGB")
    grey, indexed, bits = colour.convert("L"), colour.quantize(16), colour.convert("1")
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    exif = Image.Exif()
    exif[274] = 6

    for name, image, file_format, options in (
        ("progressive.jpg", colour, "JPEG", {"progressive": True, "exif": exif}),
        ("restarts.jpg", colour, "JPEG", {"restart_marker_blocks": 2, "subsampling": "4:2:2"}),
        ("grey.jpg", grey, "JPEG", {"optimize": True}),
        ("rgb.jpg", colour, "JPEG", {"keep_rgb": True}),
        ("inks.jpg", colour.convert("CMYK"), "JPEG", {}),
        ("colour.png", colour, "PNG", {"exif": exif}),
        ("clear.png", clear, "PNG", {}),
        ("grey.png", grey, "PNG", {"transparency": 7}),
        ("indexed.png", indexed, "PNG", {"bits": 8, "transparency": 3}),
        ("bits.png", bits, "PNG", {}),
        ("deep.png", deep, "PNG", {}),
        ("animated.png", colour, "PNG", {"save_all": True, "append_images": [colour.rotate(180)]}),
        ("lossy.webp", colour, "WEBP", {"exif": exif}),
        ("lossy_clear.webp", clear, "WEBP", {"alpha_quality": 50}),
        ("lossless.webp", clear, "WEBP", {"lossless": True}),
        ("animated.webp", colour, "WEBP", {"save_all": True, "append_images": [colour.rotate(180)]}),
        ("indexed.gif", indexed, "GIF", {"transparency": 3}),
        ("interlaced.gif", indexed, "GIF", {"interlace": 1}),
        ("animated.gif", indexed, "GIF", {"save_all": True, "append_images": [indexed.rotate(180)]}),
        ("colour.avif", colour, "AVIF", {"speed": 10}),
        ("clear.avif", clear, "AVIF", {"speed": 10, "exif": exif}),
        ("colour.bmp", colour, "BMP", {}),
        ("indexed.bmp", indexed, "BMP", {}),
        ("bits.bmp", bits, "BMP", {}),
        ("plain.tif", colour, "TIFF", {"tiffinfo": {274: 6}}),
        ("lzw.tif", clear, "TIFF", {"compression": "tiff_lzw"}),
        ("deflate.tif", grey, "TIFF", {"compression": "tiff_adobe_deflate"}),
        ("jpeg.tif", colour, "TIFF", {"compression": "jpeg"}),
        ("packbits.tif", indexed, "TIFF", {"compression": "packbits"}),
        ("group4.tif", bits, "TIFF", {"compression": "group4"}),
        ("deep.tif", deep, "TIFF", {}),
        ("colour.ppm", colour, "PPM", {}),
        ("grey.pgm", grey, "PPM", {}),
        ("deep.pgm", deep, "PPM", {}),
        ("bits.pbm", bits, "PPM", {}),
    ):
        file = BytesIO()
        image.save(file, file_format, **options)
        yield name, file.getvalue()
    samples = np.asarray(colour.resize((16, 12))).ravel()
    yield "text.ppm", b"P3\n16 12 # wide\n255\n" + " ".join(map(str, samples)).encode()
    yield "odd.ppm", b"P6\n16 12\n100\n" + (samples // 3).tobytes()
    yield "text.pbm", b"P1\n16 12\n" + b"01" * 96
