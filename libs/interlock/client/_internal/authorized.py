"""A channel whose calls carry a token.

gRPC's own call credentials need TLS, also where the network is trusted; its interceptors stand between a stream and
whoever reads it. Both faces only ever make calls, so that is all that is done here.
"""

from collections.abc import Callable
from typing import Any

Metadata = tuple[tuple[str, str], ...]


class AuthorizedChannel:
    """Hands on everything to a channel, and to each call what `metadata` gives at that moment."""

    def __init__(self, channel: Any, metadata: Callable[[], Metadata]) -> None:
        self._channel = channel
        self._metadata = metadata

    def unary_unary(self, *arguments: Any, **options: Any) -> "_Method":
        return _Method(self._channel.unary_unary(*arguments, **options), self._metadata)

    def unary_stream(self, *arguments: Any, **options: Any) -> "_Method":
        return _Method(self._channel.unary_stream(*arguments, **options), self._metadata)

    def stream_stream(self, *arguments: Any, **options: Any) -> "_Method":
        return _Method(self._channel.stream_stream(*arguments, **options), self._metadata)

    def close(self) -> Any:
        return self._channel.close()


class _Method:
    def __init__(self, method: Any, metadata: Callable[[], Metadata]) -> None:
        self._method = method
        self._metadata = metadata

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._method(*arguments, **options, metadata=self._metadata())

    def future(self, *arguments: Any, **options: Any) -> Any:
        return self._method.future(*arguments, **options, metadata=self._metadata())
