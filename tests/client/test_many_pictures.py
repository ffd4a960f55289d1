"""Many pictures on one stream: credits, failures of one, failures of the stream, and what is left behind: nothing."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from client.pictures_served import SETTINGS, Steps, StreamServer, error_frame, good_frames, patches_of
from client.scripted import PATIENCE, QUICK, Face, preprocess_servicer, refuse, serving
from interlock.client import (
    AsyncPreprocessClient,
    CallCancelledError,
    DeadlineError,
    ImageFailedError,
    ImageResult,
    OverloadedError,
    PatchesDamagedError,
    Picture,
    PreprocessClient,
    RefusedError,
    SourceError,
    UnexpectedAnswerError,
    UnreachableError,
)
from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.vision import VisionProfile

SOURCES = [f"picture {number}".encode() for number in range(20)]


def many(face: Face, server: StreamServer, sources: object = SOURCES, **kwargs: object) -> list[ImageResult]:
    """All results, in the order of the sources."""
    with serving(preprocess=preprocess_servicer(PreprocessImages=server)) as address:
        client = face.preprocess(address, retry=QUICK)
        results = face.take(None, client, "preprocess_many", sources, **kwargs)
        assert server.ended.wait(PATIENCE)
    return sorted(results, key=lambda result: result.index)


def assert_right(results: list[ImageResult], sources: list[bytes] = SOURCES) -> None:
    assert [result.index for result in results] == list(range(len(sources)))
    for result, source in zip(results, sources, strict=True):
        np.testing.assert_array_equal(result.unwrap().array, patches_of(source))


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "interlock" in thread.name or "request" in thread.name}


def test_every_picture_gets_its_own_patches(face: Face) -> None:
    server = StreamServer()
    assert_right(many(face, server))
    assert server.half_closed.is_set()
    assert len({begin.image_id for begin in server.begins}) == len(SOURCES)


def test_no_pictures_need_no_server(face: Face) -> None:
    assert face.take(None, face.preprocess("127.0.0.1:1"), "preprocess_many", []) == []


def test_credits_of_images_are_honoured(face: Face) -> None:
    settings = pb.PatchFrame(settings={"max_images_in_flight": 2, "max_bytes_in_flight": 1 << 20})
    server = StreamServer(settings=settings, full=2, total=20)
    assert_right(many(face, server, max_in_flight=16))
    assert server.most_in_flight == 2


def test_credits_of_bytes_are_honoured(face: Face) -> None:
    sources = [bytes([number]) * 10 for number in range(12)]
    settings = pb.PatchFrame(settings={"max_images_in_flight": 99, "max_bytes_in_flight": 35})
    server = StreamServer(settings=settings, full=3, total=12)
    assert_right(many(face, server, sources, max_in_flight=16), sources)
    assert server.most_bytes_in_flight == 30


def test_a_picture_beyond_all_credits_is_left_to_the_server_to_refuse(face: Face) -> None:
    server = StreamServer(
        lambda image_id, source: [error_frame(image_id, "SOURCE_TOO_LARGE", 3)],
        settings=pb.PatchFrame(settings={"max_images_in_flight": 1, "max_bytes_in_flight": 5}),
    )
    (result,) = many(face, server, [b"too many bytes"])
    assert result.error.reason == "SOURCE_TOO_LARGE"


def test_one_bad_picture_is_one_error_and_the_others_are_served(face: Face, tmp_path: Path) -> None:
    def answer(image_id: str, source: bytes) -> list[pb.PatchFrame]:
        if source == b"bad":
            return [error_frame(image_id, "IMAGE_DAMAGED", 3)]
        if source == b"bad late":
            return [*good_frames(image_id, source)[:2], error_frame(image_id, "INTERNAL", 13)]
        return good_frames(image_id, source)

    server = StreamServer(answer)
    sources = [b"good", b"bad", tmp_path / "missing.png", Picture(b"bad late", "label"), b"fine"]
    first, bad, missing, late, last = many(face, server, sources)
    np.testing.assert_array_equal(first.unwrap().array, patches_of(b"good"))
    np.testing.assert_array_equal(last.unwrap().array, patches_of(b"fine"))
    assert isinstance(bad.error, ImageFailedError)
    assert (bad.error.reason, bad.error.code) == ("IMAGE_DAMAGED", grpc.StatusCode.INVALID_ARGUMENT)
    assert bad.error.field_violations == (("encoded", "told: IMAGE_DAMAGED"),)
    assert isinstance(missing.error, SourceError)
    assert (late.image_id, late.error.reason, late.patches) == ("label", "INTERNAL", None)
    with pytest.raises(ImageFailedError, match="told: INTERNAL"):
        late.unwrap()


def test_damaged_patches_are_one_error_and_the_picture_is_cancelled(face: Face) -> None:
    def answer(image_id: str, source: bytes) -> list[pb.PatchFrame]:
        good = good_frames(image_id, source)
        # The middle is missing, and its end comes all the same.
        return [good[0], good[2], good[2], good[3]] if source == SOURCES[3] else good

    server = StreamServer(answer)
    results = many(face, server)
    assert isinstance(results.pop(3).error, PatchesDamagedError)
    for result in results:
        np.testing.assert_array_equal(result.unwrap().array, patches_of(SOURCES[result.index]))
    assert server.cancels in ([], [server.begins[3].image_id])


def test_a_stream_that_ends_without_a_trailer_is_damage_to_what_was_in_flight(face: Face) -> None:
    def cut_off(steps: Steps, context: grpc.ServicerContext) -> Iterator[pb.PatchFrame]:
        yield SETTINGS
        begin = next(step.begin for step in steps if step.HasField("begin"))
        yield from good_frames(begin.image_id, b"x")[:-1]

    with serving(preprocess=preprocess_servicer(PreprocessImages=cut_off)) as address:
        (result,) = face.take(None, face.preprocess(address, retry=QUICK), "preprocess_many", [b"x"])
    assert isinstance(result.error, PatchesDamagedError)
    assert "no trailer came" in str(result.error)


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        ([pb.PatchFrame(image_id="1", trailer={})], "began with a frame of kind trailer"),
        ([SETTINGS, pb.PatchFrame(image_id="none", trailer={})], "for picture 'none', not in flight"),
        ([], "the server ended the stream while pictures were still to come"),
    ],
    ids=["no settings", "unknown picture", "an early end"],
)
def test_frames_against_the_contract_end_the_stream(face: Face, frames: list[pb.PatchFrame], told: str) -> None:
    def wrong(steps: Steps, context: grpc.ServicerContext) -> Iterator[pb.PatchFrame]:
        yield from frames

    servicer = preprocess_servicer(PreprocessImages=wrong)
    with serving(preprocess=servicer) as address, pytest.raises(UnexpectedAnswerError) as raised:
        face.take(None, face.preprocess(address, retry=QUICK), "preprocess_many", SOURCES)
    assert told in str(raised.value)


def test_a_picture_that_the_server_has_no_room_for_is_sent_again(face: Face) -> None:
    refused: dict[bytes, int] = {}

    def answer(image_id: str, source: bytes) -> list[pb.PatchFrame]:
        refused[source] = refused.get(source, 0) + 1
        if source in SOURCES[::3] and refused[source] <= 2:
            return [error_frame(image_id, "OVERLOADED", 8, retry_delay=0.01)]
        return good_frames(image_id, source)

    assert_right(many(face, StreamServer(answer)))
    assert [refused[source] for source in SOURCES[:4]] == [3, 1, 1, 3]


def test_a_picture_that_never_finds_room_is_given_up(face: Face) -> None:
    server = StreamServer(lambda image_id, source: [error_frame(image_id, "OVERLOADED", 8, retry_delay=0.01)])
    (result,) = many(face, server, [b"x"])
    assert (result.error.reason, result.error.retry_delay) == ("OVERLOADED", 0.01)
    assert len(server.begins) == QUICK.attempts


@pytest.mark.parametrize(("code", "retry_delay"), [(8, None), (8, 3600), (3, 0.01)])
def test_a_refusal_that_time_does_not_mend_is_not_tried_again(face: Face, code: int, retry_delay: float | None) -> None:
    server = StreamServer(lambda image_id, source: [error_frame(image_id, "OVERLOADED", code, retry_delay)])
    (result,) = many(face, server, [b"x"])
    assert isinstance(result.error, ImageFailedError)
    assert len(server.begins) == 1


def test_a_lost_connection_loses_no_picture(face: Face) -> None:
    # Each stream breaks a few frames further on, in the middle of a picture.
    server = StreamServer(breaks_after=(0, 1, 3, 7, 12, 18, 25, None))
    assert_right(many(face, server))
    assert server.streams == 8


def test_a_server_that_always_breaks_is_given_up(face: Face) -> None:
    server = StreamServer(breaks_after=(3,))
    with pytest.raises(UnreachableError):
        many(face, server)
    assert server.streams == QUICK.attempts


def test_a_draining_server_hands_its_pictures_on(face: Face) -> None:
    """Error frames of reason DRAINING, then the call's end: what was refused goes to the next stream."""
    good = StreamServer()

    def drains_first(steps: Steps, context: grpc.ServicerContext) -> Iterator[pb.PatchFrame]:
        if good.streams or drains_first.called:
            yield from good(steps, context)
            return
        drains_first.called = True
        yield SETTINGS
        begin = next(step.begin for step in steps if step.HasField("begin"))
        yield error_frame(begin.image_id, "DRAINING", 14, retry_delay=1)
        refuse(context, "DRAINING", grpc.StatusCode.UNAVAILABLE)

    drains_first.called = False
    with serving(preprocess=preprocess_servicer(PreprocessImages=drains_first)) as address:
        results = face.take(None, face.preprocess(address, retry=QUICK), "preprocess_many", SOURCES)
    assert_right(sorted(results, key=lambda result: result.index))


