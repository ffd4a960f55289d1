"""The ways a picture can take: one call, a stream; and how soon its first patches are there."""

from statistics import median

from benchmarks.report import Goal
from benchmarks.service import our_clients
from benchmarks.service.bench import Bench
from benchmarks.service.pictures import PHOTO_12MP

_COUNT = 8


def measure(bench: Bench) -> None:
    """Adds rows, and the goals `first_chunk_share` and `cache_shm_share`."""
    bench.compare(PHOTO_12MP)
    rates = bench.medians(
        PHOTO_12MP,
        _COUNT,
        {
            "a call each, 1 client": lambda files: bench.calls(files, 1).rate,
            "a call each, 4 clients": lambda files: bench.calls(files, 4).rate,
            "a stream, 4 in flight": lambda files: bench.stream(files, 4).rate,
            "a stream, 8 in flight": lambda files: bench.stream(files, 8).rate,
        },
    )
    for way, rate in rates.items():
        bench.report.rows.append(
            {"what": "pictures a second", "picture": PHOTO_12MP.name, "transport": way, "ours": rate}
        )
    times = [
        bench.runner.run(our_clients.first_chunk(bench.server.address, file))
        for file in PHOTO_12MP.distinct(3 * bench.rounds + 1)[1:]
    ]
    first, whole = (median(some) * 1e3 for some in zip(*times, strict=True))
    share = median(first / whole for first, whole in times)
    row = {"what": "first chunk, ms", "picture": PHOTO_12MP.name, "clients": 1, "ours": first, "whole": whole}
    bench.report.rows.append(row | {"ratio": share})
    bench.report.goals.append(Goal("first_chunk_share", share, 0.6, "lower"))
