"""The ways that a picture can take, how soon its first patches are there, and what the cache saves.

Gives the goals `first_chunk_share` and `cache_shm_share`.
"""

from collections.abc import Callable
from statistics import median

from benchmarks.report import Goal
from benchmarks.service import our_clients
from benchmarks.service.bench import Bench, Files
from benchmarks.service.our_clients import Taken, Way
from benchmarks.service.pictures import PHOTO_12MP
from benchmarks.service.rows import WAYS

_COUNT = 8
_SHARED = Way(shared_memory=True)
_BY_HASH = Way(hash_first=True)
_BY_HASH_SHARED = Way(shared_memory=True, hash_first=True)


def measure(bench: Bench) -> None:
    """Adds rows and goals; all for one client with one picture at a time, and rows of four besides."""
    bench.compare(PHOTO_12MP)
    (seen,) = PHOTO_12MP.distinct(1)
    bench.calls([seen], 1)

    def again(files: Files, clients: int, way: Way) -> Taken:
        return bench.calls([seen] * len(files), clients, way, cached=True)

    ways: dict[str, Callable[[Files, int], Taken]] = {
        "TCP, a call each": bench.calls,
        "TCP, one stream": bench.stream,
        "shared memory, a call each": lambda files, clients: bench.calls(files, clients, _SHARED),
        "shared memory, one stream": lambda files, clients: bench.stream(files, clients, _SHARED),
        "cached, TCP": lambda files, clients: again(files, clients, our_clients.TCP),
        "cached, TCP, hash first": lambda files, clients: again(files, clients, _BY_HASH),
        "cached, shared memory, hash first": lambda files, clients: again(files, clients, _BY_HASH_SHARED),
    }
    alone = bench.medians(PHOTO_12MP, _COUNT, {name: _latency(way) for name, way in ways.items()})
    together = bench.medians(PHOTO_12MP, _COUNT, {name: _rate(way) for name, way in ways.items()})
    for name in ways:
        row = {"what": WAYS, "picture": PHOTO_12MP.name, "way": name, "ms, 1 at a time": alone[name]}
        bench.report.rows.append(row | {"pictures a second, 4 at a time": together[name]})
    _first_chunk(bench)
    share = alone["cached, shared memory, hash first"] / alone["TCP, a call each"]
    bench.report.goals.append(Goal("cache_shm_share", share, 0.1, "lower"))


def _latency(way: Callable[[Files, int], Taken]) -> Callable[[Files], float]:
    return lambda files: median(way(files, 1).latencies) * 1e3


def _rate(way: Callable[[Files, int], Taken]) -> Callable[[Files], float]:
    return lambda files: way(files, 4).rate


def _first_chunk(bench: Bench) -> None:
    files = PHOTO_12MP.distinct(3 * bench.rounds + 1)
    times = [bench.runner.run(our_clients.first_chunk(bench.server.address, file)) for file in files][1:]
    first, whole = (median(some) * 1e3 for some in zip(*times, strict=True))
    share = median(first / whole for first, whole in times)
    row = {"what": "first chunk, ms", "picture": PHOTO_12MP.name, "clients": 1, "first": first, "whole": whole}
    bench.report.rows.append(row | {"share": share})
    bench.report.goals.append(Goal("first_chunk_share", share, 0.6, "lower"))
