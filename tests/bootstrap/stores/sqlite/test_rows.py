"""The rows of the file follow a group through whatever the rules make of it."""

import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.topology import (
    Departed,
    DeregisterRoute,
    ExpireRoutes,
    ForceEpoch,
    RankKey,
    RankMap,
    RegisterRoute,
    Topology,
    transition_batch,
)
from interlock_bootstrap.stores.sqlite.database import Database, make_database
from interlock_bootstrap.stores.sqlite.rows import change_statements, read_contents
from topology.examples import NOW, instances, keys, mostly, register, route, routes

requests = st.one_of(
    st.builds(RegisterRoute, routes, instances, lease_ttl=st.sampled_from([None, 1_000, 30_000])),
    st.builds(DeregisterRoute, keys, instances, mostly(1, 2)),
    st.builds(ExpireRoutes, st.lists(st.tuples(keys, mostly(1, 2)), max_size=2).map(tuple)),
    st.builds(ForceEpoch, instances),
)


@settings(max_examples=60)
@given(st.lists(st.lists(requests, min_size=1, max_size=3), min_size=3, max_size=12))
def test_after_every_change_the_file_holds_the_group_as_it_is(batches):
    group = Topology.empty("a")
    bystander = transition_batch(Topology.empty("a-b"), [register(route(), lease_ttl=1_000)], NOW)[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bootstrap.db"
        make_database(path)
        with closing(Database(path)) as database:
            database.write(change_statements(Topology.empty("a-b"), bystander))
            for batch in batches:
                before, group = group, transition_batch(group, batch, NOW)[0]
                database.write(change_statements(before, group))
                held = {"a": group, "a-b": bystander} if group.revision else {"a-b": bystander}
                assert read_contents(database).topologies == held


def test_a_departed_life_that_the_group_forgot_leaves_the_file(tmp_path):
    path = tmp_path / "bootstrap.db"
    make_database(path)
    empty, first = Topology.empty("a"), RankMap([(RankKey(0, 0, 0, 0), Departed(1, True))])
    group = replace(empty, revision=1, departed=first.changed(put={RankKey(0, 0, 1, 0): Departed(2**64 - 1, False)}))
    forgetful = replace(group, revision=2, departed=first)
    with closing(Database(path)) as database:
        for before, after in ((empty, group), (group, forgetful)):
            database.write(change_statements(before, after))
            assert read_contents(database).topologies == {"a": after}
