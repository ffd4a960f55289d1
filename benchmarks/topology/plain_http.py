"""HTTP/1.1 as the peer's clients speak it, with nothing that costs time: asyncio protocols and bytes made by hand.

Their own library (`requests`) spends ten times as long on a call, so this flatters the peer.
"""

import asyncio
from types import TracebackType
from typing import Self


class HttpError(Exception):
    """The peer answered otherwise than the benchmark needs."""


class Connection(asyncio.Protocol):
    """One connection, one call at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    @classmethod
    async def open(cls, port: int) -> Self:
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._transport is not None
        self._transport.close()

    async def call(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        assert self._transport is not None
        self._answer = self._loop.create_future()
        self._transport.write(request)
        return await self._answer

    async def expect_ok(self, request: bytes) -> bytes:
        """Body of the answer.

        Raises:
            HttpError: the status is another one than 200.
        """
        status, body = await self.call(request)
        if status != 200:
            raise HttpError(f"{request[:200]!r} was answered {status}: {body[:200]!r}")
        return body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator or self._answer is None:
            return
        if len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]):
            self._received = b""
            self._answer.set_result((int(head[9:12]), body))
            self._answer = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None:
            self._answer.set_exception(exc or HttpError("the connection was closed in place of an answer"))
            self._answer = None


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """The bytes of a request."""
    content = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{content}\r\n".encode() + body


async def call_once(port: int, data: bytes) -> tuple[int, bytes]:
    """One call on a connection of its own."""
    async with await Connection.open(port) as connection:
        return await connection.call(data)


async def expect_ok_once(port: int, data: bytes) -> bytes:
    """One call on a connection of its own. Raises as `Connection.expect_ok`."""
    async with await Connection.open(port) as connection:
        return await connection.expect_ok(data)
