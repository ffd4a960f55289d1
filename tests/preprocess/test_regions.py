"""Registering shared memory: what is let in, what is refused, and how long it stays."""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.rpc import code_pb2

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.serving.config import SettingsError
from interlock_preprocess import PreprocessSettings, regions
from interlock_preprocess.faults import ImageFault
from interlock_preprocess.regions import Regions, Target
from preprocess.callers import Status, picture_file, status_of, until
from preprocess.region_files import MIB, SIZE, new_file, placed, registered


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def held_open(path: Path) -> bool:
    """Whether this process, which has the server in it, has a descriptor of what is there."""
    links = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return any(Path(link).is_relative_to(path) for link in links)


async def refused(call) -> Status:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return status_of(raised.value)


def register(stub, name: str, size: int = SIZE, **fields):
    return stub.RegisterRegion(pb.RegisterRegionRequest(file_name=name, size=size, **fields))


async def test_a_file_is_registered_and_its_handle_found_at_its_beginning(serve, folder):
    running = await serve(shared_memory_folder=folder)
    first = await registered(running.stub, folder, "a")
    second = await registered(running.stub, folder, "b", ttl={"seconds": 5})
    assert re.fullmatch("[0-9a-f]{32}", first.handle)
    assert first.handle != second.handle
    regions = (await running.stub.ListRegions(pb.ListRegionsRequest())).regions
    assert [(region.file_name, region.size) for region in regions] == [("a", SIZE), ("b", SIZE)]
    assert 590 < regions[0].ttl.seconds <= 600
    assert 0 < regions[1].ttl.ToNanoseconds() <= 5_000_000_000


async def test_without_a_folder_everything_about_regions_is_off(running):
    off = Status(code_pb2.UNIMPLEMENTED, "SHARED_MEMORY_OFF", (), False)
    stub = running.stub
    assert await refused(register(stub, "x")) == off
    assert await refused(stub.UnregisterRegion(pb.UnregisterRegionRequest(handle="x"))) == off
    assert await refused(stub.ListRegions(pb.ListRegionsRequest())) == off


@pytest.mark.parametrize("name", ["", ".", "..", "../region", "sub/region", "/etc/passwd", "nul\0", "n" * 256])
async def test_a_name_that_leads_out_of_the_folder_is_refused(serve, folder, name):
    running = await serve(shared_memory_folder=folder / "inside")
    new_file(folder)
    assert await refused(register(running.stub, name)) == Status(
        code_pb2.INVALID_ARGUMENT, "INVALID_FIELD", ("file_name",), False
    )


def make_symlink(path: Path) -> None:
    path.symlink_to(new_file(path.parent, f"{path.name} target"))


def make_hard_link(path: Path) -> None:
    os.link(new_file(path.parent, f"{path.name} target"), path)


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.mkdir()


def make_nothing(path: Path) -> None:
    pass


def make_short(path: Path) -> None:
    new_file(path.parent, path.name, SIZE - 1)


UNUSABLE = [make_symlink, make_hard_link, make_fifo, make_folder, make_nothing]


@pytest.mark.parametrize("make", UNUSABLE)
async def test_what_is_no_plain_file_of_one_name_is_refused(serve, folder, make):
    running = await serve(shared_memory_folder=folder)
    make(folder / "region")
    assert await refused(register(running.stub, "region")) == Status(
        code_pb2.FAILED_PRECONDITION, "REGION_FILE_UNUSABLE", ("file_name",), False
    )
    for target in folder.glob("* target"):
        assert target.read_bytes().count(0) == SIZE, "nothing may be written before a file is let in"
    assert running.service.regions.held == 0


async def test_a_file_shorter_than_its_region_is_refused(serve, folder):
    running = await serve(shared_memory_folder=folder)
    make_short(folder / "region")
    assert await refused(register(running.stub, "region")) == Status(
        code_pb2.FAILED_PRECONDITION, "REGION_FILE_UNUSABLE", ("size",), False
    )


