"""What the peer can do too: registering, learning the topology, rooms."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from benchmarks.report import Goal, Report, median_readings
from benchmarks.topology import our_clients, peer_clients
from benchmarks.topology.ranks import Addresses, Launch
from benchmarks.topology.servers import our_server, peer_server, sqlite_flags
from interlock.topology import ParallelSizes

SIZES = ParallelSizes(dp=4, cp=2, tp=8, pp=8)
CLIENTS = 64
ROOMS = 10_000
ROOMS_A_CALL = 1_000

SIZE_TEXT = f"{SIZES.product} ranks (DP {SIZES.dp}, CP {SIZES.cp}, TP {SIZES.tp}, PP {SIZES.pp}), {CLIENTS} clients"


class SideBySide:
    """Measures us, on SQLite, and the peer, if there is one, by turns.

    Our server runs on and serves another group in each round; the peer's, which has one group, is started anew.
    """

    def __init__(self, runner: asyncio.Runner, address: str, peers: str | None) -> None:
        self._run = runner.run
        self._address = address
        self._peers = peers
        self._groups = 0

    def registrations(self) -> dict[str, Callable[[], float]]:
        """Seconds until all ranks are acknowledged."""

        def ours() -> float:
            return self._run(our_clients.register(self._address, self._new_group(), Launch.now(SIZES), CLIENTS))

        return self._beside(ours, lambda port: peer_clients.register(port, Launch.now(SIZES), CLIENTS))

    def topologies(self) -> dict[str, Callable[[], float]]:
        """Seconds from the first registration until every decode client holds the address of every rank."""

        def ours() -> float:
            launch = Launch.now(SIZES)
            watched = our_clients.register_and_watch(self._address, self._new_group(), launch, CLIENTS, CLIENTS)
            return _checked(self._run(watched), launch)

        def peer(port: int) -> float:
            launch = Launch.now(SIZES)
            return _checked(peer_clients.register_and_poll(port, launch, CLIENTS, CLIENTS), launch)

        return self._beside(ours, peer)

    def rooms(self) -> dict[str, Callable[[], float]]:
        """Rooms registered and resolved a second."""
        rng = random.Random(1)
        dp_ranks = {rng.getrandbits(63): rng.randrange(SIZES.dp) for _ in range(ROOMS)}
        names = list(dp_ranks)
        batches = [names[start : start + ROOMS_A_CALL] for start in range(0, ROOMS, ROOMS_A_CALL)]

        def ours() -> float:
            group = self._new_group()
            self._run(our_clients.register(self._address, group, Launch.now(ParallelSizes(SIZES.dp, 1, 1, 1)), 1))
            packed = [{room: dp_ranks[room] for room in batch} for batch in batches]
            registering = self._run(our_clients.register_rooms(self._address, group, packed, CLIENTS))
            querying, found = self._run(our_clients.query_rooms(self._address, group, batches))
            return _rate(registering + querying, found)

        def peer(port: int) -> float:
            registering = peer_clients.register_rooms(port, dp_ranks, CLIENTS)
            querying, found = peer_clients.query_rooms(port, batches)
            return _rate(registering + querying, found)

        def _rate(seconds: float, found: dict[int, int]) -> float:
            if found != dp_ranks:
                raise SystemExit("the DP ranks of the rooms are not those that were registered")
            return ROOMS / seconds

        return self._beside(ours, peer)

    def _new_group(self) -> str:
        self._groups += 1
        return f"side-by-side-{self._groups}"

    def _beside(self, ours: Callable[[], float], peer: Callable[[int], float]) -> dict[str, Callable[[], float]]:
        folder = self._peers
        if folder is None:
            return {"ours": ours}

        def on_a_new_server() -> float:
            with peer_server(folder) as port:
                return peer(port)

        return {"ours": ours, "peer": on_a_new_server}


def measure(runner: asyncio.Runner, report: Report, peers: str | None, rounds: int) -> None:
    """Adds rows, and goals if there is a peer."""
    with sqlite_flags() as flags, our_server(*flags) as server:
        both = SideBySide(runner, server.address, peers)
        _add(report, "registration", SIZE_TEXT, "s", median_readings(both.registrations(), rounds), rounds)
        _add(report, "time to topology", SIZE_TEXT, "s", median_readings(both.topologies(), rounds), rounds)
        size = f"{ROOMS} rooms, ours {ROOMS_A_CALL} a call, {CLIENTS} clients"
        _add(report, "rooms", size, "rooms/s", median_readings(both.rooms(), rounds), rounds)
    ratios = {row["what"]: row["ratio"] for row in report.rows if "ratio" in row}
    for name, what, limit, better in (
        ("time_to_topology_ratio", "time to topology", 0.1, "lower"),
        ("registration_ratio", "registration", 1.0, "lower"),
        ("rooms_ratio", "rooms", 5.0, "higher"),
    ):
        if what in ratios:
            report.goals.append(Goal(name, ratios[what], limit, better))


def _add(report: Report, what: str, size: str, unit: str, medians: dict[str, float], rounds: int) -> None:
    row: dict[str, Any] = {"what": what, "size": size, "store": "sqlite", "rounds": rounds, "unit": unit, **medians}
    if "peer" in medians:
        row |= {"ratio": medians["ours"] / medians["peer"], "same answers": "yes"}
    report.rows.append(row)


def _checked(watched: tuple[float, list[Addresses]], launch: Launch) -> float:
    seconds, known = watched
    if any(addresses != launch.addresses for addresses in known):
        raise SystemExit("a decode client ended with other addresses than the ranks registered")
    return seconds
