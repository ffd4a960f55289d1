"""Scenarios from public reports: groups beside one another, also with names that begin alike."""

import pytest

from bootstrap.calls import INSTANCE, key, refused, registration
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from scenarios.reads import deregister, info, not_ready, snapshot


@pytest.mark.parametrize(
    "names",
    [("{}", "{}1"), ("{}1", "{}"), ("{}-a", "{}-a-rows-1"), ("{}-rows", "{}")],
    ids=["prefix", "longer", "dash", "rows"],
)
@pytest.mark.parametrize("death", ["deregistered", "forced", "relaunched"])
async def test_a_group_that_dies_moves_nothing_of_another_one(stub, group, watch, names, death):
    dying, other = (name.format(group) for name in names)
    for name in (dying, other):
        for tp in range(2):
            answer = await stub.RegisterRoute(registration(tp, group=name))
            assert answer.registered == tp + 1
    rooms = [pb.RoomAssignment(room=room, dp_rank=0) for room in (1, 2**64 - 1)]
    await stub.RegisterDpRanks(pb.RegisterDpRanksRequest(group=other, assignments=rooms))
    before = await snapshot(stub, other)
    dying_watcher, watcher = await watch(dying), await watch(other)

    match death:
        case "deregistered":
            for tp in range(2):
                assert (await deregister(stub, dying, key(tp), INSTANCE)).removed
        case "forced":
            await stub.ForceEpoch(pb.ForceEpochRequest(group=dying))
        case "relaunched":
            await stub.RegisterRoute(registration(0, launch=2, group=dying))
    await dying_watcher.until(lambda state: not state.ready)
    await not_ready(stub, dying)

    await watcher.until_progress()
    assert len(watcher.states) == 1
    assert await snapshot(stub, other) == before
    assert (await info(stub, other)).revision == before.state.revision
    known = await stub.QueryDpRanks(pb.QueryDpRanksRequest(group=other, rooms=[1, 2**64 - 1]))
    assert {(each.room, each.dp_rank) for each in known.assignments} == {(1, 0), (2**64 - 1, 0)}


async def test_a_group_whose_name_is_the_beginning_of_another_is_unknown_until_somebody_registers(stub, group):
    await stub.RegisterRoute(registration(0, group=f"{group}-long"))
    assert (await refused(info(stub, group))).reason == "UNKNOWN_GROUP"
    assert (await snapshot(stub, group)).state.registered == 0
