"""Legal and illegal values of the Bootstrap service's requests."""

from collections.abc import Iterator

from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import NULL_VALUE

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.kv.v1.spec_layout_pb2 import SpecLayout, SpecLayoutDeclaration, StateItemLens
from interlock.pools import POOL_NAMES
from interlock.topology.limits import MAX_EXTRA_JSON_KEYS, MAX_LAYOUT_NUMBERS, MAX_RANKS, MAX_RENEWALS, MAX_STATE_TYPES
from interlock_bootstrap.servicer import MAX_ROOMS_A_CALL
from scripts.make_vectors.messages import ROOMS, STARTED_AT
from scripts.make_vectors.requests import ABSENT, UINT32_MAX, UINT64_MAX, Field, HexOnly, Request, texts

SERVICE = "interlock.bootstrap.v1.BootstrapService"
DIMENSIONS = ("dp", "cp", "tp", "pp")
KEY = pb.RankKey()
INSTANCE = pb.Instance(id="launch-1", started_at=STARTED_AT)
SIZES = pb.ParallelSizes(dp=2, cp=2, tp=2, pp=2)
ROUTE = pb.Route(key=KEY, incarnation=1, sizes=SIZES, rank_ip="10.0.0.1", rank_port=9000, page_size=64)
DECLARED = SpecLayoutDeclaration(layout=SpecLayout(kv_layer_ids=[0]))
LARGE = (0, 2**53 + 1, 2**63, UINT64_MAX)


def bootstrap_requests() -> Iterator[Request]:
    yield Request(
        SERVICE,
        "RegisterRoute",
        pb.RegisterRouteRequest(route=ROUTE, instance=INSTANCE),
        own_group=True,
        fields=[
            _group(),
            Field("route", illegal=[ABSENT]),
            *_route_fields(),
            *_instance_fields("instance"),
            Field("expected_revision", legal=[ABSENT, *LARGE]),
            Field(
                "lease_ttl",
                legal=[ABSENT, Duration(seconds=1), Duration(seconds=1, nanos=1), Duration(seconds=86_400)],
                illegal=[
                    Duration(),
                    Duration(nanos=500_000_000),
                    Duration(seconds=86_400, nanos=1),
                    Duration(seconds=-1),
                    Duration(seconds=315_576_000_000),
                ],
            ),
        ],
    )
    named = {"key": KEY, "instance": INSTANCE, "incarnation": 2}  # none that is held, so that no route goes
    yield Request(
        SERVICE,
        "DeregisterRoute",
        pb.DeregisterRouteRequest(**named),
        own_group=True,
        fields=[_group(), *_lease_fields("")],
    )
    yield Request(
        SERVICE,
        "KeepAlive",
        pb.KeepAliveRequest(leases=[pb.LeaseRef(**named)]),
        fields=[
            Field(
                "leases",
                legal=[
                    [],
                    [pb.LeaseRef(**named)] * 2,
                    [pb.LeaseRef(key=KEY, instance={"id": "a", "started_at": 1}, incarnation=1)] * MAX_RENEWALS,
                ],
                illegal=[[pb.LeaseRef()] * (MAX_RENEWALS + 1)],
            ),
            _group("leases[0].group"),
            *_lease_fields("leases[0]."),
        ],
    )
    revision = Field("min_revision", legal=[ABSENT, 0, 1])
    yield Request(
        SERVICE,
        "GetPrefillServerInfo",
        pb.GetPrefillServerInfoRequest(),
        fields=[_group(), revision],
    )
    yield Request(
        SERVICE,
        "GetRankInfo",
        pb.GetRankInfoRequest(key=KEY),
        fields=[
            _group(),
            Field("key", legal=[KEY], illegal=[ABSENT]),
            *(Field(f"key.{dimension}", legal=[0, 1, 2, UINT32_MAX]) for dimension in DIMENSIONS),
            revision,
        ],
    )
    yield Request(
        SERVICE,
        "ListGroups",
        pb.ListGroupsRequest(page_size=1),
        fields=[
            Field("page_size", legal=[0, 1, 1_000, 1_001, UINT32_MAX]),
            Field("page_token", legal=["", "ZGVmYXVsdA=="], illegal=["default", "ZGVmYXVsdA", "!", "/w=="]),
        ],
    )
    yield Request(
        SERVICE,
        "WatchTopology",
        pb.WatchTopologyRequest(),
        fields=[_group(), Field("after_revision", legal=[ABSENT, *LARGE])],
    )
    yield Request(
        SERVICE,
        "CheckCompatibility",
        pb.CheckCompatibilityRequest(decode_server=pb.DecodeServer(page_size=64, sizes=SIZES)),
        fields=[
            _group(),
            Field("decode_server", illegal=[ABSENT]),
            *_compared_fields("decode_server."),
            Field("decode_server.dsv41_spec_layout", legal=[ABSENT, SpecLayoutDeclaration(), DECLARED]),
            Field("decode_server.dsv41_spec_layout.none", legal=[NULL_VALUE], illegal=[HexOnly(1)]),
            *_sizes_fields("decode_server."),
            revision,
        ],
    )
    yield Request(
        SERVICE,
        "RegisterDpRanks",
        pb.RegisterDpRanksRequest(assignments=[pb.RoomAssignment(room=1, dp_rank=1)]),
        fields=[
            _group(),
            Field(
                "assignments",
                legal=[[]],
                illegal=[[pb.RoomAssignment()] * (MAX_ROOMS_A_CALL + 1)],
            ),
            Field("assignments[0].room", legal=ROOMS),
            Field("assignments[0].dp_rank", legal=[0, 1], illegal=[2, UINT32_MAX]),
        ],
    )
    rooms = Field("rooms", legal=[[], ROOMS, [1, 1]], illegal=[[0] * (MAX_ROOMS_A_CALL + 1)])
    yield Request(SERVICE, "QueryDpRanks", pb.QueryDpRanksRequest(rooms=[1]), fields=[_group(), rooms])
    yield Request(SERVICE, "WaitDpRanks", pb.WaitDpRanksRequest(), fields=[_group(), rooms])
    yield Request(
        SERVICE,
        "ForceEpoch",
        pb.ForceEpochRequest(group="a"),
        fields=[
            _group(),
            Field("floor", legal=[ABSENT], illegal=[pb.Instance()]),
            *_instance_fields("floor", always_there=False),
        ],
    )


