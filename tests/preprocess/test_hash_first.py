"""A picture that is begun by its hash: answered without its bytes where they were seen, else asked for."""

from hashlib import sha256

import pytest

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock_preprocess import stream
from preprocess.callers import (
    Answer,
    answers_to,
    begin,
    cancel,
    end,
    flat_file,
    next_answers,
    part,
    picture_file,
    reference_patches,
    until,
    whole,
)

FILE = picture_file(1, 300, 200)


def by_hash(image_id: str, file: bytes = FILE, **fields) -> pb.PreprocessImagesRequest:
    return begin(image_id, len(file), source_sha256=sha256(file).digest(), **fields)


async def asked(call) -> str:
    """Read the frame that asks for a picture."""
    async for frame in call:
        if not frame.HasField("settings"):
            assert frame.HasField("source_needed"), frame
            return frame.image_id
    raise AssertionError("the call ended")


async def test_a_picture_that_was_seen_is_answered_without_its_bytes(running):
    await answers_to(running.stub, whole("a", FILE))
    answer = (await answers_to(running.stub, [by_hash("b")]))["b"]
    assert answer.patches == reference_patches(FILE)
    assert answer.trailer.from_cache
    await until(lambda: running.counters.at_rest)


async def test_a_picture_that_was_not_seen_is_asked_for_once_and_then_known(running):
    call = running.stub.PreprocessImages()
    await call.write(by_hash("a"))
    assert await asked(call) == "a"
    for step in list(whole("a", FILE))[1:]:
        await call.write(step)
    answer = (await next_answers(call, 1))["a"]
    assert answer.patches == reference_patches(FILE)
    assert not answer.trailer.from_cache

    await call.write(by_hash("a"))

    assert (await next_answers(call, 1))["a"].trailer.from_cache


async def test_other_options_are_another_picture(running):
    await answers_to(running.stub, whole("a", FILE))
    call = running.stub.PreprocessImages()
    await call.write(by_hash("b", profile=pb.ProfileSelector(name="deepseek-v4-flash-vision-exp")))
    assert await asked(call) == "b"


async def test_a_hash_joins_work_that_is_under_way(serve, decode_gate):
    running = await serve()
    leader = running.stub.PreprocessImages()
    for step in whole("a", FILE):
        await leader.write(step)
    await until(lambda: decode_gate.reached == 1)
    follower = running.stub.PreprocessImages()
    await follower.write(by_hash("b"))
    await until(lambda: running.counters.followers == 1)
    decode_gate.open()
    assert (await next_answers(follower, 1))["b"].patches == reference_patches(FILE)
    assert (await next_answers(leader, 1))["a"].patches == reference_patches(FILE)
    assert decode_gate.passed == 1


async def test_a_hash_that_finds_nothing_costs_no_memory_until_its_parts_are_asked_for(serve):
    running = await serve(max_bytes_in_flight=2 << 20, source_budget_bytes=2 << 20)
    await answers_to(running.stub, whole("a", FILE))
    holder = running.stub.PreprocessImages()
    await holder.write(begin("big", (2 << 20) - 20_000))
    await until(lambda: running.counters.sources.taken > 0)

    answers = await answers_to(
        running.stub, [by_hash("known"), by_hash("unknown", flat_file(400, 300) + bytes(50_000))]
    )

    assert answers["known"].patches == reference_patches(FILE)
    assert answers["unknown"].fault == ("OVERLOADED", "")
    assert not answers["unknown"].asked


async def test_only_what_a_caller_of_the_same_scope_sent_is_found_by_its_hash(running, monkeypatch):
    await answers_to(running.stub, whole("a", FILE))
    monkeypatch.setattr(stream, "caller_scope", lambda context: "another")
    call = running.stub.PreprocessImages()
    await call.write(by_hash("b"))
    assert await asked(call) == "b"
    for step in list(whole("b", FILE))[1:]:
        await call.write(step)
    assert (await next_answers(call, 1))["b"].trailer.from_cache  # it has shown that it has the picture
    await call.write(by_hash("c"))
    assert (await next_answers(call, 1))["c"].trailer.from_cache


async def test_other_bytes_than_the_hash_says_are_refused_and_nothing_is_kept(running):
    other = picture_file(2, 300, 200)[: len(FILE)].ljust(len(FILE), b"\0")
    call = running.stub.PreprocessImages()
    await call.write(by_hash("a"))
    await asked(call)
    await call.write(part("a", 0, other))
    await call.write(end("a"))
    assert (await next_answers(call, 1))["a"].fault == ("SOURCE_HASH_MISMATCH", "begin.source_sha256")
    assert running.counters.cache_misses == 0
    await call.write(by_hash("a"))
    assert await asked(call) == "a"


async def test_another_length_than_that_of_the_picture_finds_nothing(running):
    await answers_to(running.stub, whole("a", FILE))
    call = running.stub.PreprocessImages()
    await call.write(begin("b", len(FILE) - 1, source_sha256=sha256(FILE).digest()))
    assert await asked(call) == "b"


@pytest.mark.parametrize("length", [0, 31, 33])
async def test_a_hash_of_another_length_is_refused(running, length):
    answer = (await answers_to(running.stub, [begin("a", 10, source_sha256=bytes(length))]))["a"]
    assert answer.fault == ("INVALID_FIELD", "begin.source_sha256")


@pytest.mark.parametrize(("step", "field"), [(part("a", 0, b"1"), "data"), (end("a"), "end")])
async def test_parts_that_nobody_asked_for_are_refused(serve, decode_gate, step, field):
    running = await serve(worker_threads=1)
    call = running.stub.PreprocessImages()
    # All places of the stream are taken by other pictures, so that this one, which is known, has to wait.
    for step_before in whole("a0", FILE):
        await call.write(step_before)
    for number in range(1, 3):
        for step_before in whole(f"a{number}", picture_file(9 + number, 300, 200)):
            await call.write(step_before)
    await until(lambda: running.counters.cache_misses == 3)
    await call.write(by_hash("a"))
    await call.write(step)
    assert (await next_answers(call, 1))["a"].fault == ("INVALID_FIELD", field)


async def test_a_picture_that_is_asked_for_after_the_end_of_the_stream_has_failed(running):
    answer: Answer = (await answers_to(running.stub, [by_hash("a")]))["a"]
    assert answer.fault == ("SOURCE_LENGTH_MISMATCH", "end")
    await until(lambda: running.counters.at_rest)


async def test_a_picture_whose_parts_do_not_come_when_they_are_asked_for_is_dropped(serve):
    running = await serve(stall_timeout_seconds=0.3)
    call = running.stub.PreprocessImages()
    await call.write(by_hash("a"))
    await asked(call)
    assert (await next_answers(call, 1))["a"].fault == ("STALLED", "data")
    await call.write(by_hash("a"))
    await asked(call)
    await call.write(cancel("a"))
    assert (await next_answers(call, 1))["a"].fault == ("CANCELLED", "")
    await call.done_writing()
    await next_answers(call)
    await until(lambda: running.counters.at_rest)
