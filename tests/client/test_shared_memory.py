"""Patches in shared memory, against the real service: the bytes, when memory is shared and when not, and how long an
array stays what it was."""

import asyncio
import concurrent.futures
import errno
import gc
import os
import stat
import threading
from pathlib import Path

import grpc
import numpy as np
import pytest

from client.pictures_served import header, patches_of, trailer
from client.preprocess_served import CORPUS, Running, Start, reason_or_reference, reference
from client.scripted import PATIENCE, QUICK, Face, gives, preprocess_servicer, refuses, serving, streams
from interlock.client import (
    AsyncPreprocessClient,
    ImageFailedError,
    PatchesDamagedError,
    PreprocessClient,
    RefusedError,
    SharedMemoryError,
)
from interlock.client._internal import regions as client_regions
from interlock.client._internal.assembly import PatchAssembly
from interlock.client._internal.frames import Chunk
from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.reasons import Reason
from interlock.vision import VisionProfile
from interlock_preprocess import regions as server_regions

MIB = 1 << 20
PROFILE = VisionProfile(14, 3, 64, 0)
"""Small pictures, so that few bytes hold many: at most 663,552 bytes each."""

RNG = np.random.default_rng(11)
PICTURES = [RNG.integers(0, 256, (90 + number, 120, 3), np.uint8) for number in range(40)]
LARGE = RNG.integers(0, 256, (1100, 1000, 3), np.uint8)
PHOTO = next(path for path in CORPUS if path.name == "jpeg_baseline_420.jpg")


@pytest.fixture
async def sharing(start: Start, folder: Path) -> Running:
    """A server that shares memory in `folder`."""
    return await start(shared_memory_folder=folder)


def right(patches, number: int) -> bool:
    return bool((patches.array == reference(PICTURES[number], PROFILE)).all())


async def test_every_file_of_the_corpus_gives_the_reference_bytes_or_its_reason(
    face: Face, sharing: Running, folder: Path
) -> None:
    client = face.preprocess(sharing.address, shared_memory=True, shared_memory_folder=folder)
    results = await face.atake(None, client, "preprocess_many", CORPUS)
    assert sorted(result.index for result in results) == list(range(len(CORPUS)))
    for result in results:
        path = CORPUS[result.index]
        outcome = reason_or_reference(path)
        if isinstance(outcome, Reason):
            assert (type(result.error), result.error.reason) == (ImageFailedError, outcome), path.name
        else:
            np.testing.assert_array_equal(result.unwrap().array, outcome, err_msg=path.name)
    assert any(result.patches and result.patches.in_shared_memory for result in results)
    assert await sharing.at_rest()
    assert sharing.service.regions.held == 0, "a client that closes takes its region along"


@pytest.mark.parametrize("source", [PHOTO, LARGE], ids=["in one message", "in parts"])
async def test_one_picture_lies_in_shared_memory_and_outlives_its_client(
    face: Face, sharing: Running, folder: Path, source: object
) -> None:
    client = face.preprocess(sharing.address, shared_memory=True, shared_memory_folder=folder)
    patches = await face.acall(client, "preprocess", source, image_id="one")
    assert patches.in_shared_memory
    assert patches.array.flags.writeable
    assert patches.array.dtype == "<u2"
    np.testing.assert_array_equal(patches.array, reference(source))
    patches.array[:] = 7
    assert sharing.service.counters.images_served == 1


async def test_the_same_memory_is_used_again(sharing: Running, folder: Path) -> None:
    def use() -> set[int]:
        with PreprocessClient(sharing.address, shared_memory=True, shared_memory_folder=folder) as client:
            return {client.preprocess(picture, profile=PROFILE).array.ctypes.data for picture in PICTURES[:6]}

    assert len(await asyncio.to_thread(use)) == 1
    assert sharing.service.counters.images_served == 6


# Whether memory is shared


async def test_where_the_server_shares_none_patches_come_in_chunks(face: Face, running: Running, folder: Path) -> None:
    client = face.preprocess(running.address, shared_memory_folder=folder)
    results = await face.atake(None, client, "preprocess_many", PICTURES[:3], profile=PROFILE)
    assert [result.unwrap().in_shared_memory for result in results] == [False] * 3
    client = face.preprocess(running.address, shared_memory_folder=folder)
    assert not (await face.acall(client, "preprocess", PHOTO)).in_shared_memory
    for place, cause in ((folder, RefusedError), (folder / "missing", FileNotFoundError)):
        client = face.preprocess(running.address, shared_memory_folder=place, shared_memory=True)
        with pytest.raises(SharedMemoryError) as raised:
            await face.acall(client, "preprocess", PHOTO)
        assert isinstance(raised.value.__cause__, cause)
        client = face.preprocess(running.address, shared_memory_folder=place, shared_memory=True)
        with pytest.raises(SharedMemoryError):
            await face.atake(None, client, "preprocess_many", [PHOTO])


