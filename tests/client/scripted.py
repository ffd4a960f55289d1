"""Small real servers that do what a test tells them, and what no good server would do."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from interlock.bootstrap.v1 import bootstrap_service_pb2_grpc
from interlock.client import (
    AsyncBootstrapClient,
    AsyncPreprocessClient,
    BootstrapClient,
    PreprocessClient,
    RetryPolicy,
)
from interlock.preprocess.v1 import preprocess_service_pb2_grpc
from interlock.reasons import DOMAIN

PATIENCE = 30.0
"""Seconds after which a condition that never comes fails a test."""

QUICK = RetryPolicy(attempts=5, first_delay=0.01, longest_delay=0.05)


def refuse(
    context: grpc.ServicerContext,
    reason: str,
    code: grpc.StatusCode,
    message: str = "no",
    *details: Message,
    metadata: dict[str, str] | None = None,
    retry_delay: float | None = None,
) -> None:
    """Ends the call as an Interlock service would."""
    info = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata or {})
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in (info, *details):
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    if retry_delay is not None:
        delay = Duration()
        delay.FromNanoseconds(int(retry_delay * 1e9))
        packed = AnyMessage()
        packed.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        status.details.append(packed)
    context.abort_with_status(rpc_status.to_status(status))


@dataclass
class Script:
    """Answers of one method, one a call; the last one is used again. Keeps the requests and how calls ended."""

    answers: list[Callable[[Any, grpc.ServicerContext], Any]]
    requests: list[Any] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.requests.append(request)
        self.ended.clear()
        context.add_callback(self.ended.set)
        return self.answers[min(len(self.requests), len(self.answers)) - 1](request, context)


def unavailable(request: Any, context: grpc.ServicerContext) -> None:
    """What a proxy says that finds no server: no ErrorInfo."""
    context.abort(grpc.StatusCode.UNAVAILABLE, "connection lost")


def gives(message: Message) -> Callable[[Any, grpc.ServicerContext], Message]:
    """Answers with this message."""
    return lambda request, context: message


def refuses(*args: Any, **kwargs: Any) -> Callable[[Any, grpc.ServicerContext], None]:
    """Refuses as `refuse` does."""
    return lambda request, context: refuse(context, *args, **kwargs)


def hangs(request: Any, context: grpc.ServicerContext) -> None:
    """Answers only when the caller has gone."""
    gone = threading.Event()
    if context.add_callback(gone.set):
        gone.wait(PATIENCE)


def streams(*messages: Message, then: Callable[[Any, grpc.ServicerContext], Any] | None = None) -> Any:
    """Sends these messages, then does the last thing."""

    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Message]:
        yield from messages
        if then is not None:
            then(request, context)

    return answer


@contextmanager
def serving(
    bootstrap: object | None = None, preprocess: object | None = None, address: str = "127.0.0.1:0"
) -> Iterator[str]:
    """A server with these servicers; its address."""
    server = grpc.server(futures.ThreadPoolExecutor(16), options=(("grpc.so_reuseport", 0),))
    if bootstrap is not None:
        bootstrap_service_pb2_grpc.add_BootstrapServiceServicer_to_server(bootstrap, server)
    if preprocess is not None:
        preprocess_service_pb2_grpc.add_PreprocessServiceServicer_to_server(preprocess, server)
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def bootstrap_servicer(**scripts: Script) -> object:
    """A Bootstrap servicer with scripted methods."""
    return type("Scripted", (bootstrap_service_pb2_grpc.BootstrapServiceServicer,), _methods(scripts))()


def preprocess_servicer(**scripts: Callable[[Any, grpc.ServicerContext], Any]) -> object:
    """A Preprocess servicer with scripted methods."""
    return type("Scripted", (preprocess_service_pb2_grpc.PreprocessServiceServicer,), _methods(scripts))()


def _methods(scripts: dict[str, Any]) -> dict[str, Any]:
    def method(script: Any) -> Any:
        return lambda servicer, request, context: script(request, context)

    return {name: method(script) for name, script in scripts.items()}


class SyncFace:
    """Drives the synchronous clients."""

    bootstrap = BootstrapClient
    preprocess = PreprocessClient

    def call(self, client: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        with client:
            return getattr(client, method)(*args, **kwargs)

    def take(self, count: int | None, client: Any, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """The first items of a stream, which is then left; all of them for None."""
        items: list[Any] = []
        with client:
            for item in getattr(client, method)(*args, **kwargs):
                items.append(item)
                if len(items) == count:
                    break
        return items

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """As `call`, beside a server that runs on this event loop."""
        return await asyncio.to_thread(self.call, *args, **kwargs)

    async def atake(self, *args: Any, **kwargs: Any) -> list[Any]:
        """As `take`, likewise."""
        return await asyncio.to_thread(self.take, *args, **kwargs)


class AsyncFace:
    """Drives the asynchronous clients: those of scripted servers all on one event loop."""

    bootstrap = AsyncBootstrapClient
    preprocess = AsyncPreprocessClient

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return self._runner.run(self.acall(*args, **kwargs))

    def take(self, *args: Any, **kwargs: Any) -> list[Any]:
        return self._runner.run(self.atake(*args, **kwargs))

    async def acall(self, client: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        async with client:
            return await getattr(client, method)(*args, **kwargs)

    async def atake(self, count: int | None, client: Any, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        items: list[Any] = []
        async with client:
            async for item in getattr(client, method)(*args, **kwargs):
                items.append(item)
                if len(items) == count:
                    break
        return items


Face = SyncFace | AsyncFace
