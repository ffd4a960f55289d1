"""etcd's history is compacted away under who sleeps: all still end with the true state, and nothing is invented."""

import asyncio
import time

import grpc

from bootstrap.calls import registration
from faults.clusters import Cluster
from faults.etcd_members import leader_of
from faults.processes import PATIENCE
from faults.watches import WatchRecord, compare_watches
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from scenarios.reads import snapshot

CHANGES = 400
GROUP = "compacted"


def change(number: int) -> pb.RegisterRouteRequest:
    """A registration of about 60 KB: together more than all buffers between etcd and a replica hold."""
    request = registration(0, group=GROUP, incarnation=number)
    request.route.dsv41_spec_layout.layout.kv_item_lens.extend([2**62 + number] * 3_900)
    request.route.dsv41_spec_layout.layout.extra_json["ballast"] = '"' + "x" * 16_000 + '"'
    return request


async def read_until(call, record: WatchRecord, revision: int) -> None:
    """Reads a watch until it has come to a revision; it may end by itself, if it says that etcd was lost."""
    async with asyncio.timeout(PATIENCE):
        while (record.revision or 0) < revision:
            message = await call.read()
            assert message is not grpc.aio.EOF
            record.receive(message, time.monotonic_ns())


async def test_who_slept_through_a_compaction_ends_with_the_true_state(cluster: Cluster):
    awake, asleep, other = cluster.stubs
    first = await awake.RegisterRoute(change(1))
    records = [WatchRecord(name) for name in ("awake", "at the replica that slept", "slept itself")]
    calls = [
        stub.WatchTopology(pb.WatchTopologyRequest(group=GROUP, after_revision=record.opened()))
        for stub, record in zip((awake, asleep, other), records, strict=True)
    ]
    for call, record in zip(calls, records, strict=True):
        await read_until(call, record, first.revision)
    sleeper = cluster.replicas[1]
    sleeper.stop()
    try:
        reading = asyncio.ensure_future(read_until(calls[0], records[0], first.revision + CHANGES))
        for number in range(2, CHANGES + 2):
            last = await awake.RegisterRoute(change(number))
        await reading
        leader = await leader_of(cluster.members)
        status = await leader.call("maintenance/status")
        await leader.call("kv/compaction", revision=status["header"]["revision"], physical=True)
    finally:
        sleeper.proceed()

    # The replica may have taken itself for cut off meanwhile, and told its watchers so: they come again.
    async with asyncio.timeout(PATIENCE):
        while records[1].revision != last.revision:
            try:
                await read_until(calls[1], records[1], last.revision)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.1)
                request = pb.WatchTopologyRequest(group=GROUP, after_revision=records[1].opened())
                calls[1] = asleep.WatchTopology(request)
    await read_until(calls[2], records[2], last.revision)
    for call in calls:
        call.cancel()
    assert list(compare_watches(records)) == []
    assert records[0].changes == CHANGES
    assert records[1].changes < CHANGES  # so it did not merely read on from where it was
    assert "listing all groups anew" in sleeper.log.read_text()
    truth = await snapshot(awake, GROUP)
    assert truth.state.revision == last.revision
    for record in records:
        assert list(record.routes.values()) == list(truth.routes)
    await awake.ForceEpoch(pb.ForceEpochRequest(group=GROUP))
