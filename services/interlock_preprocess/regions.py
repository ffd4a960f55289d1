"""Shared memory: files of callers on the same host, that patches are put into instead of into chunks.

A caller makes a file in the server's shared-memory folder, maps it, and registers it by name. The server writes to it
with `pwrite` on a descriptor that it holds, and never maps it: whatever the caller does to its file meanwhile (cuts it
short, fills the file system, deletes it) is the fault of one picture, never a SIGBUS that ends the server.

What a name in the folder leads to is not trusted. It is opened without following a link and without waiting (a FIFO),
and must be a regular file with no second name, of the user whose files are let in.
"""

import asyncio
import os
import secrets
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from interlock.reasons import Reason
from interlock.serving.config import SettingsError
from interlock_preprocess.faults import ImageFault
from interlock_preprocess.settings import PreprocessSettings

_HANDLE_BYTES = 32  # 128 random bits in hexadecimal digits
_MAX_NAME_BYTES = 255  # of Linux
_LEAST_TTL_SECONDS = 1.0


@dataclass(frozen=True)
class Target:
    """Where in shared memory a picture goes."""

    handle: str
    offset: int
    """Byte of the region at which the patches begin."""
    size: int
    """Bytes from there that they may take; 0: as many as the region has."""
    field: str
    """Path of this in the caller's message."""


@dataclass(eq=False)
class Region:
    """A registered file. Made by `Regions.register`."""

    handle: str
    scope: str
    """Whose it is; nobody else can name it."""
    file_name: str
    size: int
    """Bytes of the region: what its caller registered."""
    file_size: int
    """Bytes of the file, then; at least `size`."""
    ttl: float
    number: int
    """Counts registrations; regions of one file name differ in it."""
    descriptor: int
    expires_at: float = 0.0
    ranges: "list[RegionRange]" = field(default_factory=list)
    """Those that pictures are writing to."""
    forgotten: bool = False

    def write(self, at: int, data: memoryview) -> None:
        """Write all of `data` at byte `at`. Blocks; `data` fits the region.

        A file that was cut short would silently grow again by the write, with a hole before it. So its size is looked
        at before and after. Cut in between, and made as long as before by this very write, it goes unseen: that takes
        a file with nothing behind its region, grows it no further than was admitted, and differs in its checksum.

        Raises:
            ImageFault: REGION_WRITE_FAILED.
        """
        try:
            self._check_size()
            left = data
            while left:
                if not (written := os.pwrite(self.descriptor, left, at)):
                    raise self._failed("takes no more bytes")
                at, left = at + written, left[written:]
            self._check_size()
        except OSError as error:
            raise self._failed(f"cannot be written to: {error.strerror}") from None

    def _check_size(self) -> None:
        if (size := os.fstat(self.descriptor).st_size) < self.file_size:
            raise self._failed(f"was cut short: it has {size} bytes now, and had {self.file_size}")

    def _failed(self, what: str) -> ImageFault:
        return ImageFault(Reason.REGION_WRITE_FAILED, f"the file {self.file_name!r} of the region {what}", "region")


class RegionRange:
    """Bytes of a region that one picture writes to. Made by `Regions.claim`; `release` it in the end."""

    def __init__(self, regions: "Regions", region: Region, offset: int, size: int) -> None:
        self._regions = regions
        self._region = region
        self._writing: asyncio.Future[None] | None = None
        self.offset = offset
        self.end = offset + size

    async def write(self, at: int, data: memoryview) -> None:
        """Write `data` at byte `at` of the range, in a thread. One write at a time.

        A write under way runs to its end, also when the caller of this is cancelled.

        Raises:
            ImageFault: REGION_WRITE_FAILED.
        """
        if not 0 <= at <= at + len(data) <= self.end - self.offset:
            raise ValueError(f"{len(data)} bytes at {at} of a range of {self.end - self.offset}")
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._region.write, self.offset + at, data))
        await asyncio.shield(self._writing)

    def release(self) -> None:
        """Let others write to the range, once nothing of this picture is being written any more. Doing it twice is
        harmless.

        A picture is released before its last frame is sent: from then on its caller may use the range for another.
        """
        if self._writing is None or self._writing.done():
            self._regions.release(self._region, self)
        else:  # only where the call was cut off in the middle of a write: there is no last frame
            self._writing.add_done_callback(lambda _: self.release())


