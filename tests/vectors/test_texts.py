"""Pool names, addresses and extra JSON: a real server takes and tells them as the vectors say."""

import itertools

import grpc
import pytest

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.kv.v1.pool_name_pb2 import PoolName
from interlock.pools import parse_pool_name, wire_name
from vectors.reading import read

SIZES = pb.ParallelSizes(dp=1, cp=1, tp=2, pp=1)
INSTANCE = pb.Instance(id="launch-1", started_at=1)


@pytest.fixture
def register(channel):
    """Registers a rank; None, or the status code of the refusal."""
    stub = BootstrapServiceStub(channel)

    async def register(group, tp=0, extra_json=None, rank_ip="10.0.0.1"):
        route = pb.Route(key={"tp": tp}, incarnation=1, sizes=SIZES, rank_ip=rank_ip, rank_port=9000 + tp, page_size=64)
        if extra_json is not None:
            route.dsv41_spec_layout.layout.extra_json["key"] = extra_json
        try:
            await stub.RegisterRoute(pb.RegisterRouteRequest(group=group, route=route, instance=INSTANCE))
        except grpc.aio.AioRpcError as error:
            return error.code()

    return register


def test_every_pool_has_its_name():
    names = read("pool_names.json")
    assert {pool["number"]: pool["enum_name"] for pool in names["pools"]} == {
        number: name for name, number in PoolName.items() if number
    }
    for pool in names["pools"]:
        assert wire_name(pool["number"]) == pool["wire_name"]
        assert parse_pool_name(pool["wire_name"]) == pool["number"]
    for text in names["not_wire_names"]:
        with pytest.raises(ValueError, match="unknown pool name"):
            parse_pool_name(text)


async def test_a_server_takes_the_legal_addresses_and_tells_them_as_stored(channel, register):
    stub = BootstrapServiceStub(channel)
    entries = read("addresses.json")
    for number, entry in enumerate(entries):
        refused = await register(f"a{number}", rank_ip=entry["text"])
        assert refused is (None if entry["legal"] else grpc.StatusCode.INVALID_ARGUMENT), entry
        if entry["legal"]:
            told = await stub.GetRankInfo(pb.GetRankInfoRequest(group=f"a{number}", key=pb.RankKey()))
            assert told.rank_ip == entry["stored"]
    assert {entry["legal"] for entry in entries} == {True, False}


async def test_a_server_takes_the_legal_texts_of_extra_json(register):
    for number, entry in enumerate(read("extra_json.json")["texts"]):
        refused = await register(f"t{number}", extra_json=entry["text"])
        assert refused is (None if entry["legal"] else grpc.StatusCode.INVALID_ARGUMENT), entry


async def test_a_server_takes_no_two_texts_for_one(register):
    document = read("extra_json.json")
    legal = [entry["text"] for entry in document["texts"] if entry["legal"]]
    alike = [tuple(pair) for pair in document["differ_though_they_mean_the_same"]]
    pairs = list(itertools.combinations(legal, 2))
    assert set(alike) < set(pairs)
    assert {("1", "1.0"), ('"\u00e9"', '"\\u00e9"'), ("-0", "0")} <= set(alike)
    for number, (standing, offered) in enumerate(pairs):
        assert await register(f"p{number}", 0, standing) is None
        assert await register(f"p{number}", 1, offered) is grpc.StatusCode.FAILED_PRECONDITION
