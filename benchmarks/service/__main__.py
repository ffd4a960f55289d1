"""Measures the Preprocess service, and beside it what a frontend does in its own process if `--peers` names the folder
that `pip install --no-deps --target FOLDER sglang==0.5.23` filled.

The service is a process of its own, reached over TCP on this machine; our clients and the peer are in this process.
Every picture is another file, so the service's cache answers nowhere but where a row says so.
"""

import argparse
import asyncio
from contextlib import ExitStack, closing

from benchmarks.report import Report, parse_options
from benchmarks.service import memory, overload, rates, transports, waiting
from benchmarks.service.bench import Bench
from benchmarks.service.peer import Peer
from benchmarks.service.server import our_server

PARTS = {
    "rates": rates.measure,
    "transports": transports.measure,
    "waiting": waiting.measure,
    "memory": memory.measure,
    "formats": rates.measure_formats,
    "overload": overload.measure,
}
_QUICK_PARTS = ("rates", "transports", "memory")


def main() -> None:
    options, rounds = parse_options(__doc__ or "", rounds=9, quick_rounds=7, more_options=_add_options)
    report = Report("service", rounds)
    chosen = options.part or (_QUICK_PARTS if options.quick else tuple(PARTS))
    with ExitStack() as stack:
        peer = stack.enter_context(closing(Peer(options.peers))) if options.peers else None
        server = stack.enter_context(our_server())
        runner = stack.enter_context(asyncio.Runner())
        bench = Bench(runner, server, peer, report, rounds, options.quick)
        for part in chosen:
            PARTS[part](bench)
    if left_out := ", ".join(part for part in PARTS if part not in chosen):
        report.rows.append({"what": "left out", "picture": left_out})
    report.show(options.json, packages=("grpcio", "protobuf", "numpy", "pillow"))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", choices=PARTS, action="append", help="only this; may be given more than once")


if __name__ == "__main__":
    main()
