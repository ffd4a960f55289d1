"""How the peer's clients call: by `requests`, as they do, or by the standard library's `http.client` alone.

`requests` calls by `http.client` too and puts much on top, so the latter is a client that nobody has, and the fastest
of its kind: a goal that is met beside it is met beside any.
"""

from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Protocol

_JSON = {"Content-Type": "application/json"}
_TIMEOUT = 60.0

Answer = tuple[int, bytes]
"""Status and body."""


class Connection(Protocol):
    """One that is kept alive from call to call."""

    def call(self, method: str, path: str, body: bytes | None = None) -> Answer: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class PeerHttp:
    """A way to call."""

    name: str
    connect: Callable[[int], Connection]
    """To a port of 127.0.0.1."""

    def call_once(self, port: int, method: str, path: str, body: bytes | None = None) -> Answer:
        """One call on a connection of its own."""
        connection = self.connect(port)
        try:
            return connection.call(method, path, body)
        finally:
            connection.close()


class _HttpClientConnection:
    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)

    def call(self, method: str, path: str, body: bytes | None = None) -> Answer:
        self._connection.request(method, path, body, _JSON if body else {})
        response = self._connection.getresponse()
        return response.status, response.read()

    def close(self) -> None:
        self._connection.close()


HTTP_CLIENT = PeerHttp("http.client", _HttpClientConnection)


def requests_client() -> PeerHttp:
    """The client that SGLang's workers have."""
    import requests

    class RequestsConnection:
        """A session of its own even for one call is what `requests.put` makes, too."""

        def __init__(self, port: int) -> None:
            self._session = requests.Session()
            self._url = f"http://127.0.0.1:{port}"

        def call(self, method: str, path: str, body: bytes | None = None) -> Answer:
            url, headers = self._url + path, _JSON if body else None
            response = self._session.request(method, url, data=body, headers=headers, timeout=_TIMEOUT)
            return response.status_code, response.content

        def close(self) -> None:
            self._session.close()

    return PeerHttp(f"requests {requests.__version__}", RequestsConnection)