class Regions:
    """All regions of a server. Its methods belong to the event loop.

    Args:
        settings: folder, bounds.
        clock: monotonic seconds.

    Raises:
        SettingsError: a folder is set, and cannot be used.
    """

    def __init__(self, settings: PreprocessSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._owner = os.geteuid() if settings.region_owner is None else settings.region_owner
        self._regions: dict[str, Region] = {}
        self._registered = 0
        self._expiry: asyncio.TimerHandle | None = None
        if settings.shared_memory_folder is not None:
            _prepare(settings.shared_memory_folder)

    @property
    def held(self) -> int:
        """Regions registered now."""
        return len(self._regions)

    @property
    def held_bytes(self) -> int:
        """Bytes of all regions registered now."""
        return sum(region.size for region in self._regions.values())

    def register(self, file_name: str, size: int, ttl: float | None, scope: str) -> Region:
        """Register a file of the folder, and write the handle at its beginning.

        Opening and these few bytes do not leave the event loop: the folder is one of memory, and nothing that is
        opened here can make it wait.

        Args:
            file_name: name in the folder.
            size: bytes of the region.
            ttl: seconds that it stays without being used. None: the server's default.
            scope: whose it is.

        Raises:
            ImageFault: SHARED_MEMORY_OFF, INVALID_FIELD, TOO_MANY_REGIONS, REGION_FILE_UNUSABLE, REGION_WRITE_FAILED.
        """
        settings = self._settings
        folder = self._folder()
        _check_name(file_name)
        if size < _HANDLE_BYTES:
            raise _invalid("size", f"size is {size}; a region holds at least its handle, {_HANDLE_BYTES} bytes")
        if ttl is None:
            ttl = settings.region_ttl_seconds
        elif not _LEAST_TTL_SECONDS <= ttl <= settings.max_region_ttl_seconds:
            raise _invalid(
                "ttl", f"ttl is {ttl:g} s; expected {_LEAST_TTL_SECONDS:g} to {settings.max_region_ttl_seconds:g} s"
            )
        self.expire()
        held, held_bytes = self.held, self.held_bytes
        if held >= settings.max_regions or held_bytes + size > settings.max_region_bytes:
            raise ImageFault(
                Reason.TOO_MANY_REGIONS,
                f"{held} regions with {held_bytes} bytes are registered and this one has {size}; this server takes "
                f"{settings.max_regions} with {settings.max_region_bytes} bytes",
                "size",
            )
        descriptor = _open(folder, file_name)
        try:
            file_size = self._checked_size(os.fstat(descriptor), file_name, size)
            handle = secrets.token_hex(_HANDLE_BYTES // 2)
            self._registered += 1
            region = Region(handle, scope, file_name, size, file_size, ttl, self._registered, descriptor)
            region.write(0, memoryview(handle.encode()))
        except BaseException:
            os.close(descriptor)
            raise
        self._regions[handle] = region
        self._renew(region)
        self._await_expiry()
        return region

    def unregister(self, handle: str, scope: str) -> bool:
        """Forget a region; False: there is none of that handle. Pictures that write to it do so to their end.

        Raises:
            ImageFault: SHARED_MEMORY_OFF.
        """
        self._folder()
        if (region := self._find(handle, scope)) is None:
            return False
        self._forget(region)
        return True

    def page(self, scope: str, after: tuple[str, int], size: int) -> list[Region]:
        """At most `size` regions of `scope`, in the order of file name and number, behind `after`.

        Raises:
            ImageFault: SHARED_MEMORY_OFF.
        """
        self._folder()
        self.expire()
        own = (region for region in self._regions.values() if region.scope == scope)
        return sorted((r for r in own if (r.file_name, r.number) > after), key=lambda r: (r.file_name, r.number))[:size]

    def time_left(self, region: Region) -> float:
        """Seconds that a region has from now when it is not used."""
        return region.ttl if region.ranges else max(0.0, region.expires_at - self._clock())

    def check(self, target: Target, scope: str) -> None:
        """Refuse a target that no picture can be put to, before the picture costs anything. Counts as use.

        Raises:
            ImageFault: as with `claim`.
        """
        self._usable(target, scope, 1)

    def claim(self, target: Target, scope: str, size: int) -> RegionRange:
        """`size` bytes from the target's offset on, for one picture alone.

        Raises:
            ImageFault: SHARED_MEMORY_OFF, UNKNOWN_REGION, INVALID_FIELD, REGION_TOO_SMALL, REGION_RANGE_IN_USE.
        """
        region, offset = self._usable(target, scope, size), target.offset
        claimed = RegionRange(self, region, offset, size)
        for other in region.ranges:
            if other.offset < claimed.end and offset < other.end:
                raise ImageFault(
                    Reason.REGION_RANGE_IN_USE,
                    f"another picture is being put to bytes {other.offset} to {other.end} of the region; this one "
                    f"takes {offset} to {claimed.end}",
                    f"{target.field}.offset",
                )
        region.ranges.append(claimed)
        return claimed

    def release(self, region: Region, claimed: RegionRange) -> None:
        """Take a range back; only ranges call it. Doing it twice is harmless."""
        if claimed in region.ranges:
            region.ranges.remove(claimed)
            if not region.forgotten:
                self._renew(region)
            elif not region.ranges:
                os.close(region.descriptor)

    def expire(self) -> None:
        """Forget the regions that were not used for their TTL."""
        now = self._clock()
        for region in list(self._regions.values()):
            if region.expires_at <= now and not region.ranges:
                self._forget(region)

    def close(self) -> None:
        """Forget all regions."""
        for region in list(self._regions.values()):
            self._forget(region)
        if self._expiry is not None:
            self._expiry.cancel()

    def _usable(self, target: Target, scope: str, size: int) -> Region:
        self._folder(target.field)
        if (region := self._find(target.handle, scope)) is None:
            raise ImageFault(
                Reason.UNKNOWN_REGION,
                "no region of this handle is registered: register it again, or leave the region out",
                f"{target.field}.handle",
            )
        self._renew(region)
        offset = target.offset
        if offset % 2:
            raise _invalid(
                f"{target.field}.offset", f"offset is {offset}; expected an even number, for patches are words"
            )
        end = min(region.size, offset + target.size) if target.size else region.size
        if offset + size > end:
            raise ImageFault(
                Reason.REGION_TOO_SMALL,
                f"patches at byte {offset} take {size} bytes or more; they may go to byte {end} of {region.size}",
                f"{target.field}.offset",
            )
        return region

    def _folder(self, field: str = "") -> Path:
        if self._settings.shared_memory_folder is None:
            raise ImageFault(
                Reason.SHARED_MEMORY_OFF,
                "this server shares no memory with its callers; leave the region out and read the chunks",
                field,
            )
        return self._settings.shared_memory_folder

    def _find(self, handle: str, scope: str) -> Region | None:
        self.expire()
        region = self._regions.get(handle)
        return region if region is not None and region.scope == scope else None

    def _renew(self, region: Region) -> None:
        region.expires_at = self._clock() + region.ttl

    def _forget(self, region: Region) -> None:
        del self._regions[region.handle]
        region.forgotten = True
        if not region.ranges:
            os.close(region.descriptor)

    def _await_expiry(self) -> None:
        """Have regions expire while nobody calls: their files take memory."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._regions:
            soonest = min(self.time_left(region) for region in self._regions.values())
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(max(soonest, _LEAST_TTL_SECONDS), self._expire_in_time)

    def _expire_in_time(self) -> None:
        self.expire()
        self._await_expiry()

    def _checked_size(self, status: os.stat_result, file_name: str, size: int) -> int:
        if not stat.S_ISREG(status.st_mode):
            raise _unusable(file_name, "is no regular file")
        if status.st_nlink != 1:
            raise _unusable(file_name, f"has {status.st_nlink} names; expected one")
        if status.st_uid != self._owner:
            raise _unusable(
                file_name, f"belongs to user {status.st_uid}; this server takes files of user {self._owner}"
            )
        if status.st_size < size:
            raise _unusable(file_name, f"has {status.st_size} bytes, and the region {size}", "size")
        return status.st_size


def _prepare(folder: Path) -> None:
    """Make the folder if it is missing, for this user alone.

    Raises:
        SettingsError: it cannot be made or is no folder, or the system is not Linux.
    """
    if sys.platform != "linux":
        raise SettingsError(f"shared_memory_folder is {str(folder)!r}; memory is shared on Linux only, so leave it out")
    try:
        folder.mkdir(0o700, exist_ok=True)
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
    except (OSError, ValueError) as error:
        raise SettingsError(f"shared_memory_folder cannot be used: {error}") from None


def _open(folder: Path, file_name: str) -> int:
    try:
        # Opened anew each time: the folder may have been deleted and made again.
        within = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return os.open(file_name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=within)
        finally:
            os.close(within)
    except OSError as error:
        raise _unusable(file_name, f"cannot be opened: {error.strerror}") from None


def _check_name(file_name: str) -> None:
    if not 1 <= len(file_name.encode()) <= _MAX_NAME_BYTES:
        raise _invalid("file_name", f"file_name has {len(file_name.encode())} bytes; expected 1 to {_MAX_NAME_BYTES}")
    if file_name in (".", "..") or "/" in file_name or "\0" in file_name:
        raise _invalid("file_name", "file_name is the name of a file in the shared-memory folder, without a slash")


def _unusable(file_name: str, what: str, field: str = "file_name") -> ImageFault:
    return ImageFault(Reason.REGION_FILE_UNUSABLE, f"the file {file_name!r} {what}", field)


def _invalid(field: str, message: str) -> ImageFault:
    return ImageFault(Reason.INVALID_FIELD, message, field)
