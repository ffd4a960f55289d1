"""The pictures that are measured: made in the run, like photographs and screenshots in what a decoder sees of them.

Noise would not do: it fills a JPEG with coefficients that no photograph has, and its decoding then hides all else.

- A photograph is a "dead leaves" picture: thousands of discs of all sizes that hide each other, which has the edges and
  the spectrum of natural scenes, each shaded by clouds of several octaves; then the blur of a lens and the grain of a
  sensor. Saved at quality 90 with 4:2:0 it takes two to three bits a pixel, as a phone's does.
- A screenshot is a chat: a bar, flat bubbles, lines of anti-aliased text, and one embedded photograph.

No two files that `distinct` gives are alike, so no cache and no sharing of work answers for the decoder and the kernel:
each has a number of its own in a comment. Their pixels may be alike.
"""

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

_WORDS = (  # noqa: SIM905 - a text, as it is drawn
    "the train leaves at nine and we meet at the old station near the river if it rains bring your umbrella "
    "photo from the bridge looks great can you read the sign on the left platform is it the same as yesterday"
).split()


@cache
def photograph(width: int, height: int, seed: int = 0) -> Image.Image:
    """A picture with the edges, the textures and the grain of a photograph."""
    rng = np.random.default_rng((seed, width, height))
    leaves = Image.new("RGB", (width, height), "grey")
    draw = ImageDraw.Draw(leaves)
    radii = np.exp(rng.uniform(np.log(1 / 250), np.log(1 / 2), 2_500)) * min(width, height)
    for radius in sorted(radii, key=lambda radius: -radius * rng.uniform(0.3, 1)):  # small ones mostly on top
        x, y = rng.random() * width, rng.random() * height
        tone = np.clip(rng.normal(115, 45) + rng.normal(0, 15, 3), 0, 255).astype(int)
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), tuple(tone.tolist()))
    light = _clouds(rng, width, height, coarsest=max(width, height) / 2, finest=64)
    texture = _clouds(rng, width, height, coarsest=24, finest=2) - 0.5
    rough = _clouds(rng, width, height, coarsest=max(width, height) / 4, finest=64) ** 3  # the rest is smooth, like sky
    scene = np.asarray(leaves.filter(ImageFilter.GaussianBlur(0.8)), np.float32)
    scene = scene * (0.6 + 0.8 * light + 2.2 * rough * texture)[..., None]
    scene += rng.standard_normal((height, width), np.float32)[..., None] * 2.2
    return Image.fromarray(np.clip(scene, 0, 255).astype(np.uint8))


@cache
def screenshot(width: int, height: int, seed: int = 0) -> Image.Image:
    """A chat on a phone."""
    rng = np.random.default_rng((seed, width, height))
    scale = width / 1080
    screen = Image.new("RGB", (width, height), (245, 246, 250))
    draw = ImageDraw.Draw(screen)
    draw.rectangle((0, 0, width, int(160 * scale)), (31, 99, 201))
    draw.text((40 * scale, 70 * scale), "9:41   Platform 2", "white", ImageFont.load_default(44 * scale))
    font = ImageFont.load_default(36 * scale)
    top, number = 200 * scale, 0
    while top < height:
        mine = number % 3 == 2
        left = (220 if mine else 40) * scale
        if number == 4:
            photo = photograph(int(760 * scale), int(500 * scale), seed)
            screen.paste(photo, (int(left), int(top)))
            top += 540 * scale
        else:
            lines = [" ".join(rng.choice(_WORDS, rng.integers(4, 9))) for _ in range(rng.integers(1, 6))]
            bottom = top + (40 + 50 * len(lines)) * scale
            colour = (215, 240, 208) if mine else (255, 255, 255)
            draw.rounded_rectangle((left, top, left + 800 * scale, bottom), 24 * scale, colour)
            for index, line in enumerate(lines):
                draw.text((left + 28 * scale, top + (20 + 50 * index) * scale), line, (28, 30, 36), font)
            top = bottom + 30 * scale
        number += 1
    return screen


