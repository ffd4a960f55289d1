"""Reasons, and what absent fields mean: real servers answer a request that leaves a field out as one that says it."""

import grpc
import pytest
from google.protobuf.json_format import ParseDict
from google.rpc import code_pb2

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.preprocess.v1 import preprocess_pb2 as pp
from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from interlock.reasons import Reason
from vectors.reading import CONTRACT, ROOT, message_type, message_types, read

DEFAULTS = {entry["field"]: entry["absent_means"] for entry in read("defaults.json")}
ROUTE = pb.Route(
    key={}, incarnation=1, sizes={"dp": 1, "cp": 1, "tp": 2, "pp": 1}, rank_ip="a", rank_port=1, page_size=1
)
LAUNCH = pb.Instance(id="launch-1", started_at=1)
OTHERS = {
    "load_balance_method": "round_robin",
    "enable_dsa_cache_layer_split": True,
    "enable_kv_cache_sharding": True,
    "decode_allocation_policy": "late",
}
PICTURES = {
    "exif_orientation": ("png_exif_6.png", pp.DecodeOptions(exif_orientation=pp.EXIF_ORIENTATION_APPLY)),
    "alpha_handling": ("png_rgba_hidden_colour.png", pp.DecodeOptions(alpha_handling=pp.ALPHA_HANDLING_COMPOSITE)),
    "sixteen_bit_grey": ("png_gray16.png", pp.DecodeOptions(sixteen_bit_grey=pp.SIXTEEN_BIT_GREY_HIGH_BYTE)),
}
"""Pictures that an option makes a difference to, and another option than the default."""


def of(message: type, field: str) -> object:
    return DEFAULTS[f"{message.DESCRIPTOR.full_name}.{field}"]


def test_every_reason_is_there_with_its_code():
    assert [(entry["reason"], entry["code"], entry["code_name"]) for entry in read("reasons.json")] == [
        (reason, reason.code, code_pb2.Code.Name(reason.code)) for reason in Reason
    ]


def test_the_fields_exist():
    for path in DEFAULTS:
        message, _, field = path.rpartition(".")
        assert field in message_type(message).DESCRIPTOR.fields_by_name, path


def test_every_group_of_a_request_has_a_default():
    requests = {
        method.input_type for file in CONTRACT for one in file.services_by_name.values() for method in one.methods
    }
    requests.add(pb.LeaseRef.DESCRIPTOR)
    with_group = {one.full_name for one in message_types() if one in requests and "group" in one.fields_by_name}
    assert {path.removesuffix(".group") for path in DEFAULTS if path.endswith(".group")} == with_group
    assert {value for path, value in DEFAULTS.items() if path.endswith(".group")} == {"default"}


async def test_a_request_without_a_group_is_one_of_the_default_group(channel):
    stub = BootstrapServiceStub(channel)
    registered = await stub.RegisterRoute(pb.RegisterRouteRequest(route=ROUTE, instance=LAUNCH))
    said = pb.RegisterRouteRequest(group=of(pb.RegisterRouteRequest, "group"), route=ROUTE, instance=LAUNCH)
    assert await stub.RegisterRoute(said) == registered


@pytest.mark.parametrize("field", OTHERS)
async def test_ranks_that_leave_a_value_out_share_the_default(channel, field):
    stub = BootstrapServiceStub(channel)

    def rank(tp: int, **values: object) -> pb.RegisterRouteRequest:
        route = pb.Route(**values)
        route.MergeFrom(ROUTE)
        route.key.tp = tp
        return pb.RegisterRouteRequest(route=route, instance=LAUNCH)

    await stub.RegisterRoute(rank(0))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.RegisterRoute(rank(1, **{field: OTHERS[field]}))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    await stub.RegisterRoute(rank(1, **{field: of(pb.Route, field)}))
    group = await stub.GetPrefillServerInfo(pb.GetPrefillServerInfoRequest())
    assert getattr(group.info, field) == of(pb.Route, field)


async def test_a_page_of_groups_has_the_default_size(channel):
    stub = BootstrapServiceStub(channel)
    size = of(pb.ListGroupsRequest, "page_size")
    for number in range(size + 1):
        await stub.RegisterRoute(pb.RegisterRouteRequest(group=f"g{number}", route=ROUTE, instance=LAUNCH))
    page = await stub.ListGroups(pb.ListGroupsRequest())
    assert len(page.groups) == size
    assert page == await stub.ListGroups(pb.ListGroupsRequest(page_size=size))


async def test_plans_are_made_under_the_default_profile(channel):
    stub = PreprocessServiceStub(channel)
    sizes = [pp.ImageSize(width=1920, height=1080)]
    profile = pp.ProfileSelector(**of(pp.PlanImagesRequest, "profile"))
    absent = await stub.PlanImages(pp.PlanImagesRequest(sizes=sizes))
    assert absent == await stub.PlanImages(pp.PlanImagesRequest(sizes=sizes, profile=profile))
    assert {DEFAULTS[path]["name"] for path in DEFAULTS if path.endswith(".profile")} == {profile.name}


@pytest.mark.parametrize("field", PICTURES)
async def test_pictures_are_decoded_with_the_default_options(channel, field):
    name, other = PICTURES[field]
    said = ParseDict({field: of(pp.DecodeOptions, field)}, pp.DecodeOptions())
    absent = await patches(channel, name)
    assert absent == await patches(channel, name, decode_options=said)
    assert absent != await patches(channel, name, decode_options=other)


async def test_the_background_is_the_default_one(channel):
    name, absent = PICTURES["alpha_handling"]
    said = pp.DecodeOptions(alpha_handling=absent.alpha_handling, background=of(pp.DecodeOptions, "background"))
    black = pp.DecodeOptions(alpha_handling=absent.alpha_handling, background=pp.Rgb())
    over_default = await patches(channel, name, decode_options=absent)
    assert over_default == await patches(channel, name, decode_options=said)
    assert over_default != await patches(channel, name, decode_options=black)


@pytest.mark.parametrize("field", ["image_mean", "image_std"])
async def test_channels_have_the_default_numbers(channel, field):
    values = {"patch_size": 14, "downsample_ratio": 3, "max_image_tokens": 384}

    async def under(**numbers: object) -> bytes:
        profile = pp.ProfileSelector(inline=pp.VisionProfile(**values, **numbers))
        return await patches(channel, "png_3x2.png", profile=profile)

    assert await under() == await under(**{field: of(pp.VisionProfile, field)})
    assert await under() != await under(**{field: [0.25] * 3})


async def patches(channel: grpc.aio.Channel, name: str, **fields: object) -> bytes:
    """The patches of a picture of the corpus."""
    request = pp.PreprocessImageRequest(encoded=(ROOT / "tests/data/corpus" / name).read_bytes(), **fields)
    return b"".join([frame.chunk.data async for frame in PreprocessServiceStub(channel).PreprocessImage(request)])
