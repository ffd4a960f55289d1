"""The kernels beside the peer's: SGLang's compiled `dsv41.resize_patchify`, on one core and on all.

`--peers` names a folder that `pip install --no-deps --target FOLDER sglang==0.5.23` filled. The peer uses as many
threads as there are cores it may run on, so "one thread" is a process held to one core. Input is an RGB array, output a
new one.
"""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.report import Report, medians, parse_options
from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, Plan, kernels, plan

PROFILE = PROFILES[DEFAULT_PROFILE_NAME]
SIZES = {
    "photo 12 MP": (4032, 3024),
    "photo 12 MP, upright": (3024, 4032),
    "screen 1080p": (1920, 1080),
    "phone screen": (1080, 2400),
    "web 640x480": (640, 480),
    "thumbnail 240x320": (240, 320),
    "strip 100x3000": (100, 3000),
}

Patchify = Callable[[], NDArray[np.uint16]]


def load_peer(folder: str | None) -> Callable[..., NDArray[np.uint16]] | None:
    """The peer's kernel; None without a folder."""
    if folder is None:
        return None
    (path,) = (Path(folder) / "sglang" / "srt" / "rust_extensions").glob("_multimodal.*.so")
    spec = spec_from_file_location("_multimodal", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.dsv41.resize_patchify


def photograph(width: int, height: int) -> NDArray[np.uint8]:
    """Smooth shapes with a little grain."""
    rng = np.random.default_rng(width * height)
    shapes = rng.integers(0, 256, (max(2, height // 24), max(2, width // 24), 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(shapes).resize((width, height), Image.Resampling.BICUBIC))
    grain = rng.integers(-4, 5, (height, width, 3))
    return np.clip(smooth + grain, 0, 255).astype(np.uint8)


def measure(threads: int, rounds: int, peers: str | None) -> list[dict[str, Any]]:
    """One row a size."""
    peer = load_peer(peers)
    rows = []
    for name, (width, height) in SIZES.items():
        rgb, geometry = photograph(width, height), plan(width, height, PROFILE)
        contenders: dict[str, Patchify] = {
            kernel: partial(kernels.get(kernel).resize_patchify, rgb, geometry, PROFILE, threads=threads)
            for kernel in kernels.available()
        }
        if peer is not None:
            contenders["peer"] = partial(peer, *_arguments(rgb, geometry))
        words = {contender.tobytes() for contender in (make() for make in contenders.values())}
        if len(words) != 1:
            raise SystemExit(f"{name}: the kernels gave different bytes")
        times = medians(contenders, rounds)
        row: dict[str, Any] = {
            "picture": name,
            "resized": f"{geometry.resize_width}x{geometry.resize_height}",
            "threads": threads,
            "same bytes": "yes",
            **{f"{kernel} ms": taken for kernel, taken in times.items()},
        }
        if peer is not None:
            row |= {f"{kernel} / peer": times[kernel] / times["peer"] for kernel in kernels.available()}
        rows.append(row)
    return rows


def _arguments(rgb: NDArray[np.uint8], geometry: Plan) -> tuple[Any, ...]:
    return (
        rgb,
        (geometry.canvas_height, geometry.canvas_width),
        (geometry.resize_height, geometry.resize_width),
        (geometry.top, geometry.left),
        PROFILE.patch_size,
    )


def main() -> None:
    options, rounds = parse_options(__doc__ or "", rounds=21, quick_rounds=7)
    report = Report("kernel", rounds)
    cores = sorted(os.sched_getaffinity(0))
    for some in dict.fromkeys((tuple(cores[-1:]), tuple(cores))):
        # A process of its own, for the peer asks once how many cores there are.
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, spawn, os.sched_setaffinity, (0, some)) as process:
            report.rows += process.submit(measure, len(some), rounds, options.peers).result()
    report.show(options.json, packages=("numpy", "numexpr", "pillow"))


if __name__ == "__main__":
    main()
