"""Histories for as long as one likes: `python -m faults --seconds 600 --seed 1`, with `tests` on the path.

Prints every round with its seed; ends with the counts of all. Exit code 1: a history was not as it must be.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from faults.campaign import Tally, run_round
from faults.clusters import IMPATIENT, running_cluster, running_single
from faults.kill_storms import storm


async def run(seconds: float, seed: int, folder: Path) -> Tally:
    """Rounds on a cluster, now and then one on a single server and a `kill -9` in a storm, until the time is over."""
    tally = Tally()
    ends_at = time.monotonic() + seconds
    (folder / "single").mkdir()
    async with running_cluster(folder, IMPATIENT) as cluster, running_single(folder / "single") as single:
        if cluster.network is None:
            print("this machine lets us make no networks: nothing will be cut off", flush=True)
        while time.monotonic() < ends_at:
            on_single = len(tally.seeds) % 5 == 4
            await run_round(single if on_single else cluster, seed, tally, folder)
            for number, replica in enumerate([single.replicas[0], cluster.replicas[seed % 3]]):
                await storm(replica, number, seed)
                tally.faults["kill in a storm"] += 1
            print(f"seed {seed} on {'SQLite' if on_single else 'etcd'}: no fault found", flush=True)
            seed += 1
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="faults", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="interlock-faults-"))
    print(f"logs and histories are in {folder}", flush=True)
    try:
        tally = asyncio.run(run(arguments.seconds, arguments.seed, folder))
    except AssertionError as error:
        print(error, file=sys.stderr)
        return 1
    print(tally)
    return 0


sys.exit(main())
