"""Pictures a second beside the peer: the goals `images_ratio_12mp` and `images_ratio_smallest`."""

from collections.abc import Callable

from benchmarks.report import Goal
from benchmarks.service import pictures
from benchmarks.service.bench import Bench, Files
from benchmarks.service.pictures import GOAL_KINDS, PHOTO_12MP, Kind
from benchmarks.service.rows import FORMATS, RATES

CLIENTS = 4
"""More than there are cores, so that none waits for a caller."""


def measure(bench: Bench) -> None:
    """Adds a row for each picture that a goal names, and the goals if there is a peer."""
    ratios = {kind.name: _row(bench, kind, RATES) for kind in GOAL_KINDS}
    largest = ratios.pop(PHOTO_12MP.name)
    if bench.peer is not None:
        bench.report.goals += [
            Goal("images_ratio_12mp", largest, 3.0, "higher"),
            Goal("images_ratio_smallest", min(ratios.values()), 1.2, "higher"),
        ]


def measure_formats(bench: Bench) -> None:
    """Adds a row for each other format."""
    for kind in pictures.FORMATS:
        _row(bench, kind, FORMATS)


def _row(bench: Bench, kind: Kind, what: str) -> float:
    """Pictures a second of both; how many times those of the peer ours are, or 0 without one."""
    bench.compare(kind)
    contenders: dict[str, Callable[[Files], float]] = {"ours": lambda files: bench.calls(files, CLIENTS).rate}
    if bench.peer is not None:
        # The better of two ways counts: a picture in each thread of a pool, or one after the other on every core.
        contenders |= {"pool": bench.peer.in_threads, "one by one": bench.peer.one_by_one}
    rates = bench.medians(kind, _count(kind), contenders)
    row = {"what": what, "picture": kind.name, "clients": CLIENTS, "ours": rates["ours"]}
    bench.report.rows.append(row)
    if bench.peer is None:
        return 0.0
    way = max(("pool", "one by one"), key=rates.__getitem__)
    ratio = rates["ours"] / rates[way]
    row |= {"peer": rates[way], "peer's way": way, "ratio": ratio, "same bytes": "yes"}
    return ratio


def _count(kind: Kind) -> int:
    """Pictures a round: about a quarter of a second of work, by the pixels."""
    width, height = kind.size
    return max(8, min(64, 24_000_000 // (width * height)))
