"""The steps and frames of `PreprocessImages`."""

import asyncio
import logging
import random
from collections import Counter

import grpc
import pytest

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.vision import plan
from interlock_preprocess import stream
from interlock_preprocess.requests import plan_message
from preprocess.callers import (
    PROFILE,
    answers_to,
    begin,
    cancel,
    end,
    next_answers,
    part,
    picture_file,
    reference_patches,
    status_of,
    until,
    whole,
)


async def test_a_stream_begins_with_its_credits(running):
    call = running.stub.PreprocessImages()
    assert await call.read() == pb.PatchFrame(
        settings=pb.StreamSettings(max_images_in_flight=128, max_bytes_in_flight=256 << 20)
    )
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_a_picture_is_answered_with_header_chunks_and_trailer(running):
    file = picture_file(1, 700, 500, "JPEG")

    answer = (await answers_to(running.stub, whole("a", file)))["a"]

    geometry = plan(700, 500, PROFILE)
    assert answer.header == pb.PatchHeader(
        plan=plan_message(geometry),
        patch_size=14,
        dtype=pb.PATCH_DTYPE_BF16,
        total_bytes=geometry.grid_width * geometry.grid_height * 14 * 14 * 6,
        source_size=pb.ImageSize(width=700, height=500),
        source_format="JPEG",
    )
    assert answer.chunk_sizes == [891 * 1176, 891 * 1176, 18 * 1176]  # 50 * 36 patches
    assert answer.patches == reference_patches(file)
    assert answer.trailer.decode_time.ToNanoseconds() > 0
    assert answer.trailer.kernel_time.ToNanoseconds() > 0
    assert answer.trailer.queue_time.ToNanoseconds() > 0
    assert not answer.trailer.from_cache


async def test_the_largest_patches_come_whole(running):
    profile = pb.VisionProfile(patch_size=128, downsample_ratio=1, max_image_tokens=64, min_pixels=0)
    file = picture_file(1, 640, 512)
    answers = await answers_to(running.stub, whole("a", file, profile=pb.ProfileSelector(inline=profile)))
    assert answers["a"].chunk_sizes == [10 * 98_304, 10 * 98_304]


async def test_parts_of_pictures_may_interleave(running):
    files = {"a": picture_file(1, 300, 200), "b": picture_file(2, 200, 300), "c": picture_file(3, 100, 100)}
    steps = [list(whole(image_id, file, part_bytes=7919)) for image_id, file in files.items()]
    longest = max(map(len, steps))
    interleaved = [step for turn in range(longest) for line in steps for step in line[turn : turn + 1]]

    answers = await answers_to(running.stub, interleaved)

    assert {image_id: answer.patches for image_id, answer in answers.items()} == {
        image_id: reference_patches(file) for image_id, file in files.items()
    }


FILE = picture_file(1, 300, 200)


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        ([begin("a", 10), part("a", 0, b"12345"), part("a", 4, b"6")], ("SOURCE_LENGTH_MISMATCH", "data.offset")),
        ([begin("a", 10), part("a", 1, b"12345")], ("SOURCE_LENGTH_MISMATCH", "data.offset")),
        ([begin("a", 10), part("a", 2**64 - 1, b"1")], ("SOURCE_LENGTH_MISMATCH", "data.offset")),
        ([begin("a", 10), part("a", 0, b"12345678901")], ("SOURCE_LENGTH_MISMATCH", "data.data")),
        ([begin("a", 10), part("a", 0, b"123456789"), end("a")], ("SOURCE_LENGTH_MISMATCH", "begin.total_bytes")),
        ([begin("a", 10), part("a", 0, b"1234567890")], ("SOURCE_LENGTH_MISMATCH", "end")),
        ([begin("a", 10)], ("SOURCE_LENGTH_MISMATCH", "end")),
        ([begin("a", 10 << 20), part("a", 0, bytes((4 << 20) + 1))], ("INVALID_FIELD", "data.data")),
        ([begin("a", 10), cancel("a")], ("CANCELLED", "")),
        ([begin("a", 0), end("a")], ("IMAGE_EMPTY", "data")),
    ],
)
async def test_a_picture_sent_wrongly_is_one_error_frame_and_the_others_are_served(running, steps, fault):
    answers = await answers_to(running.stub, [*whole("before", FILE), *steps, *whole("after", FILE)])
    assert answers["a"].fault == fault
    assert answers["before"].patches == answers["after"].patches == reference_patches(FILE)
    await until(lambda: running.counters.at_rest)


async def test_bytes_after_the_end_of_a_picture_fail_it(serve, decode_gate):
    running = await serve()
    call = running.stub.PreprocessImages()
    for step in [*whole("a", FILE), part("a", len(FILE), b"1"), *whole("b", FILE), end("b")]:
        await call.write(step)
    answers = await next_answers(call, 2)
    assert answers["a"].fault == ("SOURCE_LENGTH_MISMATCH", "data.data")
    assert answers["b"].fault == ("INVALID_FIELD", "end.image_id")


async def test_what_comes_for_a_picture_after_its_last_frame_is_left_aside(running):
    call = running.stub.PreprocessImages()
    for step in [begin("bad", 10), part("bad", 3, b"1"), *whole("good", FILE)]:
        await call.write(step)
    await next_answers(call, 2)
    for image_id in ("bad", "good"):
        for step in (part(image_id, 4, b"12"), cancel(image_id), end(image_id)):
            await call.write(step)
    for step in whole("bad", FILE):
        await call.write(step)
    await call.done_writing()
    answers = await next_answers(call)
    assert list(answers) == ["bad"]
    assert answers["bad"].patches == reference_patches(FILE)


