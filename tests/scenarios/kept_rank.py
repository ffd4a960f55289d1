"""`python kept_rank.py ADDRESS GROUP SECONDS`: one rank of a group of two, kept registered by the SDK until SIGTERM."""

import signal
import sys
from types import FrameType

from interlock.client import BootstrapClient
from interlock.topology import Instance, ParallelSizes, RankKey, Route


def stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def main(address: str, group: str, seconds: float) -> None:
    signal.signal(signal.SIGTERM, stop)
    route = Route(
        key=RankKey(0, 0, 0, 0),
        incarnation=1,
        sizes=ParallelSizes(1, 1, 2, 1),
        rank_ip="10.0.0.1",
        rank_port=9000,
        page_size=64,
        kv_cache_dtype="bfloat16",
    )
    with (
        BootstrapClient(address) as client,
        client.registration(route, Instance("launch-1", 1), group=group, lease_ttl=seconds) as registration,
    ):
        print("registered", flush=True)
        registration.wait_lost()


main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
