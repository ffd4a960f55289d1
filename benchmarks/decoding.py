"""Decoding beside Pillow, one thread, file in memory to RGB array; and what unpacks a PNG's stream fastest.

The peer is what a frontend does today: `np.asarray(Image.open(file).convert("RGB"))`. The pixels are compared.
"""

import io
import zlib
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from zlib_ng import zlib_ng

from benchmarks.report import Report, medians, parse_options
from benchmarks.service.pictures import FORMATS, GOAL_KINDS, PHOTO_1080P, SCREENSHOT, Kind, saved
from interlock.vision import decode, warm_up

PALETTE = Kind("1080x2400 PNG screenshot, palette", lambda: SCREENSHOT.make().quantize(256), "PNG", {})
TEXT = Kind("640x480 PPM, text", lambda: PHOTO_1080P.make().resize((640, 480)), "PPM", {})


def main() -> None:
    options, rounds = parse_options(__doc__ or "", rounds=15, quick_rounds=7)
    report = Report("decoding", rounds)
    warm_up()
    for kind in (*GOAL_KINDS, PALETTE, *FORMATS):
        compare(report, kind.name, kind.file(), rounds)
    small = TEXT.make()
    samples = np.asarray(small)
    compare(report, TEXT.name, b"P3 640 480 255 " + " ".join(map(str, samples.ravel())).encode(), rounds)
    compare(report, "640x480 PPM, 100 levels", b"P6 640 480 100 " + (samples // 3).tobytes(), rounds)
    inflaters(report, saved(SCREENSHOT.make(), "PNG"), rounds)
    report.show(options.json, packages=("pillow", "simplejpeg", "zlib-ng", "numba", "numpy"))


def compare(report: Report, name: str, data: bytes, rounds: int) -> None:
    """One row: a file decoded both ways."""
    if not np.array_equal(decode(data).rgb, by_pillow(data)):
        raise SystemExit(f"{name}: other pixels than Pillow's")
    times = medians({"ours": partial(decode, data), "pillow": partial(by_pillow, data)}, rounds)
    row = {"what": name, "way": "decode", "KB": len(data) / 1e3, "same bytes": "yes"}
    report.rows.append(
        row | {"ms": times["ours"], "pillow ms": times["pillow"], "ratio": times["ours"] / times["pillow"]}
    )


def by_pillow(data: bytes) -> NDArray[np.uint8]:
    """The peer."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def inflaters(report: Report, png: bytes, rounds: int) -> None:
    """Rows of those inflaters that are installed; the interpreter's zlib is the measure."""
    stream = pixel_stream(png)
    size = len(zlib.decompress(stream))
    ways: dict[str, Callable[[], bytes]] = {
        "zlib of the interpreter": lambda: zlib.decompressobj().decompress(stream, size),
        "zlib-ng": lambda: zlib_ng.decompressobj().decompress(stream, size),
    }
    ways.update(optional_inflaters(stream, size))
    expected = zlib.decompress(stream)
    if any(bytes(way()) != expected for way in ways.values()):
        raise SystemExit("the inflaters gave different bytes")
    times = medians(ways, rounds)
    for name, taken in times.items():
        row = {"what": SCREENSHOT.name, "way": f"inflate: {name}", "KB": len(stream) / 1e3, "same bytes": "yes"}
        slowest = times["zlib of the interpreter"]
        report.rows.append(row | {"ms": taken, "pillow ms": None, "ratio": taken / slowest})


def optional_inflaters(stream: bytes, size: int) -> Mapping[str, Callable[[], bytes]]:
    """Those that are no dependency."""
    ways: dict[str, Callable[[], bytes]] = {}
    try:
        from isal import isal_zlib

        ways["ISA-L"] = lambda: isal_zlib.decompressobj().decompress(stream, size)
    except ImportError:
        pass
    try:
        import deflate

        ways["libdeflate"] = lambda: deflate.zlib_decompress(stream, size)
    except ImportError:
        pass
    return ways


def pixel_stream(png: bytes) -> bytes:
    """The zlib stream of a PNG."""
    parts, at = [], 8
    while at < len(png):
        length = int.from_bytes(png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            parts.append(png[at + 8 : at + 8 + length])
        at += 12 + length
    return b"".join(parts)


if __name__ == "__main__":
    main()
