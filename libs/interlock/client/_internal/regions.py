"""Shared memory on the caller's side: a file that is mapped once, and ranges of it for pictures in flight.

A range belongs to its picture from `begin` on. When the patches are complete it belongs to the array that is made of
it, and is free again when that array and all views of it are gone. A range that the server may still write to (its
last word on the picture never came) is never used again: its whole region is given up for a new one.
"""

import mmap
import os
import secrets
import stat
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from google.protobuf.duration_pb2 import Duration

from interlock.client.errors import RefusedError, SharedMemoryError
from interlock.preprocess.v1 import preprocess_pb2
from interlock.reasons import Reason

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SharedMemoryMode = bool | Literal["auto"]

DEFAULT_FOLDER = "/dev/shm/interlock"
FOLDER_VARIABLE = "INTERLOCK_PREPROCESS_SHARED_MEMORY_FOLDER"
"""The variable that sets the server's folder too."""

REGION_REASONS = frozenset(
    {
        Reason.SHARED_MEMORY_OFF,
        Reason.UNKNOWN_REGION,
        Reason.REGION_TOO_SMALL,
        Reason.REGION_RANGE_IN_USE,
        Reason.REGION_WRITE_FAILED,
    }
)
"""Why a picture cannot be put into a region; it is sent again, to be answered in chunks."""

_PAGE = mmap.PAGESIZE
_TTL_SECONDS = 600
_REFUSED_PAUSE = 60.0
"""Seconds until a server that shares no memory is asked again: it may be another one by then."""
_UNREACHABLE_PAUSE = 10.0


