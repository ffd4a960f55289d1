"""Pictures begun by their hash: what is sent, when it pays, and what a server may ask."""

import asyncio
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import grpc
import numpy as np
import pytest

from client.pictures_served import SETTINGS, Steps, error_frame, good_frames, patches_of
from client.preprocess_served import Running, Start, reference
from client.scripted import QUICK, Face, preprocess_servicer, refuse, serving
from interlock.client import (
    AsyncPreprocessClient,
    ImageFailedError,
    Picture,
    PreprocessClient,
    UnexpectedAnswerError,
)
from interlock.client._internal.hashes import HashFirstPolicy
from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.reasons import Reason

LARGE = bytes(range(256)) * 300
OTHER = LARGE[::-1]


class CachingServer:
    """Answers what it has seen by its hash, asks for the rest, and writes down every step."""

    def __init__(self, known: tuple[bytes, ...] = ()) -> None:
        self.known = {sha256(source).digest(): source for source in known}
        self.steps: list[tuple[str, str]] = []
        self.begins: list[pb.ImageBegin] = []

    def __call__(self, steps: Steps, context: grpc.ServicerContext) -> Iterator[pb.PatchFrame]:
        yield SETTINGS
        sources: dict[str, bytes] = {}
        for step in steps:
            kind = step.WhichOneof("step")
            image_id = getattr(step, kind).image_id
            self.steps.append((kind, image_id))
            match kind:
                case "begin":
                    self.begins.append(step.begin)
                    sources[image_id] = b""
                    if step.begin.HasField("source_sha256"):
                        if (source := self.known.get(step.begin.source_sha256)) is not None:
                            yield from good_frames(image_id, source)
                        else:
                            yield pb.PatchFrame(image_id=image_id, source_needed=pb.SourceNeeded())
                case "data":
                    sources[image_id] += step.data.data
                case "end":
                    source = sources[image_id]
                    self.known[sha256(source).digest()] = source
                    yield from good_frames(image_id, source)
                case "cancel":
                    yield error_frame(image_id, "CANCELLED", 1)


def test_what_the_server_knows_is_not_sent_and_the_rest_is(face: Face) -> None:
    server = CachingServer(known=(LARGE,))
    with serving(preprocess=preprocess_servicer(PreprocessImages=server)) as address:
        client = face.preprocess(address, retry=QUICK, hash_first=True)
        results = face.take(None, client, "preprocess_many", [LARGE, b"small", OTHER, LARGE])
    for result in results:
        source = [LARGE, b"small", OTHER, LARGE][result.index]
        np.testing.assert_array_equal(result.unwrap().array, patches_of(source))
    sent = [kind for kind, _ in server.steps]
    assert (sent.count("begin"), sent.count("end")) == (4, 2)
    assert [begin.source_sha256 for begin in server.begins] == [
        sha256(source).digest() for source in (LARGE, b"small", OTHER, LARGE)
    ]


@pytest.mark.parametrize("source", [b"small", LARGE * 50], ids=["in one message", "in parts"])
def test_one_picture_is_named_first_and_sent_only_if_need_be(face: Face, source: bytes) -> None:
    server, asked = CachingServer(), []

    def one(request: pb.PreprocessImageRequest, context: grpc.ServicerContext) -> Iterator[pb.PatchFrame]:
        asked.append(request.WhichOneof("source"))
        if request.HasField("encoded"):
            server.known[sha256(request.encoded).digest()] = request.encoded
        elif request.hash.sha256 not in server.known:
            refuse(context, "SOURCE_NEEDED", grpc.StatusCode.NOT_FOUND)
        assert (request.hash.total_bytes or len(source), request.hash.kind or 1) == (len(source), 1)
        yield from good_frames(request.image_id, source)

    with serving(preprocess=preprocess_servicer(PreprocessImages=server, PreprocessImage=one)) as address:
        for _ in range(2):
            client = face.preprocess(address, retry=QUICK, hash_first=True)
            patches = face.call(client, "preprocess", source, image_id="label")
            np.testing.assert_array_equal(patches.array, patches_of(source))
            assert patches.image_id == "label"
    sent = asked + [kind for kind, _ in server.steps if kind != "data"]
    assert sent == (["hash", "encoded", "hash"] if len(source) < 100 else ["hash", "hash", "begin", "end"])
    assert not any(begin.HasField("source_sha256") for begin in server.begins), "it was just asked for"


