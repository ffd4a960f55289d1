"""`PlanImages`: geometry without pixels."""

import grpc
import pytest

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.vision import PROFILES, plan, token_types
from interlock_preprocess.requests import plan_message
from preprocess.callers import PROFILE, status_of


def sizes(*pairs: tuple[int, int]) -> list[pb.ImageSize]:
    return [pb.ImageSize(width=width, height=height) for width, height in pairs]


async def test_each_size_gets_its_plan_or_an_error_in_its_place(running):
    response = await running.stub.PlanImages(
        pb.PlanImagesRequest(sizes=sizes((500, 501), (1, 42_924), (0, 5), (2**32 - 1, 2**32 - 1)))
    )
    first, thin, empty, large = response.results
    assert first.plan == plan_message(plan(500, 501, PROFILE))
    assert first.token_types == b""
    assert (thin.error.code, thin.error.reason, thin.error.field) == (3, "NO_LEGAL_PLAN", "sizes[1]")
    assert "1x42924" in thin.error.message
    assert (empty.error.reason, empty.error.field) == ("NO_LEGAL_PLAN", "sizes[2]")
    assert large.plan == plan_message(plan(2**32 - 1, 2**32 - 1, PROFILE))


async def test_token_types_are_given_when_asked_for(running):
    name = "deepseek-v4-flash-vision-exp"
    response = await running.stub.PlanImages(
        pb.PlanImagesRequest(
            sizes=sizes((500, 501), (1, 10_000)), with_token_types=True, profile=pb.ProfileSelector(name=name)
        )
    )
    plans = [plan(500, 501, PROFILES[name]), plan(1, 10_000, PROFILES[name])]
    assert [result.token_types for result in response.results] == [token_types(each) for each in plans]


async def test_as_many_sizes_as_told_are_planned_in_one_answer_under_3_mib(running):
    response = await running.stub.PlanImages(pb.PlanImagesRequest(sizes=sizes(*[(4000, 3000)] * 1024)))
    assert len(response.results) == 1024
    assert response.ByteSize() < 3 << 20
    response = await running.stub.PlanImages(
        pb.PlanImagesRequest(sizes=sizes(*[(4000, 3000)] * 256), with_token_types=True)
    )
    assert len(response.results) == 256


LARGEST = pb.VisionProfile(patch_size=1, downsample_ratio=1, max_image_tokens=16_384, min_pixels=0)


@pytest.mark.parametrize(
    ("request_fields", "reason", "field"),
    [
        ({"sizes": sizes(*[(5, 5)] * 1025)}, "INVALID_FIELD", "sizes"),
        ({"sizes": sizes(*[(5, 5)] * 257), "with_token_types": True}, "INVALID_FIELD", "sizes"),
        (
            {
                "sizes": sizes(*[(120, 120)] * 256),
                "with_token_types": True,
                "profile": pb.ProfileSelector(inline=LARGEST),
            },
            "INVALID_FIELD",
            "with_token_types",
        ),
        ({"profile": pb.ProfileSelector(name="none")}, "UNKNOWN_PROFILE", "profile.name"),
        ({"profile": pb.ProfileSelector(inline={})}, "INVALID_PROFILE", "profile.inline.patch_size"),
    ],
)
async def test_what_is_asked_wrongly_or_too_much_is_refused_with_its_field(running, request_fields, reason, field):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.stub.PlanImages(pb.PlanImagesRequest(**request_fields))
    status = status_of(caught.value)
    assert (status.reason, status.fields) == (reason, (field,))
