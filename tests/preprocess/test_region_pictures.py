"""Pictures put into shared memory: the bytes, who may write where, and what a caller does to its file meanwhile."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path

import grpc
import pytest

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from interlock_preprocess import regions
from preprocess.callers import begin, cancel, flat_file, next_answers, picture_file, reference_patches, until, whole
from preprocess.region_files import MIB, SIZE, Registered, patches_there, placed, registered

FILE = picture_file(1, 300, 200)
PATCHES = reference_patches(FILE)
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
"""Of processes that import what this one does."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


@pytest.fixture
async def sharing(serve, folder):
    """A server that shares memory."""
    return await serve(shared_memory_folder=folder)


async def frames_of(stub, *steps) -> dict[str, list[pb.PatchFrame]]:
    """All frames of one stream of these steps, by picture."""
    call = stub.PreprocessImages(timeout=60)

    async def send() -> None:
        for step in steps:
            await call.write(step)
        await call.done_writing()

    sending = asyncio.create_task(send())
    frames: dict[str, list[pb.PatchFrame]] = {}
    async for frame in call:
        frames.setdefault(frame.image_id, []).append(frame)
    await sending
    del frames[""]
    return frames


def fault(frames: list[pb.PatchFrame]) -> tuple[str, str]:
    """Reason and field of a picture that failed."""
    error = frames[-1].error
    assert error.code != 0, frames[-1]
    assert error.message
    return error.reason, error.field


async def failed(stub, region: Registered, target: pb.RegionTarget, data: bytes = FILE) -> tuple[str, str]:
    frames = await frames_of(stub, *whole("x", data, region=target))
    return fault(frames["x"])


async def test_patches_are_put_where_the_caller_said_and_nowhere_else(sharing, folder):
    region = await registered(sharing.stub, folder)
    region.map[32:] = b"\xaa" * (SIZE - 32)
    assert await placed(sharing.stub, region, FILE, region.target(8192)) == PATCHES
    frames = await frames_of(sharing.stub, *whole("s", FILE, region=region.target(4 * MIB, len(PATCHES))))
    assert patches_there(region, region.target(4 * MIB), frames["s"]) == PATCHES
    untouched = (region.bytes(32, 8160), region.bytes(8192 + len(PATCHES), 4 * MIB - 8192 - len(PATCHES)))
    assert {*b"".join(untouched)} == {0xAA}
    assert {*region.bytes(4 * MIB + len(PATCHES), SIZE - 4 * MIB - len(PATCHES))} == {0xAA}
    await until(lambda: sharing.counters.at_rest)


async def test_a_picture_of_the_cache_is_put_there_by_its_hash_alone(sharing, folder):
    region = await registered(sharing.stub, folder)
    await placed(sharing.stub, region, FILE, region.target())
    begun = begin("h", len(FILE), source_sha256=sha256(FILE).digest(), region=region.target(MIB))
    frames = (await frames_of(sharing.stub, begun))["h"]
    assert frames[-1].trailer.from_cache
    assert patches_there(region, region.target(MIB), frames) == PATCHES


async def test_a_large_picture_is_put_there_whole(sharing, folder):
    file = flat_file(3000, 2600)
    region = await registered(sharing.stub, folder)
    assert await placed(sharing.stub, region, file, region.target()) == reference_patches(file)


async def test_targets_that_no_picture_can_be_put_to_are_refused_before_it_is_sent(sharing, folder):
    region = await registered(sharing.stub, folder)
    stub = sharing.stub
    for target, expected in (
        (region.target(4097), ("INVALID_FIELD", "begin.region.offset")),
        (region.target(SIZE), ("REGION_TOO_SMALL", "begin.region.offset")),
        (region.target(2**64 - 2), ("REGION_TOO_SMALL", "begin.region.offset")),
        (pb.RegionTarget(handle="unknown"), ("UNKNOWN_REGION", "begin.region.handle")),
        (pb.RegionTarget(), ("UNKNOWN_REGION", "begin.region.handle")),
    ):
        call = stub.PreprocessImages(timeout=60)
        await call.write(begin("x", len(FILE), region=target))
        answer = (await next_answers(call, 1))["x"]
        assert answer.fault == expected
        call.cancel()


