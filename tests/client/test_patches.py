"""One picture: whatever comes, the caller gets the right patches or an error, never a wrong array."""

from collections.abc import Callable
from pathlib import Path

import grpc
import numpy as np
import pytest

from client.pictures_served import (
    GRID_HEIGHT,
    GRID_WIDTH,
    PATCH_BYTES,
    PATCHES,
    SIDE,
    TOTAL_BYTES,
    StreamServer,
    chunk,
    good_frames,
    header,
    patches_of,
    trailer,
)
from client.scripted import (
    PATIENCE,
    QUICK,
    Face,
    Script,
    gives,
    hangs,
    preprocess_servicer,
    refuses,
    serving,
    streams,
    unavailable,
)
from interlock.client import (
    DeadlineError,
    ImageFailedError,
    Patches,
    PatchesDamagedError,
    Picture,
    RawRgb,
    SourceError,
    Timings,
    UnexpectedAnswerError,
    UnreachableError,
)
from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.vision import DecodeOptions, Plan, VisionProfile
from interlock.vision.options import AlphaHandling, ExifOrientation, SixteenBitGrey

SOURCE = b"a picture"


def preprocess(face: Face, script: Script, source: object = SOURCE, **kwargs: object) -> Patches:
    with serving(preprocess=preprocess_servicer(PreprocessImage=script)) as address:
        client = face.preprocess(address, retry=QUICK, max_patch_bytes=1 << 20)
        return face.call(client, "preprocess", source, **kwargs)


def frames(*parts: pb.PatchHeader | pb.PatchChunk | pb.PatchTrailer) -> list[pb.PatchFrame]:
    names = {pb.PatchHeader: "header", pb.PatchChunk: "chunk", pb.PatchTrailer: "trailer"}
    return [pb.PatchFrame(**{names[type(part)]: part}) for part in parts]


def test_patches_come_whole_with_what_is_known_of_them(face: Face) -> None:
    script = Script([streams(*good_frames("label", SOURCE))])
    patches = preprocess(face, script, image_id="label")
    assert patches.array.dtype == np.uint16
    assert patches.array.shape == (GRID_HEIGHT, GRID_WIDTH, 3, SIDE, SIDE)
    np.testing.assert_array_equal(patches.array, patches_of(SOURCE))
    assert patches.plan == Plan(6, 8, 6, 8, 0, 0, GRID_WIDTH, GRID_HEIGHT, 0, 0, 0)
    assert (patches.source_width, patches.source_height, patches.source_format) == (60, 80, "PNG")
    assert patches.timings == Timings(queue=0.25, decode=0.5, kernel=1.0, from_cache=True)
    assert patches.image_id == "label"
    assert script.requests[0].encoded == SOURCE
    assert script.requests[0].image_id == "label"


