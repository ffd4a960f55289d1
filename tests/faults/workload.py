"""What clients do to one group while servers fail: registrations, swaps, deregistrations, leases, launches, reads.

Everything that is decided is decided by the seed. What really happens is not: it depends on when servers fail.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from faults.answers import Failure, instance, key_message, send
from faults.group_model import empty
from faults.histories import (
    Conflict,
    Deregister,
    Force,
    Forced,
    History,
    NeverHappened,
    Observation,
    Register,
    Removed,
    Renewal,
    Request,
    Stands,
)
from faults.linearizability import check_linearizable
from faults.processes import PATIENCE
from faults.watches import WatchRecord, compare_watches
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.topology import RankKey

CHANNEL_OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.keepalive_time_ms", 1_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
)
"""A server that went away is noticed, and found again, within a few seconds."""


@dataclass(frozen=True)
class Mix:
    """How much of what."""

    ranks: int = 4
    writers: int = 4
    readers: int = 1
    leased: float = 0.4
    """Share of the lives that have a lease."""
    ttl: float = 2.0
    pause: float = 0.2
    """Longest pause of a writer between two requests, in seconds."""


@asynccontextmanager
async def stubs_of(addresses: Sequence[str]) -> AsyncIterator[list[BootstrapServiceStub]]:
    """A stub for each server."""
    channels = [grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) for address in addresses]
    try:
        yield [BootstrapServiceStub(channel) for channel in channels]
    finally:
        for channel in channels:
            await channel.close()


class GroupRun:
    """One history in the making: the clients of one group, on all replicas."""

    def __init__(self, group: str, seed: int, stubs: Sequence[BootstrapServiceStub], mix: Mix) -> None:
        self.history = History(group, seed, time.monotonic_ns)
        self.records = [WatchRecord(f"{group} at replica {number}") for number in range(len(stubs))]
        self.surprises: list[str] = []
        """What no fault of a process, store or network explains."""
        self._group = group
        self._stubs = stubs
        self._mix = mix
        self._random = random.Random(seed)
        self._keys = [RankKey(0, 0, tp, 0) for tp in range(mix.ranks)]
        self._launch = 1
        self._lives: list[Register] = []
        """Every life that was ever registered, the newest last."""
        self._kept: dict[tuple[RankKey, int, int], Register] = {}
        """Lives whose leases are renewed."""
        self._over = False
        self._first_revision = 0

    async def run(self, until: Awaitable[object]) -> None:
        """Lets the clients work until something is over, then waits until all replicas show one last state."""
        async with asyncio.TaskGroup() as tasks:
            watchers = [
                tasks.create_task(self._watch(stub, record))
                for stub, record in zip(self._stubs, self.records, strict=True)
            ]
            await self._begin()
            working = [
                *(tasks.create_task(self._write(f"writer-{number}")) for number in range(self._mix.writers)),
                *(tasks.create_task(self._read(f"reader-{number}")) for number in range(self._mix.readers)),
                tasks.create_task(self._renew()),
            ]
            await until
            self._over = True
            await asyncio.wait(working)
            await self._settle()
            for watcher in watchers:
                watcher.cancel()

    def check(self, *, ambiguous_commits: bool) -> int:
        """Raises unless history and watches are as they must be.

        Returns:
            How many states the checker looked at.
        """
        faults = [*self.surprises, *compare_watches(self.records)]
        assert not faults, "\n".join(faults[:20])
        for record in self.records:
            self.history.observations.extend(record.observations)
        start = empty(self._first_revision - 1)
        return check_linearizable(self.history, start, ambiguous_commits=ambiguous_commits)

    # Writing

    async def _begin(self) -> None:
        """The first registration, sent until it is answered; its answer tells the first revision."""
        first = Register(self._keys[0], 1, self._new_incarnation(), 9000, 64)
        self._lives.append(first)
        while True:
            outcome = await self._do(first, "first", self._random.choice(self._stubs), timeout=2.0)
            if isinstance(outcome, Stands):
                self._first_revision = outcome.revision
                return

    async def _write(self, name: str) -> None:
        choose = random.Random(f"{self.history.seed} {name}")
        stub = choose.choice(self._stubs)
        known = 0
        while not self._over:
            if choose.random() < 0.3:
                stub = choose.choice(self._stubs)
            request = self._next_request(choose, known)
            outcome = await self._do(request, name, stub, timeout=choose.choice([0.2, 1.0, 3.0]))
            match outcome:
                case Stands() | Conflict() | Removed() | Forced():
                    known = max(known, outcome.revision)
                case None | NeverHappened():
                    stub = choose.choice(self._stubs)
                    await asyncio.sleep(self._mix.pause)  # a server that is down would be asked over and over
            await asyncio.sleep(choose.uniform(0, self._mix.pause))

    def _next_request(self, choose: random.Random, known: int) -> Request:
        recent = choose.choice(self._lives[-6:])
        match choose.choices(("new", "swap", "again", "leave", "launch", "force"), (40, 22, 12, 20, 4, 2))[0]:
            case "new":
                return self._new_life(choose, None)
            case "swap":
                return self._new_life(choose, choose.choice([known, known, known, max(0, known - 1), 0]))
            case "again":
                return recent
            case "leave":
                return Deregister(recent.key, recent.launch, recent.incarnation)
            case "launch":
                self._launch += 1
                return self._new_life(choose, None)
        return Force(choose.choice([None, self._launch, self._launch + 1]))

    def _new_life(self, choose: random.Random, expected_revision: int | None) -> Register:
        # A late rank of the launch before comes now and then.
        launch = max(1, self._launch - 1) if choose.random() < 0.1 else self._launch
        incarnation = self._new_incarnation()
        life = Register(
            choose.choice(self._keys),
            launch,
            incarnation,
            9000 + incarnation % 50_000,
            128 if choose.random() < 0.05 else 64,
            expected_revision,
            self._mix.ttl if choose.random() < self._mix.leased else None,
        )
        self._lives.append(life)
        return life

    def _new_incarnation(self) -> int:
        return len(self._lives) + 1

    async def _do(self, request: Request, client: str, stub: BootstrapServiceStub, timeout: float):
        operation = self.history.invoke(request, client)
        try:
            outcome = await send(stub, request, self._group, self._mix.ranks, timeout)
        except grpc.aio.AioRpcError as error:
            failure = Failure(error)
            operation.note = failure.text
            if failure.is_surprise:
                self.surprises.append(f"{request}: {failure.text}")
            if (found := failure.outcome()) is None:
                return None
            outcome = found
        self.history.answer(operation, outcome)
        if isinstance(request, Register) and isinstance(outcome, Stands) and request.ttl is not None:
            self._kept[request.key, request.launch, request.incarnation] = request
        return outcome

    # Leases

    async def _renew(self) -> None:
        """Keeps half of the leases alive, on one stream, at one replica after the other."""
        choose = random.Random(f"{self.history.seed} leases")
        while not self._over:
            call = choose.choice(self._stubs).KeepAlive()
            try:
                while not self._over:
                    await self._renew_all(call, choose)
                    await asyncio.sleep(self._mix.ttl / 4)
            except (TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                if isinstance(error, grpc.aio.AioRpcError) and Failure(error).is_surprise:
                    self.surprises.append(f"KeepAlive: {Failure(error).text}")
                await asyncio.sleep(0.1)
            finally:
                call.cancel()

    async def _renew_all(self, call, choose: random.Random) -> None:
        for life in [life for life in self._kept if choose.random() < 0.05]:
            del self._kept[life]  # its process died
        lives = [life for life in self._kept if life[2] % 2]
        if not lives:
            return
        invoked = time.monotonic_ns()
        leases = [
            pb.LeaseRef(group=self._group, key=key_message(key), instance=instance(launch), incarnation=incarnation)
            for key, launch, incarnation in lives
        ]
        async with asyncio.timeout(3):
            await call.write(pb.KeepAliveRequest(leases=leases))
            answer = await call.read()
        if answer is grpc.aio.EOF:
            raise asyncio.InvalidStateError("the stream ended")
        returned = time.monotonic_ns()
        if [renewal.lease for renewal in answer.renewals] != leases:
            self.surprises.append("KeepAlive answered other leases than were asked for")
        for life, renewal in zip(lives, answer.renewals, strict=True):
            if renewal.ttl.ToTimedelta().total_seconds() > 0:
                self.history.renewals.append(Renewal(*life, invoked, returned))
            else:
                self._kept.pop(life, None)

    # Reading

    async def _read(self, name: str) -> None:
        """Reads at any replica, never older than what this client saw before."""
        choose = random.Random(f"{self.history.seed} {name}")
        known = self._first_revision
        while not self._over:
            stub = choose.choice(self._stubs)
            read = choose.choice([self._read_rank, self._read_info, self._read_snapshot])
            try:
                seen = await read(stub, name, known, choose)
            except grpc.aio.AioRpcError as error:
                failure = Failure(error)
                if failure.is_surprise and failure.reason not in {"NOT_READY", "REVISION_NOT_REACHED"}:
                    self.surprises.append(f"{read.__name__}: {failure.text}")
            else:
                known = max(known, seen)
            await asyncio.sleep(choose.uniform(0, self._mix.pause))

    async def _read_rank(self, stub: BootstrapServiceStub, name: str, known: int, choose: random.Random) -> int:
        key = choose.choice(self._keys)
        request = pb.GetRankInfoRequest(group=self._group, key=key_message(key), min_revision=known)
        answer = await stub.GetRankInfo(request, timeout=1.0)
        self._not_older(name, answer.revision, known)
        self.history.observations.append(
            Observation(time.monotonic_ns(), answer.revision, answer.epoch, name, key=key, port=answer.rank_port)
        )
        return answer.revision

    async def _read_info(self, stub: BootstrapServiceStub, name: str, known: int, choose: random.Random) -> int:
        request = pb.GetPrefillServerInfoRequest(group=self._group, min_revision=known)
        answer = await stub.GetPrefillServerInfo(request, timeout=1.0)
        self._not_older(name, answer.revision, known)
        self.history.observations.append(
            Observation(
                time.monotonic_ns(), answer.revision, answer.epoch, name, ready=(self._mix.ranks, answer.info.page_size)
            )
        )
        return answer.revision

    async def _read_snapshot(self, stub: BootstrapServiceStub, name: str, known: int, choose: random.Random) -> int:
        """May be older than what the client saw: a watch takes no revision to wait for."""
        call = stub.WatchTopology(pb.WatchTopologyRequest(group=self._group), timeout=2.0)
        record = WatchRecord(name)
        record.opened()
        try:
            while not record.observations:
                message = await call.read()
                if message is grpc.aio.EOF or not message.revision:
                    return known
                record.receive(message, time.monotonic_ns())
        finally:
            call.cancel()
        self.surprises += record.faults
        self.history.observations += record.observations
        return record.revision or known

    def _not_older(self, name: str, revision: int, known: int) -> None:
        if revision < known:
            self.surprises.append(f"{name} asked for revision {known} and was answered from {revision}")

    # Watching

    async def _watch(self, stub: BootstrapServiceStub, record: WatchRecord) -> None:
        """Follows the group at one replica, again and again."""
        while True:
            call = stub.WatchTopology(pb.WatchTopologyRequest(group=self._group, after_revision=record.opened()))
            try:
                while (message := await call.read()) is not grpc.aio.EOF:
                    record.receive(message, time.monotonic_ns())
                self.surprises.append(f"{record.who}: the watch ended by itself")
            except grpc.aio.AioRpcError as error:
                if Failure(error).is_surprise:
                    self.surprises.append(f"{record.who}: {Failure(error).text}")
            finally:
                call.cancel()
            await asyncio.sleep(0.1)

    # The end

    async def _settle(self) -> None:
        """Waits until no lease is left to run out and every replica shows the last state, to watchers and callers."""
        ends_at = time.monotonic() + PATIENCE
        while not await self._settled():
            if time.monotonic() > ends_at:
                self.surprises.append(
                    f"{self._group} did not settle: replicas show {[record.revision for record in self.records]}, "
                    f"with {sorted(self.records[0].routes)} standing at the first"
                )
                return
            await asyncio.sleep(0.1)

    async def _settled(self) -> bool:
        # No life has this incarnation: it removes nothing, and its answer comes from the truth.
        nobody = Deregister(self._keys[0], self._launch, 2**63)
        told = [await self._do(nobody, "last", stub, timeout=2.0) for stub in self._stubs]
        revisions = {outcome.revision for outcome in told if isinstance(outcome, Removed)}
        revisions |= {record.revision for record in self.records}
        if len(revisions) > 1 or None in told:
            return False
        ttls = {(life.key, life.incarnation): life.ttl for life in self._lives}
        return all(ttls[RankKey(*key), route.incarnation] is None for key, route in self.records[0].routes.items())
