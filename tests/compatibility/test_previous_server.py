"""Today's client works against a server of the last release, which knows nothing of what came since."""

import grpc
import pytest

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.client import (
    AsyncBootstrapClient,
    AsyncPreprocessClient,
    ContractMismatchError,
    FieldDifference,
    ImageFailedError,
    NotReadyError,
    RevisionConflictError,
    WatchChange,
    WatchSnapshot,
)
from interlock.topology import DecodeServer, Instance, ParallelSizes, RankKey, Route
from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, decode, kernels, plan
from vectors.reading import ROOT

PICTURE = (ROOT / "tests/data/corpus/png_3x2.png").read_bytes()
TRUNCATED = (ROOT / "tests/data/corpus/png_truncated.png").read_bytes()
LAUNCH = Instance("launch-1", 1)
SIZES = ParallelSizes(1, 1, 2, 1)


def route(tp: int, page_size: int = 64) -> Route:
    return Route(RankKey(0, 0, tp, 0), 1, SIZES, "10.0.0.1", 9000 + tp, page_size)


async def test_ranks_register_and_a_decode_server_asks(previous_server):
    async with AsyncBootstrapClient(previous_server) as client:
        first = await client.register_route(route(0), LAUNCH, expected_revision=0)
        with pytest.raises(RevisionConflictError) as conflict:
            await client.register_route(route(1), LAUNCH, expected_revision=0)
        assert conflict.value.conflict.revision == first.revision
        with pytest.raises(ContractMismatchError) as mismatch:
            await client.register_route(route(1, page_size=128), LAUNCH)
        assert mismatch.value.mismatch.differences == (FieldDifference("page_size", "64", "128", RankKey(0, 0, 0, 0)),)
        with pytest.raises(NotReadyError) as not_ready:
            await client.get_prefill_server_info()
        assert not_ready.value.state.missing_keys == (RankKey(0, 0, 1, 0),)

        watch = client.watch_topology()
        assert isinstance(await anext(watch), WatchSnapshot)
        async with client.registration(route(1), instance=LAUNCH) as registration:
            change = await anext(watch)
            assert isinstance(change, WatchChange)
            assert change.state.revision == registration.revision
            ready = await client.get_prefill_server_info(wait=True)
            assert (ready.info.sizes, ready.info.load_balance_method) == (SIZES, "follow_bootstrap_room")
            fit = await client.check_compatibility(DecodeServer(page_size=128, sizes=SIZES))
            assert [found.field for found in fit.incompatibilities] == ["page_size"]
            await client.register_dp_ranks({2**64 - 1: 0})
            assert await client.query_dp_ranks([2**64 - 1, 7]) == {2**64 - 1: 0}
        assert (await client.get_rank_info(RankKey(0, 0, 0, 0))).rank_port == 9000


async def test_pictures_become_patches(previous_server):
    profile = PROFILES[DEFAULT_PROFILE_NAME]
    pixels = decode(PICTURE).rgb
    geometry = plan(pixels.shape[1], pixels.shape[0], profile)
    expected = kernels.get("reference").resize_patchify(pixels, geometry, profile).tobytes()
    async with AsyncPreprocessClient(previous_server) as client:
        assert (await client.preprocess(PICTURE)).array.tobytes() == expected
        with pytest.raises(ImageFailedError) as failed:
            await client.preprocess(TRUNCATED)
        assert failed.value.reason == "IMAGE_TRUNCATED"
        async with client.preprocess_many([PICTURE, TRUNCATED, PICTURE]) as stream:
            results = {result.index: result async for result in stream}
        assert [results[index].unwrap().array.tobytes() for index in (0, 2)] == [expected, expected]
        assert results[1].error.reason == "IMAGE_TRUNCATED"


async def test_a_newer_field_is_not_seen(previous_server):
    """What makes the view a view: the field goes by, and the call is served as one without it."""
    async with grpc.aio.insecure_channel(previous_server) as channel:
        request = pb.WatchTopologyRequest()
        request.MergeFromString(bytes.fromhex("a20603616263"))
        watch = BootstrapServiceStub(channel).WatchTopology(request)
        assert (await watch.read()).snapshot.state.revision == 0
        watch.cancel()


async def test_a_newer_method_is_unimplemented(previous_server):
    async with grpc.aio.insecure_channel(previous_server) as channel:
        call = channel.unary_unary("/interlock.bootstrap.v1.BootstrapService/FromTheFuture")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(b"")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