def _group(path: str = "group") -> Field:
    return Field(
        path,
        legal=["", "default", "a", "0", "a-b", "a" * 63],
        illegal=["-a", "a-", "A", "a_b", "a.b", "a b", " a", "a\n", "\u00e9", "\u0430", "a" * 64],
    )


def _route_fields() -> Iterator[Field]:
    yield Field("route.key", illegal=[ABSENT])
    for dimension in DIMENSIONS:
        yield Field(f"route.key.{dimension}", legal=[0, 1], illegal=[2, UINT32_MAX])
    yield Field("route.incarnation", legal=LARGE[1:], illegal=[0])
    yield from _sizes_fields("route.")
    yield Field(
        "route.rank_ip",
        legal=["10.0.0.1", "2001:db8::1", "[2001:DB8:0::1]", "::ffff:10.0.0.1", "fe80::1", "host-1.example"],
        illegal=["", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "fe80::1%eth0", "10.0.0.01", "10.0.0.1:9000", "host_1"],
    )
    yield Field("route.rank_port", legal=[1, 65_535], illegal=[0, 65_536, UINT32_MAX])
    yield from _compared_fields("route.")
    yield from _layout_fields("route.dsv41_spec_layout")
    yield texts("route.load_balance_method", "follow_bootstrap_room")
    yield Field("route.enable_dsa_cache_layer_split", legal=[ABSENT, False, True])
    yield Field("route.enable_kv_cache_sharding", legal=[ABSENT, False, True])
    yield texts("route.decode_allocation_policy", "early")
    yield Field("route.prefill_http_port", legal=[ABSENT, 1, 65_535], illegal=[0, 65_536, UINT32_MAX])


def _compared_fields(prefix: str) -> Iterator[Field]:
    yield Field(f"{prefix}page_size", legal=[1, 64, UINT32_MAX], illegal=[0])
    yield texts(f"{prefix}kv_cache_dtype", "fp8_e4m3")
    yield texts(f"{prefix}kv_layout", "page_first")
    yield Field(
        f"{prefix}pools",
        legal=[[], [1], [2, 1], list(POOL_NAMES)],
        illegal=[[0], [24], [-1], [2**31 - 1], [1, 1], [1] * 24],
    )


