"""The kernels beside the peer's: SGLang's compiled `dsv41.resize_patchify`, on one core and on two.

`--peers` names a folder that `pip install --no-deps --target FOLDER sglang==0.5.23` filled. The peer uses as many
threads as there are cores it may run on, so "one thread" is a process held to one core. Input is an RGB array, output a
new one. Bytes a second count the source and the patches, and stand beside a copy of memory, which reads and writes too.

Another machine's code can be measured as well, where this one has the instructions:

    NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES=+avx2,+fma,+bmi2 python -m benchmarks.kernel
"""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
from llvmlite import binding
from numba import config
from numpy.typing import NDArray
from PIL import Image

from benchmarks.report import Goal, Report, medians, parse_options
from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, Plan, kernels

PROFILE = PROFILES[DEFAULT_PROFILE_NAME]
PATCH = PROFILE.patch_size

RESIZED = (
    ((640, 480), (308, 238)),
    ((640, 480), (644, 490)),
    ((1920, 1080), (952, 532)),
    ((4032, 3024), (2016, 1512)),
    ((4032, 3024), (1344, 1008)),
    ((3000, 4000), (560, 756)),
)
"""Width and height of the picture, and to what it is resized; all of the canvas."""

UNRESIZED = (((644, 476), (644, 476)), ((2016, 1512), (2016, 1512)))

LIMITS = {"simd_{}t_geomean": 0.08, "simd_{}t_worst": 0.12, "simd_{}t_patchify": 0.25, "numexpr_{}t_geomean": 1.0}
"""Of the peer's time, for so many threads."""

COPIED = 64 << 20
"""Bytes of the copy that the kernels stand beside: more than any cache."""

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
    fast = [kernels.get(name) for name in ("simd", "numexpr")]
    here, there = np.zeros(COPIED, np.uint8), np.zeros(COPIED, np.uint8)
    copy_seconds = medians({"copy": partial(np.copyto, there, here)}, max(rounds, 7))["copy"] / 1e3
    copied = 2 * COPIED / copy_seconds / 1e9
    rows = []
    for size, resized in (*RESIZED, *UNRESIZED):
        rgb, geometry = photograph(*size), whole_canvas(*resized)
        contenders: dict[str, Patchify] = {
            kernel.name: partial(kernel.resize_patchify, rgb, geometry, PROFILE, threads=threads) for kernel in fast
        }
        if peer is not None:
            contenders["peer"] = partial(peer, *_arguments(rgb, geometry))
        words = [make() for make in contenders.values()]
        if len({made.tobytes() for made in words}) != 1:
            raise SystemExit(f"{size}: the kernels gave different bytes")
        times = medians(contenders, rounds)
        gigabytes = (rgb.nbytes + words[0].nbytes) / times["simd"] / 1e6
        row: dict[str, Any] = {
            "picture": "{}x{}".format(*size),
            "resized": "no" if size == resized else "{}x{}".format(*resized),
            "threads": threads,
            "same bytes": "yes",
            **{f"{kernel} ms": taken for kernel, taken in times.items()},
            "simd GB/s": gigabytes,
            "of a copy": gigabytes / copied,
        }
        if peer is not None:
            row |= {f"{kernel.name} / peer": times[kernel.name] / times["peer"] for kernel in fast}
        rows.append(row)
    return rows


def goals_of(rows: list[dict[str, Any]], threads: int) -> list[Goal]:
    """What the rows of so many threads come to, beside the peer."""
    resized, unresized = ([row for row in rows if (row["resized"] == "no") is kept] for kept in (False, True))
    values = (
        geometric_mean(row["simd / peer"] for row in resized),
        max(row["simd / peer"] for row in resized),
        geometric_mean(row["simd / peer"] for row in unresized),
        geometric_mean(row["numexpr / peer"] for row in resized),
    )
    return [
        Goal(name.format(threads), value, limit, "lower")
        for (name, limit), value in zip(LIMITS.items(), values, strict=True)
    ]


def whole_canvas(width: int, height: int) -> Plan:
    """A plan that resizes to all of the canvas."""
    grid_width, grid_height = width // PATCH, height // PATCH
    token_grid_width, token_grid_height = (-(-side // PROFILE.downsample_ratio) for side in (grid_width, grid_height))
    return Plan(
        canvas_width=width,
        canvas_height=height,
        resize_width=width,
        resize_height=height,
        top=0,
        left=0,
        grid_width=grid_width,
        grid_height=grid_height,
        token_grid_width=token_grid_width,
        token_grid_height=token_grid_height,
        token_count=token_grid_height * (token_grid_width + 1) + 2,
    )


def _arguments(rgb: NDArray[np.uint8], geometry: Plan) -> tuple[Any, ...]:
    return (
        rgb,
        (geometry.canvas_height, geometry.canvas_width),
        (geometry.resize_height, geometry.resize_width),
        (geometry.top, geometry.left),
        PATCH,
    )


def main() -> None:
    options, rounds = parse_options(__doc__ or "", rounds=21, quick_rounds=7)
    report = Report("kernel", rounds)
    kernels.warm_up()  # so that the processes find the machine code
    cores = sorted(os.sched_getaffinity(0))
    for threads in range(1, min(2, len(cores)) + 1):
        # A process of its own, for the peer asks once how many cores there are.
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, spawn, os.sched_setaffinity, (0, cores[-threads:])) as process:
            rows = process.submit(measure, threads, rounds, options.peers).result()
        report.rows += rows
        if options.peers is not None:
            report.goals += goals_of(rows, threads)
    report.machine += f", compiled for {config.CPU_NAME or binding.get_host_cpu_name()}"
    report.show(options.json, packages=("numpy", "numba", "numexpr", "pillow"))


if __name__ == "__main__":
    main()
