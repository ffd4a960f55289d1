"""Damage to picture files: of any bytes, and of what each format is made of, so that it gets past the first check.

rng = np.random.default_rng((seed, number))
data = mutated(rng, picture, another_picture)
"""

import struct
import zlib
from collections.abc import Callable

import numpy as np

NUMBERS = (0, 1, 2, 3, 7, 8, 9, 15, 16, 127, 128, 255, 256, 1_000, 4_096, 32_767, 32_768, 65_535, 65_536)
LARGE_NUMBERS = (*NUMBERS, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32)

Random = np.random.Generator


def mutated(rng: Random, data: bytes, other: bytes) -> bytes:
    """The file with one to three changes, half of them to its structure. `other` is spliced in now and then."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        change = _structural_change(data) if rng.random() < 0.5 else None
        data = change(rng, data) if change else _changed_bytes(rng, data, other)
    return data


def _structural_change(data: bytes) -> Callable[[Random, bytes], bytes] | None:
    for magic, change in (
        (b"\xff\xd8", _changed_jpeg),
        (b"\x89PNG\r\n\x1a\n", _changed_png),
        (b"RIFF", _changed_webp),
        (b"GIF8", _changed_gif),
        (b"BM", _changed_bmp),
        (b"II", _changed_tiff),
        (b"MM", _changed_tiff),
        (b"P", _changed_ppm),
    ):
        if data.startswith(magic):
            return change
    return _changed_avif if data[4:8] == b"ftyp" else None


def _number(rng: Random, size: int, order: str | None = None) -> bytes:
    """An integer at an edge, in so many bytes."""
    value = int(rng.choice(LARGE_NUMBERS if size > 2 else NUMBERS)) % (1 << 8 * size)
    return value.to_bytes(size, order or ("big" if rng.random() < 0.5 else "little"))


def _place(rng: Random, data: bytes) -> int:
    """Anywhere, and more often near the beginning."""
    return int(rng.integers(0, max(1, len(data) if rng.random() < 0.7 else min(len(data), 200))))


def _changed_bytes(rng: Random, data: bytes, other: bytes) -> bytes:
    at, length = _place(rng, data), int(rng.integers(1, 30))
    match rng.integers(0, 11):
        case 0:
            return data[:at] + rng.bytes(1) + data[at + 1 :]
        case 1:
            return data[:at] + bytes(byte ^ 1 << int(rng.integers(0, 8)) for byte in data[at : at + 1]) + data[at + 1 :]
        case 2:
            number = _number(rng, int(rng.choice([1, 2, 4, 8])))
            return data[:at] + number + data[at + len(number) :]
        case 3:
            return data[:at] + data[at + length :]
        case 4:
            return data[:at] + rng.bytes(length) + data[at:]
        case 5:
            return data[: at + 20]
        case 6:
            return data[:at] + data[at : at + 8 * length] * int(rng.integers(2, 4)) + data[at + 8 * length :]
        case 7:
            return data[:at] + other[_place(rng, other) :]
        case 8:
            return data[:at] + bytes([int(rng.choice([0, 255]))]) * length + data[at + length :]
        case 9:
            return data + rng.bytes(length)
        case _:
            further = at + length
            return data[:at] + data[further : further + length] + data[at:further] + data[further + length :]


def _changed_parts(rng: Random, parts: list[bytes], new: Callable[[], bytes]) -> list[bytes]:
    """One part left out, doubled, moved, or a new one put in."""
    at, to = (int(place) for place in rng.integers(0, len(parts) + 1, 2))
    match rng.integers(0, 4):
        case 0:
            return parts[:at] + parts[at + 1 :]
        case 1:
            return parts[:at] + parts[at : at + 1] * 2 + parts[at + 1 :]
        case 2:
            rest = parts[:at] + parts[at + 1 :]
            return rest[:to] + parts[at : at + 1] + rest[to:]
        case _:
            return [*parts[:at], new(), *parts[at:]]


def _replaced(parts: list[bytes], index: int, part: bytes) -> list[bytes]:
    return [*parts[:index], part, *parts[index + 1 :]]


def _with_field(rng: Random, part: bytes, first: int) -> bytes:
    """A field somewhere from `first` on at an edge."""
    if len(part) <= first:
        return part
    at = int(rng.integers(first, len(part)))
    field = _number(rng, int(rng.choice([1, 1, 2, 4])), "big")
    return (part[:at] + field + part[at + len(field) :])[: len(part)]


# JPEG: marker segments, and the coded scan after each start of a scan.


def _jpeg_parts(data: bytes) -> list[bytes]:
    parts, at = [data[:2]], 2
    while at + 4 <= len(data):
        begin = at
        if data[at] == 0xFF and data[at + 1] not in (0, 0xFF, 0xD9, *range(0xD0, 0xD8)):
            at += 2 + int.from_bytes(data[at + 2 : at + 4])
        else:  # a scan, to the next marker that is none of its own
            at += 1
            while at + 1 < len(data) and not (
                data[at] == 0xFF and 0xBF < data[at + 1] < 0xFF and data[at + 1] & 0xF8 != 0xD0
            ):
                at += 1
        parts.append(data[begin:at])
    return [*parts, data[at:]]


def _changed_jpeg(rng: Random, data: bytes) -> bytes:
    parts = _jpeg_parts(data)
    if rng.random() < 0.5:

        def segment() -> bytes:
            content = rng.bytes(int(rng.integers(0, 20)))
            return bytes((0xFF, int(rng.integers(0xC0, 0xFF)))) + struct.pack(">H", len(content) + 2) + content

        return b"".join(_changed_parts(rng, parts, segment))
    index = int(rng.integers(0, len(parts)))
    if rng.random() < 0.3:  # a marker within: a restart, an end, an escaped byte
        part, marker = parts[index], bytes((0xFF, int(rng.choice([0x00, 0xD0, 0xD3, 0xD9, 0xDA, 0xFF]))))
        at = int(rng.integers(0, len(part) + 1))
        return b"".join(_replaced(parts, index, part[:at] + marker + part[at:]))
    return b"".join(_replaced(parts, index, _with_field(rng, parts[index], 2)))


# PNG: chunks, whose checksums are mostly made right again, and the rows within the pixels.

_PNG_KINDS = (
    b"IHDR",
    b"PLTE",
    b"IDAT",
    b"IEND",
    b"tRNS",
    b"acTL",
    b"fcTL",
    b"fdAT",
    b"tEXt",
    b"zTXt",
    b"iTXt",
    b"iCCP",
)


def _png_parts(data: bytes) -> list[bytes]:
    parts, at = [], 8
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4])
        parts.append(data[at + 4 : end - 4])
        at = end
    return parts


def _changed_png(rng: Random, data: bytes) -> bytes:
    parts = [part for part in _png_parts(data) if len(part) >= 4]
    if not parts:
        return data
    index = int(rng.integers(0, len(parts)))
    match rng.integers(0, 4):
        case 0:
            kinds = (*_PNG_KINDS, b"eXIf", b"pHYs", b"sRGB", b"prVt")
            parts = _changed_parts(
                rng, parts, lambda: kinds[rng.integers(0, len(kinds))] + rng.bytes(rng.integers(0, 40))
            )
        case 1:
            parts = _replaced(parts, index, _with_field(rng, parts[index], 4))
        case 2:
            parts = _replaced(parts, 0, _with_field(rng, parts[0], 4))
        case _:
            parts = _with_changed_rows(rng, parts)
    wrong = rng.random() < 0.1
    return data[:8] + b"".join(
        struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part) ^ wrong) for part in parts
    )


def _with_changed_rows(rng: Random, parts: list[bytes]) -> list[bytes]:
    try:
        stream = b"".join(part[4:] for part in parts if part[:4] == b"IDAT")
        rows = zlib.decompressobj().decompress(stream, 1 << 20)  # no more of a bomb
    except zlib.error:
        return parts
    at, length = int(rng.integers(0, len(rows) + 1)), int(rng.integers(1, 40))
    match rng.integers(0, 4):
        case 0:
            rows = rows[:at] + rows[at + length :]
        case 1:
            rows = rows[:at] + rng.bytes(length) + rows[at:]
        case 2:
            rows = rows[:at] + rng.bytes(length) + rows[at + length :]
        case _:
            rows += bytes(int(rng.choice([1, 1_000, 1_000_000])))
    stream, piece = zlib.compress(rows, int(rng.integers(0, 10))), int(rng.choice([7, 100, 1 << 20]))
    pixels = [b"IDAT" + stream[at : at + piece] for at in range(0, len(stream), piece)]
    first = next((index for index, part in enumerate(parts) if part[:4] == b"IDAT"), 1)
    rest = [part for part in parts if part[:4] != b"IDAT"]
    return rest[:first] + pixels + rest[first:]


# WebP: RIFF chunks, their sizes made right again.


def _changed_webp(rng: Random, data: bytes) -> bytes:
    parts, at = [], 12
    while at + 8 <= len(data):
        end = at + 8 + int.from_bytes(data[at + 4 : at + 8], "little")
        parts.append(data[at : at + 4] + data[at + 8 : end])
        at = end + end % 2
    kinds = (b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF", b"EXIF", b"ICCP", b"XMP ")
    if parts and rng.random() < 0.5:
        index = int(rng.integers(0, len(parts)))
        parts = _replaced(parts, index, _with_field(rng, parts[index], 4))
    else:
        parts = _changed_parts(rng, parts, lambda: kinds[rng.integers(0, len(kinds))] + rng.bytes(rng.integers(0, 40)))
    body = b"WEBP" + b"".join(
        part[:4] + struct.pack("<I", max(len(part) - 4, 0)) + part[4:] + bytes(len(part) % 2) for part in parts
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


# The others: a field of their headers, of a directory's entry, of a box.


def _changed_at(rng: Random, data: bytes, at: int, size: int, order: str) -> bytes:
    return data[:at] + _number(rng, size, order) + data[at + size :]


def _changed_gif(rng: Random, data: bytes) -> bytes:
    image = data.find(b"\x2c")
    if image < 0 or rng.random() < 0.3:
        return _changed_at(rng, data, int(rng.choice([6, 8])), 2, "little")
    if rng.random() < 0.3:  # flags, the first code's size, the first block's length
        return _changed_at(rng, data, int(rng.choice([10, image + 9, image + 10, image + 11])), 1, "little")
    return _changed_at(rng, data, image + int(rng.choice([1, 3, 5, 7])), 2, "little")


def _changed_bmp(rng: Random, data: bytes) -> bytes:
    at, size = [(10, 4), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2), (30, 4), (34, 4), (46, 4), (54, 4)][
        rng.integers(0, 10)
    ]
    return _changed_at(rng, data, at, size, "little")


def _changed_tiff(rng: Random, data: bytes) -> bytes:
    order = "little" if data[:2] == b"II" else "big"
    directory = int.from_bytes(data[4:8], order)
    entries = int.from_bytes(data[directory : directory + 2], order)
    if not 0 < entries < 200:
        return data
    entry = directory + 2 + 12 * int(rng.integers(0, entries))
    offset, size = [(0, 2), (2, 2), (4, 4), (8, 2), (8, 4)][rng.integers(0, 5)]
    return _changed_at(rng, data, entry + offset, size, order)


def _changed_ppm(rng: Random, data: bytes) -> bytes:
    tokens = data.split(maxsplit=4)
    if len(tokens) < 4:
        return data
    words = (b"#", b"-1", b"1_0", b"+3", b"x", b"255", b"256", b"65535", b"65536", b"99999999999", b"3", b"40")
    tokens[int(rng.integers(0, 4))] = words[rng.integers(0, len(words))]
    return (b"\n" if rng.random() < 0.5 else b" ").join(tokens)


def _changed_avif(rng: Random, data: bytes) -> bytes:
    kinds = [
        b"ftyp",
        b"meta",
        b"hdlr",
        b"pitm",
        b"iloc",
        b"iinf",
        b"infe",
        b"iprp",
        b"ipco",
        b"ispe",
        b"av1C",
        b"pixi",
        b"mdat",
    ]
    places = [at for kind in kinds if (at := data.find(kind)) >= 4]
    if not places:
        return data
    at = int(rng.choice(places))
    match rng.integers(0, 3):
        case 0:  # the length of the box
            return _changed_at(rng, data, at - 4, 4, "big")
        case 1:
            return _changed_at(rng, data, at + 4 + int(rng.integers(0, 24)), int(rng.choice([1, 2, 4])), "big")
        case _:
            return data[:at] + kinds[rng.integers(0, len(kinds))] + data[at + 4 :]