def _layout_fields(path: str) -> Iterator[Field]:
    yield Field(path, legal=[ABSENT, SpecLayoutDeclaration()])
    yield Field(f"{path}.none", legal=[NULL_VALUE], illegal=[HexOnly(1)])
    layout = f"{path}.layout"
    needs = [(path, DECLARED)]
    yield Field(layout, legal=[SpecLayout()])
    yield Field(f"{layout}.num_draft_tokens", legal=[ABSENT, 0, UINT32_MAX], needs=needs)
    for name, largest in (
        ("compression_ratios", UINT32_MAX),
        ("kv_layer_ids", UINT32_MAX),
        ("kv_item_lens", UINT64_MAX),
    ):
        yield Field(f"{layout}.{name}", legal=[[], [0, largest], [1, 1]], needs=needs)
    yield Field(
        f"{layout}.compression_ratios",
        legal=[[1] * (MAX_LAYOUT_NUMBERS - 1)],  # and the one layer id
        illegal=[[1] * MAX_LAYOUT_NUMBERS],
        needs=needs,
    )
    yield Field(
        f"{layout}.state_types",
        legal=[[], ["swa", "mamba"], ["x"] * MAX_STATE_TYPES],
        illegal=[[""], ["x" * 257], ["a\n"], ["x"] * (MAX_STATE_TYPES + 1)],
        needs=needs,
    )
    yield Field(
        f"{layout}.state_item_lens",
        legal=[[], [StateItemLens()], [StateItemLens()] * MAX_STATE_TYPES],
        illegal=[[StateItemLens()] * (MAX_STATE_TYPES + 1)],
        needs=needs,
    )
    rows = [*needs, (f"{layout}.state_item_lens", [StateItemLens()])]
    yield Field(f"{layout}.state_item_lens[0].item_lens", legal=[[], list(LARGE)], needs=rows)
    yield Field(
        f"{layout}.extra_json",
        legal=[{}, {"a": "1"}, {"a": "1.0"}, {"\u9375 1": '{"a":9007199254740993}'}, dict.fromkeys(_keys(0), "1")],
        illegal=[{"": "1"}, {"a\n": "1"}, {"a": ""}, {"a": "1 "}, {"a": '{"b":1,"a":1}'}, dict.fromkeys(_keys(1), "1")],
        needs=needs,
    )


def _keys(surplus: int) -> list[str]:
    return [f"k{number:02}" for number in range(MAX_EXTRA_JSON_KEYS + surplus)]


def _sizes_fields(prefix: str) -> Iterator[Field]:
    yield Field(f"{prefix}sizes", legal=[SIZES], illegal=[ABSENT, pb.ParallelSizes(dp=256, cp=256, tp=256, pp=256)])
    for dimension in DIMENSIONS:
        most = MAX_RANKS // 8
        yield Field(f"{prefix}sizes.{dimension}", legal=[1, most], illegal=[0, most + 1, MAX_RANKS + 1, UINT32_MAX])


def _instance_fields(path: str, *, always_there: bool = True) -> Iterator[Field]:
    if always_there:
        yield Field(path, legal=[INSTANCE], illegal=[ABSENT])
    needs = [(path, INSTANCE)]
    yield Field(
        f"{path}.id",
        legal=["a", "a b~", "x" * 128],
        illegal=["", "x" * 129, "\u00e9", "a\n", "a\x7f"],
        needs=needs,
    )
    yield Field(f"{path}.started_at", legal=[1, 2**53 + 1, STARTED_AT], illegal=[0], needs=needs)


def _lease_fields(prefix: str) -> Iterator[Field]:
    yield Field(f"{prefix}key", legal=[KEY], illegal=[ABSENT])
    for dimension in DIMENSIONS:
        yield Field(f"{prefix}key.{dimension}", legal=[0, MAX_RANKS - 1], illegal=[MAX_RANKS, UINT32_MAX])
    yield from _instance_fields(f"{prefix}instance")
    yield Field(f"{prefix}incarnation", legal=LARGE[1:], illegal=[0])
