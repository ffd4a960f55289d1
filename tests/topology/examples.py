"""Routes, launches and groups that the topology tests are about."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from interlock.kv.v1 import pool_name_pb2
from interlock.topology import (
    DECLARED_NONE,
    Accepted,
    Instance,
    ParallelSizes,
    RankKey,
    Refused,
    RegisterRoute,
    Request,
    Route,
    SpecLayout,
    Topology,
    transition,
)

NOW = 1_700_000_000_000_000_000
"""Unix time in nanoseconds."""

FIRST_REVISION = NOW // 1_000

LAUNCH = Instance("launch-1", NOW)
LATER_LAUNCH = Instance("launch-2", NOW + 1)

LAYOUT = SpecLayout(
    num_draft_tokens=2,
    compression_ratios=(1, 4, 128),
    kv_layer_ids=(0, 1, 2),
    kv_item_lens=(1024, 2**40, 512),
    state_types=("swa", "c128_state"),
    state_item_lens=((64, 64), (2**63,)),
    extra_json=(("future", '{"a":[1,2],"b":"c d"}'),),
)
OTHER_LAYOUT = replace(LAYOUT, kv_item_lens=(1024, 2**40, 513))

KV, SWA, DRAFT = pool_name_pb2.POOL_NAME_KV, pool_name_pb2.POOL_NAME_SWA, pool_name_pb2.POOL_NAME_DRAFT


def route(tp: int = 0, **changes: Any) -> Route:
    """A rank of a group of two; everything that can be left out is left out."""
    values = {
        "key": RankKey(0, 0, tp, 0),
        "incarnation": 100,
        "sizes": ParallelSizes(1, 1, 2, 1),
        "rank_ip": f"10.0.0.{tp + 1}",
        "rank_port": 30_000,
        "page_size": 64,
    }
    return Route(**{**values, **changes})


FULL_ROUTE = route(
    kv_cache_dtype="fp8_e4m3",
    kv_layout="page_first",
    dsv41_spec_layout=LAYOUT,
    load_balance_method="minimum_tokens",
    enable_dsa_cache_layer_split=True,
    enable_kv_cache_sharding=False,
    decode_allocation_policy="late",
    pools=(KV, SWA),
    prefill_http_port=8_000,
)


def register(
    offered: Route,
    instance: Instance = LAUNCH,
    expected_revision: int | None = None,
    lease_ttl: int | None = None,
) -> RegisterRoute:
    return RegisterRoute(offered, instance, expected_revision, lease_ttl)


def accepted(topology: Topology, request: Request, now: int = NOW) -> Topology:
    """The group after a request that must be accepted."""
    outcome = transition(topology, request, now)
    assert isinstance(outcome, Accepted), outcome
    return outcome.topology


def refused(topology: Topology, request: Request, now: int = NOW) -> Refused:
    """The refusal of a request that must be refused."""
    outcome = transition(topology, request, now)
    assert isinstance(outcome, Refused), outcome
    return outcome


def group_of(*routes: Route, instance: Instance = LAUNCH) -> Topology:
    """A group in which these routes registered, in this order."""
    topology = Topology.empty("default")
    for offered in routes:
        topology = accepted(topology, register(offered, instance))
    return topology


# What the laws are tried on: few values a field and mostly the same, so that requests meet and often go together.


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * 12 + list(others))


sizes = mostly(ParallelSizes(1, 1, 2, 1), ParallelSizes(2, 1, 2, 1))
keys = st.sampled_from([RankKey(0, 0, 0, 0), RankKey(0, 0, 1, 0)] * 4 + [RankKey(1, 0, 1, 0)])
instances = mostly(LAUNCH, LATER_LAUNCH, Instance("launch-0", NOW - 1), Instance("launch-3", NOW + 2))
routes = st.builds(
    Route,
    key=keys,
    incarnation=mostly(1, 0, 2, 3),
    sizes=sizes,
    rank_ip=mostly("10.0.0.1", "10.0.0.2", "[2001:DB8::1]", "0.0.0.0"),
    rank_port=st.just(30_000),
    page_size=mostly(64, 128),
    kv_cache_dtype=mostly(None, "bf16", "fp8_e4m3"),
    kv_layout=mostly("page_first", None),
    dsv41_spec_layout=mostly(LAYOUT, None, DECLARED_NONE, OTHER_LAYOUT),
    load_balance_method=mostly(None, "follow_bootstrap_room"),
    pools=mostly((KV, SWA), (SWA, KV), (), (KV,)),
    prefill_http_port=st.sampled_from([None, 8_000, 8_001]),
)
