"""The registry on a store that the tests hold up, outrun and cut off: batches, lost races, lost answers, expiry."""

import asyncio
import time
from collections import deque
from contextlib import ExitStack

import pytest

from interlock.serving import Refusal
from interlock.topology import DeregisterRoute, ForceEpoch, ParallelSizes, RankKey, transition
from interlock_bootstrap import registry as registry_module
from interlock_bootstrap.leases import LeaseWheel
from interlock_bootstrap.registry import Registry
from interlock_bootstrap.stores import CommitUnknownError, Lease, StoreFullError, StoreUnavailableError
from interlock_bootstrap.stores.memory import MemoryStore
from topology.examples import LATER_LAUNCH, LAUNCH, NOW, register, route

FIRST, SECOND = RankKey(0, 0, 0, 0), RankKey(0, 0, 1, 0)


class ScriptedStore(MemoryStore):
    """A memory store of which each commit goes as the test wrote it, and those not written as they should."""

    def __init__(self):
        super().__init__(watch_buffer=256)
        self.script = deque()
        self.swaps = []

    async def compare_and_swap(self, before, after):
        self.swaps.append((before, after))
        if self.script:
            return await self.script.popleft()(before, after)
        return await super().compare_and_swap(before, after)

    async def really(self, before, after):
        return await super().compare_and_swap(before, after)

    def outrun_by(self, request):
        """Somebody else commits a request first."""

        async def swap(before, after):
            theirs = transition(await self.load(before.group), request, NOW).topology
            assert await self.really(await self.load(before.group), theirs)
            return await self.really(before, after)

        self.script.append(swap)

    def lose_answer(self, *, committed):
        async def swap(before, after):
            assert not committed or await self.really(before, after)
            raise CommitUnknownError

        self.script.append(swap)

    def fail(self, error):
        async def swap(before, after):
            raise error

        self.script.append(swap)

    def hold_up(self):
        """The next commit waits until the event that this gives is set."""
        going_on = asyncio.Event()

        async def swap(before, after):
            await going_on.wait()
            return await self.really(before, after)

        self.script.append(swap)
        return going_on


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def store():
    return ScriptedStore()


@pytest.fixture
async def registry(store, clock):
    registry = Registry(store, lambda: NOW, 10, LeaseWheel(clock))
    yield registry
    await registry.close()


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0)


def refusal_reason(outcome):
    assert isinstance(outcome, Refusal), outcome
    return outcome.reason


async def held_up(registry, store, *requests):
    """Starts requests while a commit of their group is under way; gives their tasks, and what ends the commit."""
    going_on = store.hold_up()
    first = asyncio.ensure_future(registry.change("a", register(route(0, incarnation=1))))
    await until(lambda: store.swaps)
    tasks = [asyncio.ensure_future(registry.change("a", request)) for request in requests]
    await asyncio.sleep(0)
    return first, tasks, going_on


async def test_requests_that_come_during_a_commit_share_the_next_one(registry, store):
    first, tasks, going_on = await held_up(
        registry, store, register(route(1)), register(route(0, incarnation=0)), DeregisterRoute(SECOND, LAUNCH, 99)
    )
    going_on.set()
    revision = (await first).topology.revision
    registered, refused, not_held = await asyncio.gather(*tasks, return_exceptions=True)
    assert registered.topology.revision == revision + 1
    assert refusal_reason(refused) == "INVALID_FIELD"
    assert (not_held.topology.revision, not_held.removed_routes) == (revision + 1, 0)
    assert [after.revision for _, after in store.swaps] == [revision, revision + 1, revision + 1]


