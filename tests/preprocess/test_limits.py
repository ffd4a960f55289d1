"""Admission, credits, stalls: what the server lets in, and that nothing is held longer than it must be."""

import asyncio
import contextlib

import grpc
import pytest

from interlock.preprocess.v1 import preprocess_pb2 as pb
from preprocess.callers import (
    answers_to,
    begin,
    cancel,
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

MIB = 1 << 20


async def test_a_caller_that_writes_64_pictures_of_3_mib_before_it_reads_gets_all_its_answers(running):
    files = [picture_file(seed, 1024, 1024, "BMP") for seed in range(4)]
    assert len(files[0]) >= 3 * MIB
    call = running.stub.PreprocessImages()
    for number in range(64):
        for step in whole(f"{number}", files[number % 4]):
            await call.write(step)
    await call.done_writing()

    answers = await next_answers(call)

    expected = [reference_patches(file) for file in files]
    assert len(answers) == 64
    assert all(answers[f"{number}"].patches == expected[number % 4] for number in range(64))
    await until(lambda: running.counters.at_rest)


async def test_pictures_that_wait_for_a_reader_hold_no_more_patches_than_one_stream_may(serve):
    running = await serve(worker_threads=1)
    patch_bytes = len(reference_patches(flat_file(1500, 1500)))
    call = running.stub.PreprocessImages()
    for number in range(20):
        for step in whole(f"{number}", flat_file(1500, 1500, number)):
            await call.write(step)
    counters = running.counters

    # One at most is read by the transport alone; then nothing moves until the caller reads.
    await until(lambda: counters.images_queued + 3 + counters.images_served == 20 and counters.threads_busy == 0)

    assert counters.images_served <= 1
    assert counters.work.taken <= 3 * patch_bytes
    await call.done_writing()
    assert len(await next_answers(call)) == 20


async def test_pictures_beyond_the_credits_are_refused_and_their_parts_left_aside(serve):
    running = await serve(max_images_in_flight=2)
    file = picture_file(1, 300, 200)
    call = running.stub.PreprocessImages()
    await call.write(begin("1", len(file)))
    await call.write(begin("2", len(file)))
    for step in whole("3", file, part_bytes=1000):
        await call.write(step)

    refused = (await next_answers(call, 1))["3"].error

    assert (refused.code, refused.reason, refused.field) == (8, "CREDITS_EXCEEDED", "")
    assert refused.retry_delay.ToMilliseconds() == 1000
    for image_id in ("1", "2"):
        for step in list(whole(image_id, file))[1:]:
            await call.write(step)
    answers = await next_answers(call, 2)
    for step in whole("3", file):
        await call.write(step)
    await call.done_writing()
    answers |= await next_answers(call)
    assert [answers[image_id].patches for image_id in "123"] == [reference_patches(file)] * 3


async def test_the_bytes_in_flight_are_credits_too(serve):
    running = await serve(max_bytes_in_flight=2 * MIB)
    answers = await answers_to(
        running.stub, [begin("a", 1 * MIB), begin("b", 1 * MIB + 1), begin("c", 1 * MIB), begin("d", 1)]
    )
    assert {image_id: answer.fault for image_id, answer in answers.items()} == {
        "a": ("SOURCE_LENGTH_MISMATCH", "end"),
        "b": ("CREDITS_EXCEEDED", ""),
        "c": ("SOURCE_LENGTH_MISMATCH", "end"),
        "d": ("CREDITS_EXCEEDED", ""),
    }


async def test_a_picture_larger_than_all_credits_is_refused_for_good(serve):
    running = await serve(max_bytes_in_flight=2 * MIB)
    error = (await answers_to(running.stub, [begin("a", 2 * MIB + 1)]))["a"].error
    assert (error.code, error.reason, error.field) == (3, "SOURCE_TOO_LARGE", "begin.total_bytes")
    assert not error.HasField("retry_delay")


async def test_what_all_streams_send_is_bounded_together(serve):
    running = await serve(max_bytes_in_flight=2 * MIB, source_budget_bytes=3 * MIB)
    first, second = running.stub.PreprocessImages(), running.stub.PreprocessImages()
    await first.write(begin("a", 2 * MIB))
    await until(lambda: running.counters.sources.taken >= 2 * MIB)

    await second.write(begin("b", 1 * MIB))

    error = (await next_answers(second, 1))["b"].error
    assert (error.code, error.reason, error.field) == (8, "OVERLOADED", "")
    assert error.HasField("retry_delay")
    await first.write(cancel("a"))
    assert (await next_answers(first, 1))["a"].fault == ("CANCELLED", "")
    await second.write(begin("b", 1 * MIB))
    await until(lambda: running.counters.images_in_flight == 1)
    assert 1 * MIB <= running.counters.sources.taken < 1.1 * MIB


async def test_refusals_that_nobody_reads_are_bounded(serve):
    running = await serve(max_images_in_flight=1)
    call = running.stub.PreprocessImages()
    with contextlib.suppress(grpc.aio.AioRpcError):  # from the write that finds the call ended
        for number in range(100_000):
            await call.write(begin(f"{number:0128}", 1))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await next_answers(call)
    assert status_of(caught.value).reason == "CREDITS_EXCEEDED"
    await until(lambda: running.counters.at_rest)


async def test_pictures_wait_for_memory_and_all_get_it(serve):
    files = [flat_file(1000, 1000, number) for number in range(12)]
    running = await serve(worker_threads=4, work_budget_bytes=48 * MIB)  # one at a time
    answers = await answers_to(
        running.stub, [step for number in range(12) for step in whole(f"{number}", files[number])]
    )
    assert [answers[f"{number}"].patches for number in range(12)] == [reference_patches(file) for file in files]
    await until(lambda: running.counters.at_rest)


async def test_a_picture_cancelled_while_it_waits_for_memory_lets_the_next_one_have_it(serve, decode_gate):
    running = await serve(worker_threads=2, work_budget_bytes=24 * MIB)  # one at a time
    counters = running.counters
    files = {image_id: picture_file(seed, 1000, 1000) for seed, image_id in enumerate("abc")}
    call = running.stub.PreprocessImages()
    for image_id, file in files.items():
        for step in whole(image_id, file):
            await call.write(step)
    await until(lambda: counters.work.taken > 0 and counters.images_queued == 1 and counters.threads_busy == 1)

    await call.write(cancel("b"))

    assert (await next_answers(call, 1))["b"].fault == ("CANCELLED", "")
    await until(lambda: counters.images_queued == 0 and counters.threads_busy == 1)
    decode_gate.open()
    await call.done_writing()
    answers = await next_answers(call)
    assert [answers[image_id].patches for image_id in "ac"] == [reference_patches(files[image_id]) for image_id in "ac"]
    assert decode_gate.passed == 2


async def test_a_picture_that_could_never_have_enough_memory_is_refused_at_once(serve):
    running = await serve(work_budget_bytes=16 * MIB)
    file = picture_file(1, 2000, 1000)
    answers = await answers_to(running.stub, whole("a", file))
    assert answers["a"].fault == ("SOURCE_TOO_LARGE", "data")


async def test_40_calls_started_and_cancelled_never_put_more_than_the_limit_to_work(serve, decode_gate):
    running = await serve(worker_threads=2)
    counters = running.counters
    requests = [pb.PreprocessImageRequest(encoded=picture_file(seed, 400, 300)) for seed in range(41)]
    calls = [running.stub.PreprocessImage(request) for request in requests[:40]]
    await until(lambda: counters.threads_busy == 2 and counters.images_queued == 38)

    for call in calls:
        call.cancel()

    # The queued ones are skipped at once. Those being decoded go on, and cost until their thread has returned.
    await until(lambda: counters.calls_open == 0 and counters.images_queued == 0)
    assert (counters.threads_busy, counters.images_held) == (2, 2)
    assert counters.work.taken > 0
    assert counters.sources.taken > 0
    again = running.stub.PreprocessImage(requests[40])
    await until(lambda: counters.images_queued == 1)
    assert counters.threads_busy == 2
    decode_gate.open()
    answer = (await next_answers(again))[""]
    assert answer.patches == reference_patches(requests[40].encoded)
    await until(lambda: counters.at_rest)
    assert counters.most_threads_busy == 2
    assert decode_gate.passed == 3


async def test_40_calls_cancelled_at_any_moment_leave_nothing_behind(serve):
    running = await serve(worker_threads=2, cache_bytes=0)
    request = pb.PreprocessImageRequest(encoded=picture_file(1, 1600, 1200))
    for number in range(40):
        call = running.stub.PreprocessImage(request)
        await until(lambda: running.counters.calls_open > 0)
        await asyncio.sleep(number * 0.001)  # wherever it is by then
        call.cancel()
    await until(lambda: running.counters.at_rest)
    assert running.counters.most_threads_busy <= 2


async def test_a_kernel_stops_at_its_next_strip_when_its_picture_is_cancelled(serve, kernel_gate):
    running = await serve(worker_threads=1)
    counters = running.counters
    file = picture_file(1, 1200, 1200)
    call = running.stub.PreprocessImages()
    for step in whole("a", file):
        await call.write(step)
    await until(lambda: kernel_gate.reached == 1)

    await call.write(cancel("a"))

    assert (await next_answers(call, 1))["a"].fault == ("CANCELLED", "")
    assert counters.threads_busy == 1
    assert counters.work.taken > 0
    kernel_gate.open()
    await until(lambda: counters.work.taken == 0 and counters.threads_busy == 0 and counters.images_held == 0)
    assert kernel_gate.passed == 1


async def test_a_picture_cancelled_in_the_queue_never_comes_to_work(serve, decode_gate):
    running = await serve(worker_threads=1)
    files = {image_id: picture_file(seed, 300, 300) for seed, image_id in enumerate("abc")}
    call = running.stub.PreprocessImages()
    for image_id, file in files.items():
        for step in whole(image_id, file):
            await call.write(step)
    await until(lambda: running.counters.threads_busy == 1 and running.counters.images_queued == 2)

    await call.write(cancel("b"))

    assert (await next_answers(call, 1))["b"].fault == ("CANCELLED", "")
    decode_gate.open()
    await call.done_writing()
    answers = await next_answers(call)
    assert [answers[image_id].patches for image_id in "ac"] == [reference_patches(files[image_id]) for image_id in "ac"]
    assert decode_gate.passed == 2


async def test_a_picture_cancelled_while_its_reader_does_not_read_stops_costing_at_once(running):
    counters = running.counters
    call = running.stub.PreprocessImages()
    for blue, image_id in enumerate("ab"):
        for step in whole(image_id, flat_file(1500, 1500, blue)):
            await call.write(step)
    await until(lambda: counters.images_held == 2 and counters.threads_busy == 0 and counters.sources.taken == 0)

    await call.write(cancel("a"))
    await call.write(cancel("b"))

    await until(lambda: counters.images_held == 0)
    assert counters.work.taken == 0
    answers = await next_answers(call, 2)
    assert answers["a"].fault == answers["b"].fault == ("CANCELLED", "")


async def test_a_picture_whose_parts_stop_coming_is_dropped_and_the_others_served(serve):
    running = await serve(stall_timeout_seconds=0.3)
    file = picture_file(1, 300, 200)
    call = running.stub.PreprocessImages()
    await call.write(begin("a", len(file)))
    await call.write(part("a", 0, file[:1000]))

    error = (await next_answers(call, 1))["a"].error

    assert (error.code, error.reason, error.field) == (4, "STALLED", "data")
    assert running.counters.sources.taken == 0
    await call.write(part("a", 1000, file[1000:]))
    await call.write(end("a"))
    for step in whole("b", file):
        await call.write(step)
    await call.done_writing()
    assert (await next_answers(call))["b"].patches == reference_patches(file)


async def test_a_reader_that_stalls_loses_its_call_and_holds_nothing(serve):
    running = await serve(stall_timeout_seconds=0.5)
    call = running.stub.PreprocessImages()
    for number in range(8):
        for step in whole(f"{number}", flat_file(1500, 1500, number)):
            await call.write(step)

    await until(lambda: running.counters.images_in_flight > 0)
    await until(lambda: running.counters.at_rest)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await next_answers(call)
    status = status_of(caught.value)
    assert (status.code, status.reason) == (4, "STALLED")


async def test_a_reader_of_one_picture_that_stalls_loses_its_call_too(serve):
    running = await serve(stall_timeout_seconds=0.5)
    call = running.stub.PreprocessImage(pb.PreprocessImageRequest(encoded=flat_file(1500, 1500)))

    await until(lambda: running.counters.calls_open == 1)
    await until(lambda: running.counters.at_rest)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await next_answers(call)
    assert status_of(caught.value).reason == "STALLED"
