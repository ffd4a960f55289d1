"""How long callers wait: 1, 4 and 16 at once, each with one picture at a time."""

from statistics import quantiles

from benchmarks.service.bench import Bench
from benchmarks.service.pictures import GOAL_KINDS, PHOTO_12MP

CLIENTS = (1, 4, 16)
_TURNS = 3


def measure(bench: Bench) -> None:
    """Adds a row for each picture and number of callers."""
    for kind in GOAL_KINDS[:2] if bench.quick else GOAL_KINDS:
        bench.compare(kind)
        count = 32 if kind is PHOTO_12MP else 96
        for clients in CLIENTS:
            ours: list[float] = []
            peer: list[float] = []
            for _ in range(_TURNS):
                ours += bench.calls(kind.distinct(count), clients).latencies
                if bench.peer is not None:
                    peer += bench.peer.latencies(kind.distinct(count), clients)
            row = {"what": "waiting, ms", "picture": kind.name, "clients": clients, "pictures": len(ours)}
            bench.report.rows.append(row | _percentiles("ours", ours) | (_percentiles("peer", peer) if peer else {}))


def _percentiles(whose: str, seconds: list[float]) -> dict[str, float]:
    hundredths = quantiles(seconds, n=100, method="inclusive")
    return {f"{whose} p50": hundredths[49] * 1e3, f"{whose} p99": hundredths[98] * 1e3}
