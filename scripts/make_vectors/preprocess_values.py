"""Legal and illegal values of the Preprocess service's requests.

Left out is shared memory, whose values depend on how a server is set up.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields

from google.protobuf.message import Message

from interlock.preprocess.v1 import preprocess_pb2 as pp
from interlock.vision import MAX_PIXELS, Plan, VisionProfile, plan
from interlock_preprocess.requests import plan_message, profile_message
from scripts.make_vectors.requests import ABSENT, UINT32_MAX, UINT64_MAX, Field, Request

SERVICE = "interlock.preprocess.v1.PreprocessService"
PROFILE = VisionProfile(patch_size=2, downsample_ratio=1, max_image_tokens=64, min_pixels=0)
INLINE = pp.ProfileSelector(inline=profile_message(PROFILE))
PIXELS = bytes(range(18))
RAW = pp.RawRgb(width=3, height=2, data=PIXELS)
PLAN = plan_message(plan(3, 2, PROFILE))
PPM = b"P6 3 2 255\n" + PIXELS
ENUMS = (0, 1, 2)


def preprocess_requests() -> Iterator[Request]:
    size = pp.ImageSize(width=3, height=2)
    yield Request(
        SERVICE,
        "PlanImages",
        pp.PlanImagesRequest(sizes=[size]),
        fields=[
            *_profile_fields(),
            Field("sizes", legal=[[], [size] * 1024], illegal=[[size] * 1025]),
            Field("sizes", legal=[[size] * 256], illegal=[[size] * 257], needs=[("with_token_types", True)]),
            Field("sizes[0].width", legal=[1, 2_400], illegal=[0, UINT32_MAX]),
            Field("sizes[0].height", legal=[1, 2_400], illegal=[0, UINT32_MAX]),
            Field("with_token_types", legal=[False, True]),
        ],
    )
    yield Request(
        SERVICE,
        "PreprocessImage",
        pp.PreprocessImageRequest(raw=RAW, profile=INLINE),
        fields=[
            Field("image_id", legal=["", "a", "\u9375", "x" * 128, "\u00e9" * 64], illegal=["x" * 129, "\u00e9" * 65]),
            Field("raw", illegal=[ABSENT], named="source"),
            Field("raw", illegal=[pp.RawRgb()]),
            Field("raw.width", legal=[3], illegal=[0, UINT32_MAX]),
            Field("raw.width", illegal=[2, 4], named="raw.data"),
            Field("raw.height", legal=[2], illegal=[0]),
            Field("raw.height", illegal=[1, 3], named="raw.data"),
            Field("raw.height", illegal=[UINT32_MAX], named="raw.width"),
            Field("raw.data", legal=[PIXELS], illegal=[b"", PIXELS[1:], PIXELS + b"\0"]),
            Field("encoded", legal=[PPM], illegal=[b"", b"hello", PPM[:-1]]),
            Field("profile", legal=[ABSENT], illegal=[pp.ProfileSelector(inline=pp.VisionProfile())]),
            *_plan_fields("plan", [("raw", RAW)]),
        ],
    )
    yield Request(
        SERVICE,
        "PreprocessImage",
        pp.PreprocessImageRequest(encoded=PPM, profile=INLINE),
        fields=[*_decode_fields("decode_options")],
    )
    yield Request(
        SERVICE,
        "PreprocessImages",
        pp.ImageBegin(image_id="a", kind=pp.SOURCE_KIND_RAW_RGB, total_bytes=18, width=3, height=2, profile=INLINE),
        prefix="begin.",
        conversation=_of_begin,
        fields=[
            Field("image_id", legal=["a", "\u9375", "x" * 128], illegal=["", "x" * 129, "\u00e9" * 65]),
            Field("kind", legal=[pp.SOURCE_KIND_RAW_RGB], illegal=[0, 3, -1, 2**31 - 1]),
            Field("total_bytes", legal=[18], illegal=[0, 17, 19, 2**53 + 1, 2**63, UINT64_MAX]),
            Field("width", legal=[3], illegal=[0, UINT32_MAX]),
            Field("width", illegal=[2, 4], named="total_bytes"),
            Field("height", legal=[2], illegal=[0]),
            Field("height", illegal=[1, 3], named="total_bytes"),
            Field("height", illegal=[UINT32_MAX], named="width"),
            Field("profile", legal=[ABSENT], illegal=[pp.ProfileSelector(inline=pp.VisionProfile())]),
            Field("plan", legal=[ABSENT, PLAN], illegal=[pp.Plan()]),
        ],
    )
    yield Request(
        SERVICE,
        "PreprocessImages",
        pp.ImageBegin(image_id="a", kind=pp.SOURCE_KIND_ENCODED, total_bytes=len(PPM), profile=INLINE),
        prefix="begin.",
        conversation=_of_begin,
        fields=[
            Field("width", legal=[0], illegal=[3]),
            Field("height", legal=[0], illegal=[2]),
            Field("decode_options", legal=[ABSENT], illegal=[pp.DecodeOptions(exif_orientation=3)]),
        ],
    )
    yield Request(
        SERVICE,
        "PreprocessImages",
        pp.ImageData(image_id="a", data=PIXELS),
        prefix="data.",
        conversation=lambda part: [_begin(), _step(data=part), *_end()],
        fields=[
            Field("image_id", legal=["a"], illegal=["", "b"]),
            Field("offset", legal=[0], illegal=[1, 18, 2**53 + 1, UINT64_MAX]),
            Field("data", legal=[PIXELS], illegal=[PIXELS + b"\0"]),
        ],
    )
    yield Request(
        SERVICE,
        "PreprocessImages",
        pp.ImageEnd(image_id="a"),
        prefix="end.",
        conversation=lambda end: [_begin(), _step(data=pp.ImageData(image_id="a", data=PIXELS)), _step(end=end)],
        fields=[Field("image_id", legal=["a"], illegal=["", "b"])],
    )
    yield Request(
        SERVICE,
        "PreprocessImages",
        pp.ImageCancel(image_id="a"),
        prefix="cancel.",
        conversation=lambda cancel: [_begin(), _step(cancel=cancel)],
        fields=[Field("image_id", legal=["a"], illegal=["", "b"])],
    )


def _step(**step: Message) -> pp.PreprocessImagesRequest:
    return pp.PreprocessImagesRequest(**step)


def _begin() -> pp.PreprocessImagesRequest:
    return _step(
        begin=pp.ImageBegin(
            image_id="a", kind=pp.SOURCE_KIND_RAW_RGB, total_bytes=18, width=3, height=2, profile=INLINE
        )
    )


def _end() -> Sequence[Message]:
    return [_step(end=pp.ImageEnd(image_id="a"))]


def _of_begin(begin: pp.ImageBegin) -> Sequence[Message]:
    """A picture from its begin to its end."""
    data = PIXELS if begin.kind == pp.SOURCE_KIND_RAW_RGB else PPM
    return [
        _step(begin=begin),
        _step(data=pp.ImageData(image_id=begin.image_id, data=data)),
        _step(end=pp.ImageEnd(image_id=begin.image_id)),
    ]


def _profile_fields() -> Iterator[Field]:
    needs = [("profile", INLINE)]
    inline = "profile.inline"
    yield Field("profile", legal=[ABSENT, pp.ProfileSelector()])
    yield Field("profile.name", legal=["deepseek-v4.1", "", "nobody's"])
    yield Field(inline, legal=[profile_message(PROFILE)], illegal=[pp.VisionProfile()])
    yield Field(f"{inline}.patch_size", legal=[1, 128], illegal=[0, 129, UINT32_MAX], needs=needs)
    yield Field(f"{inline}.downsample_ratio", legal=[1, 16], illegal=[0, 17, UINT32_MAX], needs=needs)
    yield Field(f"{inline}.max_image_tokens", legal=[5, 16_384], illegal=[3, 16_385, UINT32_MAX], needs=needs)
    yield Field(f"{inline}.min_pixels", legal=[0, 1], illegal=[MAX_PIXELS + 1, 2**53 + 1, UINT64_MAX], needs=needs)
    yield Field(f"{inline}.max_wh_ratio", legal=[ABSENT, 1, 1_000], illegal=[0, 1_001, UINT32_MAX], needs=needs)
    yield Field(
        f"{inline}.image_mean",
        legal=[[], [0.0, 0.5, 1.0]],
        illegal=[[0.5], [0.5] * 2, [0.5] * 4, [0.5, 0.5, -0.5], [1.5, 0.5, 0.5], [math.nan] * 3, [math.inf] * 3],
        needs=needs,
    )
    yield Field(
        f"{inline}.image_std",
        legal=[[], [2**-10, 0.5, 1024.0]],
        illegal=[[0.5], [0.5] * 4, [0.0, 0.5, 0.5], [-0.5] * 3, [2048.0] * 3, [math.nan] * 3, [-math.inf] * 3],
        needs=needs,
    )


def _plan_fields(path: str, needs: Sequence[tuple[str, Message]]) -> Iterator[Field]:
    yield Field(path, legal=[ABSENT, PLAN], illegal=[pp.Plan()], needs=needs)
    legal = {field.name: [getattr(PLAN, field.name)] for field in fields(Plan)}  # most follow from the others
    legal["resize_width"] = [1, PLAN.resize_width]
    legal["resize_height"] = [1, PLAN.resize_height]
    illegal = {name: [0, max(values) + 1, UINT32_MAX] for name, values in legal.items()}
    illegal["resize_width"][1] = PLAN.canvas_width + 1
    illegal["resize_height"][1] = PLAN.canvas_height + 1
    illegal["top"] = [PLAN.canvas_height - PLAN.resize_height + 1, UINT32_MAX]
    illegal["left"] = [PLAN.canvas_width - PLAN.resize_width + 1, UINT32_MAX]
    for name in legal:
        yield Field(f"{path}.{name}", legal=legal[name], illegal=illegal[name], needs=[*needs, (path, PLAN)])


def _decode_fields(path: str) -> Iterator[Field]:
    yield Field(path, legal=[ABSENT, pp.DecodeOptions()])
    for name in ("exif_orientation", "alpha_handling", "sixteen_bit_grey"):
        yield Field(f"{path}.{name}", legal=ENUMS, illegal=[3, -1, 2**31 - 1])
    composite = [(f"{path}.alpha_handling", pp.ALPHA_HANDLING_COMPOSITE)]
    yield Field(f"{path}.background", legal=[ABSENT, pp.Rgb()], needs=composite)
    yield Field(f"{path}.background", illegal=[pp.Rgb()], needs=[(f"{path}.alpha_handling", pp.ALPHA_HANDLING_DROP)])
    for name in ("red", "green", "blue"):
        yield Field(f"{path}.background.{name}", legal=[0, 255], illegal=[256, UINT32_MAX], needs=composite)
