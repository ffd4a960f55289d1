"""What the Bootstrap service counts, for Prometheus. Calls, refusals by reason among them, are counted by `serving`."""

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from interlock.serving.metrics import SECONDS
from interlock.topology import Topology
from interlock_bootstrap.stores import Store

_PAGE = 200
NAMED_GROUPS = 100
"""Groups that are named in labels: the first that are not ready, in the order of their names."""


class BootstrapMetrics:
    """Counters of changes. What stands is read at each scrape, by `standing`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.commit_seconds = Histogram(
            "interlock_store_commit_seconds",
            "Time that the store takes for one commit, lost races included.",
            buckets=SECONDS,
            registry=registry,
        )
        self.requests = Counter(
            "interlock_committed_requests", "Requests that a commit settled, accepted or not.", registry=registry
        )
        self.lost_races = Counter(
            "interlock_store_lost_races", "Commits that another server was ahead of.", registry=registry
        )
        self.expiries = Counter("interlock_lease_expiries", "Routes whose lease ran out.", registry=registry)
        self.epochs = Counter("interlock_epochs_started", "Epochs that began.", registry=registry)


async def standing(store: Store, rooms: int, watchers: int) -> list[Metric]:
    """How groups, rooms and watchers stand."""
    groups = ready = registered = missing = 0
    incomplete = GaugeMetricFamily(
        "interlock_group_ranks_missing",
        f"Ranks that are missing, of the first {NAMED_GROUPS} groups that are not ready.",
        labels=["group"],
    )
    for topology in await _all_groups(store):
        groups += 1
        registered += topology.registered
        missing += topology.expected - topology.registered
        if topology.ready:
            ready += 1
        elif topology.registered and len(incomplete.samples) < NAMED_GROUPS:
            incomplete.add_metric([topology.group], topology.expected - topology.registered)
    return [
        GaugeMetricFamily("interlock_groups", "Groups that are known.", groups),
        GaugeMetricFamily("interlock_groups_ready", "Groups that are ready.", ready),
        GaugeMetricFamily("interlock_ranks_registered", "Live routes of all groups.", registered),
        GaugeMetricFamily("interlock_ranks_missing", "Ranks that are missing in all groups.", missing),
        GaugeMetricFamily("interlock_rooms", "Rooms that are kept.", rooms),
        GaugeMetricFamily("interlock_watchers", "Watches that are open.", watchers),
        incomplete,
    ]


async def _all_groups(store: Store) -> list[Topology]:
    known: list[Topology] = []
    while page := await store.groups(known[-1].group if known else "", _PAGE):
        known += page
    return known
