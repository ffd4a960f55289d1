"""What the peer can do too: registering, learning the topology, rooms."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from benchmarks.report import Goal, Report, median_readings
from benchmarks.topology import our_clients, peer_clients
from benchmarks.topology.peer_http import HTTP_CLIENT, PeerHttp, requests_client
from benchmarks.topology.ranks import Addresses, Launch
from benchmarks.topology.servers import our_server, peer_server, sqlite_flags
from interlock.topology import ParallelSizes

SIZES = ParallelSizes(dp=4, cp=2, tp=8, pp=8)
CLIENTS = 64
RANKS_TEXT = f"{SIZES.product} ranks, {CLIENTS} clients"

_DECODERS = 64
_ROOMS = 10_000
_ROOMS_A_CALL = 1_000

Contenders = dict[str, Callable[[], float]]


class SideBySide:
    """Measures us, on SQLite, and the peer, if there is one, by turns.

    Our server runs on and serves another group in each round; the peer's, which has one group, is started anew.
    """

    def __init__(self, runner: asyncio.Runner, address: str, peers: str | None) -> None:
        self._run = runner.run
        self._address = address
        self._peers = peers
        self._groups = 0

    def registrations(self, http: PeerHttp) -> Contenders:
        """Seconds until all ranks are acknowledged."""

        def ours() -> float:
            return self._run(our_clients.register(self._address, self._new_group(), Launch.now(SIZES), CLIENTS))

        return self._beside(ours, lambda port: peer_clients.register(http, port, Launch.now(SIZES), CLIENTS))

    def topologies(self, http: PeerHttp) -> Contenders:
        """Seconds from the first registration until every decode client holds the address of every rank."""

        def ours() -> float:
            launch = Launch.now(SIZES)
            watched = our_clients.register_and_watch(self._address, self._new_group(), launch, CLIENTS, _DECODERS)
            return _checked(self._run(watched), launch)

        def peer(port: int) -> float:
            launch = Launch.now(SIZES)
            return _checked(peer_clients.register_and_poll(http, port, launch, CLIENTS, _DECODERS), launch)

        return self._beside(ours, peer)

    def rooms(self, http: PeerHttp) -> Contenders:
        """Rooms registered and resolved a second."""
        rng = random.Random(1)
        dp_ranks = {rng.getrandbits(63): rng.randrange(SIZES.dp) for _ in range(_ROOMS)}
        names = list(dp_ranks)
        batches = [names[start : start + _ROOMS_A_CALL] for start in range(0, _ROOMS, _ROOMS_A_CALL)]

        def ours() -> float:
            group = self._new_group()
            self._run(our_clients.register(self._address, group, Launch.now(ParallelSizes(SIZES.dp, 1, 1, 1)), 1))
            packed = [{room: dp_ranks[room] for room in batch} for batch in batches]
            registering = self._run(our_clients.register_rooms(self._address, group, packed, CLIENTS))
            querying, found = self._run(our_clients.query_rooms(self._address, group, batches))
            return rate(registering + querying, found)

        def peer(port: int) -> float:
            registering = peer_clients.register_rooms(http, port, dp_ranks, CLIENTS)
            querying, found = peer_clients.query_rooms(http, port, batches)
            return rate(registering + querying, found)

        def rate(seconds: float, found: dict[int, int]) -> float:
            if found != dp_ranks:
                raise SystemExit("the DP ranks of the rooms are not those that were registered")
            return _ROOMS / seconds

        return self._beside(ours, peer)

    def _new_group(self) -> str:
        self._groups += 1
        return f"side-by-side-{self._groups}"

    def _beside(self, ours: Callable[[], float], peer: Callable[[int], float]) -> Contenders:
        folder = self._peers
        if folder is None:
            return {"ours": ours}

        def on_a_new_server() -> float:
            with peer_server(folder) as port:
                return peer(port)

        return {"ours": ours, "peer": on_a_new_server}


def measure(runner: asyncio.Runner, report: Report, peers: str | None, rounds: int, quick: bool) -> None:
    """Adds rows, and goals if there is a peer."""
    with sqlite_flags() as flags, our_server(*flags) as server:
        both = SideBySide(runner, server.address, peers)

        def add(what: str, size: str, unit: str, contenders: Contenders, http: PeerHttp) -> float | None:
            medians = median_readings(contenders, rounds)
            row: dict[str, Any] = {"what": what, "size": size, "store": "sqlite", "rounds": rounds, "unit": unit}
            report.rows.append(row | medians)
            if "peer" not in medians:
                return None
            ratio = medians["ours"] / medians["peer"]
            report.rows[-1] |= {"peer's client": http.name, "ratio": ratio, "same answers": "yes"}
            return ratio

        def hold(name: str, value: float | None, limit: float, better: str) -> None:
            if value is not None:
                report.goals.append(Goal(name, value, limit, better))

        learning = f"{RANKS_TEXT}, {_DECODERS} decode clients"
        rooms = f"{_ROOMS} rooms, {CLIENTS} clients, ours {_ROOMS_A_CALL} a call"
        bare = HTTP_CLIENT
        hold("time_to_topology_ratio", add("topology", learning, "s", both.topologies(bare), bare), 0.1, "lower")
        hold("rooms_ratio", add("rooms", rooms, "rooms/s", both.rooms(bare), bare), 5.0, "higher")
        add("registration", RANKS_TEXT, "s", both.registrations(bare), bare)
        if peers is not None:
            own = requests_client()
            hold("registration_ratio", add("registration", RANKS_TEXT, "s", both.registrations(own), own), 1.0, "lower")
            if not quick:
                add("topology", learning, "s", both.topologies(own), own)


def _checked(watched: tuple[float, list[Addresses]], launch: Launch) -> float:
    seconds, known = watched
    if any(addresses != launch.addresses for addresses in known):
        raise SystemExit("a decode client ended with other addresses than the ranks registered")
    return seconds
