"""What happens around every call of a server."""
# ruff: noqa: N802 - a servicer's methods have the names of the proto

import asyncio
import logging

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1 import bootstrap_service_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceServicer, BootstrapServiceStub
from interlock.reasons import Reason
from interlock.serving import Refusal, Server, ServerSettings

TIMEOUT = 20
BOOTSTRAP: str = bootstrap_service_pb2.DESCRIPTOR.services_by_name["BootstrapService"].full_name


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


@pytest.mark.parametrize(
    ("arity", "answer"),
    [
        ("unary-unary", pb.GetRankInfoResponse(rank_ip="10.0.0.1")),
        ("unary-stream", [pb.WatchTopologyResponse(revision=1), pb.WatchTopologyResponse(revision=2)]),
        ("unary-stream by writing", [pb.WaitDpRanksResponse()]),
        ("stream-stream", [pb.KeepAliveResponse()]),
    ],
)
async def test_answers_pass_in_every_arity(serve, arity, answer):
    async def succeed(context):
        pass

    _, channel = await serve(Servicer(succeed))
    assert await CALLS[arity](BootstrapServiceStub(channel)) == answer


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


async def test_a_streamed_request_answered_once_is_covered_too():
    async def sum_up(request_iterator, context):
        async for data in request_iterator:
            if data == b"bad":
                raise Refusal(Reason.SOURCE_TOO_LARGE, "too large")
        return b"done"

    put_handler = grpc.stream_unary_rpc_method_handler(sum_up)  # no method of ours is of this arity
    uploads = grpc.method_handlers_generic_handler("interlock.Upload", {"Put": put_handler})
    server = Server(ServerSettings(port=0))
    server.add(BOOTSTRAP, lambda grpc_server: grpc_server.add_generic_rpc_handlers((uploads,)))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{await server.start()}") as channel:
        put = channel.stream_unary("/interlock.Upload/Put")
        assert await put(iter([b"good", b"good"]), timeout=TIMEOUT) == b"done"
        error = await fail(put(iter([b"good", b"bad"]), timeout=TIMEOUT))
        assert error_info(error).reason == "SOURCE_TOO_LARGE"
    await server.stop(grace=0)


@pytest.mark.parametrize("arity", CALLS)
async def test_what_a_servicer_aborts_with_passes_untouched(serve, arity, caplog):
    async def abort(context):
        await context.abort(grpc.StatusCode.DATA_LOSS, "lost", (("x-mark", "1"),))

    _, channel = await serve(Servicer(abort))
    error = await fail(CALLS[arity](BootstrapServiceStub(channel)))
    assert (error.code(), error.details()) == (grpc.StatusCode.DATA_LOSS, "lost")
    assert list(error.trailing_metadata()) == [("x-mark", "1")]
    assert [record for record in caplog.records if record.levelno >= logging.INFO and record.exc_info] == []


@pytest.mark.parametrize("method", ["GetRankInfo", "WatchTopology", "KeepAlive"])
async def test_a_caller_that_goes_away_ends_the_servicers_work_without_an_error(serve, method, caplog):
    async def wait_for_ever(context):
        await asyncio.Event().wait()

    servicer = Servicer(wait_for_ever)
    _, channel = await serve(servicer)
    stub = BootstrapServiceStub(channel)
    if method == "KeepAlive":
        call = stub.KeepAlive(iter([pb.KeepAliveRequest()]), timeout=TIMEOUT)
    else:
        call = getattr(stub, method)(getattr(pb, f"{method}Request")(), timeout=TIMEOUT)
    await asyncio.wait_for(servicer.entered.wait(), TIMEOUT)
    call.cancel()
    await asyncio.wait_for(servicer.closed.wait(), TIMEOUT)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_caller_that_goes_away_while_it_is_written_to_is_no_error(serve, until_idle, caplog):
    caplog.set_level(logging.DEBUG)

    async def write_to_nobody(context):
        try:
            await asyncio.Event().wait()
        finally:
            await context.write(pb.WaitDpRanksResponse())

    server, channel = await serve(Servicer(write_to_nobody))
    call = BootstrapServiceStub(channel).WaitDpRanks(pb.WaitDpRanksRequest(), timeout=TIMEOUT)
    await call.read()
    call.cancel()
    await until_idle(server)
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
    (record,) = (record for record in caplog.records if record.name == "interlock.serving.calls")
    assert record.code == "CANCELLED"


async def test_a_generator_is_closed_before_its_call_ends_when_the_caller_stops_reading_and_goes_away(
    serve, until_idle
):
    """The generator is suspended in a `yield` then, not in an await that could be cancelled."""
    may_close = asyncio.Event()

    class Flood(Servicer):
        async def WatchTopology(self, request, context):
            try:
                while True:
                    yield pb.WatchTopologyResponse(
                        snapshot=pb.TopologySnapshot(routes=[pb.Route(rank_ip="x" * 10_000)])
                    )
                    self.entered.set()
            finally:
                self.closed.set()
                await may_close.wait()

    servicer = Flood(None)
    server, channel = await serve(servicer)
    call = BootstrapServiceStub(channel).WatchTopology(pb.WatchTopologyRequest(), timeout=TIMEOUT)
    await call.read()
    await asyncio.wait_for(servicer.entered.wait(), TIMEOUT)
    call.cancel()
    await asyncio.wait_for(servicer.closed.wait(), TIMEOUT)
    assert server.running_calls == 1
    may_close.set()
    await until_idle(server)