async def test_another_folder_on_this_side_is_found_out(face: Face, start: Start, folder: Path) -> None:
    (theirs := folder / "theirs").mkdir()
    (ours := folder / "ours").mkdir()
    running = await start(shared_memory_folder=theirs)
    client = face.preprocess(running.address, shared_memory_folder=ours)
    assert not (await face.acall(client, "preprocess", PHOTO)).in_shared_memory
    client = face.preprocess(running.address, shared_memory_folder=ours, shared_memory=True)
    with pytest.raises(SharedMemoryError) as raised:
        await face.acall(client, "preprocess", PHOTO)
    assert raised.value.__cause__.reason == Reason.REGION_FILE_UNUSABLE
    assert [*ours.iterdir(), *theirs.iterdir()] == []
    ours.rmdir()
    theirs.rmdir()


@pytest.mark.parametrize("handle", ["0" * 32, "", "\N{SNOWMAN}"])
def test_a_handle_that_is_not_at_byte_0_means_another_folder(face: Face, folder: Path, handle: str) -> None:
    forgotten: list[str] = []

    def unregister(request: pb.UnregisterRegionRequest, context: object) -> pb.UnregisterRegionResponse:
        forgotten.append(request.handle)
        return pb.UnregisterRegionResponse(removed=True)

    servicer = preprocess_servicer(
        RegisterRegion=gives(pb.RegisterRegionResponse(handle=handle)), UnregisterRegion=unregister
    )
    with serving(preprocess=servicer) as address:
        client = face.preprocess(address, shared_memory_folder=folder, shared_memory=True)
        with pytest.raises(SharedMemoryError, match="folder is not"):
            face.call(client, "preprocess", b"picture")
    assert forgotten == [handle]


