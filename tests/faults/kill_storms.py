"""`kill -9` of the server in the middle of a storm of registrations, and what must be there afterwards."""

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass

import grpc

from faults.answers import Failure, registration, send
from faults.group_model import empty
from faults.histories import History, Mismatch, Outcome, Register, Stands
from faults.linearizability import check_linearizable
from faults.processes import PATIENCE, Replica
from faults.watches import WatchRecord, compare_watches
from faults.workload import stubs_of
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.topology import RankKey

RANKS = 48


@dataclass
class Aftermath:
    """What one storm left."""

    acknowledged: int
    refused: int
    unknown: int
    survived: int
    """Unknown ones that turned out to stand."""
    rows: set[int]
    """TP ranks that stand after everybody who got no answer asked again."""


async def storm(replica: Replica, number: int, seed: int) -> Aftermath:
    """Registers ranks of a new group from many clients, kills the server after some answers, starts it again, looks.

    A part of the ranks has another page size and is refused. Every acknowledged row must be there, as it was sent, and
    none that was refused; a watcher of before and one of after must agree.
    """
    choose = random.Random(f"{seed} storm {number}")
    group = f"storm-{seed}-{number}"
    history = History(group, seed, time.monotonic_ns)
    before, after = WatchRecord("before the kill"), WatchRecord("after the kill")
    keys = [RankKey(0, 0, tp, 0) for tp in range(RANKS)]
    choose.shuffle(keys)
    requests = [Register(key, 1, 1 + key.tp, 9000 + key.tp, 64) for key in keys]
    first, others = requests[0], requests[1:]
    wrong = {choose.randrange(len(others)) for _ in range(6)}
    others = [
        Register(each.key, 1, each.incarnation, each.port, 128) if at in wrong else each
        for at, each in enumerate(others)
    ]
    answers_left = choose.randint(1, len(others))

    async with stubs_of([replica.address]) as (stub,):
        await _register(stub, history, first, group)
        watching = asyncio.ensure_future(_watch(stub, group, before))

        async def register(request: Register) -> None:
            nonlocal answers_left
            if await _register(stub, history, request, group):
                answers_left -= 1
                if answers_left == 0:
                    replica.kill()

        await asyncio.gather(*map(register, others))
        await watching

    await replica.serve()
    async with stubs_of([replica.address]) as (stub,):
        call = stub.WatchTopology(pb.WatchTopologyRequest(group=group, after_revision=after.opened()))
        async with asyncio.timeout(PATIENCE):
            while not after.observations:
                after.receive(await call.read(), time.monotonic_ns())
        rows = dict(after.routes)
        standing = {key.tp for key in rows} | {request.key.tp for request in await _again(stub, history, group)}
        call.cancel()
    faults = list(compare_watches([before, after]))
    assert not faults, "\n".join(faults)
    history.observations += before.observations + after.observations
    start = next(each.outcome.revision for each in history.operations if isinstance(each.outcome, Stands))
    check_linearizable(history, empty(start - 1))
    return _aftermath(history, group, rows, standing)


def _aftermath(history: History, group: str, rows: dict[RankKey, pb.Route], standing: set[int]) -> Aftermath:
    storm_operations = [each for each in history.operations if each.client == "storm"]
    acknowledged = [each.request for each in storm_operations if isinstance(each.outcome, Stands)]
    refused = [each.request for each in storm_operations if isinstance(each.outcome, Mismatch)]
    unknown = [each.request for each in storm_operations if each.outcome is None]
    for request in acknowledged:
        sent = registration(request, group, RANKS).route
        assert rows.get(request.key) == sent, f"{group}: {request} was acknowledged; there is {rows.get(request.key)}"
    for request in refused:
        assert request.key not in rows, f"{group}: {request} was refused, and is there"
    survived = rows.keys() - {request.key for request in acknowledged}
    assert survived <= {request.key for request in unknown}
    return Aftermath(len(acknowledged), len(refused), len(unknown), len(survived), standing)


async def _again(stub: BootstrapServiceStub, history: History, group: str) -> list[Register]:
    """Whoever got no answer asks again: what stands, stands; the others come. Gives those that stand."""
    stand = []
    lost = [each.request for each in history.operations if each.outcome is None]
    for request in lost:
        operation = history.invoke(request, "again")
        outcome = await _told(stub, request, group)
        assert isinstance(outcome, Stands | Mismatch), f"{request}: {outcome}"
        history.answer(operation, outcome)
        if isinstance(outcome, Stands):
            stand.append(request)
    return stand


async def _told(stub: BootstrapServiceStub, request: Register, group: str) -> Outcome | Failure:
    try:
        return await send(stub, request, group, RANKS, PATIENCE)
    except grpc.aio.AioRpcError as error:
        failure = Failure(error)
        return failure.outcome() or failure


async def _register(stub: BootstrapServiceStub, history: History, request: Register, group: str) -> bool:
    """Whether it was answered."""
    operation = history.invoke(request, "storm")
    outcome = await _told(stub, request, group)
    if isinstance(outcome, Failure):
        operation.note = outcome.text
        assert not outcome.is_surprise, outcome.text
        return False
    history.answer(operation, outcome)
    return True


async def _watch(stub: BootstrapServiceStub, group: str, record: WatchRecord) -> None:
    """Follows until the server dies."""
    call = stub.WatchTopology(pb.WatchTopologyRequest(group=group, after_revision=record.opened()))
    with suppress(grpc.aio.AioRpcError):
        while (message := await call.read()) is not grpc.aio.EOF:
            record.receive(message, time.monotonic_ns())
    assert await call.code() is grpc.StatusCode.UNAVAILABLE