async def test_only_the_last_ids_are_remembered_after_their_last_frame(running, monkeypatch):
    monkeypatch.setattr(stream, "_MAX_ANSWERED_IDS", 2)
    call = running.stub.PreprocessImages()
    for image_id in "abc":
        await call.write(begin(image_id, 10))
        await call.write(cancel(image_id))
        await next_answers(call, 1)
    await call.write(cancel("b"))
    await call.write(cancel("a"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await next_answers(call)
    assert status_of(caught.value).fields == ("cancel.image_id",)


@pytest.mark.parametrize(
    ("steps", "field"),
    [
        ([pb.PreprocessImagesRequest()], "step"),
        ([begin("", 10)], "begin.image_id"),
        ([begin("é" * 64 + "x", 10)], "begin.image_id"),
        ([begin("a", 10), begin("a", 10)], "begin.image_id"),
        ([part("a", 0, b"1")], "data.image_id"),
        ([end("a")], "end.image_id"),
        ([cancel("a")], "cancel.image_id"),
    ],
)
async def test_a_fault_of_the_stream_ends_the_call(running, steps, field):
    call = running.stub.PreprocessImages()
    for step in [begin("under way", 10), *steps]:
        await call.write(step)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await next_answers(call)
    status = status_of(caught.value)
    assert (status.code, status.reason, status.fields) == (3, "INVALID_FIELD", (field,))
    await until(lambda: running.counters.at_rest)


async def test_an_id_of_128_bytes_is_carried(running):
    image_id = "é" * 64
    assert (await answers_to(running.stub, whole(image_id, FILE)))[image_id].patches == reference_patches(FILE)


async def test_an_id_is_free_again_after_its_last_frame(running):
    call = running.stub.PreprocessImages()
    for _ in range(20):
        for step in whole("a", FILE):
            await call.write(step)
        assert (await next_answers(call, 1))["a"].patches == reference_patches(FILE)


async def test_a_failure_of_the_server_fails_one_picture_and_tells_nothing_of_its_inside(running, monkeypatch, caplog):
    def fail(*_, **__):
        raise ZeroDivisionError("secret")

    kernel = running.service._pool.kernel
    monkeypatch.setattr(running.service._pool, "kernel", kernel._replace(resize_patchify=fail))
    error = (await answers_to(running.stub, whole("a", FILE)))["a"].error
    assert (error.code, error.reason, error.field) == (13, "INTERNAL", "")
    assert "secret" not in error.message
    assert "ZeroDivisionError: secret" in caplog.text
    await until(lambda: running.counters.at_rest)


async def test_a_failure_of_the_stream_itself_ends_the_call(running, monkeypatch, caplog):
    def fail(*_):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(stream, "deliver", fail)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answers_to(running.stub, whole("a", FILE))
    assert status_of(caught.value).reason == "INTERNAL"
    assert "secret" not in caught.value.details()
    assert "ZeroDivisionError: secret" in caplog.text
    await until(lambda: running.counters.at_rest)


async def test_a_stopping_server_ends_pictures_in_flight_takes_no_more_and_ends_the_stream(serve, decode_gate):
    running = await serve()
    call = running.stub.PreprocessImages()
    for step in whole("a", FILE):
        await call.write(step)
    await until(lambda: running.counters.threads_busy == 1)

    stopped = asyncio.create_task(running.server.stop(30))
    await asyncio.sleep(0)  # it runs up to where it waits for the calls
    await call.write(begin("b", 10))

    assert (await next_answers(call, 1))["b"].fault == ("DRAINING", "")
    decode_gate.open()
    assert (await next_answers(call, 1))["a"].patches == reference_patches(FILE)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await next_answers(call)
    assert status_of(caught.value).reason == "DRAINING"
    await stopped


async def test_a_caller_that_goes_away_in_the_middle_leaves_nothing_behind(running, caplog):
    for moment in range(20):
        call = running.stub.PreprocessImages()
        for number in range(4):
            for step in whole(f"{number}", FILE):
                await call.write(step)
        await call.write(begin("unfinished", 1000))
        await next_answers(call, moment % 4)
        call.cancel()
    await until(lambda: running.counters.at_rest)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_any_steps_in_any_order_get_lawful_frames_and_leave_nothing_behind(running):
    draw = random.Random(11)
    expected = reference_patches(FILE)
    outcomes: Counter[str] = Counter()
    for _ in range(60):
        pending = {image_id: list(whole(image_id, FILE, part_bytes=100_000)) for image_id in "abcdef"}
        begun = set()
        call = running.stub.PreprocessImages()
        for _ in range(40):
            image_id = draw.choice("abcdef")
            if image_id in begun and draw.random() < 0.05:
                await call.write(cancel(image_id))
            elif pending[image_id]:
                step = pending[image_id].pop(0)
                if image_id not in begun or draw.random() < 0.95:  # else it is lost
                    await call.write(step)
                begun.add(image_id)
        await call.done_writing()
        answers = await next_answers(call)
        assert set(answers) == begun
        outcomes.update(answer.error.reason if answer.error else "served" for answer in answers.values())
        assert {answer.patches for answer in answers.values() if not answer.error} <= {expected}
    assert set(outcomes) == {"served", "CANCELLED", "SOURCE_LENGTH_MISMATCH"}
    assert min(outcomes.values()) > 20
    await until(lambda: running.counters.at_rest)
