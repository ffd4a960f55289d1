"""Scenarios from public reports: input that should cost nothing but its refusal."""

from pathlib import Path

import grpc
import pytest

from bootstrap.calls import key, refused, registration, route
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.kv.v1 import pool_name_pb2
from scenarios.reads import info, snapshot

MEBIBYTE = 1 << 20
NESTED = "[" * 1_000 + "]" * 1_000


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def sizes(dp: int = 1, cp: int = 1, tp: int = 1, pp: int = 1) -> dict:
    return {"sizes": pb.ParallelSizes(dp=dp, cp=cp, tp=tp, pp=pp)}


def with_extra(text: str) -> dict:
    message = pb.Route()
    message.dsv41_spec_layout.layout.extra_json["future"] = text
    return {"dsv41_spec_layout": message.dsv41_spec_layout}


HOSTILE_ROUTES = [
    pytest.param(sizes(2**16, 2**16, 2**16, 2**16), "route.sizes", id="a product of 2^64"),
    pytest.param(sizes(2**32 - 1, 2**32 - 1, 2**32 - 1, 2**32 - 1), "route.sizes.dp", id="the largest sizes"),
    pytest.param(sizes(1_000, 1_000, 1_000, 1), "route.sizes", id="10^9 keys"),
    pytest.param({"rank_ip": "a" * MEBIBYTE}, "route.rank_ip", id="an address of 1 MiB"),
    pytest.param({"kv_cache_dtype": "x" * MEBIBYTE}, "route.kv_cache_dtype", id="a dtype of 1 MiB"),
    pytest.param({"kv_layout": "ä" * (MEBIBYTE // 2)}, "route.kv_layout", id="a layout name of 1 MiB"),
    pytest.param({"load_balance_method": "x" * MEBIBYTE}, "route.load_balance_method", id="a method of 1 MiB"),
    pytest.param({"decode_allocation_policy": "x" * MEBIBYTE}, "route.decode_allocation_policy", id="1 MiB policy"),
    pytest.param(with_extra('"' + "x" * MEBIBYTE + '"'), "route.dsv41_spec_layout", id="a layout of 1 MiB"),
    pytest.param({"kv_layout": "page\0first"}, "route.kv_layout", id="NUL in a name"),
    pytest.param({"rank_ip": "10.0.0.1\0"}, "route.rank_ip", id="NUL in an address"),
    pytest.param({"rank_port": 65_536}, "route.rank_port", id="port 65536"),
    pytest.param({"prefill_http_port": 65_536}, "route.prefill_http_port", id="HTTP port 65536"),
    pytest.param({"prefill_http_port": 0}, "route.prefill_http_port", id="HTTP port 0"),
    pytest.param({"rank_ip": "0.0.0.0"}, "route.rank_ip", id="IPv4 wildcard"),
    pytest.param({"rank_ip": "::"}, "route.rank_ip", id="IPv6 wildcard"),
    pytest.param({"rank_ip": "[::]"}, "route.rank_ip", id="bracketed wildcard"),
    pytest.param({"rank_ip": "fe80::1%eth0"}, "route.rank_ip", id="zone"),
    pytest.param({"rank_ip": "[fe80::1%25eth0]"}, "route.rank_ip", id="bracketed zone"),
    pytest.param({"rank_ip": "[10.0.0.1]"}, "route.rank_ip", id="bracketed IPv4"),
    pytest.param({"pools": [4_096]}, "route.pools[0]", id="an unknown pool"),
    pytest.param({"pools": [-1]}, "route.pools[0]", id="a negative pool"),
    pytest.param({"pools": [pool_name_pb2.POOL_NAME_KV] * 100_000}, "route.pools", id="100,000 pools"),
    pytest.param(with_extra(NESTED), "route.dsv41_spec_layout.layout.extra_json['future']", id="JSON 1,000 deep"),
]


@pytest.mark.parametrize(("changed", "field"), HOSTILE_ROUTES)
async def test_a_hostile_route_is_refused_with_its_field(server, stub, group, changed, field):
    refusal = await refused(stub.RegisterRoute(registration(0, group=group, **changed)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert field in refusal.fields
    assert (await refused(info(stub, group))).reason == "UNKNOWN_GROUP"


async def test_port_0_is_refused(stub, group):
    request = registration(0, group=group)
    request.route.rank_port = 0
    refusal = await refused(stub.RegisterRoute(request))
    assert (refusal.reason, refusal.fields) == ("INVALID_FIELD", ["route.rank_port"])


async def test_an_ipv6_address_in_brackets_is_stored_without_them(stub, group):
    await stub.RegisterRoute(registration(0, group=group, rank_ip="[2001:DB8::0001]"))
    answer = await stub.GetRankInfo(pb.GetRankInfoRequest(group=group, key=key(0)))
    assert answer.rank_ip == "2001:db8::1"
    assert list((await snapshot(stub, group)).routes) == [route(0, rank_ip="2001:db8::1")]


@pytest.mark.parametrize("name", ["x" * MEBIBYTE, "a\0b", "ab\0", "../default", "default/rows/1", "a" * 64])
async def test_a_hostile_group_name_is_refused_by_every_call(stub, name):
    async def first_message(call) -> None:
        await call.read()

    calls = [
        stub.RegisterRoute(registration(0, group=name)),
        stub.DeregisterRoute(pb.DeregisterRouteRequest(group=name, key=key(0))),
        info(stub, name),
        stub.GetRankInfo(pb.GetRankInfoRequest(group=name, key=key(0))),
        stub.ForceEpoch(pb.ForceEpochRequest(group=name)),
        stub.RegisterDpRanks(pb.RegisterDpRanksRequest(group=name)),
        stub.QueryDpRanks(pb.QueryDpRanksRequest(group=name)),
        first_message(stub.WatchTopology(pb.WatchTopologyRequest(group=name))),
        first_message(stub.WaitDpRanks(pb.WaitDpRanksRequest(group=name))),
    ]
    for call in calls:
        refusal = await refused(call)
        assert refusal.reason == "INVALID_FIELD"
        assert "group" in refusal.fields


async def test_hostile_input_costs_no_memory(own_server, group):
    server = await own_server("--max-groups", "20")
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(server.address, options=options) as channel:
        stub = BootstrapServiceStub(channel)

        async def everything(round_number: int) -> int:
            """Sends all that is hostile, and asks for groups that nobody knows; the server's memory afterwards."""
            for case in HOSTILE_ROUTES:
                await refused(stub.RegisterRoute(registration(0, group=group, **case.values[0])))
            for number in range(200):
                name = f"g{round_number}-{number}"
                assert (await refused(info(stub, name))).reason == "UNKNOWN_GROUP"
                await stub.QueryDpRanks(pb.QueryDpRanksRequest(group=name, rooms=[1]))
                gone = await stub.DeregisterRoute(
                    pb.DeregisterRouteRequest(group=name, key=key(0), instance=registration(0).instance, incarnation=1)
                )
                assert (gone.removed, gone.revision) == (False, 0)
            return resident(server.pid)

        # The allocator gives large pieces back late, so single readings swing by 20 MiB: the lowest ones are compared.
        before = min([await everything(number) for number in range(2)])
        after = min([await everything(number) for number in range(2, 8)])
        assert after - before < 16 * MEBIBYTE


async def test_groups_beyond_the_bound_are_refused_and_those_within_go_on(own_server):
    server = await own_server("--max-groups", "20")
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = BootstrapServiceStub(channel)
        for number in range(20):
            await stub.RegisterRoute(registration(0, group=f"g{number}"))
        for number in range(20, 520):
            refusal = await refused(stub.RegisterRoute(registration(0, group=f"g{number}")))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_GROUPS")
        assert (await stub.RegisterRoute(registration(1, group="g7"))).ready
        listed = await stub.ListGroups(pb.ListGroupsRequest(page_size=1_000))
        assert sorted(each.group for each in listed.groups) == sorted(f"g{number}" for number in range(20))