def test_by_itself_a_client_asks_only_for_what_it_has_sent(face: Face) -> None:
    sources = [LARGE, OTHER, b"small", b"small", LARGE, bytearray(LARGE), OTHER[:-1]]
    server = CachingServer()
    with serving(preprocess=preprocess_servicer(PreprocessImages=server)) as address:
        client = face.preprocess(address, retry=QUICK)
        results = face.take(None, client, "preprocess_many", sources, max_in_flight=1)
    for result in results:
        np.testing.assert_array_equal(result.unwrap().array, patches_of(bytes(sources[result.index])))
    by_hash = [begin.HasField("source_sha256") for begin in server.begins]
    assert by_hash == [False, False, False, False, True, True, False]
    never = face.preprocess(address, hash_first=False)
    assert not never._hash_first.applies_to(memoryview(LARGE))
    assert not never._hash_first.applies_to(memoryview(LARGE))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.client._internal.hashes._REMEMBERED", 2)
    policy = HashFirstPolicy("auto")
    first, second, third = (bytes([number]) * 100_000 for number in range(3))
    asked = [policy.applies_to(memoryview(source)) for source in (first, second, first, third, first, second)]
    assert asked == [False, False, True, False, True, False]


def test_a_picture_that_was_not_begun_by_its_hash_cannot_be_asked_for(face: Face) -> None:
    def asks(steps: Steps, context: grpc.ServicerContext) -> Iterator[pb.PatchFrame]:
        yield SETTINGS
        for step in steps:
            if step.HasField("end"):
                yield pb.PatchFrame(image_id=step.end.image_id, source_needed=pb.SourceNeeded())

    with serving(preprocess=preprocess_servicer(PreprocessImages=asks)) as address:
        client = face.preprocess(address, retry=QUICK)
        with pytest.raises(UnexpectedAnswerError, match="which was sent already"):
            face.take(None, client, "preprocess_many", [b"x"])


def test_a_picture_that_fails_while_it_is_asked_for_is_not_sent(face: Face) -> None:
    def asks_and_fails(steps: Steps, context: grpc.ServicerContext) -> Iterator[pb.PatchFrame]:
        yield SETTINGS
        for step in steps:
            if step.HasField("begin"):
                yield pb.PatchFrame(image_id=step.begin.image_id, source_needed=pb.SourceNeeded())
                yield error_frame(step.begin.image_id, "IMAGE_DAMAGED", 3)

    with serving(preprocess=preprocess_servicer(PreprocessImages=asks_and_fails)) as address:
        client = face.preprocess(address, retry=QUICK, hash_first=True)
        results = face.take(None, client, "preprocess_many", [LARGE, OTHER])
    assert [result.error.reason for result in results] == ["IMAGE_DAMAGED"] * 2


def test_a_lost_stream_begins_by_hash_again(face: Face) -> None:
    good = CachingServer()
    broken = threading.Event()

    def breaks_once(steps: Steps, context: grpc.ServicerContext) -> Iterator[pb.PatchFrame]:
        if broken.is_set():
            yield from good(steps, context)
            return
        yield SETTINGS
        for step in steps:
            yield pb.PatchFrame(image_id=step.begin.image_id, source_needed=pb.SourceNeeded())
            broken.set()
            context.abort(grpc.StatusCode.UNAVAILABLE, "connection lost")

    with serving(preprocess=preprocess_servicer(PreprocessImages=breaks_once)) as address:
        client = face.preprocess(address, retry=QUICK, hash_first=True)
        (result,) = face.take(None, client, "preprocess_many", [LARGE])
    np.testing.assert_array_equal(result.unwrap().array, patches_of(LARGE))
    assert [kind for kind, _ in good.steps] == ["begin", "data", "end"]


