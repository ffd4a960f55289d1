"""What a Preprocess server is doing and has done, in plain numbers. All but the totals return to zero at rest."""

from collections import Counter
from dataclasses import dataclass, field

from interlock_preprocess.admission import Budget


@dataclass
class Counters:
    """Counted on the event loop only, so plain integers are enough."""

    sources: Budget
    """Memory for pictures as they were sent."""
    work: Budget
    """Memory for decoding, the kernel and patches that were not handed on yet."""
    cache: Budget
    """Memory for patches that are kept."""

    calls_open: int = 0
    """`PreprocessImage` calls."""
    streams_open: int = 0
    """`PreprocessImages` calls."""
    images_in_flight: int = 0
    """Pictures of streams between `begin` and their last frame."""
    images_queued: int = 0
    """Pictures that arrived whole and wait for a place of their stream or for a thread."""
    threads_busy: int = 0
    """Threads at work on a picture, whether anyone still wants it or not."""
    most_threads_busy: int = 0
    """The highest `threads_busy` since the start."""
    images_held: int = 0
    """Pictures that are queued, at work, or being handed on; one that several want counts once."""

    images_served: int = 0
    """Total of pictures whose patches were sent whole."""
    images_failed: Counter[str] = field(default_factory=Counter)
    """Total of pictures that failed, by reason."""

    cache_hits: int = 0
    """Total of pictures whose patches were there already."""
    cache_misses: int = 0
    """Total of pictures that had to be made."""
    cache_evictions: int = 0
    """Total of outputs that made way for others."""
    followers: int = 0
    """Total of pictures that were being made for another already."""

    def thread_begins(self) -> None:
        """A thread goes to work."""
        self.threads_busy += 1
        self.most_threads_busy = max(self.most_threads_busy, self.threads_busy)

    def thread_returned(self) -> None:
        """A thread is free again."""
        self.threads_busy -= 1

    @property
    def at_rest(self) -> bool:
        """Whether nothing is open, queued, at work or held, but for what the cache keeps."""
        return not any(
            (
                self.calls_open,
                self.streams_open,
                self.images_in_flight,
                self.images_queued,
                self.threads_busy,
                self.images_held,
                self.sources.taken,
                self.work.taken,
            )
        )
