"""The server's memory: at rest, at its peak, and after."""

import time

from benchmarks.service.bench import Bench
from benchmarks.service.pictures import PHOTO_12MP

_CLIENTS = 16
_PICTURES = 64
_SETTLING_SECONDS = 14.0
"""More than `memory_idle_seconds` of the server, after which it gives back what it does not need."""


def measure(bench: Bench) -> None:
    """Adds a row."""
    bench.compare(PHOTO_12MP)
    time.sleep(_SETTLING_SECONDS)
    before = bench.server.resident_mib()
    bench.server.forget_peak()
    bench.calls(PHOTO_12MP.distinct(_PICTURES), _CLIENTS)
    peak = bench.server.peak_mib()
    time.sleep(_SETTLING_SECONDS)
    bench.report.rows.append(
        {
            "what": "memory, MiB",
            "picture": PHOTO_12MP.name,
            "clients": _CLIENTS,
            "pictures": _PICTURES,
            "at rest": before,
            "peak": peak,
            "after": bench.server.resident_mib(),
        }
    )
