"""The client of etcd's RPCs, on a real etcd."""

import asyncio

import pytest

from bootstrap.stores.etcd.replicas import PATIENCE, fresh_prefix
from etcd_cluster import etcd_cluster, free_ports, shared_cluster
from interlock_bootstrap.stores.etcd.client import (
    LEASE_GRANT,
    LEASE_REVOKE,
    RANGE,
    TXN,
    EtcdClient,
    EtcdRefusedError,
    EtcdUnavailableError,
    WatchCompactedError,
    full_jitter,
)
from interlock_bootstrap.stores.etcd.settings import EtcdSettings
from interlock_bootstrap.stores.etcd.v3 import rpc_pb2 as rpc
from tcp_proxy import tcp_proxy

EVERYTHING_AFTER = b"\0"


@pytest.fixture
async def client():
    client = EtcdClient(EtcdSettings(endpoints=shared_cluster().endpoints))
    yield client
    await client.close()


@pytest.fixture
def prefix():
    return fresh_prefix().encode()


def put(key, value=b"", lease=0):
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease))


def delete(key):
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))


def mod_is(key, revision):
    return rpc.Compare(target=rpc.Compare.COMPARE_TARGET_MOD, key=key, mod_revision=revision)


async def events_of(stream, count):
    """The first events of a watch: type, key, value, lease."""
    events = []
    while len(events) < count:
        response = await stream.read(PATIENCE)
        events += [(event.type, event.kv.key, event.kv.value, event.kv.lease) for event in response.events]
    return events


async def test_a_transaction_does_one_thing_or_the_other(client, prefix):
    request = rpc.TxnRequest(
        compare=[mod_is(prefix, 0)],
        success=[put(prefix, b"first"), put(prefix + b"/2", b"second")],
        failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=prefix))],
    )
    first = await client.call(TXN, request)
    assert (first.succeeded, len(first.responses)) == (True, 2)
    second = await client.call(TXN, request)
    assert not second.succeeded
    (found,) = second.responses[0].response_range.kvs
    assert (found.key, found.value, found.version) == (prefix, b"first", 1)
    assert found.mod_revision == found.create_revision == first.header.revision


async def test_a_range_comes_in_pages_as_of_one_revision(client, prefix):
    written = await client.call(TXN, rpc.TxnRequest(success=[put(prefix + b"/%d" % n, b"%d" % n) for n in range(5)]))
    await client.call(TXN, rpc.TxnRequest(success=[delete(prefix + b"/4")]))
    page = rpc.RangeRequest(key=prefix + b"/", range_end=prefix + b"0", limit=2, revision=written.header.revision)
    first = await client.call(RANGE, page)
    assert ([kv.value for kv in first.kvs], first.more, first.count) == ([b"0", b"1"], True, 5)
    page.key = first.kvs[-1].key + EVERYTHING_AFTER
    page.limit = 10
    second = await client.call(RANGE, page)
    assert ([kv.value for kv in second.kvs], second.more) == ([b"2", b"3", b"4"], False)
    count = await client.call(RANGE, rpc.RangeRequest(key=prefix + b"/", range_end=prefix + b"0", count_only=True))
    assert (count.count, len(count.kvs)) == (4, 0)


async def test_a_watch_gives_every_event_from_its_revision_on_and_tells_how_far_it_came(client, prefix):
    lease = (await client.call(LEASE_GRANT, rpc.LeaseGrantRequest(ttl=60))).id
    first = await client.call(TXN, rpc.TxnRequest(success=[put(prefix + b"/a", b"1", lease)]))
    await client.call(TXN, rpc.TxnRequest(success=[put(prefix + b"0", b"outside")]))
    stream = await client.watch(prefix + b"/", prefix + b"0", first.header.revision)
    try:
        await client.call(TXN, rpc.TxnRequest(success=[put(prefix + b"/a", b"2"), put(prefix + b"/b", b"3")]))
        last = await client.call(TXN, rpc.TxnRequest(success=[delete(prefix + b"/a")]))
        put_, deleted = rpc.Event.EVENT_TYPE_PUT, rpc.Event.EVENT_TYPE_DELETE
        assert await events_of(stream, 4) == [
            (put_, prefix + b"/a", b"1", lease),
            (put_, prefix + b"/a", b"2", 0),
            (put_, prefix + b"/b", b"3", 0),
            (deleted, prefix + b"/a", b"", 0),
        ]
        await stream.request_progress()
        progress = await stream.read(PATIENCE)
        assert (list(progress.events), progress.watch_id) == ([], -1)
        assert progress.header.revision >= last.header.revision
    finally:
        stream.cancel()


