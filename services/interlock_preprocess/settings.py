"""How a Preprocess server is set up. Every bound of its memory stands here."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from interlock.serving.config import Settings, SettingsError, setting

MIB = 1 << 20

MAX_CALL_SOURCE_BYTES = 16 * MIB
"""The most bytes of a picture that comes in one message (`PreprocessImage`)."""

MAX_PART_BYTES = 4 * MIB
"""The most bytes of one part of a picture on a stream."""

MAX_ID_BYTES = 128
"""The longest picture id, in UTF-8."""


@dataclass(frozen=True)
class PreprocessSettings(Settings):
    """Limits and sizes of a Preprocess server.

    A picture costs memory twice: its bytes as sent, from `begin` until they are decoded, out of
    `source_budget_bytes`; and decoding, kernel and patches, from the start of the work until the patches are handed
    to the transport, out of `work_budget_bytes`. The first is refused when it cannot be had, for the server must go
    on reading; the second is waited for, by work that holds nothing another picture needs in order to end. Patches
    that are kept are out of `cache_bytes` instead.
    """

    table: ClassVar[str] = "preprocess"

    kernel: str | None = setting(None, "Kernel to use, by name. Not set: the fastest there is.")
    kernel_cache_folder: Path | None = setting(
        None,
        "Folder where compiled kernels are kept; `interlock warmup` fills it. Not set: beside the package, else the "
        "user's own.",
    )
    worker_threads: int = setting(
        len(os.sched_getaffinity(0)),
        "Threads that decode pictures and cut patches, one picture each. The default is the number of usable CPUs.",
        minimum=1,
        maximum=1024,
    )
    max_images_in_flight: int = setting(
        128, "Credits of a stream: pictures between their begin and their last frame.", minimum=1, maximum=65_536
    )
    max_bytes_in_flight: int = setting(
        256 * MIB, "Credits of a stream: bytes of those pictures as sent; also the most of one picture.", minimum=MIB
    )
    source_budget_bytes: int = setting(
        1024 * MIB, "Memory for pictures as sent, of all calls together, in bytes.", minimum=MIB
    )
    work_budget_bytes: int = setting(
        6144 * MIB, "Memory for decoding, kernels and finished patches, of all calls together, in bytes.", minimum=MIB
    )
    max_queued_images: int = setting(
        1024,
        "Pictures that wait for a thread, of all calls together; a further one is refused (OVERLOADED).",
        minimum=1,
    )
    max_queue_seconds: float = setting(
        30.0,
        "Seconds that a picture may wait for a thread; one that does, or would have to, is refused (OVERLOADED).",
        minimum=0.0,
    )
    memory_idle_seconds: float = setting(
        10.0,
        "Seconds without a picture after which freed memory is given back to the system; it has to be had anew then, "
        "which costs a large picture some milliseconds.",
        minimum=0.01,
    )
    cache_bytes: int = setting(
        512 * MIB, "Memory for patches that are kept for the next time, in bytes. 0: none.", minimum=0
    )
    cache_per_token: bool = setting(
        False,
        "Whether callers with different tokens share nothing. Otherwise one may tell from the time of an answer that "
        "another had the same picture made.",
    )
    stall_timeout_seconds: float = setting(
        60.0,
        "A picture whose parts stop coming for so long fails; a call whose reader blocks a write for so long ends.",
        minimum=0.01,
    )
    shared_memory_folder: Path | None = setting(
        None,
        "Folder in memory (tmpfs) whose files callers on the same host may have patches put into; made if missing, for "
        "this user alone. Not set: memory is not shared.",
    )
    region_owner: int | None = setting(
        None, "User (uid) whose files in that folder are let in. Not set: the server's own.", minimum=0
    )
    max_regions: int = setting(
        128, "Files registered there at once; each takes a file descriptor.", minimum=1, maximum=65_536
    )
    max_region_bytes: int = setting(
        8192 * MIB,
        "Bytes of those files together. Only what was written to takes memory, which counts as the server's.",
        minimum=MIB,
    )
    region_ttl_seconds: float = setting(
        600.0,
        "Seconds without use after which a registered file is let go, if its caller names no others.",
        minimum=1,
    )
    max_region_ttl_seconds: float = setting(3600.0, "The most seconds that a caller may name.", minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_bytes_in_flight > self.source_budget_bytes:
            raise SettingsError(
                f"max_bytes_in_flight is {self.max_bytes_in_flight}, more than source_budget_bytes, "
                f"{self.source_budget_bytes}: no stream could ever use its credits"
            )
        if self.region_ttl_seconds > self.max_region_ttl_seconds:
            raise SettingsError(
                f"region_ttl_seconds is {self.region_ttl_seconds:g}, more than max_region_ttl_seconds, "
                f"{self.max_region_ttl_seconds:g}"
            )

    @property
    def max_source_bytes(self) -> int:
        """The most bytes that one picture of a stream may have: all the credits of the stream."""
        return self.max_bytes_in_flight

    @property
    def images_started_per_stream(self) -> int:
        """Pictures of one stream that may be at work or hold patches that were not handed on.

        Enough to keep every thread busy while finished patches are being sent; no more, so that a reader that does
        not read, or one with many pictures, leaves room for the others.
        """
        return self.worker_threads + 2
