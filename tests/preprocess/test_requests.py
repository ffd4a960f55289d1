"""What is asked of a picture: every field read, every fault named. On the stream and in one message alike."""

import io

import grpc
import numpy as np
import pytest
from PIL import Image

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.vision import PROFILES, AlphaHandling, DecodeOptions, Plan, VisionProfile, kernels, plan
from interlock_preprocess.requests import plan_message
from preprocess.callers import (
    Answer,
    answers_to,
    begin,
    flat_file,
    next_answers,
    picture_file,
    reference_patches,
    status_of,
    whole,
)

FILE = picture_file(1, 300, 200)
SMALL = VisionProfile(8, 2, 64, 0, 3, (0.5, 0.25, 0.75), (0.5, 0.5, 0.25))
SMALL_MESSAGE = pb.VisionProfile(
    patch_size=8,
    downsample_ratio=2,
    max_image_tokens=64,
    min_pixels=0,
    max_wh_ratio=3,
    image_mean=(0.5, 0.25, 0.75),
    image_std=(0.5, 0.5, 0.25),
)


def inline(**changes) -> pb.ProfileSelector:
    values = {"patch_size": 14, "downsample_ratio": 3, "max_image_tokens": 64, "min_pixels": 0}
    return pb.ProfileSelector(inline=pb.VisionProfile(**values | changes))


def changed(geometry: Plan, **changes) -> pb.Plan:
    message = plan_message(geometry)
    message.MergeFrom(pb.Plan(**changes))
    return message


GEOMETRY = plan(300, 200, PROFILES["deepseek-v4.1"])

# fields of the request, reason, field below the request
FAULTS = [
    ({"profile": pb.ProfileSelector(name="no-such")}, "UNKNOWN_PROFILE", "profile.name"),
    ({"profile": inline(patch_size=0)}, "INVALID_PROFILE", "profile.inline.patch_size"),
    ({"profile": inline(patch_size=129)}, "INVALID_PROFILE", "profile.inline.patch_size"),
    ({"profile": inline(downsample_ratio=17)}, "INVALID_PROFILE", "profile.inline.downsample_ratio"),
    ({"profile": inline(max_image_tokens=3)}, "INVALID_PROFILE", "profile.inline.max_image_tokens"),
    ({"profile": inline(min_pixels=2**64 - 1)}, "INVALID_PROFILE", "profile.inline.min_pixels"),
    ({"profile": inline(max_wh_ratio=0)}, "INVALID_PROFILE", "profile.inline.max_wh_ratio"),
    ({"profile": inline(image_mean=(0.5, 0.5))}, "INVALID_PROFILE", "profile.inline.image_mean"),
    ({"profile": inline(image_std=(0.5, float("nan"), 0.5))}, "INVALID_PROFILE", "profile.inline.image_std"),
    ({"profile": inline(image_std=(0.5, 0.0, 0.5))}, "INVALID_PROFILE", "profile.inline.image_std"),
    ({"decode_options": {"exif_orientation": 3}}, "INVALID_FIELD", "decode_options.exif_orientation"),
    ({"decode_options": {"alpha_handling": 9}}, "INVALID_FIELD", "decode_options.alpha_handling"),
    ({"decode_options": {"sixteen_bit_grey": 4}}, "INVALID_FIELD", "decode_options.sixteen_bit_grey"),
    ({"decode_options": {"background": {}}}, "INVALID_FIELD", "decode_options.background"),
    (
        {"decode_options": {"alpha_handling": 2, "background": {"green": 256}}},
        "INVALID_FIELD",
        "decode_options.background.green",
    ),
    ({"plan": changed(GEOMETRY, canvas_width=15)}, "INVALID_PLAN", "plan.canvas_width"),
    ({"plan": changed(GEOMETRY, resize_width=2**32 - 1)}, "INVALID_PLAN", "plan.resize_width"),
    ({"plan": changed(GEOMETRY, top=1)}, "INVALID_PLAN", "plan.top"),
    ({"plan": changed(GEOMETRY, token_count=1)}, "INVALID_PLAN", "plan.token_count"),
    (
        {"plan": changed(GEOMETRY, canvas_width=14 * 2**27, canvas_height=14 * 2**27)},
        "INVALID_PLAN",
        "plan.canvas_width",
    ),
    ({"region": pb.RegionTarget(handle="h")}, "SHARED_MEMORY_OFF", "region"),
]


@pytest.mark.parametrize(("fields", "reason", "field"), FAULTS)
async def test_what_is_asked_wrongly_is_refused_with_its_field_on_a_stream(running, fields, reason, field):
    answers = await answers_to(running.stub, [*whole("a", FILE, **fields), *whole("b", FILE)])
    assert answers["a"].fault == (reason, f"begin.{field}")
    assert answers["b"].patches == reference_patches(FILE)


@pytest.mark.parametrize(("fields", "reason", "field"), FAULTS)
async def test_what_is_asked_wrongly_is_refused_with_its_field_in_one_message(running, fields, reason, field):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await next_answers(running.stub.PreprocessImage(pb.PreprocessImageRequest(encoded=FILE, **fields)))
    status = status_of(caught.value)
    assert (status.reason, status.fields) == (reason, (field,))


