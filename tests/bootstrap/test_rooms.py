"""Rooms over gRPC, and their bounds and life times against a clock that the test holds."""

import asyncio

import grpc
import pytest

from bootstrap.calls import refused, registration
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.serving import Refusal
from interlock_bootstrap.rooms import Rooms


@pytest.fixture
async def stub(service):
    """A service with a group of DP size 4."""
    sizes = pb.ParallelSizes(dp=4, cp=1, tp=1, pp=1)
    await service.stub.RegisterRoute(registration(0, sizes=sizes))
    return service.stub


def assignments(dp_ranks):
    return [pb.RoomAssignment(room=room, dp_rank=dp_rank) for room, dp_rank in dp_ranks.items()]


async def register(stub, dp_ranks, group=""):
    return await stub.RegisterDpRanks(pb.RegisterDpRanksRequest(group=group, assignments=assignments(dp_ranks)))


async def query(stub, rooms):
    answer = await stub.QueryDpRanks(pb.QueryDpRanksRequest(rooms=rooms))
    return {assignment.room: assignment.dp_rank for assignment in answer.assignments}


async def test_rooms_are_found_unknown_ones_left_out_and_the_whole_range_of_ids_works(stub):
    known = {0: 0, 1: 3, 2**63 - 1: 1, 2**64 - 1: 2}
    answer = await register(stub, known)
    assert (answer.registered, answer.overwritten) == (4, 0)
    assert await query(stub, [*known, 77]) == known


async def test_the_last_writer_wins_and_is_counted(stub):
    await register(stub, {7: 1})
    answer = await register(stub, {7: 2, 8: 0})
    assert (answer.registered, answer.overwritten) == (1, 1)
    assert await query(stub, [7, 8]) == {7: 2, 8: 0}


async def test_a_dp_rank_outside_the_dp_size_refuses_the_batch_and_keeps_none(stub):
    refusal = await refused(register(stub, {1: 0, 2: 4}))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert refusal.fields == ["assignments[1].dp_rank"]
    assert await query(stub, [1, 2]) == {}