class Region:
    """A file of the shared-memory folder. Private to one client; the server sees it once it is registered."""

    def __init__(self, folder: Path, size: int) -> None:
        """Makes the file. It takes memory only where something is written.

        Raises:
            OSError: it cannot be made.
        """
        self.size = size
        self.handle = ""
        self.retired = False
        """No further ranges are taken of it."""
        self.file_name = f"{os.getpid()}-{secrets.token_hex(16)}"
        self._path = folder / self.file_name
        # The server runs as this user, or else shares a folder that its group may write to.
        mode = 0o660 if folder.stat().st_mode & stat.S_IWGRP else 0o600
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        try:
            os.fchmod(self._descriptor, mode)
            # One page more than is registered: so the server sees any cut, even one that its own write fills up again.
            os.ftruncate(self._descriptor, size + _PAGE)
        except BaseException:
            self.discard()
            raise

    def request(self) -> preprocess_pb2.RegisterRegionRequest:
        """Asks the server to register it."""
        return preprocess_pb2.RegisterRegionRequest(
            file_name=self.file_name, size=self.size, ttl=Duration(seconds=_TTL_SECONDS)
        )

    def open(self, handle: str) -> bool:
        """Maps the file, if the server has written this handle into it: else it has another folder than we.

        The file then loses its name, so that it is gone as soon as both sides have let go, however they end.
        """
        # Read, not seen through the map: reading a hole there would take memory.
        seen = handle != "" and os.pread(self._descriptor, len(handle), 0) == handle.encode()
        if seen:
            self.handle = handle
            self._map = mmap.mmap(self._descriptor, self.size)
            self._free = [(_PAGE, self.size)]
            self._returned: deque[tuple[int, int]] = deque()
        self.discard()
        return seen

    def discard(self) -> None:
        """Deletes the file; what is mapped stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            with suppress(OSError):
                self._path.unlink()

    def take(self, size: int) -> "RegionRange | None":
        """A free range of at least `size` bytes, the first that is large enough: pages that were used are used again.
        One thread at a time."""
        while self._returned:  # filled by finalizers, which run in any thread and at any time
            self._merge(*self._returned.popleft())
        size = -(-size // _PAGE) * _PAGE
        for index, (begin, end) in enumerate(self._free):
            if end - begin >= size:
                self._free[index : index + 1] = [(begin + size, end)] if end - begin > size else []
                return RegionRange(self, begin, begin + size)
        return None

    def give_back(self, begin: int, end: int) -> None:
        """A range is free again. From any thread, also while another one is being taken."""
        self._returned.append((begin, end))

    def words(self, begin: int, count: int) -> "NDArray[np.uint16]":
        """An array of what lies at `begin`. The map stays for as long as such arrays do."""
        import numpy as np

        return np.frombuffer(self._map, "<u2", count, begin)

    def _merge(self, begin: int, end: int) -> None:
        index = next((i for i, free in enumerate(self._free) if free[0] > begin), len(self._free))
        if index < len(self._free) and self._free[index][0] == end:
            end = self._free.pop(index)[1]
        if index and self._free[index - 1][1] == begin:
            index -= 1
            begin = self._free.pop(index)[0]
        self._free.insert(index, (begin, end))


class RegionRange:
    """Bytes of a region that one picture's patches go to. Exactly one of the last three methods settles its fate;
    the first one called."""

    def __init__(self, region: Region, begin: int, end: int) -> None:
        self._region = region
        self._begin = begin
        self._end = end
        self._settled = False

    @property
    def size(self) -> int:
        """Its bytes."""
        return self._end - self._begin

    def target(self) -> preprocess_pb2.RegionTarget:
        """Names it to the server."""
        return preprocess_pb2.RegionTarget(handle=self._region.handle, offset=self._begin, size=self.size)

    def shrink(self, size: int) -> None:
        """Gives back what is behind the first `size` bytes."""
        end = self._begin + -(-size // _PAGE) * _PAGE
        if end < self._end:
            self._region.give_back(end, self._end)
            self._end = end

    def words(self, count: int) -> "NDArray[np.uint16]":
        """What the server wrote. The range is free again when this array and all views of it are gone."""
        words = self._region.words(self._begin, count)
        self._settled = True
        # NumPy's views refer to the first array over a foreign buffer, this one, and not to what it refers to.
        weakref.finalize(words, self._region.give_back, self._begin, self._end).atexit = False
        return words

    def give_back(self) -> None:
        """The server is done with the picture, and its patches are not wanted."""
        if not self._settled:
            self._settled = True
            self._region.give_back(self._begin, self._end)

    def lose(self) -> None:
        """Whether the server still writes to it is not known."""
        if not self._settled:
            self._settled = True
            self._region.retired = True


class SharedMemory:
    """The region of one client, and whether there can be one. Without I/O but for the file; a face calls the server.

    May be used from many threads.

    Args:
        mode: True: it is an error where memory cannot be shared. "auto": then patches come in chunks. False: never.
        folder: where files are made. None: what the environment says, or `DEFAULT_FOLDER`.
        size: bytes of the region.
        clock: monotonic seconds.

    Raises:
        SharedMemoryError: it is asked for, and this system cannot share memory.
        ValueError: the size is too small.
    """

    def __init__(
        self,
        mode: SharedMemoryMode,
        folder: "str | os.PathLike[str] | None",
        size: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if size < 2 * _PAGE:
            raise ValueError(f"shared_memory_bytes is {size}; expected at least {2 * _PAGE}")
        if mode is True and sys.platform != "linux":
            raise SharedMemoryError("memory is shared on Linux only; leave shared_memory out")
        self.enabled = mode is not False and sys.platform == "linux"
        self._required = mode is True
        self._folder = Path(folder or os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER)
        self._size = size // _PAGE * _PAGE
        self._clock = clock
        self._lock = threading.Lock()
        self._region: Region | None = None
        self._ask_at = 0.0
        self._asking = False
        self._given_up: deque[str] = deque()

    def offer(self) -> Region | None:
        """A region to register now. None: there is one already, or it is too early to ask again. What came of it has
        to be told to `opened` or `failed`.

        Raises:
            SharedMemoryError: no file can be made, and memory has to be shared.
        """
        if not self.enabled:
            return None
        with self._lock:
            if self._region is not None and self._region.retired:
                self._drop()
            if self._region is not None or self._asking or self._clock() < self._ask_at:
                return None
            try:
                region = Region(self._folder, self._size)
            except OSError as error:
                self._ask_at = self._clock() + _REFUSED_PAUSE
                if self._required:
                    raise SharedMemoryError(f"no file can be made in {str(self._folder)!r}: {error}") from error
                return None
            self._asking = True
            return region

    def opened(self, region: Region, response: preprocess_pb2.RegisterRegionResponse) -> None:
        """The server has registered it.

        Raises:
            SharedMemoryError: it has another folder, and memory has to be shared.
        """
        try:
            seen = region.open(response.handle)
        except OSError as error:  # no room for the map
            self.failed(region, error)
            return
        with self._lock:
            self._asking = False
            if seen:
                self._region = region
                return
            self._ask_at = self._clock() + _REFUSED_PAUSE
            self._given_up.append(response.handle)
        if self._required:
            raise SharedMemoryError(f"the server's shared-memory folder is not {str(self._folder)!r} of this side")

    def failed(self, region: Region, error: BaseException) -> None:
        """It could not be registered.

        Raises:
            SharedMemoryError: the server refused it, and memory has to be shared.
        """
        region.discard()
        refused = isinstance(error, RefusedError | OSError)
        with self._lock:
            self._asking = False
            self._ask_at = self._clock() + (_REFUSED_PAUSE if refused else _UNREACHABLE_PAUSE)
        if refused and self._required:
            raise SharedMemoryError(f"memory cannot be shared: {error}") from error

    def take(self, size: int) -> RegionRange | None:
        """A range for a picture of at most `size` bytes. None: there is none; have the patches sent in chunks."""
        with self._lock:
            if self._region is None or self._region.retired:
                return None
            return self._region.take(size)

    def refused(self, place: "RegionRange", reason: str) -> None:
        """The server did not put a picture there, for one of `REGION_REASONS`; it is done with that picture."""
        if reason == Reason.REGION_TOO_SMALL:
            place.give_back()
            return
        place.lose()
        if reason in (Reason.SHARED_MEMORY_OFF, Reason.REGION_WRITE_FAILED):  # a new region would fare no better
            with self._lock:
                self._ask_at = self._clock() + _REFUSED_PAUSE

    def farewells(self) -> "list[preprocess_pb2.UnregisterRegionRequest]":
        """What the server still has to be told of regions that are no longer used."""
        handles = []
        with suppress(IndexError):
            while True:
                handles.append(self._given_up.popleft())
        return [preprocess_pb2.UnregisterRegionRequest(handle=handle) for handle in handles]

    def close(self) -> None:
        """The client ends; arrays stay."""
        with self._lock:
            self.enabled = False
            self._drop()

    def _drop(self) -> None:
        if self._region is not None:
            self._given_up.append(self._region.handle)
            self._region.retired = True
            self._region = None
