"""How glibc keeps memory between pictures, and how it is made to give it back.

By default glibc returns the buffers of every picture to the kernel, and half of the time of decoding a large one goes
into faulting the same pages in again. So the service keeps freed memory while there is work, and hands it back when
it has been idle for a moment: all buffers are reused, and none of them by code of ours. Elsewhere (musl, macOS) both
are left to the system.
"""

import ctypes
import platform
from functools import cache

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8

_TRIM_BYTES = 1 << 30


@cache
def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next picture. Call it before threads start."""
    if (glibc := _glibc()) is not None:
        # No mappings of their own, which end when they are freed: the threshold for them ends at 32 MiB, and the pixels
        # of 12 megapixels take 35. A mix of large pictures took 17% less time than with that threshold, at one peak.
        glibc.mallopt(_M_MMAP_MAX, 0)
        glibc.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        # One arena for all threads: what one frees another uses, and only of the first does `malloc_trim` cut the top.
        glibc.mallopt(_M_ARENA_MAX, 1)


def return_freed_memory() -> None:
    """Give all freed memory back to the system. Takes milliseconds; not for the event loop."""
    if (glibc := _glibc()) is not None:
        glibc.malloc_trim(0)
