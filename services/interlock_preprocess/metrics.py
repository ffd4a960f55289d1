"""What the Preprocess service counts, for Prometheus. Calls and refusals are counted by `serving`."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from interlock.serving.metrics import SECONDS
from interlock.vision import FORMATS
from interlock_preprocess.counters import Counters

RAW, OTHER = "raw", "other"


class PreprocessMetrics:
    """What pictures cost, by the format of their source. What stands is read at each scrape, by `standing`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._wait_seconds = Histogram(
            "interlock_preprocess_wait_seconds",
            "Time that pictures wait for a thread and for memory.",
            buckets=SECONDS,
            registry=registry,
        )
        self._decode_seconds = _by_format(registry, "decode", "Time to decode one picture.")
        self._kernel_seconds = _by_format(registry, "kernel", "Time to resize one picture and cut its patches.")
        self._source_bytes = Counter(
            "interlock_preprocess_source_bytes",
            "Bytes of pictures, as sent, that patches were made of.",
            ["format"],
            registry=registry,
        )
        self._patch_bytes = Counter(
            "interlock_preprocess_patch_bytes", "Bytes of patches that were made.", registry=registry
        )

    def picture_made(
        self, source_format: str, *, source_bytes: int, patch_bytes: int, wait: float, decode: float, kernel: float
    ) -> None:
        """The patches of one picture are there; all times in seconds.

        Args:
            source_format: as `SourceInfo.format`; empty for raw pixels.
            source_bytes: as sent.
            patch_bytes: of its patches.
            wait: for a thread and memory.
            decode: of decoding.
            kernel: in the kernel.
        """
        label = _label(source_format)
        self._wait_seconds.observe(wait)
        if label != RAW:
            self._decode_seconds.labels(label).observe(decode)
        self._kernel_seconds.labels(label).observe(kernel)
        self._source_bytes.labels(label).inc(source_bytes)
        self._patch_bytes.inc(patch_bytes)


async def standing(counters: Counters, threads: int) -> Iterable[Metric]:
    """How the service stands, and its totals."""
    taken = GaugeMetricFamily(
        "interlock_preprocess_budget_taken_bytes",
        "Memory that pictures have of each budget: as sent, at work, kept.",
        labels=["budget"],
    )
    limits = GaugeMetricFamily(
        "interlock_preprocess_budget_limit_bytes", "Memory that each budget has.", labels=["budget"]
    )
    for name, budget in (("source", counters.sources), ("work", counters.work), ("cache", counters.cache)):
        taken.add_metric([name], budget.taken)
        limits.add_metric([name], budget.limit)
    failed = CounterMetricFamily(
        "interlock_preprocess_pictures_failed", "Pictures that failed, by reason.", labels=["reason"]
    )
    for reason, count in counters.images_failed.items():
        failed.add_metric([reason], count)
    found = CounterMetricFamily(
        "interlock_preprocess_pictures_found",
        "Where the patches of pictures came from: the cache, another's work under way, or work of their own.",
        labels=["how"],
    )
    for how, count in (
        ("cached", counters.cache_hits),
        ("under_way", counters.followers),
        ("made", counters.cache_misses),
    ):
        found.add_metric([how], count)
    return [
        GaugeMetricFamily("interlock_preprocess_threads", "Threads that work on pictures.", threads),
        GaugeMetricFamily(
            "interlock_preprocess_threads_busy", "Threads that are at work on a picture.", counters.threads_busy
        ),
        GaugeMetricFamily(
            "interlock_preprocess_pictures_queued", "Pictures that wait for a thread.", counters.images_queued
        ),
        GaugeMetricFamily(
            "interlock_preprocess_demand",
            "Pictures at work and waiting for a thread, for each thread there is: over 1, some wait.",
            (counters.threads_busy + counters.images_queued) / threads,
        ),
        GaugeMetricFamily(
            "interlock_preprocess_pictures_in_flight",
            "Pictures of streams between their begin and their last frame.",
            counters.images_in_flight,
        ),
        CounterMetricFamily(
            "interlock_preprocess_pictures_served", "Pictures whose patches were sent whole.", counters.images_served
        ),
        CounterMetricFamily(
            "interlock_preprocess_cache_evictions", "Patches that made way for others.", counters.cache_evictions
        ),
        failed,
        found,
        taken,
        limits,
    ]


def _by_format(registry: CollectorRegistry, what: str, meaning: str) -> Histogram:
    return Histogram(f"interlock_preprocess_{what}_seconds", meaning, ["format"], buckets=SECONDS, registry=registry)


def _label(source_format: str) -> str:
    """One of a fixed number of labels: a decoder of Pillow may call a variant as it likes."""
    if not source_format:
        return RAW
    return source_format.lower() if source_format in FORMATS else OTHER