@pytest.mark.parametrize(
    ("requests", "batches"),
    [
        ([register(route(1)), DeregisterRoute(FIRST, LAUNCH, 1)], [2]),
        ([register(route(1)), register(route(1, incarnation=101))], [1, 1]),
        ([register(route(1)), DeregisterRoute(SECOND, LAUNCH, 100)], [1, 1]),
        ([register(route(1)), register(route(0), LATER_LAUNCH)], [1, 1]),
        ([register(route(1), expected_revision=5), register(route(0, incarnation=2))], [2]),
        ([register(route(0, incarnation=2)), register(route(1), expected_revision=5)], [1, 1]),
        ([register(route(0, incarnation=2)), ForceEpoch(None), register(route(1))], [1, 1, 1]),
        ([ForceEpoch(None), ForceEpoch(None)], [1, 1]),
    ],
)
async def test_only_requests_that_go_together_share_a_commit(registry, store, monkeypatch, requests, batches):
    sizes = []
    transition_batch = registry_module.transition_batch
    monkeypatch.setattr(
        registry_module,
        "transition_batch",
        lambda topology, batch, now: sizes.append(len(batch)) or transition_batch(topology, batch, now),
    )
    first, tasks, going_on = await held_up(registry, store, *requests)
    going_on.set()
    await first
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sizes == [1, *batches]


async def test_a_commit_has_at_most_sixty_requests(registry, store):
    rows = [route(tp, sizes=ParallelSizes(1, 1, 250, 1)) for tp in range(250)]
    answers = await asyncio.gather(*(registry.change("a", register(row)) for row in rows))
    assert [len(after.routes) for _, after in store.swaps] == [60, 120, 180, 240, 250]
    assert answers[-1].topology.ready


async def test_the_loser_of_a_race_applies_the_rules_again(registry, store):
    store.outrun_by(register(route(1, page_size=128)))
    with pytest.raises(Refusal) as refused:
        await registry.change("a", register(route(0)))
    assert refused.value.reason == "CONTRACT_MISMATCH"
    store.outrun_by(register(route(1, page_size=128, incarnation=101)))
    answer = await registry.change("a", register(route(0, page_size=128)))
    assert answer.topology.ready
    assert await store.load("a") == answer.topology


async def test_a_refusal_is_answered_only_once_its_topology_is_confirmed(registry, store):
    await registry.change("a", register(route(0)))
    store.outrun_by(DeregisterRoute(FIRST, LAUNCH, 100))
    answer = await registry.change("a", register(route(1, page_size=128)))
    assert dict(answer.topology.routes) == {SECOND: route(1, page_size=128)}


async def test_an_equal_row_is_answered_only_once_it_is_confirmed(registry, store):
    await registry.change("a", register(route(0)))
    store.outrun_by(register(route(0, incarnation=101)))
    with pytest.raises(Refusal) as refused:
        await registry.change("a", register(route(0)))
    assert refused.value.reason == "STALE_INCARNATION"


async def test_a_race_that_is_lost_over_and_over_ends_in_a_refusal(registry, store, monkeypatch):
    monkeypatch.setattr(registry_module, "_LONGEST_BACKOFF", 0.0)
    for life in range(registry_module.MAX_ATTEMPTS):
        store.outrun_by(register(route(1, incarnation=life + 1)))
    with pytest.raises(Refusal) as refused:
        await registry.change("a", register(route(0)))
    assert refused.value.reason == "STORE_CONTENDED"
    assert FIRST not in (await store.load("a")).routes
    assert (await registry.change("a", register(route(0)))).topology.ready


@pytest.mark.parametrize("committed", [True, False])
async def test_a_registration_whose_answer_was_lost_stands_once(registry, store, committed):
    store.lose_answer(committed=committed)
    answer = await registry.change("a", register(route(0)))
    assert await store.load("a") == answer.topology
    assert answer.topology.revision == NOW // 1_000
    assert dict(answer.topology.routes) == {FIRST: route(0)}


async def test_a_registration_whose_answer_was_lost_and_that_another_change_followed_stands_once(registry, store):
    async def commit_and_be_followed(before, after):
        assert await store.really(before, after)
        assert await store.really(after, transition(after, register(route(1)), NOW).topology)
        raise CommitUnknownError

    store.script.append(commit_and_be_followed)
    answer = await registry.change("a", register(route(0), expected_revision=0))
    assert answer.topology.ready
    assert answer.topology.revision == NOW // 1_000 + 1