async def test_patches_that_do_not_fit_are_refused_and_nothing_is_written(sharing, folder):
    region = await registered(sharing.stub, folder)
    size = len(PATCHES)
    small = ("REGION_TOO_SMALL", "begin.region.offset")
    assert await failed(sharing.stub, region, region.target(4096, size - 2)) == small
    assert await failed(sharing.stub, region, region.target(SIZE - size + 2)) == small
    assert await failed(sharing.stub, region, region.target(SIZE - size + 2, size)) == small
    assert region.bytes(32, SIZE - 32).count(0) == SIZE - 32
    assert await placed(sharing.stub, region, FILE, region.target(SIZE - size, size)) == PATCHES


async def test_two_pictures_never_write_to_one_range_at_a_time(sharing, folder, kernel_gate):
    region = await registered(sharing.stub, folder)
    files = [picture_file(seed, 300, 200) for seed in (2, 3, 4)]
    size = len(PATCHES)
    targets = [region.target(4096), region.target(4096 + size - 2), region.target(4096 + size)]
    call = sharing.stub.PreprocessImages(timeout=60)
    for name, file, target in zip("abc", files, targets, strict=True):
        for step in whole(name, file, region=target):
            await call.write(step)
    frames: dict[str, list[pb.PatchFrame]] = {}
    async for frame in call:
        frames.setdefault(frame.image_id, []).append(frame)
        # One of `a` and `b` is refused while no kernel has gone on; `c` lies behind `a`, and over the end of `b`.
        if frame.HasField("error"):
            break
    refused = frame.image_id
    assert fault(frames[refused]) == ("REGION_RANGE_IN_USE", "begin.region.offset")
    kernel_gate.open()
    await call.done_writing()
    async for frame in call:
        frames.setdefault(frame.image_id, []).append(frame)
    served = 0
    for name, file, target in zip("abc", files, targets, strict=True):
        if frames[name][-1].HasField("trailer"):
            assert patches_there(region, target, frames[name]) == reference_patches(file)
            served += 1
        else:
            assert fault(frames[name]) == ("REGION_RANGE_IN_USE", "begin.region.offset")
    assert served in (1, 2)
    await until(lambda: sharing.counters.at_rest)
    # All ranges were let go, those of the refused too.
    assert await placed(sharing.stub, region, FILE, region.target(4096 + size - 2)) == PATCHES


async def test_a_range_is_free_again_before_the_caller_knows_of_its_patches(sharing, folder):
    region = await registered(sharing.stub, folder)
    for seed in range(20):
        file = picture_file(seed % 3, 60, 60)
        assert await placed(sharing.stub, region, file, region.target()) == reference_patches(file)


async def test_a_cancelled_picture_lets_go_of_its_range(sharing, folder, kernel_gate):
    region = await registered(sharing.stub, folder)
    call = sharing.stub.PreprocessImages(timeout=60)
    for step in whole("x", FILE, region=region.target()):
        await call.write(step)
    async for frame in call:
        if frame.HasField("header"):
            break
    await call.write(cancel("x"))
    assert (await next_answers(call, 1))["x"].fault == ("CANCELLED", "")
    kernel_gate.open()
    other = picture_file(5, 300, 200)
    assert await placed(sharing.stub, region, other, region.target()) == reference_patches(other)
    call.cancel()
    await until(lambda: sharing.counters.at_rest)


@pytest.mark.parametrize("left", [0, 100, SIZE - 1])
async def test_a_file_cut_short_before_the_write_is_an_error_frame_and_does_not_grow(sharing, folder, left):
    region = await registered(sharing.stub, folder)
    os.truncate(region.path, left)
    assert await failed(sharing.stub, region, region.target()) == ("REGION_WRITE_FAILED", "region")
    assert region.path.stat().st_size == left
    assert (await frames_of(sharing.stub, *whole("chunks", FILE)))["chunks"][-1].HasField("trailer")


