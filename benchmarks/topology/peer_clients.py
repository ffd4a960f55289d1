"""The peer's clients, as `sglang` 0.5.23 has them: blocking calls, one thread a client.

A rank's PUT, the sentinel and a room's POST each have a connection of their own; a decode server's row GETs and its
room queries share one that is kept alive. They call by `requests`; here it is the standard library's `http.client`,
which is what `requests` itself calls by, and takes a quarter of the time or less.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import TypeVar

from benchmarks.topology.ranks import Addresses, Launch
from interlock.topology import ParallelSizes, RankKey

POLL_SECONDS = 1.0
"""Between two looks of a decode server whether all ranks have registered."""

_JSON = {"Content-Type": "application/json"}
_SENTINEL = RankKey(-1, -1, -1, -1)

R = TypeVar("R")
T = TypeVar("T")


def register(port: int, launch: Launch, clients: int) -> float:
    """Registers every rank, one after another from each client. Seconds until the last is acknowledged."""
    bodies = _Taken(launch.put_bodies())
    return _together([lambda: _put_all(port, bodies)] * clients)[0]


def register_and_poll(port: int, launch: Launch, clients: int, decoders: int) -> tuple[float, list[Addresses]]:
    """Ranks register while decode servers ask for them. Seconds until the last of these has every row, and the rows.

    Decode servers do not start in the same moment: their looks are spread evenly over the time between two.
    """
    bodies = _Taken(launch.put_bodies())
    ranks: list[Callable[[], Addresses]] = [lambda: _put_all(port, bodies)] * clients
    polling = [_poller(port, launch.sizes, POLL_SECONDS * number / decoders) for number in range(decoders)]
    seconds, results = _together([*ranks, *polling])
    return seconds, results[clients:]


def register_rooms(port: int, dp_ranks: Mapping[int, int], clients: int) -> float:
    """Registers rooms, one a call. Seconds until the last is acknowledged."""
    bodies = _Taken(
        json.dumps({"bootstrap_room": room, "dp_rank": dp_rank}).encode() for room, dp_rank in dp_ranks.items()
    )

    def client() -> None:
        for body in bodies:
            _call_once(port, "POST", "/register_dp_rank", body)

    return _together([client] * clients)[0]


def query_rooms(port: int, batches: Sequence[Sequence[int]]) -> tuple[float, dict[int, int]]:
    """Asks for rooms in batches, one after another. Seconds, and what is known of them."""
    found: dict[int, int] = {}
    connection = HTTPConnection("127.0.0.1", port)
    start = time.perf_counter()
    for rooms in batches:
        body = json.dumps({"bootstrap_rooms": rooms}).encode()
        answer = json.loads(_expect_ok(connection, "POST", "/query_dp_ranks", body))
        found |= {int(room): dp_rank for room, dp_rank in answer.items()}
    seconds = time.perf_counter() - start
    connection.close()
    return seconds, found


def _put_all(port: int, bodies: "_Taken[bytes]") -> Addresses:
    for body in bodies:
        _call_once(port, "PUT", "/route", body)
    return {}


def _poller(port: int, sizes: ParallelSizes, first_look: float) -> Callable[[], Addresses]:
    """A decode server that asks from `first_look` seconds on until every rank has registered, then gets each row."""

    def poll() -> Addresses:
        time.sleep(first_look)
        while not _ready(port):
            time.sleep(POLL_SECONDS)
        connection = HTTPConnection("127.0.0.1", port)
        addresses: Addresses = {}
        for key in sizes.rank_keys():
            row = json.loads(_expect_ok(connection, "GET", _route_path(key)))
            addresses[key] = row["rank_ip"], row["rank_port"]
        connection.close()
        return addresses

    return poll


def _ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("GET", _route_path(_SENTINEL))
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status == 200


def _route_path(key: RankKey) -> str:
    query = f"prefill_dp_rank={key.dp}&prefill_cp_rank={key.cp}&target_tp_rank={key.tp}&target_pp_rank={key.pp}"
    return f"/route?{query}"


def _call_once(port: int, method: str, path: str, body: bytes) -> None:
    connection = HTTPConnection("127.0.0.1", port)
    _expect_ok(connection, method, path, body)
    connection.close()


def _expect_ok(connection: HTTPConnection, method: str, path: str, body: bytes | None = None) -> bytes:
    connection.request(method, path, body, _JSON if body else {})
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise SystemExit(f"the peer answered {response.status} to {method} {path}: {answer[:200]!r}")
    return answer


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
