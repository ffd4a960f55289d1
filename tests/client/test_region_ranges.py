"""Ranges of a region: none is handed out twice, none is forgotten, and every picture fits in its own."""

import itertools
import mmap
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.client._internal.picture_messages import most_patch_bytes
from interlock.client._internal.regions import Region, SharedMemory
from interlock.client.pictures import Picture
from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.reasons import Reason
from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, VisionError, VisionProfile, plan

PAGE = mmap.PAGESIZE
PAGES = 32


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def opened(folder: Path) -> Region:
    region = Region(folder, PAGES * PAGE)
    (path,) = folder.iterdir()
    with path.open("r+b") as file:
        file.write(b"handle")
    assert region.open("handle")
    assert list(folder.iterdir()) == []
    return region


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["take", "give back", "shrink"]), st.integers(1, 12 * PAGE)), max_size=60))
def test_ranges_never_overlap_and_all_come_back(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        region = opened(Path(name))
        held = []
        for what, number in steps:
            if what == "take":
                taken = region.take(number)
                assert taken is not None or held
                if taken is not None:
                    assert number <= taken.size < number + PAGE
                    held.append(taken)
            elif held:
                chosen = held[number % len(held)]
                if what == "shrink":
                    chosen.shrink(max(1, number % chosen.size))
                else:
                    held.remove(chosen)
                    chosen.give_back()
                    chosen.give_back()
            spans = sorted((each.target().offset, each.target().offset + each.size) for each in held)
            assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
            assert all(PAGE <= begin < end <= PAGES * PAGE for begin, end in spans)
        for each in held:
            each.give_back()
        whole = region.take((PAGES - 1) * PAGE)
        assert whole is not None
        assert region.take(1) is None


def test_a_range_that_was_lost_takes_its_region_along(folder: Path) -> None:
    memory = SharedMemory(True, folder, PAGES * PAGE)
    offered = memory.offer()
    assert memory.offer() is None, "one at a time"
    (path,) = folder.iterdir()
    with path.open("r+b") as file:
        file.write(b"first")
    memory.opened(offered, pb.RegisterRegionResponse(handle="first"))
    kept, lost = memory.take(PAGE), memory.take(PAGE)
    words = kept.words(3)
    lost.lose()
    assert memory.take(PAGE) is None
    again = memory.offer()
    assert again is not offered
    assert [request.handle for request in memory.farewells()] == ["first"]
    words[:] = 1, 2, 3
    again.discard()
    memory.close()
    assert words.tolist() == [1, 2, 3]


def test_a_server_that_shares_nothing_is_asked_again_later(folder: Path) -> None:
    now = [0.0]
    memory = SharedMemory("auto", folder, PAGES * PAGE, lambda: now[0])
    memory.failed(memory.offer(), OSError("refused"))
    now[0] = 59.0
    assert memory.offer() is None
    now[0] = 60.0
    region = memory.offer()
    memory.failed(region, KeyboardInterrupt())
    now[0] = 69.0
    assert memory.offer() is None
    now[0] = 70.0
    memory.offer().discard()


@pytest.mark.parametrize("reason", [Reason.SHARED_MEMORY_OFF, Reason.REGION_WRITE_FAILED])
def test_a_region_that_cannot_be_written_to_is_not_replaced_at_once(folder: Path, reason: Reason) -> None:
    now = [0.0]
    memory = SharedMemory("auto", folder, PAGES * PAGE, lambda: now[0])
    region = memory.offer()
    (path,) = folder.iterdir()
    with path.open("r+b") as file:
        file.write(b"handle")
    memory.opened(region, pb.RegisterRegionResponse(handle="handle"))
    memory.refused(memory.take(PAGE), reason)
    assert (memory.take(PAGE), memory.offer()) == (None, None)
    now[0] = 60.0
    memory.offer().discard()


PROFILES_OF_ANY_KIND = st.builds(
    VisionProfile,
    patch_size=st.integers(1, 40),
    downsample_ratio=st.integers(1, 6),
    max_image_tokens=st.integers(4, 2000),
    min_pixels=st.integers(0, 500_000),
    max_wh_ratio=st.none() | st.integers(1, 20),
)


@settings(max_examples=1000, deadline=None)
@given(PROFILES_OF_ANY_KIND, st.integers(1, 20_000), st.integers(1, 20_000))
def test_what_is_set_aside_is_enough_for_any_picture(profile: VisionProfile, width: int, height: int) -> None:
    try:
        geometry = plan(width, height, profile)
    except VisionError:
        return
    size = geometry.canvas_width * geometry.canvas_height * 6
    assert size <= most_patch_bytes(Picture(b"", profile=profile))
    assert size == most_patch_bytes(Picture(b"", profile=profile, plan=geometry))


def test_profiles_by_name_are_known() -> None:
    sizes = {name: most_patch_bytes(Picture(b"", profile=name)) for name in PROFILES}
    assert sizes == {"deepseek-v4-flash-vision-exp": 384 * 42 * 42 * 6, "deepseek-v4.1": 1024 * 42 * 42 * 6}
    default = sizes[DEFAULT_PROFILE_NAME]
    assert most_patch_bytes(Picture(b"")) == most_patch_bytes(Picture(b"", profile="of tomorrow")) == default
