"""What happens around every call of a server."""

import asyncio
import logging

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2
from grpc_status import rpc_status

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceServicer, BootstrapServiceStub
from interlock.reasons import Reason
from interlock.serving import Refusal

TIMEOUT = 20


class Servicer(BootstrapServiceServicer):
    """Does in every arity what it was told to."""

    def __init__(self, action):
        self.action = action
        self.closed = asyncio.Event()
        self.entered = asyncio.Event()

    async def GetRankInfo(self, request, context):
        self.entered.set()
        try:
            await self.action(context)
        finally:
            self.closed.set()
        return pb.GetRankInfoResponse(rank_ip="10.0.0.1")

    async def WatchTopology(self, request, context):
        self.entered.set()
        try:
            yield pb.WatchTopologyResponse(revision=1)
            await self.action(context)
            yield pb.WatchTopologyResponse(revision=2)
        finally:
            self.closed.set()

    async def KeepAlive(self, request_iterator, context):
        self.entered.set()
        try:
            async for _ in request_iterator:
                await self.action(context)
                yield pb.KeepAliveResponse()
        finally:
            self.closed.set()

    async def WaitDpRanks(self, request, context):
        """Writes to the context itself instead of yielding."""
        await context.write(pb.WaitDpRanksResponse())
        await self.action(context)


async def collect(call):
    return [response async for response in call]


async def upload(stub):
    async def requests():
        yield pb.KeepAliveRequest()

    return await collect(stub.KeepAlive(requests(), timeout=TIMEOUT))


CALLS = {
    "unary-unary": lambda stub: stub.GetRankInfo(pb.GetRankInfoRequest(), timeout=TIMEOUT),
    "unary-stream": lambda stub: collect(stub.WatchTopology(pb.WatchTopologyRequest(), timeout=TIMEOUT)),
    "unary-stream by writing": lambda stub: collect(stub.WaitDpRanks(pb.WaitDpRanksRequest(), timeout=TIMEOUT)),
    "stream-stream": upload,
}


def error_info(error):
    status = rpc_status.from_call(error)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info


async def fail(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


@pytest.mark.parametrize("arity", CALLS)
async def test_a_refusal_becomes_its_status_in_every_arity(serve, arity):
    async def refuse(context):
        raise Refusal(Reason.NOT_READY, "2 ranks are missing", metadata={"missing": "2"}, retry_delay=0.25)

    _, channel = await serve(Servicer(refuse))
    error = await fail(CALLS[arity](BootstrapServiceStub(channel)))
    assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "2 ranks are missing")
    info = error_info(error)
    assert (info.domain, info.reason, dict(info.metadata)) == ("interlock", "NOT_READY", {"missing": "2"})
    retry = error_details_pb2.RetryInfo()
    assert rpc_status.from_call(error).details[1].Unpack(retry)
    assert retry.retry_delay.ToTimedelta().total_seconds() == 0.25


@pytest.mark.parametrize("arity", CALLS)
async def test_any_other_exception_is_internal_and_leaks_nothing(serve, arity, caplog):
    async def fail_inside(context):
        raise RuntimeError("password is hunter2")

    _, channel = await serve(Servicer(fail_inside))
    error = await fail(CALLS[arity](BootstrapServiceStub(channel)))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert error_info(error).reason == "INTERNAL"
    assert b"hunter2" not in rpc_status.from_call(error).SerializeToString()
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.levelno == logging.ERROR
    assert "hunter2" in str(record.exc_info[1])


async def test_a_refusal_from_a_task_group_is_a_refusal(serve):
    async def refuse_in_group(context):
        async with asyncio.TaskGroup() as group:

            async def child():
                raise Refusal(Reason.UNKNOWN_GROUP, "no group 'a'")

            group.create_task(child())
            group.create_task(asyncio.sleep(TIMEOUT))

    _, channel = await serve(Servicer(refuse_in_group))
    error = await fail(CALLS["unary-unary"](BootstrapServiceStub(channel)))
    assert error_info(error).reason == "UNKNOWN_GROUP"
