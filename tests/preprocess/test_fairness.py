"""A batch and an interactive caller side by side, deadlines, and lines that are full."""

import asyncio

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock_preprocess import pictures, work
from preprocess.callers import (
    answers_to,
    begin,
    end,
    flat_file,
    next_answers,
    part,
    picture_file,
    reference_patches,
    status_of,
    until,
    whole,
)

FILE = picture_file(1, 300, 200)


@pytest.fixture
def started(monkeypatch, decode_gate) -> list[int]:
    """The lengths of the sources in the order in which their decoding began."""
    lengths: list[int] = []

    def pixels(request, data):
        lengths.append(len(data))
        decode_gate.wait()
        return pictures.pixels(request, data)

    monkeypatch.setattr(work, "pixels", pixels)
    return lengths


async def test_a_batch_of_100_pictures_does_not_starve_a_caller_with_one(serve, started, decode_gate):
    running = await serve(worker_threads=1)
    batch = running.stub.PreprocessImages()
    for number in range(100):
        for step in whole(f"{number}", flat_file(300, 200, number)):
            await batch.write(step)
    await until(lambda: running.counters.images_in_flight == 100 and len(started) == 1)
    call = running.stub.PreprocessImage(pb.PreprocessImageRequest(encoded=FILE))
    stream = running.stub.PreprocessImages()
    other = picture_file(2, 310, 200)
    for step in whole("a", other):
        await stream.write(step)
    await until(lambda: running.counters.images_queued == 101)

    decode_gate.open()

    answers = await next_answers(call) | await next_answers(stream, 1)
    assert [answers[image_id].patches for image_id in ("", "a")] == [reference_patches(FILE), reference_patches(other)]
    assert len(await next_answers(batch, 100)) == 100
    # One of the batch was at work and one was next; then each has its turn.
    assert {started.index(len(FILE)), started.index(len(other))} == {2, 3}


async def test_a_caller_that_wants_the_last_picture_of_a_batch_does_not_wait_for_the_batch(serve, started, decode_gate):
    running = await serve(worker_threads=1)
    files = [picture_file(number, 100, 100 + number) for number in range(3)]
    batch = running.stub.PreprocessImages()
    for number, file in enumerate(files):
        for step in whole(f"{number}", file):
            await batch.write(step)
    await until(lambda: running.counters.cache_misses == 3)
    call = running.stub.PreprocessImage(pb.PreprocessImageRequest(encoded=files[2]))
    await until(lambda: running.counters.followers == 1)
    decode_gate.open()
    assert (await next_answers(call))[""].patches == reference_patches(files[2])
    assert len(await next_answers(batch, 3)) == 3
    assert len(started) == 3


async def test_one_more_than_may_wait_is_refused_with_a_time_to_try_again(serve, decode_gate):
    running = await serve(worker_threads=1, max_queued_images=2)
    calls = []
    for number in range(3):
        calls.append(running.stub.PreprocessImage(pb.PreprocessImageRequest(encoded=flat_file(300, 200, number))))
        await until(lambda: running.counters.cache_misses == len(calls))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await next_answers(running.stub.PreprocessImage(pb.PreprocessImageRequest(encoded=FILE)))
    status = status_of(caught.value)
    assert (status.code, status.reason, status.retries) == (8, "OVERLOADED", True)
    error = (await answers_to(running.stub, [begin("a", len(FILE))]))["a"].error
    assert (error.code, error.reason) == (8, "OVERLOADED")
    assert error.HasField("retry_delay")

    decode_gate.open()

    for call in calls:
        await next_answers(call)
    assert (await answers_to(running.stub, whole("a", FILE)))["a"].patches == reference_patches(FILE)


async def test_a_picture_waits_no_longer_than_it_may(serve, decode_gate):
    running = await serve(worker_threads=1, max_queue_seconds=0.2)
    first = running.stub.PreprocessImage(pb.PreprocessImageRequest(encoded=FILE))
    await until(lambda: decode_gate.reached == 1)
    error = (await answers_to(running.stub, whole("a", flat_file(300, 200))))["a"].error
    assert (error.code, error.reason) == (8, "OVERLOADED")
    assert error.HasField("retry_delay")
    decode_gate.open()
    assert (await next_answers(first))[""].patches == reference_patches(FILE)
    assert decode_gate.reached == 1


async def test_a_picture_that_runs_out_of_time_in_the_line_never_comes_to_work(serve, decode_gate):
    running = await serve(worker_threads=1)
    call = running.stub.PreprocessImages()
    for step in whole("first", FILE):
        await call.write(step)
    await until(lambda: decode_gate.reached == 1)
    for step in whole("late", flat_file(300, 200), timeout=Duration(nanos=100_000_000)):
        await call.write(step)
    error = (await next_answers(call, 1))["late"].error
    assert (error.code, error.reason, error.field) == (4, "DEADLINE_EXCEEDED", "")
    decode_gate.open()
    assert (await next_answers(call, 1))["first"].patches == reference_patches(FILE)
    assert decode_gate.reached == 1
    await call.done_writing()
    await next_answers(call)
    await until(lambda: running.counters.at_rest)


async def test_a_kernel_stops_at_its_next_strip_when_its_picture_runs_out_of_time(serve, kernel_gate):
    running = await serve(worker_threads=1)
    call = running.stub.PreprocessImages()
    for step in whole("a", FILE, timeout=Duration(nanos=200_000_000)):
        await call.write(step)
    answers = asyncio.create_task(next_answers(call, 1))
    await until(lambda: kernel_gate.reached == 1)
    assert (await answers)["a"].fault == ("DEADLINE_EXCEEDED", "")
    kernel_gate.open()
    await until(lambda: running.counters.images_held == 0)
    assert kernel_gate.passed == 1
    assert running.counters.cache.taken == 0


async def test_a_picture_that_is_not_sent_in_its_time_fails(running):
    call = running.stub.PreprocessImages()
    await call.write(begin("a", len(FILE), timeout=Duration(nanos=100_000_000)))
    await call.write(part("a", 0, FILE[:100]))
    assert (await next_answers(call, 1))["a"].fault == ("DEADLINE_EXCEEDED", "")
    await call.write(part("a", 100, FILE[100:]))
    await call.write(end("a"))
    await call.done_writing()
    await next_answers(call)
    await until(lambda: running.counters.at_rest)


async def test_no_time_at_all_is_a_timeout_too(running):
    answers = await answers_to(running.stub, [*whole("a", FILE, timeout=Duration()), *whole("b", FILE)])
    assert answers["a"].fault == ("DEADLINE_EXCEEDED", "")
    assert answers["b"].patches == reference_patches(FILE)


async def test_a_negative_timeout_is_refused(running):
    answers = await answers_to(running.stub, [begin("a", 10, timeout=Duration(seconds=-1))])
    assert answers["a"].fault == ("INVALID_FIELD", "begin.timeout")


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_deadline_of_a_call_stops_the_work_that_nobody_else_wants(serve, kernel_gate, streamed):
    running = await serve(worker_threads=1)
    if streamed:
        call = running.stub.PreprocessImages(timeout=0.5)
        for step in whole("a", FILE):
            await call.write(step)
    else:
        call = running.stub.PreprocessImage(pb.PreprocessImageRequest(encoded=FILE), timeout=0.5)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await next_answers(call)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: running.counters.streams_open == running.counters.calls_open == 0)
    assert running.counters.threads_busy == 1
    kernel_gate.open()
    await until(lambda: running.counters.at_rest)
    assert kernel_gate.passed == 1