@pytest.mark.parametrize("committed", [True, False])
async def test_a_deregistration_whose_answer_was_lost_counts_as_removed(registry, store, committed):
    await registry.change("a", register(route(0)))
    store.lose_answer(committed=committed)
    answer = await registry.change("a", DeregisterRoute(FIRST, LAUNCH, 100))
    assert answer.removed_routes == 1
    assert dict((await store.load("a")).routes) == {}


async def test_a_deregistration_whose_answer_was_lost_and_that_another_change_followed_counts_as_removed(
    registry, store
):
    await registry.change("a", register(route(0)))

    async def commit_and_be_followed(before, after):
        assert await store.really(before, after)
        assert await store.really(after, transition(after, register(route(1)), NOW).topology)
        raise CommitUnknownError

    store.script.append(commit_and_be_followed)
    answer = await registry.change("a", DeregisterRoute(FIRST, LAUNCH, 100))
    assert answer.removed_routes == 1
    assert (await registry.change("a", DeregisterRoute(FIRST, LAUNCH, 100))).removed_routes == 0


async def test_a_forced_epoch_whose_answer_was_lost_is_forced_once(registry, store):
    await registry.change("a", register(route(0)))
    store.lose_answer(committed=True)
    answer = await registry.change("a", ForceEpoch(None))
    assert (answer.topology.epoch, answer.removed_routes) == (2, 1)
    assert await store.load("a") == answer.topology


async def test_a_forced_epoch_whose_answer_was_lost_is_not_forced_on_who_registered_since(registry, store):
    await registry.change("a", register(route(0)))

    async def commit_and_be_followed(before, after):
        assert await store.really(before, after)
        assert await store.really(after, transition(after, register(route(1)), NOW).topology)
        raise CommitUnknownError

    store.script.append(commit_and_be_followed)
    with pytest.raises(Refusal) as unknown:
        await registry.change("a", ForceEpoch(None))
    assert unknown.value.reason == "STORE_UNAVAILABLE"
    assert dict((await store.load("a")).routes) == {SECOND: route(1)}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreUnavailableError("no answer for 5 s"), "STORE_UNAVAILABLE"),
        (StoreFullError("no space left"), "STORE_FULL"),
    ],
)
async def test_a_store_that_cannot_commit_is_told_of_and_the_next_request_goes_on(registry, store, error, reason):
    store.fail(error)
    outcomes = await asyncio.gather(
        *(registry.change("a", register(route(tp))) for tp in range(2)), return_exceptions=True
    )
    assert [refusal_reason(outcome) for outcome in outcomes] == [reason, reason]
    assert (await store.load("a")).revision == 0
    assert (await registry.change("a", register(route(0)))).topology.registered == 1


async def test_a_store_that_filled_up_after_an_answer_was_lost_does_not_say_that_nothing_changed(registry, store):
    store.lose_answer(committed=False)
    store.fail(StoreFullError("no space left"))
    with pytest.raises(Refusal) as unknown:
        await registry.change("a", register(route(0)))
    assert unknown.value.reason == "STORE_UNAVAILABLE"


async def test_a_lease_of_a_commit_that_nobody_heard_of_runs_once_the_store_is_back(registry, store, clock):
    store.lose_answer(committed=True)
    unreachable = StoreUnavailableError("no answer for 5 s")
    load = store.load

    async def load_nothing_fresh(group, *, fresh=False):
        if fresh:
            raise unreachable
        return await load(group)

    store.load = load_nothing_fresh
    with pytest.raises(StoreUnavailableError):
        await registry.change("a", register(route(0), lease_ttl=5_000))
    store.load = load
    lease = Lease(FIRST, LAUNCH, 100)
    assert await registry.renew("a", [lease]) == [0]

    registry.store_is_back()
    renewed = []

    def is_renewed():
        renewed[:] = registry._wheel.renew("a", [lease])
        return renewed == [5_000]

    await until(is_renewed)