async def test_bytes_that_are_no_request_are_refused(serve, caplog):
    _, channel = await serve(Servicer(None))
    malformed = b"\x0a\xff"
    unary = channel.unary_unary("/interlock.bootstrap.v1.BootstrapService/GetRankInfo")
    streamed = channel.stream_stream("/interlock.bootstrap.v1.BootstrapService/KeepAlive")
    for call in (unary(malformed, timeout=TIMEOUT), collect(streamed(iter([malformed]), timeout=TIMEOUT))):
        error = await fail(call)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error_info(error).reason == "MALFORMED_MESSAGE"
        assert error.details().startswith("2 bytes are no request of /interlock.bootstrap.v1.BootstrapService/")
    assert [record for record in caplog.records if record.exc_info] == []


async def test_a_method_that_the_servicer_leaves_out_is_unimplemented(serve, caplog):
    _, channel = await serve(Servicer(None))
    error = await fail(BootstrapServiceStub(channel).ForceEpoch(pb.ForceEpochRequest(), timeout=TIMEOUT))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert error_info(error).reason == "UNIMPLEMENTED"
    assert [record for record in caplog.records if record.exc_info] == []


class Gate(Servicer):
    """Lets calls in and holds them until it opens."""

    def __init__(self):
        super().__init__(self.hold)
        self.inside = asyncio.Semaphore(0)
        self.opened = asyncio.Event()

    async def hold(self, context):
        self.inside.release()
        await self.opened.wait()

    async def wait_for_calls(self, count):
        for _ in range(count):
            await asyncio.wait_for(self.inside.acquire(), TIMEOUT)


async def test_calls_over_the_bound_are_refused_each_and_every_one(serve):
    gate = Gate()
    _, channel = await serve(gate, max_concurrent_rpcs=2)
    stub = BootstrapServiceStub(channel)
    running = [asyncio.ensure_future(CALLS["unary-unary"](stub)) for _ in range(2)]
    await gate.wait_for_calls(2)
    for arity in [*CALLS, *CALLS]:
        error = await fail(CALLS[arity](stub))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error_info(error).reason == "OVERLOADED"
        assert error.details() == "the server runs 2 calls, as many as it may; try again later"
    health = health_pb2_grpc.HealthStub(channel)
    answer = await health.Check(health_pb2.HealthCheckRequest(service="liveness"), timeout=TIMEOUT)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    gate.opened.set()
    assert [(await call).rank_ip for call in running] == ["10.0.0.1"] * 2
    assert (await CALLS["unary-unary"](stub)).rank_ip == "10.0.0.1"


async def test_a_call_counts_before_its_request_arrived_and_is_refused_without_it(serve):
    _, channel = await serve(Gate(), max_concurrent_rpcs=1)
    method = "/interlock.bootstrap.v1.BootstrapService/GetRankInfo"
    silent = [channel.stream_stream(method)(timeout=TIMEOUT) for _ in range(2)]  # unary calls that send nothing
    ended, running = await asyncio.wait(
        [asyncio.ensure_future(call.code()) for call in silent], timeout=TIMEOUT, return_when=asyncio.FIRST_COMPLETED
    )
    assert ([await code for code in ended], len(running)) == ([grpc.StatusCode.RESOURCE_EXHAUSTED], 1)
    for call in silent:
        call.cancel()
    await asyncio.wait(running)


async def test_cancelled_calls_give_their_places_back(serve, until_idle):
    gate = Gate()
    server, channel = await serve(gate, max_concurrent_rpcs=3)
    stub = BootstrapServiceStub(channel)
    for _ in range(5):
        calls = [stub.GetRankInfo(pb.GetRankInfoRequest(), timeout=TIMEOUT) for _ in range(3)]
        await gate.wait_for_calls(3)
        assert server.running_calls == 3
        for call in calls:
            call.cancel()
        await until_idle(server)


async def test_a_refused_call_is_logged_with_what_an_operator_looks_for(serve, caplog):
    async def refuse(context):
        raise Refusal(Reason.UNKNOWN_GROUP, "no group 'a'")

    caplog.set_level(logging.DEBUG, "interlock")
    _, channel = await serve(Servicer(refuse))
    await fail(CALLS["unary-unary"](BootstrapServiceStub(channel)))
    (record,) = [record for record in caplog.records if record.name == "interlock.serving.calls"]
    assert record.levelno == logging.INFO
    assert record.getMessage() == "/interlock.bootstrap.v1.BootstrapService/GetRankInfo NOT_FOUND: no group 'a'"
    assert (record.method, record.code) == ("/interlock.bootstrap.v1.BootstrapService/GetRankInfo", "NOT_FOUND")
    assert record.reason == "UNKNOWN_GROUP"
    assert record.peer.startswith("ipv4:127.0.0.1:")
    assert 0 <= record.duration_seconds < TIMEOUT


async def test_a_call_that_went_well_is_logged_at_debug(serve, caplog):
    async def succeed(context):
        pass

    caplog.set_level(logging.DEBUG, "interlock.serving.calls")
    _, channel = await serve(Servicer(succeed))
    await CALLS["unary-unary"](BootstrapServiceStub(channel))
    (record,) = [record for record in caplog.records if record.name == "interlock.serving.calls"]
    assert (record.levelno, record.code) == (logging.DEBUG, "OK")
