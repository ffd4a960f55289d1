"""What a frontend does today, in its own process: Pillow decodes, SGLang's compiled kernel cuts patches."""

import io
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.kernel import PROFILE, load_peer
from interlock.vision import plan

THREADS = 2
"""Of the pool that a frontend has its pictures made in. The kernel besides uses every core for one picture."""


class Peer:
    """The peer, from the folder that `pip install --no-deps --target FOLDER sglang==0.5.23` filled."""

    def __init__(self, folder: str) -> None:
        kernel = load_peer(folder)
        assert kernel is not None
        self._kernel = kernel
        self._pool = ThreadPoolExecutor(THREADS)

    def patches(self, file: bytes) -> NDArray[np.uint16]:
        """The flat patches of one picture."""
        picture = Image.open(io.BytesIO(file))
        rgb = np.asarray(picture if picture.mode == "RGB" else picture.convert("RGB"))
        cut = plan(rgb.shape[1], rgb.shape[0], PROFILE)
        canvas, resized = (cut.canvas_height, cut.canvas_width), (cut.resize_height, cut.resize_width)
        return self._kernel(rgb, canvas, resized, (cut.top, cut.left), PROFILE.patch_size)

    def one_by_one(self, files: Sequence[bytes]) -> float:
        """Pictures a second where each is decoded in this thread, and cut on every core."""
        return _rate(len(files), lambda: [self.patches(file).size for file in files])

    def in_threads(self, files: Sequence[bytes]) -> float:
        """Pictures a second where each thread of the pool has one in hand."""
        return _rate(len(files), lambda: list(self._pool.map(lambda file: self.patches(file).size, files)))

    def latencies(self, files: Sequence[bytes], clients: int) -> list[float]:
        """Seconds of each picture, where so many callers at once wait for a place in the pool."""
        waiting = iter(files)

        def call(_: int) -> list[float]:
            taken = []
            for file in waiting:
                begun = perf_counter()
                self._pool.submit(self.patches, file).result()
                taken.append(perf_counter() - begun)
            return taken

        with ThreadPoolExecutor(clients) as callers:
            return [seconds for some in callers.map(call, range(clients)) for seconds in some]

    def close(self) -> None:
        """Ends the threads of the pool."""
        self._pool.shutdown()


def _rate(count: int, make: Callable[[], object]) -> float:
    begun = perf_counter()
    make()
    return count / (perf_counter() - begun)