async def test_a_caller_that_goes_away_takes_nobody_along(registry, store):
    first, (second, third), going_on = await held_up(registry, store, register(route(1)), register(route(0)))
    first.cancel()
    second.cancel()
    going_on.set()
    answer = await third
    assert dict(answer.topology.routes) == {FIRST: route(0)}, "the first was under way; the second had not begun"
    assert answer.topology.revision == NOW // 1_000 + 1


async def test_groups_do_not_wait_for_each_other(registry, store):
    _, _, going_on = await held_up(registry, store)
    assert (await registry.change("b", register(route(0)))).topology.group == "b"
    going_on.set()


async def test_new_groups_that_come_at_once_are_counted(store, clock):
    registry = Registry(store, lambda: NOW, 3, LeaseWheel(clock))
    outcomes = await asyncio.gather(
        *(registry.change(f"group-{number}", register(route(0))) for number in range(6)), return_exceptions=True
    )
    assert sum(isinstance(outcome, Refusal) and outcome.reason == "TOO_MANY_GROUPS" for outcome in outcomes) == 3
    assert await store.group_count() == 3


async def test_requests_gather_for_as_long_as_a_commit_keeps_the_server_telling_watchers(registry):
    with ExitStack() as watchers:
        for _ in range(64):
            watchers.enter_context(registry.follow("a"))
        assert registry._gathering("a", crowd=False) == pytest.approx(0.00192)
        assert registry._gathering("a", crowd=True) == pytest.approx(0.0384)
        assert registry._gathering("b", crowd=True) == 0
        for _ in range(1_000):
            watchers.enter_context(registry.follow("a"))
        assert registry._gathering("a", crowd=True) == registry_module._LONGEST_GATHERING
        answers = await asyncio.gather(*(registry.change("a", register(route(tp))) for tp in (0, 1)))
        assert all(answer.topology.ready for answer in answers)
    assert registry._gathering("a", crowd=True) == 0


async def test_who_waits_after_a_crowd_is_answered_though_the_server_is_busy_with_something_else(registry):
    async def busy():
        while True:
            time.sleep(0.003)  # noqa: ASYNC251  # a turn of the loop that takes long
            await asyncio.sleep(0)

    other_work = asyncio.create_task(busy())
    try:
        await asyncio.gather(*(registry.change("a", register(route(tp))) for tp in (0, 1)))
        answer = await asyncio.wait_for(registry.change("a", register(route(0, incarnation=101))), timeout=30)
        assert answer.topology.routes[FIRST].incarnation == 101
    finally:
        other_work.cancel()


async def test_ranks_that_register_at_once_but_in_different_turns_of_the_loop_share_commits(registry):
    async def rank(tp):
        for incarnation in (101, 102, 103):
            await registry.change("a", register(route(tp, incarnation=incarnation)))
            for _ in range(tp * 3):
                await asyncio.sleep(0)

    await asyncio.gather(rank(0), rank(1))
    commits = (await registry.read("a")).revision - NOW // 1_000 + 1
    assert commits == 3, "six registrations of two ranks"


# Expiry


async def pass_time(registry, clock, seconds):
    """Turns the wheel as its own task does."""
    for _ in range(int(seconds / 0.25)):
        clock.now += 0.25
        for group in registry._wheel.tick():
            registry._queue(group)
    await until(lambda: not registry._queues)


async def test_all_rows_of_a_group_that_expire_go_in_one_event_and_other_groups_stay(registry, store, clock):
    for group in ("a", "b"):
        await registry.change(group, register(route(0), lease_ttl=10_000))
        await registry.change(group, register(route(1), lease_ttl=10_000 if group == "a" else 30_000))
    with store.watch("a") as a, store.watch("b") as b:
        revisions = a.current.revision, b.current.revision
        await pass_time(registry, clock, 9.75)
        assert (a.current.revision, b.current.revision) == revisions
        await pass_time(registry, clock, 0.25)
        assert (a.current.revision, dict(a.current.routes)) == (revisions[0] + 1, {})
        assert (b.current.revision, dict(b.current.routes)) == (revisions[1] + 1, {SECOND: route(1)})


