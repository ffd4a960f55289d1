"""Changes that the conformance suite commits: made by the rules, as the registry makes them."""

from interlock.topology import (
    DECLARED_NONE,
    DeregisterRoute,
    ExpireRoutes,
    ForceEpoch,
    ParallelSizes,
    RankKey,
    Request,
    Topology,
    transition_batch,
)
from interlock_bootstrap.registry import MAX_BATCH
from interlock_bootstrap.stores import Store
from topology.examples import FULL_ROUTE, LATER_LAUNCH, LAUNCH, NOW, register, route

FIRST, SECOND = RankKey(0, 0, 0, 0), RankKey(0, 0, 1, 0)

LIFE_OF_A_GROUP: tuple[tuple[Request, ...], ...] = (
    # Everything that a route can say, and nothing that it can leave out.
    (register(FULL_ROUTE, lease_ttl=30_000),),
    (register(FULL_ROUTE, lease_ttl=45_000),),
    (register(FULL_ROUTE),),
    (DeregisterRoute(FIRST, LAUNCH, 100),),
    # Two rows at once; one leaves without a goodbye, and comes back.
    (register(route(0, incarnation=101), lease_ttl=10_000), register(route(1), lease_ttl=10_000)),
    (ExpireRoutes(((SECOND, 100),)),),
    (register(route(1, dsv41_spec_layout=DECLARED_NONE)),),
    # A new launch of other sizes.
    (register(route(0, sizes=ParallelSizes(1, 1, 4, 1)), LATER_LAUNCH, lease_ttl=20_000),),
    # A tombstone, and what an admin makes of it.
    (DeregisterRoute(FIRST, LATER_LAUNCH, 100),),
    (ForceEpoch(LATER_LAUNCH),),
    (ForceEpoch(None),),
    (register(route(1)),),
)
"""Batches of requests, one commit each, that bring every kind of change."""


def changed(before: Topology, *requests: Request) -> Topology:
    """The group after requests of one batch."""
    return transition_batch(before, requests, NOW)[0]


async def commit(store: Store, group: str, *requests: Request) -> Topology:
    """Commits requests as one change, which must not meet another one."""
    before = await store.load(group)
    after = changed(before, *requests)
    assert await store.compare_and_swap(before, after)
    return after


def large_group(ranks: int) -> list[tuple[Request, ...]]:
    """Registrations of a group's ranks, in batches as large as they may be."""
    sizes = ParallelSizes(1, 1, ranks, 1)
    requests = [register(route(tp, sizes=sizes, rank_ip="10.0.0.1"), lease_ttl=60_000) for tp in range(ranks)]
    return [tuple(requests[at : at + MAX_BATCH]) for at in range(0, ranks, MAX_BATCH)]
