"""Identical pictures in flight are made once, by work that no call owns."""

import asyncio

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from interlock.preprocess.v1 import preprocess_pb2 as pb
from preprocess.callers import (
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

FILE = picture_file(1, 300, 200)
LARGE = flat_file(1500, 1500)


async def streaming(running, image_id: str, file: bytes = FILE, **fields):
    """A stream of its own with one picture sent whole."""
    call = running.stub.PreprocessImages()
    for step in whole(image_id, file, **fields):
        await call.write(step)
    return call


async def leader_and_followers(running, gate, file: bytes = FILE, **fields):
    """A stream whose picture a thread is held at, and three that joined it."""
    leader = await streaming(running, "leader", file, **fields)
    await until(lambda: gate.reached == 1)
    followers = [await streaming(running, f"{number}", file) for number in range(3)]
    await until(lambda: running.counters.followers == 3)
    return leader, followers


async def patches_of(followers) -> set[bytes]:
    answers = await asyncio.gather(*(next_answers(follower, 1) for follower in followers))
    return {answer.patches for [answer] in (answers_of.values() for answers_of in answers)}


async def test_pictures_that_are_the_same_are_decoded_once_and_all_get_their_patches(serve, decode_gate):
    running = await serve()
    leader, followers = await leader_and_followers(running, decode_gate)
    assert (running.counters.images_held, running.counters.threads_busy) == (1, 1)
    call = running.stub.PreprocessImage(pb.PreprocessImageRequest(encoded=FILE))
    await until(lambda: running.counters.followers == 4)
    decode_gate.open()
    answers = await next_answers(leader, 1) | await next_answers(call)
    assert {answer.patches for answer in answers.values()} == {reference_patches(FILE)}
    assert await patches_of(followers) == {reference_patches(FILE)}
    assert decode_gate.passed == running.counters.cache_misses == 1


async def test_followers_of_a_cache_that_keeps_nothing_share_all_the_same(serve, decode_gate):
    running = await serve(cache_bytes=0)
    _, followers = await leader_and_followers(running, decode_gate)
    decode_gate.open()
    assert await patches_of(followers) == {reference_patches(FILE)}
    assert decode_gate.passed == 1


async def test_a_leader_that_cancels_leaves_its_followers_their_patches(serve, decode_gate):
    running = await serve()
    leader, followers = await leader_and_followers(running, decode_gate)
    await leader.write(cancel("leader"))
    assert (await next_answers(leader, 1))["leader"].fault == ("CANCELLED", "")
    decode_gate.open()
    assert await patches_of(followers) == {reference_patches(FILE)}
    assert decode_gate.passed == 1


async def test_a_leader_whose_call_ends_leaves_its_followers_their_patches(serve, kernel_gate):
    running = await serve()
    leader, followers = await leader_and_followers(running, kernel_gate)
    leader.cancel()
    await until(lambda: running.counters.streams_open == 3)
    kernel_gate.open()
    assert await patches_of(followers) == {reference_patches(FILE)}
    assert running.counters.cache_misses == 1


async def test_a_leader_that_runs_out_of_time_leaves_its_followers_their_patches(serve, decode_gate):
    running = await serve()
    leader, followers = await leader_and_followers(running, decode_gate, timeout=Duration(nanos=300_000_000))
    assert (await next_answers(leader, 1))["leader"].fault == ("DEADLINE_EXCEEDED", "")
    decode_gate.open()
    assert await patches_of(followers) == {reference_patches(FILE)}
    assert decode_gate.passed == 1


async def test_a_leader_that_stalls_leaves_its_followers_their_patches(serve, kernel_gate):
    running = await serve(stall_timeout_seconds=0.5, worker_threads=1, cache_bytes=0)
    leader, followers = await leader_and_followers(running, kernel_gate, LARGE)
    kernel_gate.open()
    assert await patches_of(followers) == {reference_patches(LARGE)}
    for follower in followers:
        follower.cancel()

    await until(lambda: running.counters.at_rest)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await next_answers(leader)
    assert status_of(caught.value).reason == "STALLED"


async def test_a_follower_that_goes_leaves_the_others_their_patches(serve, decode_gate):
    running = await serve()
    leader, followers = await leader_and_followers(running, decode_gate)
    followers.pop().cancel()
    await until(lambda: running.counters.streams_open == 3)
    decode_gate.open()
    assert await patches_of(followers) == {reference_patches(FILE)}
    assert (await next_answers(leader, 1))["leader"].patches == reference_patches(FILE)


async def test_work_ends_at_its_next_strip_when_the_last_has_gone_and_is_not_joined_any_more(serve, kernel_gate):
    running = await serve(worker_threads=2)
    leader, followers = await leader_and_followers(running, kernel_gate)
    for call in (leader, *followers):
        call.cancel()
    await until(lambda: running.counters.streams_open == 0)
    assert running.counters.threads_busy == 1

    again = await streaming(running, "again")
    await until(lambda: running.counters.cache_misses == 2)
    kernel_gate.open()

    assert (await next_answers(again, 1))["again"].patches == reference_patches(FILE)
    assert running.counters.followers == 3


async def test_a_failure_reaches_all_each_with_its_own_field(serve, decode_gate):
    running = await serve()
    leader, followers = await leader_and_followers(running, decode_gate, FILE[:5000])
    call = running.stub.PreprocessImage(pb.PreprocessImageRequest(encoded=FILE[:5000]))
    await until(lambda: running.counters.followers == 4)
    decode_gate.open()
    for stream in (leader, *followers):
        [answer] = (await next_answers(stream, 1)).values()
        assert answer.fault == ("IMAGE_TRUNCATED", "data")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await next_answers(call)
    status = status_of(caught.value)
    assert (status.reason, status.fields) == ("IMAGE_TRUNCATED", ("encoded",))


async def test_a_stream_may_hold_the_same_picture_many_times(serve, decode_gate):
    running = await serve(worker_threads=1)
    call = running.stub.PreprocessImages()
    for number in range(20):
        for step in whole(f"{number}", FILE):
            await call.write(step)
    await call.done_writing()
    decode_gate.open()
    answers = await next_answers(call)
    assert len(answers) == 20
    assert {answer.patches for answer in answers.values()} == {reference_patches(FILE)}
    assert decode_gate.passed == 1
    assert running.counters.followers + running.counters.cache_hits == 19


async def test_a_leader_that_stops_sending_is_nobodys_leader(serve):
    running = await serve()
    stalled = running.stub.PreprocessImages()
    await stalled.write(begin("a", len(FILE)))
    await stalled.write(part("a", 0, FILE[:-1]))
    await until(lambda: running.counters.images_in_flight == 1)
    other = await streaming(running, "b")
    assert (await next_answers(other, 1))["b"].patches == reference_patches(FILE)
    await stalled.write(part("a", len(FILE) - 1, FILE[-1:]))
    await stalled.write(end("a"))
    assert (await next_answers(stalled, 1))["a"].trailer.from_cache