async def test_a_registration_that_comes_again_begins_its_lease_anew_and_a_refused_one_does_not(registry, clock):
    await registry.change("a", register(route(0), lease_ttl=10_000))
    await registry.change("a", register(route(1, incarnation=101), lease_ttl=10_000))
    await pass_time(registry, clock, 9)
    assert (await registry.change("a", register(route(0), lease_ttl=10_000))).topology.ready
    with pytest.raises(Refusal):
        await registry.change("a", register(route(1), lease_ttl=10_000))
    assert (await registry.change("a", DeregisterRoute(SECOND, LAUNCH, 100))).removed_routes == 0
    await pass_time(registry, clock, 1)
    assert dict((await registry.read("a")).routes) == {FIRST: route(0)}


async def test_a_row_that_registers_again_while_its_removal_waits_is_not_removed_after_its_answer(
    registry, store, clock
):
    await registry.change("a", register(route(0), lease_ttl=1_000))
    going_on = store.hold_up()
    clock.now += 0.25
    other = asyncio.ensure_future(registry.change("a", register(route(1))))
    await until(lambda: len(store.swaps) == 2)
    for _ in range(4):  # it runs out while a commit is under way, and registers before its removal begins
        clock.now += 0.25
        for group in registry._wheel.tick():
            registry._queue(group)
    assert registry._wheel.renew("a", [Lease(FIRST, LAUNCH, 100)]) == [1_000]
    going_on.set()
    await other
    await until(lambda: not registry._queues)
    assert (await registry.read("a")).ready


async def test_a_removal_that_the_store_cannot_commit_is_tried_again(registry, store, clock):
    await registry.change("a", register(route(0), lease_ttl=1_000))
    store.fail(StoreUnavailableError("away"))
    store.fail(StoreUnavailableError("away"))
    await pass_time(registry, clock, 1)
    assert (await registry.read("a")).registered == 1
    await pass_time(registry, clock, 0.25)
    assert (await registry.read("a")).registered == 1
    await pass_time(registry, clock, 0.25)
    assert (await registry.read("a")).registered == 0


async def test_what_expired_and_what_is_asked_for_share_a_commit_unless_they_are_about_the_same_row(
    registry, store, clock
):
    await registry.change("a", register(route(0), lease_ttl=1_000))
    begin = (await registry.read("a")).revision
    clock.now += 0.25
    for _ in range(4):
        registry._wheel.tick()
        clock.now += 0.25
    registry._wheel.tick()
    answers = await asyncio.gather(
        registry.change("a", register(route(1))), registry.change("a", register(route(0), lease_ttl=1_000))
    )
    assert [answer.topology.revision for answer in answers] == [begin + 1, begin + 2]
    assert dict(answers[0].topology.routes) == {SECOND: route(1)}
    assert answers[1].topology.ready
    assert registry._wheel.renew("a", [Lease(FIRST, LAUNCH, 100)]) == [1_000]


async def test_a_restart_gives_the_leases_that_the_store_knows_their_whole_time(store, registry, clock):
    for number in range(3):
        await registry.change(f"group-{number}", register(route(0), lease_ttl=10_000))
    await pass_time(registry, clock, 9.75)
    restarted = Registry(store, lambda: NOW, 10, LeaseWheel(clock))
    await restarted.start()
    try:
        await pass_time(restarted, clock, 9.75)
        assert [topology.registered for topology in await store.groups("", 10)] == [1, 1, 1]
        await pass_time(restarted, clock, 0.25)
        assert [topology.registered for topology in await store.groups("", 10)] == [0, 0, 0]
    finally:
        await restarted.close()


async def test_closing_ends_who_still_waits(store, clock):
    registry = Registry(store, lambda: NOW, 10, LeaseWheel(clock))
    first, (second,), _ = await held_up(registry, store, register(route(1)))
    await registry.close()
    for task in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await task
