"""Where numexpr pays: each natural place for an expression over a whole buffer, beside what does the same without it.

There is no peer here. `threads` are those of numexpr's own pool; two callers do the same at once on two Python threads.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numexpr
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.report import Report, medians, parse_options
from interlock.vision import VisionProfile
from interlock.vision.kernels.numexpr import _pair_table
from interlock.vision.quantise import bf16_bits, bf16_codes

MEAN, STD = np.float32(0.48), np.float32(0.27)
CODES = bf16_codes(VisionProfile(14, 3, 1024, 0, None, (0.48,) * 3, (0.27,) * 3))[0]
BLOCK = 1 << 16


def main() -> None:
    options, rounds = parse_options(__doc__ or "", rounds=21, quick_rounds=7)
    report = Report("expressions", rounds)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, 1512 * 2016 * 3, dtype=np.uint8)
    wide = Image.fromarray(rng.integers(0, 256, (2016, 1008, 3), dtype=np.uint8))
    places = {
        "quantise 9.1 M bytes": {
            "table of pairs": partial(table_of_pairs, pixels),
            "numpy, blocks": partial(numpy_blocks, pixels),
            "numexpr": partial(numexpr_whole, pixels),
        },
        "make a table of pairs": {"numpy": numpy_pairs, "numexpr": numexpr_pairs},
        "halve 2016 rows of 1008": {"pillow": partial(pillow_rows, wide), "numexpr": partial(numexpr_rows, wide)},
    }
    for threads in (1, 2):
        numexpr.set_num_threads(threads)
        for place, ways in places.items():
            if len({way().tobytes() for way in ways.values()}) != 1:
                raise SystemExit(f"{place}: the ways gave different bytes")
            for callers in (1, 2):
                with ThreadPoolExecutor(callers) as pool:
                    times = medians({name: partial(at_once, pool, callers, way) for name, way in ways.items()}, rounds)
                for name, taken in times.items():
                    ratio = taken / next(iter(times.values()))
                    row = {"place": place, "way": name, "threads": threads, "callers": callers, "same bytes": "yes"}
                    report.rows.append(row | {"ms": taken, "ratio to the first": ratio})
    report.show(options.json, packages=("numpy", "numexpr", "pillow"))


def at_once(pool: ThreadPoolExecutor, callers: int, way: Callable[[], object]) -> None:
    """Do it so many times at once."""
    for call in [pool.submit(way) for _ in range(callers)]:
        call.result()


def table_of_pairs(pixels: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """As the kernel does it, in blocks that stay in the cache."""
    table, codes = _pair_table(CODES.tobytes()), np.empty(pixels.size, np.uint16)
    for start in range(0, pixels.size, BLOCK):
        block = slice(start, start + BLOCK)
        codes[block] = table.take(pixels[block].view(np.uint16), mode="wrap").view(np.uint16)
    return codes


def numpy_blocks(pixels: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """The arithmetic itself, in blocks that stay in the cache."""
    codes = np.empty(pixels.size, np.uint16)
    for start in range(0, pixels.size, BLOCK):
        block = slice(start, start + BLOCK)
        codes[block] = bf16_bits((pixels[block].astype(np.float32) / np.float32(255) - MEAN) / STD)
    return codes


def numexpr_whole(pixels: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """The arithmetic itself, in two expressions: numexpr has no way to look at the bits of a float."""
    values = np.empty(pixels.size, np.float32)
    names = {"v": pixels, "full": np.float32(255), "mean": MEAN, "std": STD}
    numexpr.evaluate("(v / full - mean) / std", local_dict=names, global_dict={}, out=values, casting="unsafe")
    codes = np.empty(pixels.size, np.uint16)
    rounding = "(b + 0x7fff + ((b >> 16) & 1)) >> 16"
    bits = {"b": values.view(np.int32)}
    numexpr.evaluate(rounding, local_dict=bits, global_dict={}, out=codes, casting="unsafe")
    return codes


def numpy_pairs() -> NDArray[np.uint32]:
    """A table of pairs in plain NumPy."""
    code = CODES.astype(np.uint32)
    return (code[None, :] | (code[:, None] << 16)).reshape(-1)


def numexpr_pairs() -> NDArray[np.uint32]:
    """A table of pairs as the kernel makes it, but not from its cache."""
    return _pair_table.__wrapped__(CODES.tobytes())


def pillow_rows(wide: Image.Image) -> NDArray[np.uint8]:
    """A vertical pass that halves the height."""
    return np.asarray(wide.resize((wide.width, wide.height // 2), Image.Resampling.BICUBIC))


def numexpr_rows(wide: Image.Image) -> NDArray[np.uint8]:
    """The same as one expression over all rows at once, which works for halving alone; edges by Pillow.

    Every output row inside has the same eight weights, at rows 2y - 3 to 2y + 4.
    """
    rows = np.asarray(wide)
    halved = pillow_rows(wide).copy()
    offsets = np.arange(-3, 5)
    weights = np.array([bicubic((offset - 0.5) / 2) for offset in offsets])
    fixed = np.rint(weights / weights.sum() * (1 << 22)).astype(int)
    inside = slice(2, len(halved) - 2)
    names = {f"r{tap}": rows[4 + offset : len(rows) - 4 + offset : 2] for tap, offset in enumerate(offsets)}
    total = " + ".join(f"r{tap} * {weight}" for tap, weight in enumerate(fixed))
    total = f"(2097152 + {total}) >> 22"
    clamped = f"where(({total}) < 0, 0, where(({total}) > 255, 255, {total}))"
    numexpr.evaluate(clamped, local_dict=names, global_dict={}, out=halved[inside], casting="unsafe")
    return halved


def bicubic(distance: float) -> float:
    """Keys' cubic with a = -0.5."""
    x = abs(distance)
    return (1.5 * x - 2.5) * x * x + 1 if x < 1 else ((-0.5 * x + 2.5) * x - 4) * x + 2


if __name__ == "__main__":
    main()