def _clouds(
    rng: np.random.Generator, width: int, height: int, *, coarsest: float, finest: float
) -> NDArray[np.float32]:
    """Shades from 0 to 1 in octaves from `coarsest` to `finest` pixels, finer ones fainter."""
    total = np.zeros((height, width), np.float32)
    step, weight, weights = coarsest, 1.0, 0.0
    while step >= finest:
        grid = rng.random((int(height / step) + 2, int(width / step) + 2)).astype(np.float32)
        total += weight * np.asarray(Image.fromarray(grid).resize((width, height), Image.Resampling.BILINEAR))
        weights += weight
        step, weight = step / 2, weight * 0.7
    return total / np.float32(weights)


@dataclass(frozen=True, eq=False)
class Kind:
    """One sort of file."""

    name: str
    make: Callable[[], Image.Image]
    file_format: str
    save: dict[str, object]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.make().size

    @cache  # noqa: B019 - the few kinds live as long as the process
    def file(self) -> bytes:
        """The file itself."""
        return saved(self.make(), self.file_format, **self.save)

    def distinct(self, count: int) -> list[bytes]:
        """Files of the same pixels, each another one for whoever compares bytes."""
        return [_numbered(self.file(), self.file_format, next(_NUMBERS)) for _ in range(count)]


def saved(picture: Image.Image, file_format: str, **options: object) -> bytes:
    """The picture as a file."""
    file = io.BytesIO()
    picture.save(file, file_format, **options)
    return file.getvalue()


def _count() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number


_NUMBERS = _count()


def _numbered(file: bytes, file_format: str, number: int) -> bytes:
    text = b"%016d" % number
    if file_format == "JPEG":  # a comment behind the first marker
        return file[:2] + b"\xff\xfe" + struct.pack(">H", len(text) + 2) + text + file[2:]
    if file_format == "PNG":  # a text behind the first chunk, IHDR
        body = b"tEXtnumber\0" + text
        return file[:33] + struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body)) + file[33:]
    if file_format == "WEBP":  # a chunk of an unknown name at the end, counted in the head
        body = b"numb" + struct.pack("<I", len(text)) + text
        return file[:4] + struct.pack("<I", len(file) - 8 + len(body)) + file[8:] + body
    return file + text  # behind the end, where decoders do not look


_JPEG = {"quality": 90, "subsampling": "4:2:0"}

PHOTO_12MP = Kind("12 MP JPEG", lambda: photograph(4032, 3024), "JPEG", _JPEG)
PHOTO_640 = Kind("640x480 JPEG", lambda: photograph(640, 480), "JPEG", _JPEG)
PHOTO_1080P = Kind("1920x1080 JPEG", lambda: photograph(1920, 1080), "JPEG", _JPEG)
SCREENSHOT = Kind("1080x2400 PNG screenshot", lambda: screenshot(1080, 2400), "PNG", {})

GOAL_KINDS = (PHOTO_12MP, PHOTO_640, SCREENSHOT, PHOTO_1080P)

FORMATS = tuple(
    Kind(f"1920x1080 {name}", make, file_format, options)
    for name, make, file_format, options in (
        ("JPEG, progressive", lambda: photograph(1920, 1080), "JPEG", {**_JPEG, "progressive": True}),
        ("JPEG 4:4:4", lambda: photograph(1920, 1080), "JPEG", {"quality": 90, "subsampling": "4:4:4"}),
        ("JPEG, grey", lambda: photograph(1920, 1080).convert("L"), "JPEG", {"quality": 90}),
        ("PNG, photograph", lambda: photograph(1920, 1080), "PNG", {}),
        ("PNG, alpha", lambda: screenshot(1920, 1080).convert("RGBA"), "PNG", {}),
        ("PNG, palette", lambda: screenshot(1920, 1080).quantize(256), "PNG", {}),
        ("WebP", lambda: photograph(1920, 1080), "WEBP", {"quality": 80}),
        ("WebP, lossless", lambda: screenshot(1920, 1080), "WEBP", {"lossless": True}),
        ("AVIF", lambda: photograph(1920, 1080), "AVIF", {"quality": 70}),
        ("GIF", lambda: screenshot(1920, 1080).quantize(256), "GIF", {}),
        ("BMP", lambda: photograph(1920, 1080), "BMP", {}),
    )
)
