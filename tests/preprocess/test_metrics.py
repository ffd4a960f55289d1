"""The Preprocess service's metrics as Prometheus reads them, of pictures that were really made."""

import asyncio
import urllib.request

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from etcd_cluster import free_ports
from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from interlock.serving import Server, ServerSettings
from interlock.serving.metrics import MetricsSettings
from interlock_preprocess import PreprocessSettings, add_preprocess
from preprocess.callers import answers_to, flat_file, picture_file, reference_patches, until, whole

MIB = 1 << 20


@pytest.fixture
async def scraped():
    """A stub, what reads the metrics, and the counters."""
    (port,) = free_ports(1)
    server = Server(ServerSettings(port=0), metrics=MetricsSettings(port=port))
    settings = PreprocessSettings(
        worker_threads=2, source_budget_bytes=256 * MIB, work_budget_bytes=300 * MIB, cache_bytes=64 * MIB
    )
    service = add_preprocess(server, settings)

    def read():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            return answer.read().decode()

    async def samples():
        return {
            (sample.name.removeprefix("interlock_preprocess_"), *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(await asyncio.to_thread(read))
            for sample in family.samples
            if sample.name.startswith("interlock_preprocess_")
        }

    async with grpc.aio.insecure_channel(f"127.0.0.1:{await server.start()}") as channel:
        yield PreprocessServiceStub(channel), samples, service.counters
    await server.stop(grace=0)
    await service.close()


async def test_pictures_are_counted_by_where_their_patches_came_from_and_what_they_cost(scraped):
    stub, samples, counters = scraped
    png, jpeg = picture_file(1, 300, 200), picture_file(2, 400, 300, "JPEG")
    for data in (png, jpeg, png):
        await answers_to(stub, whole("a", data))
    await until(lambda: counters.at_rest)
    told = await samples()
    assert told["pictures_served_total",] == 3
    assert [told["pictures_found_total", how] for how in ("made", "cached", "under_way")] == [2, 1, 0]
    assert told["source_bytes_total", "png"] == len(png)
    assert told["source_bytes_total", "jpeg"] == len(jpeg)
    assert told["patch_bytes_total",] == sum(len(reference_patches(data)) for data in (png, jpeg))
    for what in ("decode", "kernel"):
        assert [told[f"{what}_seconds_count", kind] for kind in ("png", "jpeg")] == [1, 1]
        assert told[f"{what}_seconds_sum", "png"] > 0
    assert told["wait_seconds_count",] == 2


async def test_raw_pixels_have_no_decode_time(scraped):
    stub, samples, _ = scraped
    fields = {"kind": pb.SOURCE_KIND_RAW_RGB, "width": 300, "height": 200}
    await answers_to(stub, whole("a", bytes(300 * 200 * 3), **fields))
    told = await samples()
    assert told["kernel_seconds_count", "raw"] == 1
    assert ("decode_seconds_count", "raw") not in told
    assert told["source_bytes_total", "raw"] == 180_000


async def test_pictures_that_failed_are_counted_by_reason(scraped):
    stub, samples, _ = scraped
    await answers_to(stub, whole("a", b"this is no picture"))
    told = await samples()
    assert [(key, value) for key, value in told.items() if key[0] == "pictures_failed_total"] == [
        (("pictures_failed_total", "IMAGE_UNRECOGNIZED"), 1)
    ]


async def test_what_stands_is_told_while_pictures_are_at_work_and_wait(kernel_gate, scraped):
    stub, samples, counters = scraped
    call = stub.PreprocessImages()
    for number in range(4):
        for step in whole(f"{number}", flat_file(400, 400, number)):
            await call.write(step)
    await until(lambda: counters.threads_busy == 2 and counters.images_queued == 2)
    told = await samples()
    assert (told["threads",], told["threads_busy",], told["pictures_queued",]) == (2, 2, 2)
    assert told["demand",] == 2
    assert told["pictures_in_flight",] == 4
    assert told["budget_taken_bytes", "work"] == counters.work.taken > 0
    assert told["budget_limit_bytes", "work"] == 300 * MIB
    assert told["budget_limit_bytes", "source"] == 256 * MIB
    assert told["budget_limit_bytes", "cache"] == 64 * MIB
    kernel_gate.open()
    await call.done_writing()
    async for _ in call:
        pass
    await until(lambda: counters.at_rest)
    told = await samples()
    assert (told["demand",], told["threads_busy",], told["budget_taken_bytes", "work"]) == (0, 0, 0)