async def test_a_file_cut_short_in_the_middle_of_a_write_is_an_error_frame(sharing, folder, monkeypatch):
    region = await registered(sharing.stub, folder)
    pwrite, cut = os.pwrite, []

    def pwrite_half(descriptor, data, at):
        if cut:
            return pwrite(descriptor, data, at)
        written = pwrite(descriptor, data[: len(data) // 2], at)
        os.truncate(region.path, 0)
        cut.append(at)
        return written

    monkeypatch.setattr(regions.os, "pwrite", pwrite_half)
    assert await failed(sharing.stub, region, region.target()) == ("REGION_WRITE_FAILED", "region")
    assert cut == [4096]
    assert region.path.stat().st_size == 4096 + len(PATCHES), "it grew by what was being written, and no further"


async def test_a_file_that_grows_or_loses_its_name_is_written_to_all_the_same(sharing, folder):
    region = await registered(sharing.stub, folder)
    os.truncate(region.path, 2 * SIZE)
    region.path.unlink()
    assert await placed(sharing.stub, region, FILE, region.target()) == PATCHES
    assert list(folder.iterdir()) == []


async def test_a_caller_that_unregisters_while_a_picture_is_made_gets_it_still(sharing, folder, kernel_gate):
    region = await registered(sharing.stub, folder)
    call = sharing.stub.PreprocessImage(pb.PreprocessImageRequest(encoded=FILE, region=region.target()), timeout=60)
    header = await call.read()
    await sharing.stub.UnregisterRegion(pb.UnregisterRegionRequest(handle=region.handle))
    kernel_gate.open()
    assert patches_there(region, region.target(), [header, await call.read()]) == PATCHES


# A server of its own


@contextlib.asynccontextmanager
async def server_process(*before: str, **settings: object) -> AsyncIterator[tuple[int, str]]:
    """The id of a server process, and its address; `before` is what its command line begins with."""
    command = [*before, sys.executable, "-m", "preprocess.server_process", json.dumps(settings)]
    process = await asyncio.create_subprocess_exec(
        *command, env=ENVIRONMENT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process.pid, f"127.0.0.1:{int(await process.stdout.readline())}"
        process.stdin.close()
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def small_tmpfs_command(folder: Path) -> list[str]:
    """Runs what follows it where `folder` is a file system of 1 MiB, seen by that process alone. Empty: not allowed."""
    mount = f'mount -t tmpfs -o size=1m,mode=0700 tmpfs "{folder}" && exec "$0" "$@"'
    for unshare in (["unshare", "--mount"], ["unshare", "--mount", "--user", "--map-root-user"]):
        command = [*unshare, "sh", "-c", mount]
        with contextlib.suppress(OSError):
            if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
                return command
    return []


async def test_a_full_file_system_is_an_error_frame_and_the_server_lives(folder):
    command = small_tmpfs_command(folder)
    if not command:
        command = [
            "sh",
            "-c",
            f'ulimit -f {MIB // 512} && exec "$0" "$@"',
        ]  # fails at the same byte, as a full one does
    async with (
        server_process(*command, shared_memory_folder=str(folder)) as (process_id, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        stub = PreprocessServiceStub(channel)
        seen = Path(f"/proc/{process_id}/root{folder}")
        region = await registered(stub, seen)
        small, large = picture_file(1, 100, 100), flat_file(2000, 2000)
        assert await failed(stub, region, region.target(), large) == ("REGION_WRITE_FAILED", "region")
        frames = (await frames_of(stub, *whole("chunks", large)))["chunks"]
        assert frames[-1].HasField("trailer")
        region.map.close()
        os.truncate(region.path, 0)  # gives its memory back
        again = await registered(stub, seen, "again")
        profile = pb.ProfileSelector(inline=pb.VisionProfile(patch_size=14, downsample_ratio=3, max_image_tokens=64))
        frames = (await frames_of(stub, *whole("s", small, profile=profile, region=again.target())))["s"]
        patches_there(again, again.target(), frames)


CALLER = """
import asyncio, sys
from pathlib import Path
import grpc
from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from preprocess.callers import picture_file, whole
from preprocess.region_files import registered

async def main(address, folder):
    async with grpc.aio.insecure_channel(address) as channel:
        stub = PreprocessServiceStub(channel)
        region = await registered(stub, Path(folder), ttl={"seconds": 1})
        region.path.unlink()
        call = stub.PreprocessImages()
        number = 0
        while True:
            for step in whole(str(number), picture_file(number % 5, 700, 700), region=region.target()):
                await call.write(step)
            async for frame in call:
                if frame.HasField("trailer"):
                    break
            number += 1
            print(number, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_caller_that_is_killed_leaves_nothing_behind(sharing, folder):
    command = [sys.executable, "-c", CALLER, sharing.address, str(folder)]
    caller = await asyncio.create_subprocess_exec(*command, env=ENVIRONMENT, stdout=asyncio.subprocess.PIPE)
    for _ in range(3):
        assert await caller.stdout.readline()
    assert sharing.service.regions.held == 1
    caller.kill()
    await caller.wait()
    await until(lambda: sharing.service.regions.held == 0 and sharing.counters.at_rest)
    assert list(folder.iterdir()) == []
