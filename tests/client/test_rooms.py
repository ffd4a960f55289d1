"""Rooms: registered, asked for, waited for."""

import pytest

from client.scripted import (
    PATIENCE,
    QUICK,
    Face,
    Script,
    bootstrap_servicer,
    gives,
    hangs,
    serving,
    streams,
    unavailable,
)
from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.client import DpRanksRegistered, RoomRank, UnreachableError

LARGEST_ROOM = 2**64 - 1


def found(*rooms: int, last: bool = False, unknown: tuple[int, ...] = ()) -> bootstrap_pb2.WaitDpRanksResponse:
    assignments = [bootstrap_pb2.RoomAssignment(room=room, dp_rank=room % 8) for room in rooms]
    return bootstrap_pb2.WaitDpRanksResponse(assignments=assignments, unknown_rooms=unknown, last=last)


def wait(face: Face, script: Script, rooms: list[int], **kwargs: object) -> list[RoomRank]:
    with serving(bootstrap_servicer(WaitDpRanks=script)) as address:
        known = face.take(None, face.bootstrap(address, retry=QUICK), "wait_dp_ranks", rooms, **kwargs)
        assert script.ended.wait(PATIENCE)
        return known


def test_rooms_are_given_as_they_become_known(face: Face) -> None:
    script = Script([streams(found(3, 5), found(LARGEST_ROOM, last=True))])
    assert wait(face, script, [3, 5, LARGEST_ROOM]) == [RoomRank(3, 3), RoomRank(5, 5), RoomRank(LARGEST_ROOM, 7)]


def test_after_a_lost_connection_only_rooms_still_unknown_are_asked_for(face: Face) -> None:
    script = Script([unavailable, streams(found(1, 2), then=unavailable), streams(found(2, 3, last=True))])
    assert wait(face, script, [1, 2, 3]) == [RoomRank(1, 1), RoomRank(2, 2), RoomRank(3, 3)]
    assert [list(request.rooms) for request in script.requests] == [[1, 2, 3], [1, 2, 3], [3]]


def test_when_every_room_is_known_a_lost_connection_does_no_harm(face: Face) -> None:
    script = Script([streams(found(1), then=unavailable)])
    assert wait(face, script, [1]) == [RoomRank(1, 1)]
    assert len(script.requests) == 1


def test_waiting_ends_quietly_with_what_is_known(face: Face) -> None:
    assert wait(face, Script([streams(found(1), found(unknown=(2,), last=True))]), [1, 2]) == [RoomRank(1, 1)]
    assert wait(face, Script([streams(found(1), then=hangs)]), [1, 2], timeout=0.3) == [RoomRank(1, 1)]


def test_waiting_for_rooms_gives_up_a_server_that_cannot_be_found(face: Face) -> None:
    script = Script([unavailable])
    with pytest.raises(UnreachableError):
        wait(face, script, [1])
    assert len(script.requests) == QUICK.attempts


def test_rooms_are_registered_and_asked_for(face: Face) -> None:
    register = Script([gives(bootstrap_pb2.RegisterDpRanksResponse(registered=2, overwritten=1))])
    query = Script([gives(bootstrap_pb2.QueryDpRanksResponse(assignments=[{"room": LARGEST_ROOM, "dp_rank": 4}]))])
    with serving(bootstrap_servicer(RegisterDpRanks=register, QueryDpRanks=query)) as address:
        answer = face.call(face.bootstrap(address), "register_dp_ranks", {LARGEST_ROOM: 4, 0: 0, 1: 1}, group="g")
        assert answer == DpRanksRegistered(2, 1)
        assert face.call(face.bootstrap(address), "query_dp_ranks", [LARGEST_ROOM, 7]) == {LARGEST_ROOM: 4}
    (sent,) = register.requests
    assert (sent.group, [(one.room, one.dp_rank) for one in sent.assignments]) == (
        "g",
        [(LARGEST_ROOM, 4), (0, 0), (1, 1)],
    )
    assert list(query.requests[0].rooms) == [LARGEST_ROOM, 7]
