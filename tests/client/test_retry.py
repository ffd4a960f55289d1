"""When a call is made again, and when not. Real servers fail on purpose."""

import math
import socket
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.rpc import error_details_pb2

from client.scripted import (
    QUICK,
    Face,
    Script,
    bootstrap_servicer,
    gives,
    hangs,
    refuses,
    serving,
    unavailable,
)
from interlock.bootstrap.v1 import bootstrap_pb2, errors_pb2
from interlock.client import (
    BootstrapClient,
    DeadlineError,
    NotFoundError,
    NotReadyError,
    OverloadedError,
    RankInfo,
    RefusedError,
    RetryPolicy,
    UnreachableError,
)
from interlock.client._internal.retry import Attempts
from interlock.topology import RankKey

KEY = RankKey(0, 0, 0, 0)
RANK_INFO = bootstrap_pb2.GetRankInfoResponse(rank_ip="10.0.0.1", rank_port=8998, revision=7, epoch=2)
FOUND = RankInfo("10.0.0.1", 8998, 7, 2)
NOT_READY = refuses(
    "NOT_READY",
    grpc.StatusCode.UNAVAILABLE,
    "1 of 2",
    errors_pb2.NotReady(
        state=bootstrap_pb2.GroupState(registered=1, expected=2, missing_count=1, missing_keys=[{"tp": 1}])
    ),
)
UNKNOWN_GROUP = refuses("UNKNOWN_GROUP", grpc.StatusCode.NOT_FOUND)
INFO = bootstrap_pb2.GetPrefillServerInfoResponse(
    info=bootstrap_pb2.PrefillServerInfo(sizes={"dp": 1, "cp": 1, "tp": 2, "pp": 1}, page_size=64),
    revision=9,
    epoch=1,
    instance=bootstrap_pb2.Instance(id="launch", started_at=5),
)


def ask(face: Face, script: Script, **kwargs: object) -> object:
    with serving(bootstrap_servicer(GetRankInfo=script)) as address:
        return face.call(face.bootstrap(address, retry=QUICK), "get_rank_info", KEY, **kwargs)


def ask_info(face: Face, script: Script, **kwargs: object) -> object:
    with serving(bootstrap_servicer(GetPrefillServerInfo=script)) as address:
        return face.call(face.bootstrap(address, retry=QUICK), "get_prefill_server_info", **kwargs)


def test_a_call_that_fails_twice_for_want_of_a_server_succeeds_at_the_third_attempt(face: Face) -> None:
    script = Script([unavailable, unavailable, gives(RANK_INFO)])
    assert ask(face, script) == FOUND
    assert len(script.requests) == 3


def test_attempts_are_bounded(face: Face) -> None:
    script = Script([unavailable])
    with pytest.raises(UnreachableError, match="connection lost"):
        ask(face, script)
    assert len(script.requests) == QUICK.attempts


def test_nobody_at_the_address_is_told_with_the_address_and_what_to_do(face: Face) -> None:
    with socket.socket() as taken:
        # Bound but not listening: nobody answers there, and nobody else can take it meanwhile.
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UnreachableError) as raised:
            face.call(face.bootstrap(address, retry=QUICK), "get_rank_info", KEY)
    assert str(raised.value).startswith(address)
    assert "check that the service runs" in raised.value.diagnostics()


def test_a_server_that_stops_is_left_for_another(face: Face) -> None:
    script = Script([refuses("DRAINING", grpc.StatusCode.UNAVAILABLE), gives(RANK_INFO)])
    assert ask(face, script) == FOUND
    assert len(script.requests) == 2


def test_a_refusal_is_not_tried_again(face: Face) -> None:
    script = Script([refuses("UNKNOWN_RANK", grpc.StatusCode.NOT_FOUND)])
    with pytest.raises(NotFoundError):
        ask(face, script)
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("OVERLOADED", grpc.StatusCode.RESOURCE_EXHAUSTED),
        ("STORE_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE),
        ("STORE_CONTENDED", grpc.StatusCode.UNAVAILABLE),
    ],
)
def test_a_server_that_asks_for_a_pause_is_tried_again_after_it(face: Face, reason: str, code: grpc.StatusCode) -> None:
    script = Script([refuses(reason, code, retry_delay=0.01), gives(RANK_INFO)])
    assert ask(face, script) == FOUND
    assert len(script.requests) == 2


def test_a_full_server_without_a_hint_is_not_tried_again(face: Face) -> None:
    script = Script([refuses("OVERLOADED", grpc.StatusCode.RESOURCE_EXHAUSTED)])
    with pytest.raises(OverloadedError) as raised:
        ask(face, script)
    assert raised.value.retry_delay is None
    assert len(script.requests) == 1


def test_a_pause_longer_than_the_time_left_is_not_begun(face: Face) -> None:
    script = Script([refuses("OVERLOADED", grpc.StatusCode.RESOURCE_EXHAUSTED, retry_delay=25)])
    with pytest.raises(OverloadedError) as raised:
        ask(face, script, timeout=20)
    assert raised.value.retry_delay == 25
    assert len(script.requests) == 1


def test_a_call_without_an_answer_ends_at_its_timeout(face: Face) -> None:
    script = Script([hangs])
    with pytest.raises(DeadlineError):
        ask(face, script, timeout=0.2)
    assert script.ended.wait(30)