async def test_rooms_of_an_unknown_group_are_refused_and_a_query_finds_none(stub):
    refusal = await refused(register(stub, {1: 0}, group="nobody-here"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_GROUP")
    assert not (await stub.QueryDpRanks(pb.QueryDpRanksRequest(group="nobody-here", rooms=[1]))).assignments


@pytest.mark.parametrize("method", ["QueryDpRanks", "RegisterDpRanks"])
async def test_more_than_10000_rooms_in_one_call_are_refused(stub, method):
    rooms = range(10_001)
    if method == "QueryDpRanks":
        refusal = await refused(stub.QueryDpRanks(pb.QueryDpRanksRequest(rooms=rooms)))
        assert refusal.fields == ["rooms"]
    else:
        refusal = await refused(register(stub, dict.fromkeys(rooms, 0)))
        assert refusal.fields == ["assignments"]
    assert refusal.reason == "INVALID_FIELD"


async def test_rooms_go_with_their_epoch(stub):
    await register(stub, {1: 0})
    sizes = pb.ParallelSizes(dp=4, cp=1, tp=1, pp=1)
    await stub.RegisterRoute(registration(0, sizes=sizes, launch=2))
    assert await query(stub, [1]) == {}


async def test_a_wait_answers_rooms_as_they_become_known_and_ends_when_all_are(stub):
    await register(stub, {1: 1})
    call = stub.WaitDpRanks(pb.WaitDpRanksRequest(rooms=[1, 2, 3]), timeout=60)
    assert await call.read() == pb.WaitDpRanksResponse(assignments=assignments({1: 1}))
    await register(stub, {2: 2})
    assert await call.read() == pb.WaitDpRanksResponse(assignments=assignments({2: 2}))
    await register(stub, {3: 3})
    assert await call.read() == pb.WaitDpRanksResponse(assignments=assignments({3: 3}))
    assert await call.read() == pb.WaitDpRanksResponse(last=True)
    assert await call.read() is grpc.aio.EOF


async def test_a_wait_tells_before_its_deadline_which_rooms_are_still_unknown(stub):
    await register(stub, {1: 1})
    call = stub.WaitDpRanks(pb.WaitDpRanksRequest(rooms=[1, 9, 5]), timeout=2)
    messages = [message async for message in call]
    assert messages[0] == pb.WaitDpRanksResponse(assignments=assignments({1: 1}))
    assert messages[-1] == pb.WaitDpRanksResponse(unknown_rooms=[5, 9], last=True)


async def test_a_server_that_stops_ends_its_waits(stub, service):
    call = stub.WaitDpRanks(pb.WaitDpRanksRequest(rooms=[1, 2]), timeout=60)
    await register(stub, {1: 1})
    await call.read()
    stopping = asyncio.ensure_future(service.server.stop(30))
    refusal = await refused(call.read())
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    await stopping


class Clock:
    """A clock that goes when the test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def make_rooms(clock, **bounds):
    return Rooms(**{"max_rooms": 10, "max_awaited_rooms": 10, "ttl": 300.0, "clock": clock, **bounds})


def test_a_room_goes_when_its_time_since_the_last_registration_is_over():
    clock = Clock()
    rooms = make_rooms(clock)
    rooms.put("g", 1, {1: 0, 2: 0})
    clock.now += 200
    rooms.put("g", 1, {1: 3})
    clock.now += 99
    assert rooms.query("g", 1, [1, 2]) == {1: 3, 2: 0}
    clock.now += 1
    assert rooms.query("g", 1, [1, 2]) == {1: 3}
    clock.now += 200
    assert rooms.query("g", 1, [1, 2]) == {}
    assert len(rooms) == 0


def test_at_the_bound_the_new_rooms_are_refused_all_together_and_no_live_one_goes():
    clock = Clock()
    rooms = make_rooms(clock)
    rooms.put("g", 1, dict.fromkeys(range(6), 0))
    rooms.put("h", 1, dict.fromkeys(range(3), 0))
    with pytest.raises(Refusal) as refusal, rooms.space("g", 1, [0, 100, 101]):
        pass
    assert refusal.value.reason == "TOO_MANY_ROOMS"
    assert rooms.query("g", 1, [0, 100, 101]) == {0: 0}
    with rooms.space("g", 1, [0, 100]):
        assert rooms.put("g", 1, {0: 1, 100: 0}) == (1, 1)
    assert len(rooms) == 10
    clock.now += 300
    with rooms.space("h", 1, range(10)):
        assert rooms.put("h", 1, dict.fromkeys(range(10), 2)) == (10, 0)
    assert len(rooms) == 10


def test_rooms_that_are_being_committed_keep_their_space():
    rooms = make_rooms(Clock())
    with rooms.space("g", 1, range(7)):
        with pytest.raises(Refusal) as refusal, rooms.space("h", 1, range(4)):
            pass
        assert refusal.value.reason == "TOO_MANY_ROOMS"
        with rooms.space("h", 1, range(3)):
            pass
    with rooms.space("h", 1, range(10)):
        pass
    assert len(rooms) == 0


def test_rooms_that_others_committed_are_taken_in_whatever_space_there_is():
    rooms = make_rooms(Clock())
    assert rooms.put("g", 1, dict.fromkeys(range(12), 0)) == (12, 0)
    assert len(rooms) == 12


def test_rooms_of_a_past_epoch_are_not_taken_in_any_more_and_those_of_the_next_one_wait_for_it():
    rooms = make_rooms(Clock())
    rooms.put("g", 1, {1: 0})
    rooms.put("g", 2, {2: 0})
    assert rooms.query("g", 1, [1, 2]) == {}, "this server has yet to learn of the epoch"
    assert rooms.put("g", 1, {3: 0}) == (1, 0)
    assert rooms.query("g", 2, [1, 2, 3]) == {2: 0}
    assert len(rooms) == 1


def test_asking_for_rooms_of_groups_that_do_not_exist_costs_no_memory():
    rooms = make_rooms(Clock())
    for number in range(1_000):
        assert rooms.query(f"g{number}", 0, [1]) == {}
    assert rooms._groups == {}


def test_more_awaited_rooms_than_allowed_are_refused_and_the_place_is_free_afterwards():
    rooms = make_rooms(Clock())
    with rooms.wait("g", 1, range(6)):
        with pytest.raises(Refusal) as refusal, rooms.wait("g", 1, range(5)):
            pass
        assert refusal.value.reason == "OVERLOADED"
    with rooms.wait("g", 1, range(10)):
        pass
    assert rooms._waits == {}
