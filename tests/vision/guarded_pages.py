"""Runs the simd kernel on memory that lies between protected pages: a byte read or written outside ends the process.

python -m vision.guarded_pages CASES     the kernel, random pictures; prints how often it ran
python -m vision.guarded_pages outside   reads one byte outside, to show that it would be seen
"""

import ctypes
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from interlock.vision import kernels
from interlock.vision.kernels.simd import kernel as simd_kernel
from interlock.vision.kernels.simd.layout import Workspace
from vision.cases import random_case

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_NOTHING_ALLOWED = 0


class Guarded:
    """Memory with a protected page before it and behind it."""

    def __init__(self, size: int) -> None:
        self._size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, self._size + 2 * mmap.PAGESIZE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for page in (self._address, self._address + mmap.PAGESIZE + self._size):
            assert _libc.mprotect(page, mmap.PAGESIZE, _NOTHING_ALLOWED) == 0

    def array(self, size: int, at_end: bool) -> np.ndarray:
        """uint8[size] that ends where the page behind begins, or begins where the page before ends."""
        assert size <= self._size
        begin = self._address + mmap.PAGESIZE + (self._size - size if at_end else 0)
        return np.frombuffer((ctypes.c_uint8 * size).from_address(begin), np.uint8)


def compare(cases: int) -> int:
    """Run so many random cases, each with its memory flush with the page before and with that behind."""
    reference = kernels.get("reference").resize_patchify
    rng = np.random.default_rng(42)
    source, target, parts = Guarded(2 << 20), Guarded(1 << 20), [Guarded(4 << 20) for _ in range(4)]
    at_end = True

    @contextmanager
    def guarded_workspace(places: tuple[slice, ...], patch: int) -> Iterator[Workspace]:
        sizes = [place.stop - place.start for place in places]
        memory = [part.array(size, at_end) for part, size in zip(parts, sizes, strict=True)]
        yield Workspace(*memory, np.full(3 + patch, -1, np.int64))

    simd_kernel.workspace = guarded_workspace
    simd_kernel._STRIP_BYTES = 3000
    ran = 0
    for number in range(cases):
        rgb, geometry, profile = random_case(rng)
        expected = reference(rgb, geometry, profile)
        for at_end in (True, False):
            pixels = source.array(rgb.size, at_end).reshape(rgb.shape)
            pixels[...] = rgb
            words = target.array(expected.nbytes, at_end).view(np.uint16)
            words[:] = 0
            # One thread, for there is one workspace.
            made = simd_kernel.resize_patchify(pixels, geometry, profile, words)
            assert np.array_equal(made, expected), (number, rgb.shape, geometry, profile)
            ran += 1
    return ran


if __name__ == "__main__":
    if sys.argv[1] == "outside":
        inside = Guarded(1).array(1, at_end=True)
        print(ctypes.c_uint8.from_address(inside.ctypes.data + 1).value)
    else:
        print(compare(int(sys.argv[1])))