def test_a_refused_stream_ends_with_the_refusal(face: Face) -> None:
    def full(steps: object, context: grpc.ServicerContext) -> Iterator[pb.PatchFrame]:
        refuse(context, "OVERLOADED", grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams")
        yield SETTINGS

    servicer = preprocess_servicer(PreprocessImages=full)
    with serving(preprocess=servicer) as address, pytest.raises(OverloadedError, match="too many streams"):
        face.take(None, face.preprocess(address, retry=QUICK), "preprocess_many", SOURCES)


def test_a_stream_ends_at_its_timeout(face: Face) -> None:
    server = StreamServer()
    server.hold.clear()
    with pytest.raises(DeadlineError):
        many(face, server, timeout=0.3)
    assert server.ended.wait(PATIENCE)


def test_an_error_of_the_sources_reaches_the_caller_and_ends_the_call(face: Face) -> None:
    def sources() -> Iterator[bytes]:
        yield from SOURCES[:2]
        raise LookupError("no third picture")

    server = StreamServer()
    with pytest.raises(LookupError, match="no third picture"):
        # A third is drawn only when the first two gave a result.
        many(face, server, sources(), max_in_flight=2)
    assert server.ended.wait(PATIENCE)


@pytest.mark.parametrize(
    ("source", "kind"), [(3, TypeError), (Picture(b"x", profile=VisionProfile(-1, 3, 64, 9)), ValueError)]
)
def test_a_source_that_is_a_mistake_reaches_the_caller(face: Face, source: object, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        many(face, StreamServer(), [b"x", source])


def test_leaving_the_loop_cancels_the_call_and_leaves_no_thread(face: Face) -> None:
    server = StreamServer()
    before = threads()
    with serving(preprocess=preprocess_servicer(PreprocessImages=server)) as address:
        client = face.preprocess(address, retry=QUICK)
        assert len(face.take(1, client, "preprocess_many", SOURCES)) == 1
        assert server.ended.wait(PATIENCE)
        for thread in threads() - before:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_results_come_while_the_caller_is_slow_and_no_more_than_asked_for(face: Face) -> None:
    """The stream is read on while the caller does something else, up to the window."""
    server = StreamServer()
    drawn: list[int] = []

    def sources() -> Iterator[bytes]:
        for number, source in enumerate(SOURCES):
            drawn.append(number)
            yield source

    window = 3
    taken = 0
    with (
        serving(preprocess=preprocess_servicer(PreprocessImages=server)) as address,
        PreprocessClient(address) as client,
    ):
        for _ in client.preprocess_many(sources(), max_in_flight=window):
            taken += 1
            assert len(drawn) <= taken + window
    assert taken == len(SOURCES)


def test_a_fault_while_sending_is_an_error_and_not_a_caller_that_waits_for_ever(
    face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(conversation: object, wire_id: str) -> bool:
        raise RuntimeError("a fault of the SDK")

    monkeypatch.setattr("interlock.client._internal.conversation.Conversation._wanted", fails)
    # grpc's own thread writes for the synchronous client, and keeps the cause to its log.
    with pytest.raises((RuntimeError, RefusedError)):
        many(face, StreamServer())


@pytest.mark.parametrize("max_in_flight", [0, -1])
def test_a_window_for_no_picture_is_refused(face: Face, max_in_flight: int) -> None:
    with pytest.raises(ValueError, match="max_in_flight"):
        face.take(None, face.preprocess("127.0.0.1:1"), "preprocess_many", SOURCES, max_in_flight=max_in_flight)


def test_a_synchronous_stream_cancels_single_pictures_and_serves_the_others() -> None:
    server = StreamServer()
    server.hold.clear()

    def cancel() -> None:
        assert server.begun.wait(PATIENCE)
        stream.cancel(0)
        stream.cancel(19)
        server.hold.set()

    with (
        serving(preprocess=preprocess_servicer(PreprocessImages=server)) as address,
        PreprocessClient(address) as client,
        client.preprocess_many(SOURCES, max_in_flight=20) as stream,
    ):
        canceller = threading.Thread(target=cancel)
        canceller.start()
        results = sorted(stream, key=lambda result: result.index)
        canceller.join()
    # The first was at the server, which may have been quicker; the last had not been drawn, or was behind the credits.
    assert results[0].patches is not None or results[0].error.reason == "CANCELLED"
    assert results[19].patches is not None or results[19].error.reason == "CANCELLED"
    for result in results[1:19]:
        np.testing.assert_array_equal(result.unwrap().array, patches_of(SOURCES[result.index]))


async def test_an_asynchronous_stream_cancels_one_picture_at_the_server() -> None:
    def never(steps: Steps, context: grpc.ServicerContext) -> Iterator[pb.PatchFrame]:
        yield SETTINGS
        for step in steps:
            if step.HasField("cancel"):
                yield error_frame(step.cancel.image_id, "CANCELLED", 1)
            if step.HasField("begin"):
                yield pb.PatchFrame(image_id=step.begin.image_id, header=good_frames("", b"")[0].header)
                begun.set()

    begun = threading.Event()
    with serving(preprocess=preprocess_servicer(PreprocessImages=never)) as address:
        async with AsyncPreprocessClient(address) as client, client.preprocess_many([b"x"]) as stream:
            results = aiter(stream)
            waiting = asyncio.ensure_future(anext(results))
            await asyncio.to_thread(begun.wait, PATIENCE)
            stream.cancel(0)
            stream.cancel(7)
            result = await waiting
    assert (result.index, result.error.reason, result.error.message) == (0, "CANCELLED", "told: CANCELLED")


async def test_a_cancelled_picture_is_not_sent_again_when_the_connection_is_lost() -> None:
    def breaks_when_cancelled(steps: Steps, context: grpc.ServicerContext) -> Iterator[pb.PatchFrame]:
        yield SETTINGS
        for step in steps:
            if step.HasField("begin"):
                streams.append(step.begin)
                begun.set()
            if step.HasField("cancel"):
                context.abort(grpc.StatusCode.UNAVAILABLE, "connection lost")

    begun = threading.Event()
    streams: list[pb.ImageBegin] = []
    with serving(preprocess=preprocess_servicer(PreprocessImages=breaks_when_cancelled)) as address:
        async with AsyncPreprocessClient(address, retry=QUICK) as client, client.preprocess_many([b"x"]) as stream:
            waiting = asyncio.ensure_future(anext(aiter(stream)))
            assert await asyncio.to_thread(begun.wait, PATIENCE)
            stream.cancel(0)
            result = await waiting
    assert result.error.reason == "CANCELLED"
    assert len(streams) == 1


async def test_a_stream_is_iterated_only_once() -> None:
    with PreprocessClient("127.0.0.1:1") as client:
        stream = client.preprocess_many([])
        assert list(stream) == []
        with pytest.raises(RuntimeError, match="only once"):
            iter(stream)
    async with AsyncPreprocessClient("127.0.0.1:1") as client:
        stream = client.preprocess_many([])
        assert [result async for result in stream] == []
        with pytest.raises(RuntimeError, match="only once"):
            aiter(stream)


async def test_asynchronous_sources_may_wait_for_results() -> None:
    """A conversation: the next picture is known only when the last one's patches are there."""
    turns: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def sources() -> AsyncIterator[bytes]:
        while (source := await turns.get()) is not None:
            yield source

    server = StreamServer()
    with serving(preprocess=preprocess_servicer(PreprocessImages=server)) as address:
        async with AsyncPreprocessClient(address) as client:
            turns.put_nowait(SOURCES[0])
            results: list[ImageResult] = []
            async for result in client.preprocess_many(sources()):
                results.append(result)
                turns.put_nowait(SOURCES[len(results)] if len(results) < 5 else None)
    assert_right(results, SOURCES[:5])
    assert server.streams == 1


async def test_leaving_an_asynchronous_loop_ends_the_call_while_the_client_lives_on() -> None:
    server = StreamServer()
    with serving(preprocess=preprocess_servicer(PreprocessImages=server)) as address:
        async with AsyncPreprocessClient(address) as client:
            async for _ in client.preprocess_many(SOURCES):
                break
            assert await asyncio.to_thread(server.ended.wait, PATIENCE)
            # Nothing of the stream runs on.
            others = asyncio.all_tasks() - {asyncio.current_task()}
            _, running = await asyncio.wait(others, timeout=PATIENCE) if others else (None, set())
            assert running == set()


async def test_a_cancelled_caller_is_cancelled_and_its_call_too() -> None:
    server = StreamServer()
    server.hold.clear()

    async def caller(client: AsyncPreprocessClient) -> None:
        async for _ in client.preprocess_many(SOURCES):
            raise AssertionError("no result can come")

    with serving(preprocess=preprocess_servicer(PreprocessImages=server)) as address:
        async with AsyncPreprocessClient(address) as client:
            task = asyncio.create_task(caller(client))
            assert await asyncio.to_thread(server.begun.wait, PATIENCE)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(server.ended.wait, PATIENCE)


async def test_closing_the_client_ends_a_stream_with_an_error() -> None:
    server = StreamServer()
    server.hold.clear()
    with serving(preprocess=preprocess_servicer(PreprocessImages=server)) as address:
        client = AsyncPreprocessClient(address)
        waiting = asyncio.ensure_future(anext(aiter(client.preprocess_many(SOURCES))))
        assert await asyncio.to_thread(server.begun.wait, PATIENCE)
        await client.close()
        with pytest.raises(CallCancelledError):
            await waiting
