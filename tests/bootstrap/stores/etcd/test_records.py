"""Commits as etcd's operations: few enough for one transaction, and no more than what changed."""

from dataclasses import replace

import pytest

from bootstrap.stores.histories import LIFE_OF_A_GROUP, changed, large_group
from interlock.topology import Departed, ParallelSizes, RankKey, Topology
from interlock.topology.rank_map import RankMap
from interlock_bootstrap.registry import MAX_BATCH
from interlock_bootstrap.stores.etcd.copies import GroupCopy
from interlock_bootstrap.stores.etcd.keys import Keys
from interlock_bootstrap.stores.etcd.records import MAX_OPERATIONS, Difference, commit_operations
from interlock_bootstrap.stores.etcd.v3 import rpc_pb2 as rpc
from topology.examples import LATER_LAUNCH, LAYOUT, OTHER_LAYOUT, register, route

KEYS = Keys("/test")


def operations(before, after):
    difference = Difference.between(before, after, ())
    granted = {key: number for number, key in enumerate(difference.leased, start=1)}
    return commit_operations(KEYS, before, after, difference, granted, b"commit")


def as_kv(put, revision):
    return rpc.KeyValue(key=put.key, value=put.value, lease=put.lease, mod_revision=revision)


def take_in(copy, operations, keys, revision):
    """What etcd makes of a commit, and the watch of that; `keys` are those there are."""
    changes = []
    for operation in operations:
        if operation.HasField("request_put"):
            kv = as_kv(operation.request_put, revision)
            keys.add(kv.key)
            if kv.key == KEYS.last_commit:
                continue
            changes.append((KEYS.parse(kv.key), kv, False))
        else:
            gone = operation.request_delete_range
            for key in sorted(keys - {KEYS.last_commit}):
                if key == gone.key or gone.key <= key < gone.range_end:
                    keys.discard(key)
                    changes.append((KEYS.parse(key), rpc.KeyValue(key=key, mod_revision=revision), True))
    copy.apply(changes)


def test_a_copy_that_takes_in_commits_equals_what_was_committed():
    topology, copy, keys = Topology.empty("a"), GroupCopy("a"), set()
    for revision, requests in enumerate(LIFE_OF_A_GROUP, start=1):
        after = changed(topology, *requests)
        take_in(copy, operations(topology, after), keys, revision)
        assert copy.topology == after
        assert (copy.header_mod, copy.commit_id) == (revision, b"commit")
        assert copy.lease_ids.keys() == after.leases.keys()
        assert (copy.lapsed, copy.miscounted) == (set(), False)
        topology = after


def full_batch(sizes, **values):
    """As many registrations as share a commit, each of everything that makes one large."""
    long = "x" * 256
    return [
        register(
            route(
                tp,
                sizes=sizes,
                rank_ip=".".join(["h" * 62] * 4),
                kv_cache_dtype=long,
                kv_layout=long,
                load_balance_method=long,
                decode_allocation_policy=long,
                **values,
            ),
            LATER_LAUNCH,
            lease_ttl=60_000,
        )
        for tp in range(MAX_BATCH)
    ]


def test_the_largest_commits_fit_one_transaction():
    sizes = ParallelSizes(1, 1, 1_000, 1)
    before = changed(Topology.empty("a"), register(route(0, dsv41_spec_layout=LAYOUT), lease_ttl=1_000))
    layout = replace(LAYOUT, extra_json=(("key", '"' + "x" * 16_000 + '"'),))
    new_epoch = changed(before, *full_batch(sizes, dsv41_spec_layout=layout))
    again = changed(new_epoch, *full_batch(sizes, dsv41_spec_layout=OTHER_LAYOUT, incarnation=101))
    for made in (operations(before, new_epoch), operations(new_epoch, again)):
        assert len(made) <= MAX_OPERATIONS
        assert rpc.TxnRequest(success=made).ByteSize() < 1_000_000  # etcd takes 1.5 MiB


def test_lives_that_are_forgotten_wait_for_a_commit_that_has_room_for_them():
    before = changed(Topology.empty("a"), register(route(0)))
    lives = RankMap((RankKey(0, 0, 0, pp), Departed(1, deregistered=True)) for pp in range(1, 1_000))
    before = replace(before, departed=lives)
    after = replace(changed(before, register(route(1))), departed=RankMap())
    made = operations(before, after)
    assert len(made) == MAX_OPERATIONS
    assert sum(operation.HasField("request_delete_range") for operation in made) == MAX_OPERATIONS - 3


@pytest.mark.parametrize("ranks", [64, 8_192])
def test_a_commit_costs_what_it_changes_whatever_the_size_of_its_group(ranks):
    topology = Topology.empty("a")
    for requests in large_group(ranks):
        topology = changed(topology, *requests)
    sizes = ParallelSizes(1, 1, ranks, 1)
    after = changed(topology, register(route(3, sizes=sizes, incarnation=101), lease_ttl=1_000))
    made = operations(topology, after)
    assert [operation.request_put.key for operation in made] == [
        KEYS.last_commit,
        KEYS.header("a"),
        KEYS.rank("a", 1, RankKey(0, 0, 3, 0)),
        KEYS.lease("a", 1, RankKey(0, 0, 3, 0)),
    ]
    assert rpc.TxnRequest(success=made).ByteSize() < 600