async def test_events_too_large_for_one_message_come_whole(client, prefix):
    start = (await client.call(RANGE, rpc.RangeRequest(key=prefix))).header.revision + 1
    for number in range(8):
        await client.call(TXN, rpc.TxnRequest(success=[put(prefix + b"/%d" % number, b"x" * 1_000_000)]))
    stream = await client.watch(prefix + b"/", prefix + b"0", start)
    try:
        assert [(key, len(value)) for _, key, value, _ in await events_of(stream, 8)] == [
            (prefix + b"/%d" % number, 1_000_000) for number in range(8)
        ]
    finally:
        stream.cancel()


async def test_a_watch_from_a_compacted_revision_says_so(client, prefix):
    first = await client.call(TXN, rpc.TxnRequest(success=[put(prefix, b"1")]))
    await client.call(TXN, rpc.TxnRequest(success=[put(prefix, b"2")]))
    shared_cluster().compact()
    stream = await client.watch(prefix, prefix + b"0", first.header.revision)
    with pytest.raises(WatchCompactedError):
        await stream.read(PATIENCE)
    stream.cancel()


async def test_leases_are_renewed_together_and_one_that_is_none_has_no_time(client):
    leases = [(await client.call(LEASE_GRANT, rpc.LeaseGrantRequest(ttl=60))).id for _ in range(20)]
    await client.call(LEASE_REVOKE, rpc.LeaseRevokeRequest(id=leases[7]))
    ttls = await client.keep_alive(leases)
    assert ttls == {lease: 0 if lease == leases[7] else 60 for lease in leases}


async def test_a_refusal_is_not_tried_again(client, prefix):
    with pytest.raises(EtcdRefusedError, match="requested lease not found"):
        await client.call(TXN, rpc.TxnRequest(success=[put(prefix, b"", lease=12345)]))
    with pytest.raises(EtcdRefusedError, match="duplicate key"):
        await client.call(TXN, rpc.TxnRequest(success=[put(prefix), put(prefix)]))


async def test_a_member_that_does_not_listen_is_left_for_the_next(prefix):
    dead = [f"127.0.0.1:{port}" for port in free_ports(3)]
    client = EtcdClient(EtcdSettings(endpoints=",".join([*dead, shared_cluster().endpoints])))
    try:
        await client.call(TXN, rpc.TxnRequest(success=[put(prefix, b"here")]))
        assert (await client.attempt(RANGE, rpc.RangeRequest(key=prefix))).kvs[0].value == b"here"
    finally:
        await client.close()


async def test_a_member_that_stands_still_is_left_for_the_next(prefix):
    async with tcp_proxy(shared_cluster().members[0].port) as proxy:
        proxy.freeze()
        settings = EtcdSettings(
            endpoints=f"127.0.0.1:{proxy.port},{shared_cluster().endpoints}", attempt_timeout_seconds=0.2
        )
        client = EtcdClient(settings)
        try:
            assert (await client.call(RANGE, rpc.RangeRequest(key=prefix))).count == 0
        finally:
            await client.close()


async def test_a_watch_that_falls_silent_is_given_up(prefix):
    async with tcp_proxy(shared_cluster().members[0].port) as proxy:
        client = EtcdClient(EtcdSettings(endpoints=f"127.0.0.1:{proxy.port}"))
        try:
            stream = await client.watch(prefix, prefix + b"0", 0)
            proxy.freeze()
            await stream.request_progress()
            with pytest.raises(EtcdUnavailableError, match="silent"):
                await stream.read(0.1)
            with pytest.raises(EtcdUnavailableError):
                await stream.request_progress()
        finally:
            await client.close()


async def test_a_watch_ends_when_its_member_dies(prefix):
    with etcd_cluster() as cluster:
        client = EtcdClient(EtcdSettings(endpoints=cluster.endpoints))
        try:
            stream = await client.watch(prefix, prefix + b"0", 0)
            reading = asyncio.create_task(stream.read(PATIENCE))
            await asyncio.sleep(0)  # it waits
            cluster.members[0].kill()
            with pytest.raises(EtcdUnavailableError):
                await reading
        finally:
            await client.close()


def test_pauses_are_drawn_from_a_bound_that_doubles():
    for attempts, bound in ((0, 0.02), (1, 0.04), (3, 0.16), (6, 1.0), (1_000, 1.0)):
        pauses = [full_jitter(attempts) for _ in range(500)]
        assert 0 <= min(pauses) < bound / 4
        assert bound * 3 / 4 < max(pauses) <= bound
