"""The mapping of live routes: a mapping that never changes, equal to any other of the same routes."""

import pytest

from interlock.topology import ParallelSizes, RankKey, RegisterRoute, Routes, Topology, shared_values
from topology.examples import LAUNCH, LAYOUT, accepted, route

FIRST, SECOND = RankKey(0, 0, 0, 0), RankKey(0, 0, 1, 0)


def test_routes_are_a_mapping_by_key():
    routes = Routes([route(0), route(1)])
    assert routes[SECOND] == route(1)
    assert routes.get(RankKey(1, 1, 1, 1)) is None
    assert list(routes) == [FIRST, SECOND]
    assert list(routes.values()) == [route(0), route(1)]
    assert list(routes.items()) == [(FIRST, route(0)), (SECOND, route(1))]
    assert FIRST in routes
    assert RankKey(1, 1, 1, 1) not in routes
    assert len(routes) == 2
    assert repr(routes) == f"Routes([{route(0)!r}, {route(1)!r}])"


def test_routes_equal_any_mapping_of_the_same_routes_in_any_order():
    routes = Routes([route(0), route(1)])
    assert routes == Routes([route(1), route(0)]) == {FIRST: route(0), SECOND: route(1)}
    assert routes != Routes([route(0)])
    assert routes != {FIRST: route(0), SECOND: route(0)}
    assert routes != "routes"


def test_a_change_makes_new_routes_and_leaves_the_old():
    routes = Routes([route(0)])
    changed = routes.changed(removed=[FIRST], registered=[route(1)])
    assert dict(changed) == {SECOND: route(1)}
    assert dict(routes) == {FIRST: route(0)}


def test_routes_cannot_be_changed_in_place():
    routes = Routes([route(0)])
    with pytest.raises(TypeError):
        routes[FIRST] = route(1)
    with pytest.raises(TypeError):
        del routes[FIRST]
    with pytest.raises(TypeError):
        hash(routes)


def test_the_contract_leaves_out_a_route_that_is_being_replaced():
    routes = Routes([route(0), route(1, dsv41_spec_layout=LAYOUT)])
    assert routes.contract() == shared_values(route(1, dsv41_spec_layout=LAYOUT))
    assert routes.contract(without=SECOND) == shared_values(route(0))
    assert routes.contract(without=RankKey(1, 1, 1, 1)) == routes.contract()
    assert Routes([route(0)]).contract(without=FIRST) is None


def test_a_group_of_8192_ranks_keeps_an_index_of_one_contract_not_of_8192():
    sizes = ParallelSizes(8, 1, 128, 8)
    topology = Topology.empty("default")
    for key in sizes.rank_keys():
        topology = accepted(topology, RegisterRoute(route(key=key, sizes=sizes), LAUNCH))
    assert topology.ready
    assert topology.registered == topology.expected == 8_192
    ((shared, keys),) = topology.routes._variants
    assert shared == shared_values(route(sizes=sizes))
    assert keys.keys() == topology.routes.keys()
