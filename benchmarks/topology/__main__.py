"""Measures the Bootstrap service, and beside it the peer's registry if `--peers` names the folder that
`pip install --no-deps --target FOLDER sglang==0.5.23` filled.

Servers run in a process of their own each; all clients of a measurement share one, ours one thread of it.
"""

import asyncio
import shutil

from benchmarks.report import Report, median_readings, parse_options
from benchmarks.topology import growth, our_clients, recovery, side_by_side, watchers
from benchmarks.topology.ranks import Launch
from benchmarks.topology.servers import etcd, our_server
from benchmarks.topology.side_by_side import CLIENTS, RANKS_TEXT, SIZES

WATCHERS = 10_000


def main() -> None:
    options, rounds = parse_options(__doc__ or "", rounds=7, quick_rounds=3)
    report = Report("topology", rounds)
    with asyncio.Runner() as runner:
        side_by_side.measure(runner, report, options.peers, rounds, options.quick)
        growth.measure(runner, report, rounds, options.quick)
        if options.quick:
            slow = "registrations on etcd, idle watchers, recovery, learning by the peer's own HTTP client"
            report.rows.append({"what": "left out", "size": f"with --quick: {slow}"})
        else:
            watchers.measure(runner, report, WATCHERS, rounds)
            recovery.measure(runner, report, rounds)
            measure_etcd(runner, report, rounds)
    report.show(options.json, packages=("grpcio", "protobuf"))


def measure_etcd(runner: asyncio.Runner, report: Report, rounds: int) -> None:
    """Adds a row: registrations as in `side_by_side`, with one member of etcd below, if this machine has it."""
    if shutil.which("etcd") is None:
        report.rows.append({"what": "left out", "size": "registrations on etcd: there is no `etcd` on the path"})
        return
    groups = iter(range(1_000))
    with etcd() as endpoint, our_server("--store", "etcd", "--etcd-endpoints", endpoint) as server:

        def register() -> float:
            return runner.run(our_clients.register(server.address, f"etcd-{next(groups)}", Launch.now(SIZES), CLIENTS))

        seconds = median_readings({"ours": register}, rounds)
    row = {"what": "registration", "size": RANKS_TEXT, "store": "etcd, one member"}
    report.rows.append({**row, "rounds": rounds, "unit": "s", **seconds})


if __name__ == "__main__":
    main()