WHOLE = [chunk(SOURCE, 0, PATCHES)]
GRID_2_TO_31 = pb.Plan(grid_width=2**31, grid_height=2**31)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([], "no trailer came (no header)"),
        ([*WHOLE], "a chunk came before the header"),
        ([trailer(SOURCE)], "the trailer came before the header"),
        ([header(), header()], "a second header came"),
        ([header()], f"no trailer came (0 of {TOTAL_BYTES} bytes)"),
        ([header(), *WHOLE], f"no trailer came ({TOTAL_BYTES} of {TOTAL_BYTES} bytes)"),
        (
            [header(), chunk(SOURCE, 0, 5), trailer(SOURCE)],
            f"after {5 * PATCH_BYTES} of {TOTAL_BYTES}",
        ),
        ([header(), chunk(SOURCE, 0, 5), chunk(SOURCE, 6, 12)], "a chunk begins at patch 6; expected 5"),
        ([header(), chunk(SOURCE, 5, 12), chunk(SOURCE, 0, 5)], "a chunk begins at patch 5; expected 0"),
        ([header(), chunk(SOURCE, 0, 5), chunk(SOURCE, 0, 5)], "a chunk begins at patch 0; expected 5"),
        ([header(), pb.PatchChunk(data=b"")], f"a chunk has 0 bytes, and a patch has {PATCH_BYTES}"),
        ([header(), pb.PatchChunk(data=b"x" * 25)], f"a chunk has 25 bytes, and a patch has {PATCH_BYTES}"),
        (
            [header(), pb.PatchChunk(data=b"x" * (TOTAL_BYTES + PATCH_BYTES))],
            f"a chunk ends at byte {TOTAL_BYTES + PATCH_BYTES} of {TOTAL_BYTES}",
        ),
        ([header(), *WHOLE, pb.PatchChunk(first_patch=PATCHES, data=b"x" * PATCH_BYTES)], "a chunk ends at byte"),
        ([header(), *WHOLE, trailer(SOURCE, crc32c=1)], "the CRC-32C is"),
        ([header(), chunk(b"another", 0, PATCHES), trailer(SOURCE)], "the CRC-32C is"),
        ([header(), *WHOLE, trailer(SOURCE), trailer(SOURCE)], "a frame came after the trailer"),
        ([header(total_bytes=TOTAL_BYTES + 1)], f"the header has {TOTAL_BYTES + 1} bytes for patches of shape"),
        ([header(total_bytes=0, patch_size=0)], "the header has 0 bytes for patches of shape (4, 3, 3, 0, 0)"),
        ([header(dtype=pb.PATCH_DTYPE_UNSPECIFIED)], "the header has dtype 0"),
        ([header(plan=GRID_2_TO_31, patch_size=2**31)], "for patches of shape"),
        (
            [header(plan=pb.Plan(grid_width=600, grid_height=600), total_bytes=600 * 600 * PATCH_BYTES)],
            "and max_patch_bytes of this client is 1048576",
        ),
    ],
)
def test_a_buffer_that_cannot_be_trusted_is_an_error(face: Face, parts: list, told: str) -> None:
    with pytest.raises(PatchesDamagedError) as raised:
        preprocess(face, Script([streams(*frames(*parts))]))
    assert told in str(raised.value)
    assert "ask for the picture again" in raised.value.diagnostics()


def test_a_frame_that_no_single_picture_gets_is_an_error(face: Face) -> None:
    with pytest.raises(PatchesDamagedError, match="kind settings"):
        preprocess(face, Script([streams(pb.PatchFrame(settings=pb.StreamSettings()))]))


def test_a_picture_whose_connection_is_lost_in_the_middle_is_asked_for_again(face: Face) -> None:
    half = frames(header(), chunk(b"another", 0, 5))
    script = Script([unavailable, streams(*half, then=unavailable), streams(*good_frames("", SOURCE))])
    np.testing.assert_array_equal(preprocess(face, script).array, patches_of(SOURCE))
    assert len(script.requests) == 3


def test_a_full_server_is_waited_for(face: Face) -> None:
    full = refuses("OVERLOADED", grpc.StatusCode.RESOURCE_EXHAUSTED, retry_delay=0.01)
    script = Script([full, full, streams(*good_frames("", SOURCE))])
    np.testing.assert_array_equal(preprocess(face, script).array, patches_of(SOURCE))


def test_a_server_that_stays_full_is_not_waited_for_without_end(face: Face) -> None:
    script = Script([refuses("OVERLOADED", grpc.StatusCode.RESOURCE_EXHAUSTED, retry_delay=0.01)])
    with pytest.raises(ImageFailedError) as raised:
        preprocess(face, script)
    assert (raised.value.reason, raised.value.retry_delay) == ("OVERLOADED", 0.01)
    assert len(script.requests) == QUICK.attempts


def test_a_refused_picture_is_told_by_reason(face: Face) -> None:
    script = Script([refuses("IMAGE_TRUNCATED", grpc.StatusCode.INVALID_ARGUMENT, "ends after 3 rows")])
    with pytest.raises(ImageFailedError) as raised:
        preprocess(face, script)
    assert (raised.value.reason, raised.value.message) == ("IMAGE_TRUNCATED", "ends after 3 rows")
    assert "fetch it again" in raised.value.diagnostics()
    assert len(script.requests) == 1


def test_a_picture_without_an_answer_ends_at_its_timeout(face: Face) -> None:
    script = Script([streams(*frames(header()), then=hangs)])
    with pytest.raises(DeadlineError):
        preprocess(face, script, timeout=0.3)
    assert script.ended.wait(PATIENCE)


def test_nobody_at_the_address_is_an_error(face: Face) -> None:
    with pytest.raises(UnreachableError):
        preprocess(face, Script([unavailable]))


