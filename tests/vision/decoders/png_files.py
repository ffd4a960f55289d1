"""PNG files made by hand, so that filters, chunks and streams are those asked for. And deflate streams, bit by bit."""

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOUR_TYPES = {"L": (0, 1), "RGB": (2, 3), "P": (3, 1), "LA": (4, 2), "RGBA": (6, 4)}
"""By Pillow's mode: the type in the file, and bytes a pixel."""


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def header(mode: str, width: int, height: int, bits: int = 8, interlaced: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, COLOUR_TYPES[mode][0], 0, 0, interlaced))


def filtered_rows(mode: str, width: int, height: int, kinds: list[int], seed: int = 0) -> bytes:
    """Rows of any bytes, each with a filter of `kinds` in turn: every such row is some picture's."""
    rows = np.random.default_rng(seed).integers(0, 256, (height, 1 + width * COLOUR_TYPES[mode][1]), np.uint8)
    rows[:, 0] = np.resize(kinds, height)
    return rows.tobytes()


def png(
    mode: str,
    width: int,
    height: int,
    stream: bytes,
    *,
    before: bytes = b"",
    after: bytes = b"",
    piece: int = 1 << 20,
    head: bytes | None = None,
) -> bytes:
    """A file with that zlib stream in chunks of `piece` bytes, and chunks before and after them."""
    if mode == "P" and b"PLTE" not in before:
        before = palette(256) + before
    pieces = (chunk(b"IDAT", stream[at : at + piece]) for at in range(0, len(stream), piece))
    return SIGNATURE + (head or header(mode, width, height)) + before + b"".join(pieces) + after + chunk(b"IEND")


def palette(colours: int) -> bytes:
    return chunk(b"PLTE", np.random.default_rng(5).bytes(3 * colours))


class Bits:
    """Bits of a deflate stream, in its order."""

    def __init__(self) -> None:
        self._bits: list[int] = []

    def number(self, value: int, count: int) -> None:
        self._bits += [value >> bit & 1 for bit in range(count)]

    def code(self, value: int, count: int) -> None:
        self._bits += [value >> bit & 1 for bit in reversed(range(count))]

    def bytes(self) -> bytes:
        return np.packbits(self._bits, bitorder="little").tobytes()


def canonical(lengths: list[int]) -> dict[int, tuple[int, int]]:
    """Code and length of each symbol that has a length."""
    codes, code = {}, 0
    for length in range(1, 16):
        for symbol, its_length in enumerate(lengths):
            if its_length == length:
                codes[symbol] = code, length
                code += 1
        code <<= 1
    return codes


def dynamic_stream(data: bytes, literals: list[int], distances: list[int], lengths: list[int]) -> bytes:
    """A zlib stream of one dynamic block that spells `data`, with code lengths of one's choice, legal or not.

    Args:
        data: what it holds.
        literals: code lengths of literals and the end.
        distances: code lengths of distances, none of which is used.
        lengths: code lengths of the code lengths; 19.
    """
    bits = Bits()
    for value, count in ((1, 1), (2, 2), (len(literals) - 257, 5), (len(distances) - 1, 5), (15, 4)):
        bits.number(value, count)
    for symbol in (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15):
        bits.number(lengths[symbol], 3)
    length_codes, literal_codes = canonical(lengths), canonical(literals)
    for length in (*literals, *distances):
        bits.code(*length_codes[length])
    for symbol in (*data, 256):
        bits.code(*literal_codes[symbol])
    return b"\x78\x01" + bits.bytes() + struct.pack(">I", zlib.adler32(data))
