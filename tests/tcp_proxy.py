"""A TCP proxy that tests put between two servers, to lose what they say to one another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class TcpProxy:
    """Passes connections on to a port of 127.0.0.1. Made by `tcp_proxy`."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._open = True
        self._answers_lost = False
        self._ends: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def cut(self) -> None:
        """Breaks all connections, and every new one, until `mend`."""
        self._open = False
        self._break()

    def freeze(self) -> None:
        """Connections stay open and nothing passes any more, until `mend`."""
        self._flowing.clear()

    def lose_answers(self) -> None:
        """What the target says from now on is lost, until `mend`."""
        self._answers_lost = True

    def mend(self) -> None:
        """Passes on as before. Connections that lost something are broken."""
        if self._answers_lost:
            self._break()
        self._open, self._answers_lost = True, False
        self._flowing.set()

    def _break(self) -> None:
        for end in self._ends:
            end.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.add(writer)
        if not self._open:
            writer.transport.abort()
            return
        try:
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._ends.add(target_writer)
        for task in (self._pump(reader, target_writer), self._pump(target_reader, writer, answers=True)):
            pump = asyncio.create_task(task)
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        try:
            with suppress(ConnectionError):
                while data := await reader.read(1 << 16):
                    await self._flowing.wait()
                    if answers and self._answers_lost:
                        continue
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.transport.abort()

    async def close(self) -> None:
        self._break()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)


@asynccontextmanager
async def tcp_proxy(target_port: int) -> AsyncIterator[TcpProxy]:
    """A proxy that runs in the `async with` block."""
    proxy = TcpProxy(target_port)
    server = await proxy.serve()
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
