"""The Preprocess clients against the real service: the bytes that the reference kernel gives on this side."""

import asyncio
import subprocess
import sys

import numpy as np
import pytest

from client.preprocess_served import CORPUS, Running, Start, reason_or_reference, reference
from client.scripted import PATIENCE, QUICK, Face
from interlock.client import AsyncPreprocessClient, ImageFailedError, NotFoundError, Picture, RawRgb
from interlock.reasons import Reason
from interlock.vision import (
    DEFAULT_PROFILE_NAME,
    MAX_PIXELS,
    PROFILES,
    AlphaHandling,
    DecodeOptions,
    VisionProfile,
    decode,
    plan,
    token_types,
)

PHOTO = next(path for path in CORPUS if path.name == "jpeg_baseline_420.jpg")
RED, GREEN = np.random.default_rng(7).integers(0, 256, (2, 1100, 1000, 3), np.uint8)


async def test_every_file_of_the_corpus_gives_the_reference_bytes_or_its_reason(face: Face, running: Running) -> None:
    results = await face.atake(None, face.preprocess(running.address), "preprocess_many", CORPUS)
    assert sorted(result.index for result in results) == list(range(len(CORPUS)))
    expected = [reason_or_reference(path) for path in CORPUS]
    assert {type(outcome) for outcome in expected} == {Reason, np.ndarray}
    for result in results:
        name, outcome = CORPUS[result.index].name, expected[result.index]
        if isinstance(outcome, Reason):
            assert (type(result.error), result.error.reason) == (ImageFailedError, outcome), name
        else:
            np.testing.assert_array_equal(result.unwrap().array, outcome, err_msg=name)
    assert await running.at_rest()


async def test_one_picture_with_everything_that_is_known_of_it(face: Face, running: Running) -> None:
    patches = await face.acall(face.preprocess(running.address), "preprocess", PHOTO, image_id="photo")
    picture = decode(PHOTO.read_bytes())
    np.testing.assert_array_equal(patches.array, reference(PHOTO))
    assert patches.plan == plan(picture.width, picture.height, PROFILES[DEFAULT_PROFILE_NAME])
    assert (patches.source_width, patches.source_height) == (picture.width, picture.height)
    assert (patches.source_format, patches.image_id) == ("JPEG", "photo")
    assert patches.timings.kernel > 0
    assert not patches.timings.from_cache


async def test_raw_pixels_large_ones_in_parts(face: Face, running: Running) -> None:
    large = await face.acall(face.preprocess(running.address), "preprocess", RED)
    np.testing.assert_array_equal(large.array, reference(RED))
    small = np.ascontiguousarray(RED[:200, :300])
    client = face.preprocess(running.address)
    raw = await face.acall(client, "preprocess", RawRgb(300, 200, small.tobytes()))
    np.testing.assert_array_equal(raw.array, reference(small))
    assert raw.source_format == ""
    turned = GREEN[:200, :300][::-1, ::-1]
    again = await face.acall(face.preprocess(running.address), "preprocess", turned)
    np.testing.assert_array_equal(again.array, reference(np.ascontiguousarray(turned)))


async def test_profile_options_and_plan_reach_the_kernel(face: Face, running: Running) -> None:
    path = next(path for path in CORPUS if path.name == "png_rgba_black_text.png")
    profile = VisionProfile(8, 2, 100, 0, image_mean=(0.25, 0.5, 0.75), image_std=(0.5, 0.25, 0.125))
    options = DecodeOptions(alpha_handling=AlphaHandling.COMPOSITE, background=(10, 200, 30))
    picture = decode(path.read_bytes(), options)
    geometry = plan(picture.width, picture.height, profile)
    client = face.preprocess(running.address)
    patches = await face.acall(client, "preprocess", path, profile=profile, decode_options=options, plan=geometry)
    np.testing.assert_array_equal(patches.array, reference(path, profile, options, geometry))
    assert patches.plan == geometry


async def test_a_bad_picture_is_refused_by_reason(face: Face, running: Running) -> None:
    with pytest.raises(ImageFailedError) as raised:
        await face.acall(face.preprocess(running.address), "preprocess", b"no picture at all")
    assert raised.value.reason == Reason.IMAGE_UNRECOGNIZED
    with pytest.raises(ImageFailedError) as raised:
        await face.acall(face.preprocess(running.address), "preprocess", PHOTO, profile="no such")
    assert raised.value.reason == Reason.UNKNOWN_PROFILE


