"""What the server says of itself, and what it does not serve yet."""

import grpc
import pytest

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.serving import Server
from interlock.serving.config import SettingsError
from interlock.vision import kernels
from interlock_preprocess import PreprocessSettings, add_preprocess
from preprocess.callers import status_of


async def test_profiles_kernels_and_limits_are_listed(running):
    response = await running.stub.ListProfiles(pb.ListProfilesRequest())
    half = (0.5, 0.5, 0.5)
    assert list(response.profiles) == [
        pb.NamedProfile(
            name="deepseek-v4-flash-vision-exp",
            profile=pb.VisionProfile(
                patch_size=14,
                downsample_ratio=3,
                max_image_tokens=384,
                min_pixels=147_456,
                max_wh_ratio=8,
                image_mean=half,
                image_std=half,
            ),
        ),
        pb.NamedProfile(
            name="deepseek-v4.1",
            profile=pb.VisionProfile(
                patch_size=14,
                downsample_ratio=3,
                max_image_tokens=1024,
                min_pixels=295_936,
                image_mean=half,
                image_std=half,
            ),
            is_default=True,
        ),
    ]
    assert response.kernel == kernels.available()[0]
    assert tuple(response.available_kernels) == kernels.available()
    assert response.max_pixels == 178_956_970
    assert response.max_source_bytes == 256 << 20


async def test_the_kernel_can_be_chosen(serve):
    running = await serve(kernel="reference")
    assert (await running.stub.ListProfiles(pb.ListProfilesRequest())).kernel == "reference"


def test_a_kernel_that_is_not_there_is_refused_by_name():
    with pytest.raises(SettingsError, match=r"'warp'.*reference"):
        add_preprocess(Server(), PreprocessSettings(kernel="warp"))


def test_credits_that_no_stream_could_use_are_refused():
    with pytest.raises(SettingsError, match=r"max_bytes_in_flight is 2097152.*source_budget_bytes, 1048576"):
        PreprocessSettings(max_bytes_in_flight=2 << 20, source_budget_bytes=1 << 20)


@pytest.mark.parametrize(
    ("method", "request_message"),
    [
        ("RegisterRegion", pb.RegisterRegionRequest(file_name="patches", size=1)),
        ("UnregisterRegion", pb.UnregisterRegionRequest(handle="h")),
        ("ListRegions", pb.ListRegionsRequest()),
    ],
)
async def test_shared_memory_is_off(running, method, request_message):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(running.stub, method)(request_message)
    status = status_of(caught.value)
    assert (status.code, status.reason) == (12, "SHARED_MEMORY_OFF")