async def test_the_real_service_gives_a_picture_a_second_time_out_of_its_cache(
    face: Face, start: Start, folder: Path
) -> None:
    running = await start(shared_memory_folder=folder)
    sources = list(np.random.default_rng(5).integers(0, 256, (3, 200, 300, 3), np.uint8))
    expected = [reference(source) for source in sources]

    async def twice(client, many) -> None:
        for again in (False, True):
            for result in await many(client):
                patches = result.unwrap()
                np.testing.assert_array_equal(patches.array, expected[result.index])
                assert (patches.timings.from_cache, patches.in_shared_memory) == (again, True)
                assert (patches.timings.kernel == 0) == again

    options = {"shared_memory": True, "shared_memory_folder": folder}
    if face.preprocess is PreprocessClient:
        with PreprocessClient(running.address, **options) as client:
            await twice(client, lambda client: asyncio.to_thread(lambda: list(client.preprocess_many(sources))))
    else:

        async def many(client):
            return [result async for result in client.preprocess_many(sources)]

        async with AsyncPreprocessClient(running.address, **options) as client:
            await twice(client, many)
    assert running.service.counters.images_failed == {}


async def test_the_real_service_gives_one_picture_a_second_time_by_its_name(face: Face, running: Running) -> None:
    source = np.random.default_rng(6).integers(0, 256, (200, 300, 3), np.uint8)
    for again in (False, True):
        client = face.preprocess(running.address, hash_first=True)
        patches = await face.acall(client, "preprocess", source)
        np.testing.assert_array_equal(patches.array, reference(source))
        assert patches.timings.from_cache == again
    counters = running.service.counters
    assert (counters.images_served, counters.images_failed, counters.cache_hits) == (2, {}, 1)


async def test_a_picture_has_a_time_of_its_own(face: Face, running: Running) -> None:
    sources = [Picture(np.full((3000, 3000, 3), 7, np.uint8), timeout=1e-6), np.zeros((50, 50, 3), np.uint8)]
    results = await face.atake(None, face.preprocess(running.address), "preprocess_many", sources)
    late, good = sorted(results, key=lambda result: result.index)
    assert isinstance(late.error, ImageFailedError)
    assert late.error.reason == Reason.DEADLINE_EXCEEDED
    np.testing.assert_array_equal(good.unwrap().array, reference(sources[1]))
    client = face.preprocess(running.address)
    (late,) = await face.atake(None, client, "preprocess_many", sources[:1], picture_timeout=60.0)
    assert late.error.reason == Reason.DEADLINE_EXCEEDED, "its own goes before that of all"
    client = face.preprocess(running.address)
    (late,) = await face.atake(None, client, "preprocess_many", [sources[0].source], picture_timeout=1e-6)
    assert late.error.reason == Reason.DEADLINE_EXCEEDED
    with pytest.raises(ValueError, match="timeout is -1"):
        await face.atake(None, face.preprocess(running.address), "preprocess_many", sources[1:], picture_timeout=-1)


def test_a_picture_that_is_sent_again_has_only_the_time_that_is_left(face: Face) -> None:
    timeouts: list[int] = []

    def full_at_first(steps: Steps, context: grpc.ServicerContext) -> Iterator[pb.PatchFrame]:
        yield SETTINGS
        for step in steps:
            if step.HasField("begin"):
                timeouts.append(step.begin.timeout.ToNanoseconds())
                if len(timeouts) < 3:
                    yield error_frame(step.begin.image_id, "OVERLOADED", 8, retry_delay=0.01)
            elif step.HasField("end") and len(timeouts) == 3:
                yield from good_frames(step.end.image_id, b"x")

    with serving(preprocess=preprocess_servicer(PreprocessImages=full_at_first)) as address:
        client = face.preprocess(address, retry=QUICK)
        (result,) = face.take(None, client, "preprocess_many", [Picture(b"x", timeout=100.0)])
    np.testing.assert_array_equal(result.unwrap().array, patches_of(b"x"))
    assert timeouts[0] == 100_000_000_000
    assert timeouts[0] > timeouts[1] > timeouts[2] > 0