async def test_files_of_another_user_are_refused(serve, folder):
    running = await serve(shared_memory_folder=folder, region_owner=os.getuid() + 1)
    path = new_file(folder)
    assert await refused(register(running.stub, "region")) == Status(
        code_pb2.FAILED_PRECONDITION, "REGION_FILE_UNUSABLE", ("file_name",), False
    )
    assert path.read_bytes().count(0) == SIZE


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"size": 0}, "size"),
        ({"size": 31}, "size"),
        ({"ttl": {}}, "ttl"),
        ({"ttl": {"seconds": -5}}, "ttl"),
        ({"ttl": {"seconds": 3601}}, "ttl"),
        ({"ttl": {"seconds": 2**62, "nanos": 2**31 - 1}}, "ttl"),
    ],
)
async def test_a_size_or_ttl_out_of_bounds_is_refused(serve, folder, fields, field):
    running = await serve(shared_memory_folder=folder)
    new_file(folder)
    assert await refused(register(running.stub, "region", **({"size": SIZE} | fields))) == Status(
        code_pb2.INVALID_ARGUMENT, "INVALID_FIELD", (field,), False
    )


async def test_number_and_bytes_of_regions_are_bounded(serve, folder):
    running = await serve(shared_memory_folder=folder, max_regions=2, max_region_bytes=3 * MIB)
    full = Status(code_pb2.RESOURCE_EXHAUSTED, "TOO_MANY_REGIONS", ("size",), False)
    new_file(folder, "large", SIZE)
    assert await refused(register(running.stub, "large", 2**64 - 1)) == full
    one = await registered(running.stub, folder, "one", 2 * MIB)
    assert await refused(register(running.stub, "large", MIB + 1)) == full
    await registered(running.stub, folder, "two", MIB)
    assert await refused(register(running.stub, "large", 32)) == full
    assert (await running.stub.UnregisterRegion(pb.UnregisterRegionRequest(handle=one.handle))).removed
    await register(running.stub, "large", 2 * MIB)
    assert (running.service.regions.held, running.service.regions.held_bytes) == (2, 3 * MIB)


async def test_an_unregistered_region_is_gone(serve, folder):
    running = await serve(shared_memory_folder=folder)
    region = await registered(running.stub, folder)
    request = pb.UnregisterRegionRequest(handle=region.handle)
    assert (await running.stub.UnregisterRegion(request)).removed
    assert not (await running.stub.UnregisterRegion(request)).removed
    assert not (await running.stub.UnregisterRegion(pb.UnregisterRegionRequest(handle="\0nonsense"))).removed
    assert await refused(placed(running.stub, region, picture_file(1, 40, 40), region.target())) == Status(
        code_pb2.NOT_FOUND, "UNKNOWN_REGION", ("region.handle",), False
    )
    assert list((await running.stub.ListRegions(pb.ListRegionsRequest())).regions) == []


async def test_regions_are_listed_page_by_page(serve, folder):
    running = await serve(shared_memory_folder=folder)
    names = [f"{number:02}" for number in range(7)]
    for name in reversed(names):
        new_file(folder, name, MIB)
        await register(running.stub, name, MIB)
    await register(running.stub, "03", MIB)  # one file twice
    listed, token, pages = [], "", 0
    while pages == 0 or token:
        page = await running.stub.ListRegions(pb.ListRegionsRequest(page_size=3, page_token=token))
        listed += [region.file_name for region in page.regions]
        token, pages = page.next_page_token, pages + 1
    assert (listed, pages) == (sorted([*names, "03"]), 3)
    for wrong in ("nonsense", "AAAA", "====", "Lw=="):
        assert await refused(running.stub.ListRegions(pb.ListRegionsRequest(page_token=wrong))) == Status(
            code_pb2.INVALID_ARGUMENT, "INVALID_FIELD", ("page_token",), False
        )