async def test_credits_of_the_server_are_kept(face: Face, start: Start) -> None:
    running = await start(max_images_in_flight=2, max_bytes_in_flight=1 << 20)
    sources = [np.ascontiguousarray(RED[row : row + 500, : 400 + row]) for row in range(0, 160, 8)]
    client = face.preprocess(running.address)
    results = await face.atake(None, client, "preprocess_many", sources, max_in_flight=16)
    for result in results:
        np.testing.assert_array_equal(result.unwrap().array, reference(sources[result.index]))
    assert len(results) == 20
    assert running.service.counters.images_failed == {}


async def test_leaving_the_loop_leaves_nothing_at_the_server(face: Face, running: Running) -> None:
    assert len(await face.atake(1, face.preprocess(running.address), "preprocess_many", [PHOTO] * 30)) == 1
    assert await running.at_rest()


async def test_a_cancelled_picture_stops_costing_and_the_others_are_served(running: Running) -> None:
    async with (
        AsyncPreprocessClient(running.address, retry=QUICK) as client,
        client.preprocess_many([RED, GREEN, PHOTO]) as stream,
    ):
        results = aiter(stream)
        waiting = asyncio.ensure_future(anext(results))
        async with asyncio.timeout(PATIENCE):
            while not running.service.counters.images_in_flight:  # noqa: ASYNC110  # plain counters
                await asyncio.sleep(0.001)
        stream.cancel(0)
        got = sorted([await waiting, *[result async for result in results]], key=lambda result: result.index)
    assert got[0].error is None or got[0].error.reason == Reason.CANCELLED
    np.testing.assert_array_equal(got[1].unwrap().array, reference(GREEN))
    np.testing.assert_array_equal(got[2].unwrap().array, reference(PHOTO))
    assert await running.at_rest()


async def test_each_picture_may_have_settings_of_its_own(face: Face, running: Running) -> None:
    profile = VisionProfile(8, 2, 100, 0)
    pictures = [Picture(PHOTO, "own", profile=profile), Picture(PHOTO, "shared"), Picture(PHOTO, "bad", profile="no")]
    client = face.preprocess(running.address)
    name = "deepseek-v4-flash-vision-exp"
    results = await face.atake(None, client, "preprocess_many", pictures, profile=name)
    by_id = {result.image_id: result for result in results}
    np.testing.assert_array_equal(by_id["own"].unwrap().array, reference(PHOTO, profile))
    np.testing.assert_array_equal(by_id["shared"].unwrap().array, reference(PHOTO, PROFILES[name]))
    assert by_id["bad"].error.reason == Reason.UNKNOWN_PROFILE


async def test_plans_and_profiles(face: Face, running: Running) -> None:
    sizes = [(640, 480), (1, 2**31), (1080, 2400)]
    planned = await face.acall(face.preprocess(running.address), "plan_images", sizes, token_types=True)
    profile = PROFILES[DEFAULT_PROFILE_NAME]
    assert [(entry.width, entry.height) for entry in planned] == sizes
    assert [planned[0].plan, planned[2].plan] == [plan(640, 480, profile), plan(1080, 2400, profile)]
    assert planned[0].token_types == token_types(planned[0].plan)
    assert (planned[1].plan, planned[1].error.reason) == (None, Reason.NO_LEGAL_PLAN)

    served = await face.acall(face.preprocess(running.address), "list_profiles")
    assert dict(served.profiles) == dict(PROFILES)
    assert (served.default, served.max_pixels) == (DEFAULT_PROFILE_NAME, MAX_PIXELS)
    assert served.kernel in served.available_kernels

    with pytest.raises(NotFoundError):
        await face.acall(face.preprocess(running.address), "plan_images", [(1, 1)], profile="no such")


async def test_a_program_may_end_while_a_stream_is_open(running: Running) -> None:
    program = f"""
from interlock.client import PreprocessClient
def results():
    with PreprocessClient({running.address!r}) as client, client.preprocess_many([b"x"]) as stream:
        yield from stream
left_open = results()
print(next(left_open).error.reason)
"""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "IMAGE_UNRECOGNIZED\n", "")
    assert await running.at_rest()
