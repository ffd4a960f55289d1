"""One launch: minted above the floor, handed to ranks as text, and never minted by one rank of many."""

import json
import os
import subprocess
import sys
import time

import grpc
import pytest

from client.keeping import client_of, entered, registered
from client.scripted import PATIENCE, Face, Script, bootstrap_servicer, gives, serving, streams
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.client import (
    InstanceError,
    instance_environment,
    instance_from_environment,
    instance_from_text,
    instance_to_text,
    process_incarnation,
)
from interlock.client.launch import INSTANCE_VARIABLE
from interlock.topology import Instance, ParallelSizes, RankKey, Route

LAUNCH = Instance("launch", 1_796_143_480_993_597_877)


def a_group(floor: pb.Instance | None, requests: list[pb.RegisterRouteRequest]) -> object:
    """A server whose group has this floor; it keeps what is asked of it to register."""

    def register(request: pb.RegisterRouteRequest, context: grpc.ServicerContext) -> pb.RegisterRouteResponse:
        requests.append(request)
        return pb.RegisterRouteResponse(revision=5, epoch=1, lease=pb.Lease(ttl=request.lease_ttl))

    snapshot = pb.TopologySnapshot(state=pb.GroupState(group="prefill", revision=4, floor=floor))
    return bootstrap_servicer(
        WatchTopology=Script([streams(pb.WatchTopologyResponse(revision=4, last=True, snapshot=snapshot))]),
        RegisterRoute=Script([register]),
        DeregisterRoute=Script([gives(pb.DeregisterRouteResponse(removed=True))]),
    )


def route(size: int) -> Route:
    return Route(RankKey(0, 0, 0, 0), 7, ParallelSizes(1, 1, size, 1), "10.0.0.1", 9000, page_size=64)


@pytest.fixture(autouse=True)
def no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INSTANCE_VARIABLE, raising=False)


def test_an_instance_is_minted_by_the_clock_where_the_floor_lies_behind(face: Face) -> None:
    for floor in (None, pb.Instance(id="old", started_at=1_000)):
        with serving(a_group(floor, [])) as address:
            before = time.time_ns()
            first = face.call(face.bootstrap(address), "mint_instance", "prefill")
            second = face.call(face.bootstrap(address), "mint_instance", "prefill")
            assert before <= first.started_at <= second.started_at <= time.time_ns()
            assert first.id != second.id


def test_it_is_minted_above_the_floor_where_that_lies_ahead(face: Face) -> None:
    ahead = time.time_ns() + 3_600 * 10**9
    with serving(a_group(pb.Instance(id="ahead", started_at=ahead), [])) as address:
        assert face.call(face.bootstrap(address), "mint_instance", "prefill").started_at == ahead + 1


def test_an_instance_goes_through_the_environment_and_comes_back_the_same() -> None:
    environment = instance_environment(LAUNCH)
    assert environment == {"INTERLOCK_INSTANCE": '{"id": "launch", "started_at": 1796143480993597877}'}
    assert instance_from_environment(environment) == LAUNCH
    odd = Instance("a \"quoted\" id, with 'both' $kinds", 2**64 - 1)
    assert instance_from_text(instance_to_text(odd)) == odd
    assert instance_from_environment({}) is None
    assert instance_from_environment({INSTANCE_VARIABLE: ""}) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("launch", "as JSON: Expecting value"),
        ("[1]", "expected as {"),
        ("null", "expected as {"),
        ('{"id": "x"}', "expected as {"),
        ('{"id": "x", "started_at": 1.7e18}', "as a whole number"),
        ('{"id": "x", "started_at": "1700"}', "as a whole number"),
        ('{"id": "x", "started_at": true}', "as a whole number"),
        ('{"id": "x", "started_at": 1, "more": 2}', "expected as {"),
        ('{"id": "", "started_at": 5}', "instance.id must be 1 to 128 printable ASCII characters"),
        ('{"id": "x", "started_at": 0}', "instance.started_at must lie between 1 and"),
        ('{"id": "x", "started_at": 18446744073709551616}', "instance.started_at must lie between 1 and"),
        ("[" * 100_000, "as JSON"),
        ("9" * 5_000, "as JSON"),
        ("x" * 10_000, f"got 'x{'x' * 79}'..."),
    ],
)
def test_a_text_that_names_no_instance_is_refused_and_says_why(text: str, told: str) -> None:
    with pytest.raises(InstanceError) as raised:
        instance_from_environment({INSTANCE_VARIABLE: text})
    assert str(raised.value).startswith("INTERLOCK_INSTANCE: ")
    assert told in str(raised.value)
    assert len(str(raised.value)) < 400
    assert "mint one instance in the launcher" in raised.value.diagnostics()


async def test_a_rank_of_many_registers_with_what_its_launcher_handed_it(
    face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[pb.RegisterRouteRequest] = []
    with serving(a_group(None, requests)) as address:
        async with client_of(face, address) as client:
            with pytest.raises(InstanceError, match="one of 2, has no instance: its launcher must mint one"):
                await entered(client.registration(route(2), group="prefill"))
            assert requests == []
            monkeypatch.setenv(INSTANCE_VARIABLE, instance_to_text(LAUNCH))
            async with registered(client, route(2), group="prefill") as registration:
                assert registration.instance == LAUNCH
            # What is named outright comes first.
            async with registered(client, route(2), Instance("named", 5), group="prefill"):
                pass
            monkeypatch.setenv(INSTANCE_VARIABLE, "launch")
            with pytest.raises(InstanceError, match="as JSON"):
                await entered(client.registration(route(2), group="prefill"))
    assert [request.instance.id for request in requests] == ["launch", "named"]


async def test_a_rank_alone_takes_what_it_was_handed_too_and_else_mints_for_itself(
    face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[pb.RegisterRouteRequest] = []
    floor = pb.Instance(id="ahead", started_at=time.time_ns() + 30 * 10**9)
    with serving(a_group(floor, requests)) as address:
        async with client_of(face, address) as client:
            async with registered(client, route(1), group="prefill") as registration:
                assert registration.instance is not None
                assert registration.instance.started_at == floor.started_at + 1
            monkeypatch.setenv(INSTANCE_VARIABLE, instance_to_text(LAUNCH))
            async with registered(client, route(1), group="prefill") as registration:
                assert registration.instance == LAUNCH
    assert [request.instance.started_at for request in requests] == [floor.started_at + 1, LAUNCH.started_at]


def test_an_incarnation_is_one_for_the_life_of_a_process_and_later_in_each_that_follows() -> None:
    program = """
import json, os, time
from interlock.client import process_incarnation
before = time.time_ns()
lives = [process_incarnation(), process_incarnation()]
reader, writer = os.pipe()
if not os.fork():
    os.write(writer, json.dumps([process_incarnation(), process_incarnation()]).encode())
    os._exit(0)
os.wait()
print(json.dumps([before, *lives, *json.loads(os.read(reader, 1000)), time.time_ns(), process_incarnation()]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
        env={**os.environ, "GRPC_VERBOSITY": "NONE"},
    )
    before, first, again, child, child_again, after, last = json.loads(done.stdout)
    assert before <= first < child <= after
    assert (first, child) == (again, child_again)
    assert last == first
    assert process_incarnation() == process_incarnation() > 0
