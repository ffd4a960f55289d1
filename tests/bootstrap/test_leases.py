"""The lease wheel: never early, a late tick adds its lateness, and all the rest of rule 7, on a clock of our own."""

import random

from interlock.topology import ExpireRoutes, Instance, ParallelSizes, RankKey, Topology, transition_batch
from interlock_bootstrap.leases import LeaseWheel
from interlock_bootstrap.stores import Lease
from topology.examples import LATER_LAUNCH, LAUNCH, NOW, register, route

FIRST, SECOND = RankKey(0, 0, 0, 0), RankKey(0, 0, 1, 0)
TICK = 0.25


class Clock:
    """Goes when the test says so."""

    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


class Wheel(LeaseWheel):
    """A wheel with its clock, as the tests turn it."""

    def __init__(self):
        self.clock = Clock()
        super().__init__(self.clock, TICK)

    def pass_time(self, seconds):
        """Ticks as often as it should; gives what ran out on the way, with when."""
        expired = []
        for _ in range(round(seconds / TICK)):
            self.clock.now += TICK
            for group in self.tick():
                expired += [(self.clock.now, group, *row) for row in self.claim(group)]
        return expired


def topology_of(*requests, group="default", before=None):
    return transition_batch(before or Topology.empty(group), requests, NOW)[0]


def wheel_with(*requests):
    wheel = Wheel()
    topology = topology_of(*requests)
    wheel.restore(topology)
    return wheel, topology


def test_a_lease_runs_out_at_the_first_tick_after_its_time_and_never_before():
    wheel, _ = wheel_with(register(route(0), lease_ttl=10_000), register(route(1), lease_ttl=10_100))
    assert wheel.pass_time(9.75) == []
    assert wheel.pass_time(0.25) == [(1_010.0, "default", FIRST, 100)]
    wheel.settle(topology_of(register(route(1), lease_ttl=10_100)), [FIRST])
    assert wheel.pass_time(0.25) == [(1_010.25, "default", SECOND, 100)]


def test_a_lease_granted_between_two_ticks_is_not_early_either():
    wheel, topology = wheel_with(register(route(0), lease_ttl=1_000))
    for offset in (0.01, 0.1, 0.2499):
        wheel.clock.now += offset
        granted = wheel.clock.now
        assert wheel.renew("default", [Lease(FIRST, LAUNCH, 100)]) == [1_000]
        (expired,) = wheel.pass_time(2)[:1]
        assert granted + 1 <= expired[0] <= granted + 1 + 2 * TICK
        wheel.settle(topology, [FIRST])


def test_a_route_without_a_lease_stays():
    wheel, _ = wheel_with(register(route(0)), register(route(1), lease_ttl=1_000))
    assert [key for _, _, key, _ in wheel.pass_time(100)][:1] == [SECOND]
    assert wheel.renew("default", [Lease(FIRST, LAUNCH, 100)]) == [0]


def test_renewing_begins_the_whole_time_anew():
    wheel, _ = wheel_with(register(route(0), lease_ttl=10_000))
    for _ in range(5):
        assert wheel.pass_time(9) == []
        assert wheel.renew("default", [Lease(FIRST, LAUNCH, 100)]) == [10_000]
    assert wheel.pass_time(9.75) == []
    assert [row[2] for row in wheel.pass_time(0.25)] == [FIRST]


def test_a_lease_is_renewed_by_group_key_instance_and_incarnation_and_by_nothing_less():
    wheel, _ = wheel_with(register(route(0), lease_ttl=10_000))
    others = [
        Lease(SECOND, LAUNCH, 100),
        Lease(FIRST, LATER_LAUNCH, 100),
        Lease(FIRST, Instance("launch-1", LAUNCH.started_at + 1), 100),
        Lease(FIRST, LAUNCH, 99),
        Lease(FIRST, LAUNCH, 101),
    ]
    wheel.pass_time(9)
    assert wheel.renew("default", others) == [0, 0, 0, 0, 0]
    assert wheel.renew("other", [Lease(FIRST, LAUNCH, 100)]) == [0]
    assert len(wheel.pass_time(1)) == 1


def test_a_tick_that_comes_late_adds_its_lateness_to_every_lease():
    wheel, _ = wheel_with(register(route(0), lease_ttl=10_000), register(route(1), lease_ttl=10_000))
    assert wheel.pass_time(9) == []
    wheel.clock.now += 3_600  # the process was stopped for an hour
    assert wheel.tick() == []
    assert wheel.renew("default", [Lease(FIRST, LAUNCH, 100)]) == [10_000]
    assert wheel.pass_time(0.5) == []
    assert [row[2] for row in wheel.pass_time(0.25)] == [SECOND]


