"""Many callers, damaged pictures, bombs, killed processes: right answers, and nothing left behind."""

import asyncio
import io
import logging
import os
import random
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from PIL import Image

from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from preprocess.callers import Answer, answers_to, picture_file, reference_patches, until, whole

HERE = Path(__file__).parent
MIB = 1 << 20

MARGIN = 16 * MIB
"""What a server may keep after a round that it did not have before: fragments, and buffers of the transport."""


def bomb() -> bytes:
    """196 million pixels in a few kilobytes."""
    file = io.BytesIO()
    Image.new("1", (14_000, 14_000)).save(file, "PNG")
    return file.getvalue()


def damaged_in_the_middle(file: bytes) -> bytes:
    middle = len(file) // 2
    return file[:middle] + bytes(200) + file[middle + 200 :]


GOOD = {f"good {number}": picture_file(number, 200 + 80 * number, 900 - 60 * number) for number in range(11)}
GOOD["good 11"] = picture_file(11, 4000, 3000, "JPEG")
FAULTY = {
    "truncated": (GOOD["good 11"][:100_000], ("IMAGE_TRUNCATED", "data")),
    "damaged": (damaged_in_the_middle(GOOD["good 3"]), ("IMAGE_DAMAGED", "data")),
    "foreign": (b"%PDF-1.7 no picture at all", ("IMAGE_UNRECOGNIZED", "data")),
    "bomb": (bomb(), ("IMAGE_TOO_MANY_PIXELS", "data")),
}


@pytest.fixture
async def server_process() -> AsyncIterator[tuple[int, int]]:
    """Process id and port of a server."""
    process = await start("server_process.py")
    try:
        yield process.pid, int(await process.stdout.readline())
    finally:
        process.stdin.close()
        await process.wait()
    assert process.returncode == 0


async def start(script: str, *arguments: str) -> asyncio.subprocess.Process:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / script),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )


def resident_bytes(process_id: int) -> int:
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


async def settled_bytes(process_id: int) -> int:
    """Resident memory, once it is the same within a MiB for longer than the server waits to give memory back."""
    clock = asyncio.get_running_loop().time
    value, since = resident_bytes(process_id), clock()
    while clock() < since + 2:
        await asyncio.sleep(0.1)
        if abs(resident_bytes(process_id) - value) > MIB:
            value, since = resident_bytes(process_id), clock()
    return value


async def one_caller(number: int, port: int) -> dict[str, Answer]:
    """Send every picture, in an order of this caller's own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        files = GOOD | {image_id: file for image_id, (file, _) in FAULTY.items()}
        order = random.Random(number).sample(sorted(files), len(files))
        steps = [step for image_id in order for step in whole(image_id, files[image_id])]
        return await answers_to(PreprocessServiceStub(channel), steps)


async def test_8_callers_with_16_pictures_each_get_12_buffers_and_4_errors_and_memory_comes_back(server_process):
    process_id, port = server_process
    expected = {image_id: reference_patches(file) for image_id, file in GOOD.items()}
    faults = {image_id: fault for image_id, (_, fault) in FAULTY.items()}

    async def round_of_8() -> None:
        for answers in await asyncio.gather(*(one_caller(number, port) for number in range(8))):
            assert {image_id: answers[image_id].patches for image_id in GOOD} == expected
            assert {image_id: answers[image_id].fault for image_id in FAULTY} == faults
            assert len(answers) == 16

    await round_of_8()  # warms up: imports, tables, stacks of threads
    before = await settled_bytes(process_id)
    await round_of_8()
    assert await settled_bytes(process_id) <= before + MARGIN


async def test_a_caller_killed_in_the_middle_leaves_nothing_behind(serve, caplog):
    running = await serve(cache_bytes=0)  # it sends the same picture again and again
    counters = running.counters
    for _ in range(3):
        caller = await start("calling_process.py", running.address)
        try:
            await until(lambda: counters.threads_busy > 0 and counters.work.taken > 0)
            assert counters.images_in_flight > 1
        finally:
            caller.kill()
            await caller.wait()
        await until(lambda: counters.at_rest)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    file = GOOD["good 0"]
    assert (await answers_to(running.stub, whole("a", file)))["a"].patches == reference_patches(file)
    await until(lambda: counters.at_rest)
