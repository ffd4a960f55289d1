"""Requests that the tests of the Bootstrap service send, and how they read a refusal."""

import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from interlock.bootstrap.v1 import bootstrap_pb2 as pb

M = TypeVar("M", bound=Message)

INSTANCE = pb.Instance(id="launch-1", started_at=time.time_ns())
SIZES = pb.ParallelSizes(dp=1, cp=1, tp=2, pp=1)


def instance(number: int) -> pb.Instance:
    """The `number`th launch; a later one has a higher number."""
    return pb.Instance(id=f"launch-{number}", started_at=INSTANCE.started_at + number - 1)


def key(tp: int = 0, *, dp: int = 0, cp: int = 0, pp: int = 0) -> pb.RankKey:
    return pb.RankKey(dp=dp, cp=cp, tp=tp, pp=pp)


def route(tp: int = 0, *, sizes: pb.ParallelSizes = SIZES, **changed: object) -> pb.Route:
    """A valid route of one rank of a group of two."""
    message = pb.Route(
        key=key(tp),
        incarnation=1,
        sizes=sizes,
        rank_ip="10.0.0.1",
        rank_port=9000 + tp % 1000,
        page_size=64,
        kv_cache_dtype="bfloat16",
    )
    message.MergeFrom(pb.Route(**changed))
    return message


def registration(tp: int = 0, *, launch: int = 1, group: str = "", **changed: object) -> pb.RegisterRouteRequest:
    """A valid registration of one rank of a group of two."""
    return pb.RegisterRouteRequest(group=group, route=route(tp, **changed), instance=instance(launch))


@dataclass(frozen=True)
class Refused:
    """What a refused call told."""

    code: grpc.StatusCode
    message: str
    status: status_pb2.Status

    @property
    def reason(self) -> str:
        info = self.detail(error_details_pb2.ErrorInfo)
        assert info.domain == "interlock"
        return info.reason

    @property
    def fields(self) -> list[str]:
        return [violation.field for violation in self.detail(error_details_pb2.BadRequest).field_violations]

    def detail(self, kind: type[M]) -> M:
        (packed,) = (detail for detail in self.status.details if detail.Is(kind.DESCRIPTOR))
        message = kind()
        packed.Unpack(message)
        return message


async def refused(call: Awaitable[object]) -> Refused:
    """Awaits a call that must be refused; its details stay under 4 KiB, always."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    status = rpc_status.from_call(caught.value)
    assert status is not None, caught.value
    assert status.ByteSize() < 4096
    return Refused(caught.value.code(), caught.value.details() or "", status)
