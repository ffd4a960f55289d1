"""What the parts of this benchmark share: the server, the peer, and measuring both by turns on pictures never seen."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.report import Report, median_readings
from benchmarks.service import our_clients
from benchmarks.service.our_clients import TCP, Taken, Way
from benchmarks.service.peer import Peer
from benchmarks.service.pictures import Kind
from benchmarks.service.server import OurServer
from interlock.client import Patches

Files = Sequence[bytes]


@dataclass
class Bench:
    """One run.

    Attributes:
        runner: runs our clients, all in one loop.
        server: ours.
        peer: the peer; None: not here.
        report: where rows and goals go.
        rounds: of each median.
        quick: leave out what is slow.
    """

    runner: asyncio.Runner
    server: OurServer
    peer: Peer | None
    report: Report
    rounds: int
    quick: bool

    def compare(self, kind: Kind) -> None:
        """Makes sure that both give the same bytes, which warms up both.

        Raises:
            SystemExit: they do not.
        """
        (file,) = kind.distinct(1)
        ours = self.runner.run(self._patches(file)).array.tobytes()
        if self.peer is not None and self.peer.patches(file).tobytes() != ours:
            raise SystemExit(f"{kind.name}: we and the peer gave different bytes")

    async def _patches(self, file: bytes) -> Patches:
        async with our_clients.connected(self.server.address, 1) as (client,):
            return await client.preprocess(file)

    def calls(self, files: Files, clients: int, way: Way = TCP, cached: bool = False) -> Taken:
        """A call a picture, so many at once, each client with a connection of its own."""
        return self.runner.run(self._calls(files, clients, way, cached))

    async def _calls(self, files: Files, clients: int, way: Way, cached: bool) -> Taken:
        async with our_clients.connected(self.server.address, clients, way) as connected:
            return await our_clients.one_call_each(connected, files, cached)

    def stream(self, files: Files, in_flight: int, way: Way = TCP) -> Taken:
        """All pictures on one stream, so many in flight."""
        return self.runner.run(self._stream(files, in_flight, way))

    async def _stream(self, files: Files, in_flight: int, way: Way) -> Taken:
        async with our_clients.connected(self.server.address, 1, way) as (client,):
            return await our_clients.one_stream(client, files, in_flight)

    def medians(self, kind: Kind, count: int, contenders: Mapping[str, Callable[[Files], float]]) -> dict[str, float]:
        """Medians of what contenders measure on `count` files that no one has seen, by turns."""

        def on_new_files(measure: Callable[[Files], float]) -> Callable[[], float]:
            return lambda: measure(kind.distinct(count))

        return median_readings({name: on_new_files(measure) for name, measure in contenders.items()}, self.rounds)