async def test_a_region_that_is_not_used_goes_by_itself_with_its_memory(serve, folder):
    running = await serve(shared_memory_folder=folder)
    new_file(folder, "brief")
    await register(running.stub, "brief", ttl={"seconds": 1})
    new_file(folder, "long")
    await register(running.stub, "long")
    assert held_open(folder / "brief")
    await until(lambda: running.service.regions.held == 1)
    assert not held_open(folder / "brief")
    assert held_open(folder / "long")


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_use_renews_the_time_of_a_region(folder):
    clock = Clock()
    held = Regions(PreprocessSettings(shared_memory_folder=folder), clock)
    new_file(folder)
    handle = held.register("region", SIZE, 10.0, "mine").handle
    target = Target(handle, 0, 0, "region")

    clock.now += 9.9
    held.check(target, "mine")
    clock.now += 9.9
    claimed = held.claim(target, "mine", 100)
    clock.now += 1000
    held.expire()
    assert held.held == 1, "it does not go while a picture is put there"
    claimed.release()
    clock.now += 9.9
    held.expire()
    assert held.held == 1, "the end of a picture is use too"
    clock.now += 0.1
    held.expire()
    assert held.held == 0
    with pytest.raises(ImageFault) as raised:
        held.check(target, "mine")
    assert (raised.value.reason, raised.value.field) == ("UNKNOWN_REGION", "region.handle")
    held.close()


async def test_a_region_is_known_to_its_own_scope_alone(folder):
    held = Regions(PreprocessSettings(shared_memory_folder=folder))
    new_file(folder)
    handle = held.register("region", SIZE, None, "mine").handle
    target = Target(handle, 0, 0, "begin.region")
    with pytest.raises(ImageFault) as raised:
        held.claim(target, "other", 100)
    assert (raised.value.reason, raised.value.field) == ("UNKNOWN_REGION", "begin.region.handle")
    assert not held.unregister(handle, "other")
    assert held.page("other", ("", 0), 10) == []
    assert [region.handle for region in held.page("mine", ("", 0), 10)] == [handle]
    assert held.unregister(handle, "mine")
    held.close()


async def test_no_descriptor_is_left_behind_by_what_is_refused_or_ends(serve, folder):
    running = await serve(shared_memory_folder=folder)
    for make in [*UNUSABLE, make_short]:
        make(folder / make.__name__)
        await refused(register(running.stub, make.__name__))
    for number in range(5):
        new_file(folder, f"good {number}")
        handle = (await register(running.stub, f"good {number}")).handle
        assert held_open(folder)
        await running.stub.UnregisterRegion(pb.UnregisterRegionRequest(handle=handle))
    assert not held_open(folder)


async def test_a_folder_that_is_missing_is_made_for_this_user_alone(serve, folder):
    inside = folder / "made"
    running = await serve(shared_memory_folder=inside)
    assert inside.stat().st_mode & 0o777 == 0o700
    await registered(running.stub, inside)
    (inside / "region").unlink()
    inside.rmdir()
    assert await refused(register(running.stub, "region")) == Status(
        code_pb2.FAILED_PRECONDITION, "REGION_FILE_UNUSABLE", ("file_name",), False
    )
    inside.mkdir()  # made anew by someone, while the server runs
    await registered(running.stub, inside)


def test_a_folder_that_cannot_be_used_ends_the_start(folder, monkeypatch):
    new_file(folder, "file")
    for wrong in (folder / "file", folder / "missing" / "folder"):
        with pytest.raises(SettingsError, match="shared_memory_folder cannot be used"):
            Regions(PreprocessSettings(shared_memory_folder=wrong))
    monkeypatch.setattr(regions.sys, "platform", "darwin")
    with pytest.raises(SettingsError, match="memory is shared on Linux only"):
        Regions(PreprocessSettings(shared_memory_folder=folder))
    with pytest.raises(SettingsError, match="more than max_region_ttl_seconds"):
        PreprocessSettings(region_ttl_seconds=10, max_region_ttl_seconds=5)