@pytest.mark.parametrize(
    ("source", "width", "height", "data"),
    [
        (RawRgb(2, 1, b"abcdef"), 2, 1, b"abcdef"),
        (RawRgb(1, 2, memoryview(bytearray(b"abcdef"))), 1, 2, b"abcdef"),
        (np.frombuffer(b"abcdef", np.uint8).reshape(1, 2, 3), 2, 1, b"abcdef"),
        (np.frombuffer(b"abcdefghijkl", np.uint8).reshape(2, 2, 3)[:, ::-1], 2, 2, b"defabcjklghi"),
    ],
    ids=["bytes", "view", "array", "array that is not contiguous"],
)
def test_raw_pixels_are_sent_as_they_are(face: Face, source: object, width: int, height: int, data: bytes) -> None:
    script = Script([streams(*good_frames("", SOURCE))])
    preprocess(face, script, source)
    raw = script.requests[0].raw
    assert (raw.width, raw.height, raw.data) == (width, height, data)


@pytest.mark.parametrize("as_path", [str, Path], ids=["str", "Path"])
@pytest.mark.parametrize("convert", [bytes, bytearray, memoryview], ids=lambda kind: kind.__name__)
def test_a_file_is_sent_from_its_bytes_or_its_path(
    face: Face, tmp_path: Path, as_path: Callable[[Path], object], convert: Callable[[bytes], object]
) -> None:
    file = tmp_path / "picture.png"
    file.write_bytes(SOURCE)
    script = Script([streams(*good_frames("", SOURCE))])
    preprocess(face, script, as_path(file))
    preprocess(face, script, convert(SOURCE))
    assert [request.encoded for request in script.requests] == [SOURCE, SOURCE]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("/no/such/file.png", "cannot read '/no/such/file.png'"),
        ("with\0zero", "cannot read 'with"),
        (RawRgb(2, 2, b"abc"), "raw pixels of 2x2 take 12 bytes (width * height * 3), not 3"),
        (RawRgb(0, 2, b""), "both sides must be at least 1"),
        (np.zeros((2, 0, 3), np.uint8), "both sides must be at least 1"),
        (np.zeros((2, 2, 4), np.uint8), "an array of shape (2, 2, 4)"),
        (np.zeros((2, 2, 3), np.uint16), "an array of shape (2, 2, 3)"),
        (np.zeros((2, 2), np.uint8), "an array of shape (2, 2)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_source_that_is_no_picture_is_refused_before_anything_is_sent(face: Face, source: object, told: str) -> None:
    with pytest.raises(SourceError) as raised:
        face.call(face.preprocess("127.0.0.1:1"), "preprocess", source)
    assert told in str(raised.value)


def test_a_device_that_never_ends_is_not_read_to_its_end(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.client._internal.sources.LARGEST_FILE_BYTES", 1000)
    with pytest.raises(SourceError, match="'/dev/zero' has more than 1000 bytes"):
        face.call(face.preprocess("127.0.0.1:1"), "preprocess", "/dev/zero")


def test_something_that_can_be_no_source_is_a_type_error(face: Face) -> None:
    with pytest.raises(TypeError, match="not int"):
        face.call(face.preprocess("127.0.0.1:1"), "preprocess", 3)


def test_profile_options_and_plan_are_sent(face: Face) -> None:
    script = Script([streams(*good_frames("", SOURCE))])
    options = DecodeOptions(ExifOrientation.APPLY, AlphaHandling.COMPOSITE, (1, 2, 3), SixteenBitGrey.HIGH_BYTE)
    plan = Plan(6, 8, 5, 7, 1, 0, 3, 4, 1, 2, 6)
    preprocess(face, script, profile=VisionProfile(2, 3, 64, 100, 8), decode_options=options, plan=plan)
    preprocess(face, script, profile="by-name", decode_options=DecodeOptions())
    preprocess(face, script)
    full, named, bare = script.requests
    assert full.profile.inline == pb.VisionProfile(
        patch_size=2,
        downsample_ratio=3,
        max_image_tokens=64,
        min_pixels=100,
        max_wh_ratio=8,
        image_mean=(0.5, 0.5, 0.5),
        image_std=(0.5, 0.5, 0.5),
    )
    assert full.decode_options == pb.DecodeOptions(
        exif_orientation=pb.EXIF_ORIENTATION_APPLY,
        alpha_handling=pb.ALPHA_HANDLING_COMPOSITE,
        background=pb.Rgb(red=1, green=2, blue=3),
        sixteen_bit_grey=pb.SIXTEEN_BIT_GREY_HIGH_BYTE,
    )
    assert full.plan == pb.Plan(
        canvas_width=6,
        canvas_height=8,
        resize_width=5,
        resize_height=7,
        top=1,
        left=0,
        grid_width=3,
        grid_height=4,
        token_grid_width=1,
        token_grid_height=2,
        token_count=6,
    )
    assert named.profile.name == "by-name"
    assert not named.decode_options.HasField("background")
    assert [bare.HasField(name) for name in ("profile", "decode_options", "plan")] == [False, False, False]


def test_a_large_picture_goes_in_parts(face: Face) -> None:
    source = bytes(range(256)) * (4 * 4096 + 1)  # 4 MiB and 256 bytes
    server = StreamServer()
    settings = pb.StreamSettings(max_images_in_flight=4, max_bytes_in_flight=1 << 30)
    server.settings = pb.PatchFrame(settings=settings)
    with serving(preprocess=preprocess_servicer(PreprocessImages=server)) as address:
        patches = face.call(face.preprocess(address, retry=QUICK), "preprocess", source, image_id="large")
    np.testing.assert_array_equal(patches.array, patches_of(source))
    assert patches.image_id == "large"
    assert server.parts == [1 << 20] * 4 + [256]
    (begin,) = server.begins
    assert (begin.total_bytes, begin.kind) == (len(source), pb.SOURCE_KIND_ENCODED)


def test_plans_come_in_the_order_asked_with_errors_in_their_place(face: Face) -> None:
    answer = pb.PlanImagesResponse(
        results=[
            pb.PlanResult(plan=pb.Plan(canvas_width=28, canvas_height=14, token_count=9), token_types=b"\0\3"),
            pb.PlanResult(error=pb.ImageError(code=3, reason="NO_LEGAL_PLAN", message="too flat", field="sizes[1]")),
        ]
    )
    script = Script([gives(answer)])
    with serving(preprocess=preprocess_servicer(PlanImages=script)) as address:
        first, second = face.call(
            face.preprocess(address), "plan_images", [(20, 10), (1, 99999)], profile="a", token_types=True
        )
    assert (first.width, first.height, first.plan.canvas_width, first.plan.token_count) == (20, 10, 28, 9)
    assert (first.token_types, first.error) == (b"\0\3", None)
    assert (second.width, second.height, second.plan) == (1, 99999, None)
    assert (second.error.reason, second.error.message) == ("NO_LEGAL_PLAN", "too flat")
    assert second.error.field_violations == (("sizes[1]", "too flat"),)
    (request,) = script.requests
    assert (request.profile.name, request.with_token_types) == ("a", True)


def test_too_few_plans_are_an_answer_against_the_contract(face: Face) -> None:
    servicer = preprocess_servicer(PlanImages=Script([gives(pb.PlanImagesResponse())]))
    with serving(preprocess=servicer) as address, pytest.raises(UnexpectedAnswerError, match="0 plans came for 1"):
        face.call(face.preprocess(address), "plan_images", [(20, 10)])


def test_profiles_are_listed_as_values(face: Face) -> None:
    inline = {"patch_size": 14, "downsample_ratio": 3, "max_image_tokens": 64, "min_pixels": 9}
    answer = pb.ListProfilesResponse(
        profiles=[
            pb.NamedProfile(name="a", profile=pb.VisionProfile(**inline, max_wh_ratio=8)),
            pb.NamedProfile(name="b", profile=pb.VisionProfile(**inline), is_default=True),
        ],
        kernel="numexpr",
        available_kernels=["numexpr", "reference"],
        max_pixels=100,
        max_source_bytes=200,
    )
    with serving(preprocess=preprocess_servicer(ListProfiles=Script([gives(answer)]))) as address:
        served = face.call(face.preprocess(address), "list_profiles")
    assert dict(served.profiles) == {"a": VisionProfile(14, 3, 64, 9, 8), "b": VisionProfile(14, 3, 64, 9)}
    assert (served.default, served.kernel, served.available_kernels) == ("b", "numexpr", ("numexpr", "reference"))
    assert (served.max_pixels, served.max_source_bytes) == (100, 200)


def test_a_picture_takes_what_it_lacks_from_the_call() -> None:
    options = DecodeOptions(alpha_handling=AlphaHandling.COMPOSITE)
    defaults = Picture(b"", profile="of the call", decode_options=options)
    own = Picture(b"x", "label", profile="its own").with_defaults(defaults)
    assert (own.source, own.image_id, own.profile, own.decode_options) == (b"x", "label", "its own", options)
