"""Any value in any field of any request: an answer or a reasoned error, and the server is as before."""

import asyncio
import contextlib

import grpc
import pytest

from interlock.preprocess.v1 import preprocess_service_pb2 as pb_service
from interlock.reasons import Reason
from preprocess.callers import Answer
from preprocess.fuzz.campaigns import COUNT, FIRST, KEPT, OF_PICTURES, answer_of_one, check_answer, check_status
from preprocess.fuzz.hostile_requests import (
    case,
    hostile_image_request,
    hostile_plans_request,
    hostile_region_request,
    hostile_steps,
)
from preprocess.test_crowd import settled_bytes

OF_REQUESTS = OF_PICTURES | {
    Reason.INVALID_FIELD,
    Reason.INVALID_PLAN,
    Reason.INVALID_PROFILE,
    Reason.UNKNOWN_PROFILE,
    Reason.SOURCE_LENGTH_MISMATCH,
    Reason.SOURCE_HASH_MISMATCH,
    Reason.SHARED_MEMORY_OFF,
    Reason.CREDITS_EXCEEDED,
    Reason.CANCELLED,
    Reason.DEADLINE_EXCEEDED,
}


WRITTEN_TOO_LATE = "Internal error from Core"
"""What grpc.aio makes the status of a call in the caller, if its write met the end of the call before its read did."""


async def one_image(stub, number: int) -> bool:
    call = stub.PreprocessImage(hostile_image_request(case(number)), timeout=60)
    return check_answer(await answer_of_one(call), OF_REQUESTS)


async def plans(stub, number: int) -> bool:
    try:
        request = hostile_plans_request(case(number))
        response = await stub.PlanImages(request, timeout=60)
    except grpc.aio.AioRpcError as error:
        check_status(error, OF_REQUESTS)
        return False
    assert len(response.results) == len(request.sizes)
    for result in response.results:
        assert result.HasField("plan") or result.error.reason in OF_REQUESTS
    return True


async def regions(stub, number: int) -> bool:
    request = hostile_region_request(case(number))
    call = getattr(stub, type(request).__name__.removesuffix("Request"))
    try:
        await call(request, timeout=60)
    except grpc.aio.AioRpcError as error:
        check_status(error, OF_REQUESTS)
        return False
    return True


async def stream(stub, number: int) -> bool:
    """Every picture ends once and rightly, or else the call ends for a fault of the stream."""
    answers: dict[str, list[Answer]] = {}
    try:
        await converse(stub.PreprocessImages(timeout=60), number, answers)
    except grpc.aio.AioRpcError as error:
        if error.details() == WRITTEN_TOO_LATE:
            return await stream(stub, number)
        check_status(error, OF_REQUESTS)
        return False
    ended = [check_answer(answer, OF_REQUESTS) for of_id in answers.values() for answer in of_id]
    return all(ended)


async def converse(call, number: int, answers: dict[str, list[Answer]]) -> None:
    async def send() -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the call has ended
            for step in hostile_steps(case(number)):
                await call.write(step)
            await call.done_writing()

    async def read() -> None:
        async for frame in call:
            if frame.WhichOneof("frame") in ("settings", "source_needed"):
                continue
            of_id = answers.setdefault(frame.image_id, [Answer()])
            if of_id[-1].ended:  # the id was free again
                of_id.append(Answer())
            of_id[-1].take(frame)

    await asyncio.gather(send(), read())


async def test_requests_of_any_values_have_an_answer_or_a_reasoned_error_and_leave_nothing_behind(target):
    kinds = (one_image, stream, plans, one_image, stream, regions)
    answered = {kind: [0, 0] for kind in kinds}

    async def fire(first: int, count: int) -> None:
        numbers = iter(range(first, first + count))

        async def one_caller(stub) -> None:
            for number in numbers:
                kind = kinds[number % len(kinds)]
                answered[kind][await kind(stub, number)] += 1

        await asyncio.gather(*(one_caller(stub) for stub in target.stubs))

    warm_up = COUNT // 4
    await fire(FIRST, warm_up)
    before = await settled_bytes(target.process_id)
    await fire(FIRST + warm_up, COUNT - warm_up)
    assert await settled_bytes(target.process_id) <= before + KEPT
    for kind, counts in answered.items():
        assert min(counts) > COUNT // 100, (kind.__name__, counts)


METHODS = {method.name: method for method in pb_service.DESCRIPTOR.services_by_name["PreprocessService"].methods}


@pytest.mark.parametrize("name", METHODS)
async def test_bytes_that_are_no_message_are_refused(target, name):
    method = METHODS[name]
    path = f"/{method.containing_service.full_name}/{name}"
    for number in range(20):
        rng = case(number)
        garbage = b"\xff" + rng.bytes(int(rng.integers(0, 100)))  # a field of no wire type
        if method.server_streaming:
            kind = target.channel.stream_stream if method.client_streaming else target.channel.unary_stream
            call = kind(path)(iter([garbage]) if method.client_streaming else garbage, timeout=60)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in call:
                    pass
        else:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await target.channel.unary_unary(path)(garbage, timeout=60)
        check_status(caught.value, frozenset({Reason.MALFORMED_MESSAGE}))