def test_not_ready_is_raised_at_once(face: Face) -> None:
    script = Script([NOT_READY])
    with pytest.raises(NotReadyError) as raised:
        ask_info(face, script)
    assert raised.value.state.missing_keys == (RankKey(0, 0, 1, 0),)
    assert len(script.requests) == 1


def test_waiting_for_a_group_looks_again_until_it_is_ready(face: Face) -> None:
    script = Script([UNKNOWN_GROUP, NOT_READY, unavailable, NOT_READY, gives(INFO)])
    ready = ask_info(face, script, wait=True, timeout=30)
    assert (ready.info.page_size, ready.revision, ready.instance.id) == (64, 9, "launch")
    assert len(script.requests) == 5


def test_waiting_in_vain_tells_what_the_group_lacks(face: Face) -> None:
    with pytest.raises(NotReadyError) as raised:
        ask_info(face, Script([NOT_READY]), wait=True, timeout=0.3)
    assert raised.value.state.missing_count == 1


def test_waiting_in_vain_for_a_silent_server_tells_the_last_refusal(face: Face) -> None:
    with pytest.raises(NotReadyError):
        ask_info(face, Script([NOT_READY, hangs]), wait=True, timeout=0.5)


def test_forcing_an_epoch_is_never_tried_again(face: Face) -> None:
    script = Script([unavailable])
    with serving(bootstrap_servicer(ForceEpoch=script)) as address, pytest.raises(UnreachableError):
        face.call(face.bootstrap(address, retry=QUICK), "force_epoch")
    assert len(script.requests) == 1


def test_a_server_of_another_kind_is_a_refusal_without_a_reason(face: Face) -> None:
    script = Script([gives(RANK_INFO)])
    with serving(bootstrap_servicer(GetRankInfo=script)) as address, pytest.raises(RefusedError) as raised:
        face.call(face.preprocess(address, retry=QUICK), "list_profiles")
    assert (raised.value.code, raised.value.reason) == (grpc.StatusCode.UNIMPLEMENTED, "")


@pytest.mark.parametrize("timeout", [0, -1, math.inf, math.nan])
def test_no_call_can_be_made_without_a_deadline(face: Face, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout is"):
        face.bootstrap("127.0.0.1:1", timeout=timeout)
    with pytest.raises(ValueError, match="timeout is"):
        face.call(face.bootstrap("127.0.0.1:1"), "get_rank_info", KEY, timeout=timeout)


@pytest.mark.parametrize(
    "address",
    ["", "local host:1", "localhost", "127.0.0.1", "::1", "h:", "h:port", "h:0", "h:65536", "[::1]", "http://h:1"],
)
def test_an_address_that_can_be_none_is_refused(face: Face, address: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        face.bootstrap(address)


@pytest.mark.parametrize("address", ["h:1", "127.0.0.1:65535", "[::1]:50051", "dns:///h:1", "unix:/run/interlock"])
def test_an_address_is_host_and_port_or_a_name_with_a_scheme_of_grpc(face: Face, address: str) -> None:
    assert face.bootstrap(address).address == address


def test_pauses_are_drawn_evenly_up_to_a_ceiling_that_doubles() -> None:
    policy = RetryPolicy(attempts=9, first_delay=0.1, longest_delay=1.0)
    assert [policy.pause(failures, lambda: 1.0) for failures in range(1, 6)] == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert policy.pause(3, lambda: 0.25) == 0.1
    assert policy.pause(10_000, lambda: 1.0) == 1.0
    assert all(0 <= policy.pause(2) <= 0.2 for _ in range(100))


@pytest.mark.parametrize(
    "policy", [{"attempts": 0}, {"first_delay": -1}, {"longest_delay": math.nan}, {"longest_delay": math.inf}]
)
def test_a_policy_that_is_none_is_refused(policy: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        RetryPolicy(**policy)


def test_progress_forgets_earlier_failures() -> None:
    attempts = Attempts(RetryPolicy(attempts=2), None, draw=lambda: 1.0)
    lost = UnreachableError("lost")
    assert attempts.pause_after(lost) == 0.1
    attempts.progressed()
    assert attempts.pause_after(lost) == 0.1
    with pytest.raises(UnreachableError):
        attempts.pause_after(lost)


def test_the_time_of_all_attempts_is_bounded_together() -> None:
    now = [100.0]
    attempts = Attempts(RetryPolicy(), 1.0, clock=lambda: now[0], draw=lambda: 1.0)
    assert attempts.time_left() == 1.0
    now[0] += 0.95
    with pytest.raises(UnreachableError):
        attempts.pause_after(UnreachableError("lost"))


def test_one_client_serves_many_threads() -> None:
    script = Script([gives(RANK_INFO)])
    with (
        serving(bootstrap_servicer(GetRankInfo=script)) as address,
        BootstrapClient(address) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        assert list(pool.map(lambda _: client.get_rank_info(KEY), range(64))) == [FOUND] * 64


def test_violations_are_told_by_field(face: Face) -> None:
    faults = error_details_pb2.BadRequest(
        field_violations=[{"field": "route.rank_port", "description": "must be 1 to 65535; got 0"}]
    )
    script = Script([refuses("INVALID_FIELD", grpc.StatusCode.INVALID_ARGUMENT, "1 fault", faults)])
    with pytest.raises(RefusedError) as raised:
        ask(face, script)
    assert raised.value.field_violations == (("route.rank_port", "must be 1 to 65535; got 0"),)
    assert "route.rank_port: must be 1 to 65535; got 0" in raised.value.diagnostics()