def test_a_lease_renewed_before_a_late_tick_has_its_whole_time_after_it():
    wheel, _ = wheel_with(register(route(0), lease_ttl=10_000))
    wheel.clock.now += 3_600
    renewed = wheel.clock.now
    assert wheel.renew("default", [Lease(FIRST, LAUNCH, 100)]) == [10_000]
    wheel.tick()
    (expired,) = wheel.pass_time(10.5)[:1]
    assert renewed + 10 <= expired[0] <= renewed + 10 + 2 * TICK


def test_a_restart_gives_every_lease_its_whole_time_once_more():
    wheel, topology = wheel_with(register(route(0), lease_ttl=10_000))
    assert wheel.pass_time(9.75) == []
    restarted = Wheel()
    restarted.restore(topology)
    assert restarted.pass_time(9.75) == []
    assert [row[2] for row in restarted.pass_time(0.25)] == [FIRST]


def test_what_is_claimed_cannot_be_renewed_and_what_only_ran_out_can():
    wheel, _ = wheel_with(register(route(0), lease_ttl=1_000), register(route(1), lease_ttl=1_000))
    for _ in range(4):
        wheel.clock.now += TICK
        expired_in = wheel.tick()
    assert expired_in == ["default"]
    assert wheel.renew("default", [Lease(FIRST, LAUNCH, 100)]) == [1_000]
    assert wheel.claim("default") == ((SECOND, 100),)
    assert wheel.renew("default", [Lease(SECOND, LAUNCH, 100)]) == [0]


def test_what_could_not_be_removed_runs_out_again_at_the_next_tick():
    wheel, _ = wheel_with(register(route(0), lease_ttl=1_000))
    assert len(wheel.pass_time(1)) == 1
    wheel.give_back("default")
    assert wheel.claim("default") == ()
    assert [row[2] for row in wheel.pass_time(TICK)] == [FIRST]
    wheel.give_back("default")
    assert wheel.renew("default", [Lease(FIRST, LAUNCH, 100)]) == [1_000]


def test_a_new_life_takes_the_place_of_the_lease_before():
    wheel, topology = wheel_with(register(route(0), lease_ttl=10_000))
    wheel.settle(topology_of(register(route(0, incarnation=101), lease_ttl=20_000), before=topology), [FIRST])
    assert wheel.renew("default", [Lease(FIRST, LAUNCH, 100), Lease(FIRST, LAUNCH, 101)]) == [0, 20_000]
    assert wheel.pass_time(19.75) == []
    assert [row[2:] for row in wheel.pass_time(0.25)] == [(FIRST, 101)]


def test_the_leases_of_a_past_epoch_are_gone():
    wheel, topology = wheel_with(register(route(0), lease_ttl=10_000), register(route(1), lease_ttl=10_000))
    later = topology_of(register(route(0), LATER_LAUNCH, lease_ttl=20_000), before=topology)
    wheel.settle(later, [FIRST])
    assert wheel.renew("default", [Lease(SECOND, LAUNCH, 100), Lease(FIRST, LATER_LAUNCH, 100)]) == [0, 20_000]
    assert wheel.pass_time(19) == []


def test_a_wheel_keeps_nothing_of_leases_that_are_gone():
    wheel = Wheel()
    sizes = ParallelSizes(1, 1, 8, 1)
    rows = [route(tp, sizes=sizes) for tp in range(8)]
    chance = random.Random(3)
    topology = Topology.empty("default")
    for _ in range(300):
        row = chance.choice(rows)
        topology = topology_of(register(row, lease_ttl=chance.choice([1_000, 60_000, 86_400_000])), before=topology)
        wheel.settle(topology, [row.key])
        wheel.renew("default", [Lease(row.key, LAUNCH, 100)])
        wheel.clock.now += 0.2
        wheel.tick()
        assert sum(map(len, wheel._slots.values())) <= 8
        assert len(wheel._slots) <= 8
    everything = topology_of(ExpireRoutes(tuple((row.key, 100) for row in rows)), before=topology)
    wheel.settle(everything, [row.key for row in rows])
    assert (wheel._slots, wheel._groups) == ({}, {})


def test_many_leases_run_out_each_at_its_own_time():
    sizes = ParallelSizes(1, 1, 2_000, 1)
    chance = random.Random(4)
    ttls = [chance.randrange(1_000, 30_000) for _ in range(2_000)]
    wheel, _ = wheel_with(*(register(route(tp, sizes=sizes, rank_ip="h"), lease_ttl=ttls[tp]) for tp in range(2_000)))
    seen = {}
    for _ in range(200):
        for when, _, key, _ in wheel.pass_time(TICK):
            seen.setdefault(key.tp, when)
    assert len(seen) == 2_000
    assert all(1_000 + ttl / 1_000 <= seen[tp] < 1_000 + ttl / 1_000 + TICK for tp, ttl in enumerate(ttls))
