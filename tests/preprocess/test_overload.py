"""Far more pictures than the server can make: some are made, the others are refused with a time to come back, nothing
else fails, nothing grows. How long the admitted ones take is measured by `benchmarks.service`."""

import asyncio
import io
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator

import grpc
import pytest
from PIL import Image

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from preprocess.callers import Answer, Status, next_answers, reference_patches, status_of, until, whole
from preprocess.test_crowd import MARGIN, settled_bytes, start

THREADS, QUEUED = 2, 3
CALLERS, STREAMS = 24, 4
SERVED = 300

SETTINGS = {"worker_threads": THREADS, "max_queued_images": QUEUED, "max_images_in_flight": 4, "cache_bytes": 0}


def picture() -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").resize((900, 700)).convert("RGB").save(file, "JPEG", quality=95)
    return file.getvalue()


FILE = picture()
PATCHES = reference_patches(FILE)

_NUMBERS = itertools.count()


def another() -> bytes:
    """The same pixels in another file, so that no two pictures are made at once."""
    return FILE + b"%d" % next(_NUMBERS)


class Flood:
    """Callers that send the next picture as soon as they know of the last one, and do not wait when they are refused.

    A caller that waits as it is told to would be no overload.
    """

    def __init__(self) -> None:
        self.served = 0
        self.refused: Counter[str] = Counter()

    async def one_at_a_time(self, stub: PreprocessServiceStub) -> None:
        """In calls of one picture each."""
        while self.served < SERVED:
            status = None
            try:
                answers = await next_answers(stub.PreprocessImage(pb.PreprocessImageRequest(encoded=another())))
            except grpc.aio.AioRpcError as error:
                status = status_of(error)
            if status is None:
                assert answers[""].patches == PATCHES
                self.served += 1
            else:
                assert status == Status(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], "OVERLOADED", (), retries=True)
                self.refused[status.reason] += 1

    async def many_at_a_time(self, stub: PreprocessServiceStub) -> None:
        """On one stream, twice as many as its credits, so that some are refused for that."""
        while self.served < SERVED:
            names = [f"{number}" for number in range(2 * SETTINGS["max_images_in_flight"])]
            call = stub.PreprocessImages()
            reading = asyncio.create_task(next_answers(call, len(names)))
            for name in names:
                for step in whole(name, another()):
                    await call.write(step)
            await call.done_writing()
            for answer in (await reading).values():
                self._note(answer)

    def _note(self, answer: Answer) -> None:
        if answer.error is None:
            assert answer.patches == PATCHES
            self.served += 1
            return
        assert answer.error.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        assert answer.error.HasField("retry_delay")
        assert answer.error.retry_delay.ToNanoseconds() > 0
        self.refused[answer.error.reason] += 1

    async def run(self, address: str) -> None:
        """Until enough were served."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with asyncio.TaskGroup() as callers:
            for number in range(CALLERS + STREAMS):
                callers.create_task(self._caller(number, address, options))

    async def _caller(self, number: int, address: str, options: list[tuple[str, int]]) -> None:
        async with grpc.aio.insecure_channel(address, options) as channel:
            stub = PreprocessServiceStub(channel)
            await (self.one_at_a_time(stub) if number < CALLERS else self.many_at_a_time(stub))


async def test_what_is_too_much_is_refused_with_a_time_and_all_bounds_hold(serve):
    running = await serve(**SETTINGS)
    counters, flood = running.counters, Flood()
    most_queued = most_held = 0

    async def watch() -> None:
        nonlocal most_queued, most_held
        while True:
            most_queued = max(most_queued, counters.images_queued)
            most_held = max(most_held, counters.images_held)
            assert counters.work.taken <= counters.work.limit
            assert counters.sources.taken <= counters.sources.limit
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    await flood.run(running.address)
    watching.cancel()
    assert flood.served >= SERVED
    assert flood.refused["OVERLOADED"] > 0
    assert flood.refused["CREDITS_EXCEEDED"] > 0
    assert set(flood.refused) == {"OVERLOADED", "CREDITS_EXCEEDED"}
    assert counters.most_threads_busy <= THREADS
    await until(lambda: counters.at_rest)
    assert counters.images_served == flood.served
    assert counters.images_failed == flood.refused
    assert 0 < most_queued <= QUEUED
    assert most_held > 0


@pytest.fixture
async def small_server() -> AsyncIterator[tuple[int, str]]:
    """Process id and address of a server with those settings."""
    process = await start("server_process.py", json.dumps(SETTINGS))
    try:
        yield process.pid, f"127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.stdin.close()
        await process.wait()
    assert process.returncode == 0


async def test_memory_is_flat_under_overload_and_comes_back(small_server):
    process_id, address = small_server
    await Flood().run(address)  # warms up
    before = await settled_bytes(process_id)
    for _ in range(2):
        await Flood().run(address)
        assert await settled_bytes(process_id) <= before + MARGIN
