"""The last release, as its image tells: its messages, a client made from them, and a server that knows only them."""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from scripts.compatibility import IMAGE, releases

ROOT = Path(__file__).parents[2]
RELEASE = releases(ROOT)[-1]


def _pool() -> tuple[DescriptorPool, list[str]]:
    image = FileDescriptorSet.FromString((ROOT / "protos" / "releases" / RELEASE / IMAGE).read_bytes())
    pool = DescriptorPool()
    for file in image.file:
        pool.Add(file)
    services = [f"{file.package}.{service.name}" for file in image.file for service in file.service]
    return pool, services


_POOL, SERVICES = _pool()
METHODS: dict[str, MethodDescriptor] = {
    f"/{service}/{method.name}": method for service in SERVICES for method in _POOL.FindServiceByName(service).methods
}
"""The methods of the last release, by the path that a call has on the wire."""


def kind(full_name: str) -> type[Message]:
    """A message of the last release."""
    return GetMessageClass(_POOL.FindMessageTypeByName(full_name))


def bootstrap(name: str, **fields: Any) -> Any:
    return kind(f"interlock.bootstrap.v1.{name}")(**fields)


def preprocess(name: str, **fields: Any) -> Any:
    return kind(f"interlock.preprocess.v1.{name}")(**fields)


class PreviousClient:
    """Calls methods as a program does that was built from the last release."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        ((path, method),) = ((path, method) for path, method in METHODS.items() if method.name == name)
        return _callable(self._channel, path, method, GetMessageClass(method.output_type).FromString, _serialised)


def _serialised(message: Message) -> bytes:
    return message.SerializeToString()


def _callable(channel: grpc.aio.Channel, path: str, method: MethodDescriptor, read: Any, write: Any) -> Any:
    make = getattr(channel, _kind_of_call(method))
    return make(path, request_serializer=write, response_deserializer=read)


def _kind_of_call(method: MethodDescriptor) -> str:
    sides = ("stream" if streams else "unary" for streams in (method.client_streaming, method.server_streaming))
    return "_".join(sides)


class PreviousServer(grpc.GenericRpcHandler):
    """Answers as a server of the last release: it does not have newer methods, and sees nothing of newer fields.

    What it knows it has today's server do, so that the answers are real.
    """

    def __init__(self, today: grpc.aio.Channel) -> None:
        self._today = today

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        path = handler_call_details.method
        method = METHODS.get(path)
        if method is None:
            return None  # UNIMPLEMENTED
        call = _callable(self._today, path, method, None, None)
        asked, answered = GetMessageClass(method.input_type), GetMessageClass(method.output_type)

        async def one(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            try:
                return _known(answered, await call(request, timeout=context.time_remaining()))
            except grpc.aio.AioRpcError as error:
                return await _refuse(context, error)

        async def many(
            requests: bytes | AsyncIterator[bytes], context: grpc.aio.ServicerContext
        ) -> AsyncIterator[bytes]:
            try:
                async for answer in call(requests, timeout=context.time_remaining()):
                    yield _known(answered, answer)
            except grpc.aio.AioRpcError as error:
                await _refuse(context, error)

        handler = getattr(grpc, f"{_kind_of_call(method)}_rpc_method_handler")
        behaviour = many if method.server_streaming else one
        return handler(behaviour, request_deserializer=lambda data: _known(asked, data))


async def _refuse(context: grpc.aio.ServicerContext, error: grpc.aio.AioRpcError) -> Any:
    await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))


def _known(known: type[Message], data: bytes) -> bytes:
    """What of a message the last release knows."""
    message = known.FromString(data)
    message.DiscardUnknownFields()
    return message.SerializeToString()


async def stream_of(messages: Iterable[Message]) -> AsyncIterator[Message]:
    for message in messages:
        yield message