@pytest.mark.parametrize(
    ("step", "reason", "field"),
    [
        (begin("a", 10, kind=0), "INVALID_FIELD", "begin.kind"),
        (begin("a", 10, kind=7), "INVALID_FIELD", "begin.kind"),
        (begin("a", 10, width=5), "INVALID_FIELD", "begin.width"),
        (begin("a", 10, height=2), "INVALID_FIELD", "begin.height"),
        (begin("a", 0, kind=2), "INVALID_FIELD", "begin.width"),
        (begin("a", 0, kind=2, width=7), "INVALID_FIELD", "begin.height"),
        (begin("a", 29, kind=2, width=5, height=2), "SOURCE_LENGTH_MISMATCH", "begin.total_bytes"),
        (begin("a", 30, kind=2, width=2**31, height=2**32 - 1), "IMAGE_TOO_MANY_PIXELS", "begin.width"),
        (begin("a", 30, kind=2, width=5, height=2, decode_options={}), "INVALID_FIELD", "begin.decode_options"),
        (begin("a", 42_924 * 3, kind=2, width=1, height=42_924), "NO_LEGAL_PLAN", "begin.width"),
    ],
)
async def test_a_begin_that_says_nonsense_is_refused_before_its_bytes_come(running, step, reason, field):
    call = running.stub.PreprocessImages()
    await call.write(step)
    assert (await next_answers(call, 1))["a"].fault == (reason, field)
    assert running.counters.sources.taken == 0


@pytest.mark.parametrize(
    ("request_fields", "reason", "field"),
    [
        ({}, "INVALID_FIELD", "source"),
        ({"encoded": FILE, "image_id": "x" * 129}, "INVALID_FIELD", "image_id"),
        ({"encoded": b""}, "IMAGE_EMPTY", "encoded"),
        ({"encoded": b"no picture"}, "IMAGE_UNRECOGNIZED", "encoded"),
        ({"encoded": FILE[:-20_000]}, "IMAGE_TRUNCATED", "encoded"),
        ({"encoded": bytes((16 << 20) + 1)}, "SOURCE_TOO_LARGE", "encoded"),
        ({"raw": {"width": 2, "height": 2, "data": bytes(11)}}, "SOURCE_LENGTH_MISMATCH", "raw.data"),
        ({"raw": {"width": 2, "height": 0}}, "INVALID_FIELD", "raw.height"),
        ({"raw": {"width": 1, "height": 42_924, "data": bytes(42_924 * 3)}}, "NO_LEGAL_PLAN", "raw.width"),
    ],
)
async def test_a_picture_in_one_message_tells_its_fault_by_the_status(running, request_fields, reason, field):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await next_answers(running.stub.PreprocessImage(pb.PreprocessImageRequest(**request_fields)))
    status = status_of(caught.value)
    assert (status.reason, status.fields) == (reason, (field,))
    assert running.counters.images_failed == {reason: 1}


def rgb_of(file: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file)))


def transparent_file() -> bytes:
    """A picture whose every pixel has another colour and transparency."""
    pixels = np.random.default_rng(5).integers(0, 256, (90, 120, 4), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


async def in_one_message(running, **fields) -> Answer:
    request = pb.PreprocessImageRequest(image_id="p", **fields)
    return (await next_answers(running.stub.PreprocessImage(request)))["p"]


async def both_ways(running, data: bytes, **fields) -> bytes:
    """The patches of an encoded picture, which are the same on a stream and in one message."""
    streamed = (await answers_to(running.stub, whole("p", data, **fields)))["p"].patches
    assert (await in_one_message(running, encoded=data, **fields)).patches == streamed
    return streamed


async def test_a_profile_may_be_named(running):
    name = "deepseek-v4-flash-vision-exp"
    patches = await both_ways(running, FILE, profile=pb.ProfileSelector(name=name))
    assert patches == reference_patches(FILE, PROFILES[name]) != reference_patches(FILE)


async def test_a_profile_may_be_given_in_full(running):
    patches = await both_ways(running, FILE, profile=pb.ProfileSelector(inline=SMALL_MESSAGE))
    assert patches == reference_patches(FILE, SMALL)


async def test_geometry_may_be_given_in_full(running):
    geometry = Plan(28, 42, 20, 30, 5, 7, 2, 3, 1, 1, 4)
    patches = await both_ways(running, FILE, plan=plan_message(geometry))
    profile = PROFILES["deepseek-v4.1"]
    rgb = rgb_of(FILE)
    assert patches == kernels.get("reference").resize_patchify(rgb, geometry, profile).tobytes()


async def test_transparency_may_be_composited_over_a_colour(running):
    file = transparent_file()
    composite = DecodeOptions(alpha_handling=AlphaHandling.COMPOSITE, background=(1, 2, 3))
    options = pb.DecodeOptions(alpha_handling=pb.ALPHA_HANDLING_COMPOSITE, background=pb.Rgb(red=1, green=2, blue=3))
    patches = await both_ways(running, file, decode_options=options)
    assert patches == reference_patches(file, options=composite) != reference_patches(file)


async def test_a_picture_that_has_no_legal_plan_either_way_round_is_refused_before_it_is_decoded(running, decode_gate):
    options = pb.DecodeOptions(exif_orientation=pb.EXIF_ORIENTATION_APPLY)
    answers = await answers_to(running.stub, whole("a", flat_file(1, 200_000), decode_options=options))
    assert answers["a"].fault == ("NO_LEGAL_PLAN", "data")
    assert decode_gate.reached == 0


async def test_raw_pixels_give_what_the_same_picture_in_a_file_gives(running):
    pixels = rgb_of(FILE).tobytes()
    raw = await in_one_message(running, raw=pb.RawRgb(width=300, height=200, data=pixels))
    steps = whole("p", pixels, kind=pb.SOURCE_KIND_RAW_RGB, width=300, height=200)
    streamed = (await answers_to(running.stub, steps))["p"]
    assert raw.patches == streamed.patches == reference_patches(FILE)
    assert raw.header == streamed.header
    assert (raw.header.source_format, raw.header.source_size) == ("", pb.ImageSize(width=300, height=200))
    assert raw.trailer.decode_time.ToNanoseconds() == 0
