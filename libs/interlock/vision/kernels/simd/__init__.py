"""The simd kernel: numba, with inner loops written as vectors. The same bytes as the others, twelve times as fast.

    kernel.py      what runs in Python: checks, strips, threads
    strips.py      a strip: source rows into a ring, rows of patches out of it
    horizontal.py  16 rows at a time: transposed, weighed, transposed back
    vertical.py    from the ring to words
    unresized.py   the short way for a picture that keeps its size
    vectors.py     the operations they are put together from, among them the one loop that weighs
    axis.py        where taps begin, and their weights
    codes.py       bfloat16 codes by arithmetic
    layout.py      a picture's numbers, and the memory that a thread works in

`docs/decisions/kernels.md` tells what was measured.
"""

from interlock.vision.kernels.disk_cache import kept_on_disk

with kept_on_disk():
    from interlock.vision.kernels.simd.kernel import resize_patchify

__all__ = ["resize_patchify"]