async def test_the_folder_comes_from_the_environment(
    face: Face, sharing: Running, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_PREPROCESS_SHARED_MEMORY_FOLDER", str(folder))
    assert (await face.acall(face.preprocess(sharing.address), "preprocess", PHOTO)).in_shared_memory
    off = face.preprocess(sharing.address, shared_memory=False)
    assert not (await face.acall(off, "preprocess", PHOTO)).in_shared_memory


def test_elsewhere_than_on_linux_it_is_refused(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_regions.sys, "platform", "darwin")
    with pytest.raises(SharedMemoryError, match="Linux only"):
        face.preprocess("127.0.0.1:1", shared_memory=True)
    assert client_regions.SharedMemory("auto", None, MIB).offer() is None


def test_a_size_that_holds_nothing_is_refused(face: Face) -> None:
    with pytest.raises(ValueError, match="shared_memory_bytes is 100"):
        face.preprocess("127.0.0.1:1", shared_memory_bytes=100)


@pytest.mark.parametrize(
    ("folder_mode", "file_mode"), [(0o700, 0o600), (0o755, 0o600), (0o2770, 0o660), (0o777, 0o660)]
)
def test_a_file_is_open_to_the_group_only_where_its_folder_is(folder: Path, folder_mode: int, file_mode: int) -> None:
    folder.chmod(folder_mode)
    memory = client_regions.SharedMemory(True, folder, MIB)
    region = memory.offer()
    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == file_mode
    memory.failed(region, KeyboardInterrupt())


# How long an array stays what it was


async def test_arrays_that_are_kept_stay_right_and_further_pictures_come_in_chunks(
    face: Face, sharing: Running, folder: Path
) -> None:
    client = face.preprocess(
        sharing.address, shared_memory=True, shared_memory_folder=folder, shared_memory_bytes=2 * MIB
    )
    kept = await face.atake(None, client, "preprocess_many", PICTURES, profile=PROFILE, max_in_flight=4)
    assert all(right(result.unwrap(), result.index) for result in kept)
    shared = sum(result.patches.in_shared_memory for result in kept)
    assert 1 < shared < len(kept)
    assert sharing.service.counters.images_failed == {}


async def test_a_range_is_free_when_its_array_and_all_views_are_gone(sharing: Running, folder: Path) -> None:
    def use() -> None:
        with PreprocessClient(
            sharing.address, shared_memory=True, shared_memory_folder=folder, shared_memory_bytes=MIB
        ) as client:

            def made(number: int):
                return client.preprocess(PICTURES[number], profile=PROFILE)

            first = made(0)
            address, view = first.array.ctypes.data, first.array[1:, 0, ::2].view(np.int16).view(np.ndarray)[..., 3]
            assert not view.flags.owndata
            seen = view.copy()
            assert first.in_shared_memory
            del first
            gc.collect()
            assert made(1).array.ctypes.data != address, "the view still looks at it"
            np.testing.assert_array_equal(view, seen)
            buffer = memoryview(view)
            del view
            assert made(2).array.ctypes.data != address, "the memoryview still looks at it"
            del buffer
            third = made(3)
            assert third.array.ctypes.data == address
            copied = third.array.copy()
            del third
            assert made(4).array.ctypes.data == address
            np.testing.assert_array_equal(copied, reference(PICTURES[3], PROFILE))

    await asyncio.to_thread(use)


async def test_leaving_a_loop_gives_up_what_the_server_may_still_write_to(sharing: Running, folder: Path) -> None:
    def use() -> None:
        with PreprocessClient(
            sharing.address, shared_memory=True, shared_memory_folder=folder, shared_memory_bytes=16 * MIB
        ) as client:
            kept = []
            for _ in range(5):
                for result in client.preprocess_many(PICTURES, profile=PROFILE, max_in_flight=20):
                    kept.append(result)
                    if len(kept) % 3 == 0:
                        break
            kept.extend(client.preprocess_many(PICTURES[:5], profile=PROFILE))
            assert all(right(result.unwrap(), result.index) for result in kept)
            assert all(result.patches.in_shared_memory for result in kept)
            # Those that were given up were told to the server; the last one goes with the client.
            assert sharing.service.regions.held == 1

    await asyncio.to_thread(use)
    assert sharing.service.regions.held == 0


async def test_a_server_that_forgot_the_region_is_asked_for_another(face: Face, sharing: Running, folder: Path) -> None:
    async def use(client, preprocess) -> list[bool]:
        first = await preprocess(client, PHOTO)
        sharing.service.regions.close()  # as after a restart
        return [
            each.in_shared_memory for each in (first, await preprocess(client, PHOTO), await preprocess(client, PHOTO))
        ]

    options = {"shared_memory": True, "shared_memory_folder": folder}
    if face.preprocess is PreprocessClient:
        with PreprocessClient(sharing.address, **options) as client:
            shared = await use(client, lambda client, source: asyncio.to_thread(client.preprocess, source))
    else:
        async with AsyncPreprocessClient(sharing.address, **options) as client:
            shared = await use(client, lambda client, source: client.preprocess(source))
    assert shared == [True, False, True]
    assert sharing.service.counters.images_failed == {Reason.UNKNOWN_REGION: 1}


async def test_a_full_file_system_costs_no_picture(
    face: Face, sharing: Running, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def full(descriptor: int, data: memoryview, at: int) -> int:
        if at == 0:
            return pwrite(descriptor, data, at)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(server_regions.os, "pwrite", full)
    client = face.preprocess(sharing.address, shared_memory=True, shared_memory_folder=folder)
    results = await face.atake(None, client, "preprocess_many", PICTURES, profile=PROFILE, max_in_flight=4)
    assert all(right(result.unwrap(), result.index) for result in results)
    assert not any(result.patches.in_shared_memory for result in results)
    failed = sharing.service.counters.images_failed
    assert set(failed) == {Reason.REGION_WRITE_FAILED}
    assert failed[Reason.REGION_WRITE_FAILED] <= 4, "only those that were under way"


async def test_a_profile_that_gives_more_than_was_set_aside_costs_no_picture(
    face: Face, sharing: Running, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.client._internal.ready_pictures.most_patch_bytes", lambda picture: 8192)
    client = face.preprocess(sharing.address, shared_memory=True, shared_memory_folder=folder)
    results = await face.atake(None, client, "preprocess_many", [LARGE, PHOTO, PICTURES[0]])
    for result in results:
        source = [LARGE, PHOTO, PICTURES[0]][result.index]
        np.testing.assert_array_equal(result.unwrap().array, reference(source))
        assert not result.patches.in_shared_memory
    client = face.preprocess(sharing.address, shared_memory=True, shared_memory_folder=folder)
    assert not (await face.acall(client, "preprocess", PHOTO)).in_shared_memory


async def test_many_threads_share_one_client(sharing: Running, folder: Path) -> None:
    def use() -> None:
        with (
            PreprocessClient(
                sharing.address, shared_memory=True, shared_memory_folder=folder, shared_memory_bytes=3 * MIB
            ) as client,
            concurrent.futures.ThreadPoolExecutor(8) as threads,
        ):

            def work(number: int) -> bool:
                return all(
                    right(client.preprocess(PICTURES[other % 40], profile=PROFILE), other % 40)
                    for other in range(number, number + 10)
                )

            assert all(threads.map(work, range(16)))

    await asyncio.to_thread(use)
    assert sharing.service.regions.held == 0


# Servers that do it wrong


class Liar:
    """Registers whatever it is asked to, and answers every picture as it is told, with nothing or wrong bytes put."""

    def __init__(self, folder: Path, *frames: pb.PatchFrame, put: bytes = b"") -> None:
        self._folder = folder
        self._frames = frames
        self._put = put
        self._file: int | None = None

    def servicer(self) -> object:
        return preprocess_servicer(
            RegisterRegion=self._register,
            UnregisterRegion=gives(pb.UnregisterRegionResponse()),
            PreprocessImage=self._answer,
        )

    def _register(self, request: pb.RegisterRegionRequest, context: object) -> pb.RegisterRegionResponse:
        self._file = os.open(self._folder / request.file_name, os.O_RDWR)
        os.pwrite(self._file, b"handle", 0)
        return pb.RegisterRegionResponse(handle="handle")

    def _answer(self, request: pb.PreprocessImageRequest, context: object):
        assert request.region.handle == "handle"
        os.pwrite(self._file, self._put, request.region.offset)
        os.close(self._file)
        yield from self._frames


WHOLE = [pb.PatchFrame(header=header()), pb.PatchFrame(trailer=trailer(b"x"))]
CHUNK = pb.PatchFrame(chunk=pb.PatchChunk(data=bytes(24)))


@pytest.mark.parametrize(
    ("frames", "put", "match"),
    [
        (WHOLE, b"", "CRC-32C"),
        (WHOLE, bytes(10), "CRC-32C"),
        ([WHOLE[0], CHUNK, WHOLE[1]], b"", "a chunk came of patches that go into shared memory"),
        ([WHOLE[1]], b"", "the trailer came before the header"),
        (WHOLE[:1], b"", "no trailer came"),
        ([pb.PatchFrame(header=header(total_bytes=99))], b"", "99 bytes for patches of shape"),
    ],
)
def test_wrong_bytes_in_shared_memory_are_never_handed_out(
    face: Face, folder: Path, frames: list[pb.PatchFrame], put: bytes, match: str
) -> None:
    with serving(preprocess=Liar(folder, *frames, put=put).servicer()) as address:
        client = face.preprocess(address, retry=QUICK, shared_memory=True, shared_memory_folder=folder)
        with pytest.raises(PatchesDamagedError, match=match):
            face.call(client, "preprocess", b"x")


def test_right_bytes_in_shared_memory_are(face: Face, folder: Path) -> None:
    put = patches_of(b"x").tobytes()
    with serving(preprocess=Liar(folder, *WHOLE, put=put).servicer()) as address:
        client = face.preprocess(address, retry=QUICK, shared_memory=True, shared_memory_folder=folder)
        np.testing.assert_array_equal(face.call(client, "preprocess", b"x").array, patches_of(b"x"))


def test_a_header_larger_than_the_place_is_damaged(folder: Path) -> None:
    memory = client_regions.SharedMemory(True, folder, MIB)
    region = memory.offer()
    (path,) = folder.iterdir()
    path.write_bytes(b"handle" + bytes(MIB))
    memory.opened(region, pb.RegisterRegionResponse(handle="handle"))
    assembly = PatchAssembly("x", 1 << 30, memory.take(100))
    grid = pb.Plan(grid_width=100, grid_height=100)
    with pytest.raises(PatchesDamagedError, match="240000 bytes, put to 4096 of shared memory"):
        assembly.add(pb.PatchFrame(header=header(plan=grid, total_bytes=240_000)))
    with pytest.raises(PatchesDamagedError, match="before the header"):
        PatchAssembly("x", 1).add(Chunk("x", 0, memoryview(b"")))


def test_a_server_that_is_older_gives_chunks(face: Face, folder: Path) -> None:
    servicer = preprocess_servicer(
        RegisterRegion=refuses("", grpc.StatusCode.UNIMPLEMENTED),
        PreprocessImage=streams(
            WHOLE[0], pb.PatchFrame(chunk=pb.PatchChunk(data=patches_of(b"x").tobytes())), WHOLE[1]
        ),
    )
    with serving(preprocess=servicer) as address:
        client = face.preprocess(address, shared_memory_folder=folder)
        patches = face.call(client, "preprocess", b"x")
    np.testing.assert_array_equal(patches.array, patches_of(b"x"))


def test_a_server_without_a_word_on_regions_is_asked_once(folder: Path) -> None:
    asked = threading.Event()

    def never(request: object, context: grpc.ServicerContext) -> pb.RegisterRegionResponse:
        assert not asked.is_set(), "asked again at once"
        asked.set()
        context.abort(grpc.StatusCode.UNAVAILABLE, "no")

    frames = [WHOLE[0], pb.PatchFrame(chunk=pb.PatchChunk(data=patches_of(b"x").tobytes())), WHOLE[1]]
    servicer = preprocess_servicer(RegisterRegion=never, PreprocessImage=streams(*frames))
    with serving(preprocess=servicer) as address, PreprocessClient(address, shared_memory_folder=folder) as client:
        for _ in range(3):
            assert not client.preprocess(b"x", timeout=PATIENCE).in_shared_memory
    assert asked.is_set()
