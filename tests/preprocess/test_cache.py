"""What is kept and shared: the same picture is made once, and nothing that differs shares anything."""

import dataclasses
from pathlib import Path

import pytest

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.vision import PROFILES, DecodeOptions, ExifOrientation, plan
from interlock_preprocess import requests, stream
from interlock_preprocess.requests import plan_message, profile_message
from preprocess.callers import (
    PROFILE,
    Answer,
    answers_to,
    flat_file,
    next_answers,
    picture_file,
    reference_patches,
    until,
    whole,
)

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
FILE = picture_file(1, 300, 200)
RAW = {"kind": pb.SOURCE_KIND_RAW_RGB}


async def answer_to(running, data: bytes = FILE, **fields) -> Answer:
    return (await answers_to(running.stub, whole("a", data, **fields)))["a"]


async def test_a_picture_seen_before_comes_from_the_cache_byte_for_byte(running):
    first, second = await answer_to(running), await answer_to(running)
    in_one_message = next(
        iter((await next_answers(running.stub.PreprocessImage(pb.PreprocessImageRequest(encoded=FILE)))).values())
    )

    assert first.patches == second.patches == in_one_message.patches == reference_patches(FILE)
    assert first.header == second.header == in_one_message.header
    assert [answer.trailer.from_cache for answer in (first, second, in_one_message)] == [False, True, True]
    assert second.trailer.decode_time.ToNanoseconds() == second.trailer.kernel_time.ToNanoseconds() == 0
    counters = running.counters
    assert (counters.cache_misses, counters.cache_hits, counters.followers) == (1, 2, 0)
    assert len(first.patches) < counters.cache.taken < len(first.patches) + (1 << 16)
    await until(lambda: counters.at_rest)


def inline(**changes) -> pb.ProfileSelector:
    return pb.ProfileSelector(inline=profile_message(dataclasses.replace(PROFILE, **changes)))


def options(**fields) -> dict[str, pb.DecodeOptions]:
    return {"decode_options": pb.DecodeOptions(**fields)}


COMPOSITE = pb.ALPHA_HANDLING_COMPOSITE
OTHER_PLAN = dataclasses.replace(PROFILE, max_image_tokens=64)


@pytest.mark.parametrize(
    "fields",
    [
        options(exif_orientation=pb.EXIF_ORIENTATION_APPLY),
        options(sixteen_bit_grey=pb.SIXTEEN_BIT_GREY_HIGH_BYTE),
        options(alpha_handling=COMPOSITE),
        options(alpha_handling=COMPOSITE, background=pb.Rgb(red=1, green=255, blue=255)),
        {"profile": pb.ProfileSelector(name="deepseek-v4-flash-vision-exp")},
        {"profile": inline(patch_size=16)},
        {"profile": inline(downsample_ratio=2)},
        {"profile": inline(max_image_tokens=1023)},
        {"profile": inline(min_pixels=0)},
        {"profile": inline(max_wh_ratio=100)},
        {"profile": inline(image_mean=(0.5, 0.5, 0.25))},
        {"profile": inline(image_std=(0.25, 0.5, 0.5))},
        {"plan": plan_message(plan(300, 200, PROFILE))},
        {"plan": plan_message(plan(300, 200, OTHER_PLAN))},
    ],
    ids=lambda fields: str(fields).replace("\n", " "),
)
async def test_requests_that_differ_in_one_thing_share_nothing(running, fields):
    await answer_to(running)
    other = await answer_to(running, **fields)
    assert not other.trailer.from_cache
    assert (running.counters.cache_misses, running.counters.cache_hits) == (2, 0)
    assert (await answer_to(running, **fields)).trailer.from_cache
    assert (await answer_to(running)).patches == reference_patches(FILE)


async def test_backgrounds_that_differ_share_nothing(running):
    def over(**colour) -> dict[str, pb.DecodeOptions]:
        return options(alpha_handling=COMPOSITE, background=pb.Rgb(**colour))

    colours = [{"red": 1}, {"green": 1}, {"blue": 1}, {"red": 1, "green": 1}]
    for colour in colours:
        assert not (await answer_to(running, **over(**colour))).trailer.from_cache
    assert running.counters.cache_misses == len(colours)


async def test_a_profile_shares_by_its_values_and_not_by_its_name(running, monkeypatch):
    by_name = {"profile": pb.ProfileSelector(name="deepseek-v4.1")}
    await answer_to(running, **by_name)
    assert (await answer_to(running, profile=inline())).trailer.from_cache

    changed = dataclasses.replace(PROFILE, image_mean=(0.25, 0.5, 0.5))
    monkeypatch.setattr(requests, "PROFILES", {**PROFILES, "deepseek-v4.1": changed})
    answer = await answer_to(running, **by_name)

    assert not answer.trailer.from_cache
    assert answer.patches == reference_patches(FILE, changed)


