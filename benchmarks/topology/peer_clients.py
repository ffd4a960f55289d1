"""The peer's clients, as `sglang` 0.5.23 has them: blocking calls, one thread a client.

A rank's PUT, the sentinel and a room's POST each have a connection of their own; a decode server's row GETs and its
room queries share one that is kept alive.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from benchmarks.topology.peer_http import Answer, PeerHttp
from benchmarks.topology.ranks import Addresses, Launch
from interlock.topology import ParallelSizes, RankKey

POLL_SECONDS = 1.0
"""Between two looks of a decode server whether all ranks have registered."""

_SENTINEL = RankKey(-1, -1, -1, -1)

R = TypeVar("R")
T = TypeVar("T")


def register(http: PeerHttp, port: int, launch: Launch, clients: int) -> float:
    """Registers every rank, one after another from each client. Seconds until the last is acknowledged."""
    bodies = _Taken(launch.put_bodies())
    return _together([lambda: _put_all(http, port, bodies)] * clients)[0]


def register_and_poll(
    http: PeerHttp, port: int, launch: Launch, clients: int, decoders: int
) -> tuple[float, list[Addresses]]:
    """Ranks register while decode servers ask for them. Seconds until the last of these has every row, and the rows.

    Decode servers do not start in the same moment: their looks are spread evenly over the time between two.
    """
    bodies = _Taken(launch.put_bodies())
    ranks: list[Callable[[], Addresses]] = [lambda: _put_all(http, port, bodies)] * clients
    polling = [_poller(http, port, launch.sizes, POLL_SECONDS * number / decoders) for number in range(decoders)]
    seconds, results = _together([*ranks, *polling])
    return seconds, results[clients:]


def register_rooms(http: PeerHttp, port: int, dp_ranks: Mapping[int, int], clients: int) -> float:
    """Registers rooms, one a call. Seconds until the last is acknowledged."""
    bodies = _Taken(
        json.dumps({"bootstrap_room": room, "dp_rank": dp_rank}).encode() for room, dp_rank in dp_ranks.items()
    )

    def client() -> None:
        for body in bodies:
            _ok(http.call_once(port, "POST", "/register_dp_rank", body))

    return _together([client] * clients)[0]


def query_rooms(http: PeerHttp, port: int, batches: Sequence[Sequence[int]]) -> tuple[float, dict[int, int]]:
    """Asks for rooms in batches, one after another. Seconds, and what is known of them."""
    found: dict[int, int] = {}
    connection = http.connect(port)
    start = time.perf_counter()
    for rooms in batches:
        body = json.dumps({"bootstrap_rooms": rooms}).encode()
        answer = json.loads(_ok(connection.call("POST", "/query_dp_ranks", body)))
        found |= {int(room): dp_rank for room, dp_rank in answer.items()}
    seconds = time.perf_counter() - start
    connection.close()
    return seconds, found


def _put_all(http: PeerHttp, port: int, bodies: "_Taken[bytes]") -> Addresses:
    for body in bodies:
        _ok(http.call_once(port, "PUT", "/route", body))
    return {}


def _poller(http: PeerHttp, port: int, sizes: ParallelSizes, first_look: float) -> Callable[[], Addresses]:
    """A decode server that asks from `first_look` seconds on until every rank has registered, then gets each row."""

    def poll() -> Addresses:
        time.sleep(first_look)
        while http.call_once(port, "GET", _route_path(_SENTINEL))[0] != 200:
            time.sleep(POLL_SECONDS)
        connection = http.connect(port)
        addresses: Addresses = {}
        for key in sizes.rank_keys():
            row = json.loads(_ok(connection.call("GET", _route_path(key))))
            addresses[key] = row["rank_ip"], row["rank_port"]
        connection.close()
        return addresses

    return poll


def _route_path(key: RankKey) -> str:
    query = f"prefill_dp_rank={key.dp}&prefill_cp_rank={key.cp}&target_tp_rank={key.tp}&target_pp_rank={key.pp}"
    return f"/route?{query}"


def _ok(answer: Answer) -> bytes:
    status, body = answer
    if status != 200:
        raise SystemExit(f"the peer answered {status}: {body[:200]!r}")
    return body


class _Taken(Iterator[T]):
    """What many threads take from, each thing once."""

    def __init__(self, things: Iterable[T]) -> None:
        self._things = iter(list(things))
        self._lock = threading.Lock()

    def __next__(self) -> T:
        with self._lock:
            return next(self._things)


def _together(clients: Sequence[Callable[[], R]]) -> tuple[float, list[R]]:
    """Runs each in a thread of its own, from the same moment on. Seconds until the last is done, and what they gave."""
    started = threading.Barrier(len(clients) + 1)

    def run(client: Callable[[], R]) -> R:
        started.wait()
        return client()

    with ThreadPoolExecutor(len(clients)) as threads:
        results = [threads.submit(run, client) for client in clients]
        started.wait()
        start = time.perf_counter()
        gathered = [result.result() for result in results]
        return time.perf_counter() - start, gathered