async def test_options_that_say_the_default_share_with_none(running):
    await answer_to(running)
    said = options(
        exif_orientation=pb.EXIF_ORIENTATION_IGNORE,
        alpha_handling=pb.ALPHA_HANDLING_DROP,
        sixteen_bit_grey=pb.SIXTEEN_BIT_GREY_CLIP,
    )
    assert (await answer_to(running, **said)).trailer.from_cache


async def test_the_same_bytes_as_4x6_and_as_6x4_pixels_share_nothing(running):
    pixels = bytes(range(72))
    upright = await answer_to(running, pixels, width=4, height=6, **RAW)
    lying = await answer_to(running, pixels, width=6, height=4, **RAW)
    assert not lying.trailer.from_cache
    assert upright.patches != lying.patches
    assert (await answer_to(running, pixels, width=4, height=6, **RAW)).patches == upright.patches


async def test_the_same_bytes_as_a_file_and_as_pixels_share_nothing(running):
    file = b"P6 3 3 255\n" + bytes(27)
    file += bytes(-len(file) % 3)
    encoded = await answer_to(running, file)
    raw = await answer_to(running, file, width=len(file) // 3, height=1, **RAW)
    assert not raw.trailer.from_cache
    assert (encoded.header.source_format, raw.header.source_format) == ("PPM", "")


async def test_a_picture_is_kept_upright_and_as_stored(running):
    file = (CORPUS / "jpeg_exif_6.jpg").read_bytes()
    apply = options(exif_orientation=pb.EXIF_ORIENTATION_APPLY)
    for _ in range(2):
        assert (await answer_to(running, file)).patches == reference_patches(file)
        upright = reference_patches(file, options=DecodeOptions(exif_orientation=ExifOrientation.APPLY))
        assert (await answer_to(running, file, **apply)).patches == upright
    assert (running.counters.cache_misses, running.counters.cache_hits) == (2, 2)


async def test_a_picture_that_failed_is_tried_anew(running):
    for _ in range(2):
        assert (await answer_to(running, FILE[:5000])).fault[0] == "IMAGE_TRUNCATED"
    assert (running.counters.cache_misses, running.counters.cache_hits) == (2, 0)
    assert running.counters.cache.taken == 0
    await until(lambda: running.counters.at_rest)


async def test_the_least_recently_used_makes_way(serve):
    files = [flat_file(500, 500, blue) for blue in range(3)]
    size = len(reference_patches(files[0]))
    running = await serve(cache_bytes=size * 5 // 2)
    counters = running.counters

    async def hit(number: int) -> bool:
        answer = await answer_to(running, files[number])
        assert answer.patches == reference_patches(files[number])
        return answer.trailer.from_cache

    assert [await hit(number) for number in (0, 1, 0, 2, 0, 1)] == [False, False, True, False, True, False]
    assert (counters.cache_hits, counters.cache_misses, counters.cache_evictions) == (2, 4, 2)
    assert 2 * size < counters.cache.taken <= counters.cache.limit


async def test_what_is_being_handed_on_counts_and_does_not_make_way(serve):
    files = [flat_file(1500, 1500, blue) for blue in range(2)]
    size = len(reference_patches(files[0]))
    running = await serve(cache_bytes=size * 3 // 2)
    await answer_to(running, files[0])
    slow = running.stub.PreprocessImage(pb.PreprocessImageRequest(encoded=files[0]))
    await until(lambda: running.counters.images_held == 1)

    other = await answer_to(running, files[1])

    assert other.patches == reference_patches(files[1])
    assert (running.counters.cache_evictions, running.counters.cache_hits) == (0, 1)
    assert size < running.counters.cache.taken <= running.counters.cache.limit
    assert (await next_answers(slow))[""].patches == reference_patches(files[0])
    assert not (await answer_to(running, files[1])).trailer.from_cache
    assert running.counters.cache_evictions == 1
    await until(lambda: running.counters.at_rest)


async def test_a_cache_of_no_bytes_keeps_nothing(serve):
    running = await serve(cache_bytes=0)
    for _ in range(2):
        answer = await answer_to(running)
        assert (answer.trailer.from_cache, answer.patches) == (False, reference_patches(FILE))
    assert (running.counters.cache.taken, running.counters.cache_hits) == (0, 0)


@pytest.mark.parametrize("per_token", [False, True])
async def test_callers_share_unless_the_switch_keeps_them_apart(serve, monkeypatch, per_token):
    running = await serve(cache_per_token=per_token)
    await answer_to(running)
    monkeypatch.setattr(stream, "caller_scope", lambda context: "another")
    assert (await answer_to(running)).trailer.from_cache is not per_token
