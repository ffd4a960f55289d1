"""`interlock instance mint`, and what takes the instance from the environment; `interlock route register --keep`."""

import json
import signal
import uuid

import pytest

from cli.running import PATIENCE, error_line

RANK = ["--rank-ip", "10.0.0.1", "--rank-port", "9000", "--page-size", "64", "--incarnation", "7"]


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def ask(invoke, services, monkeypatch):
    """Runs a command against the served Bootstrap, and gives what came out as JSON."""
    monkeypatch.setenv("INTERLOCK_ADDRESS", services)
    monkeypatch.delenv("INTERLOCK_INSTANCE", raising=False)

    def ask_json(*args, exit_code=0):
        result = invoke(*args, "--json")
        assert result.exit_code == exit_code, result.stderr
        return json.loads(result.stdout)

    return ask_json


def test_what_is_minted_is_one_line_that_ranks_take_from_their_environment(ask, invoke, group, monkeypatch):
    older = ask("instance", "mint", group)
    line = invoke("instance", "mint", group).stdout
    assert line.count("\n") == 1
    minted = json.loads(line)
    assert set(minted) == {"id", "started_at"}
    assert minted["started_at"] > older["started_at"]

    monkeypatch.setenv("INTERLOCK_INSTANCE", line.rstrip("\n"))
    assert ask("route", "register", group, *RANK)["instance"] == minted
    named = ask("route", "register", group, *RANK, "--instance-id", "named", "--started-at", minted["started_at"] + 1)
    assert named["instance"] == {"id": "named", "started_at": minted["started_at"] + 1}
    # The next one is above what the group has accepted since, whatever the clock says.
    assert ask("instance", "mint", group)["started_at"] > named["instance"]["started_at"]


def test_an_instance_that_cannot_be_read_is_a_failure_that_names_the_variable(invoke, services, group, monkeypatch):
    monkeypatch.setenv("INTERLOCK_INSTANCE", "launch")
    result = invoke("route", "register", group, *RANK, "--address", services)
    assert result.exit_code == 1
    assert error_line(result).startswith("INTERLOCK_INSTANCE: an instance is expected as JSON")


def test_a_route_with_a_lease_says_so(ask, invoke, group):
    assert ask("route", "register", group, *RANK, "--lease-ttl", 90)["lease_ttl"] == 90
    result = invoke("route", "register", group, *RANK, "--lease-ttl", 0.5)
    assert (result.exit_code, "lease_ttl: must lie between 1 s and 86400 s" in error_line(result)) == (2, True)


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_rank_that_is_kept_stands_until_the_command_is_stopped(ask, start, services, group, number, exit_code):
    kept = start("route", "register", group, *RANK, "--keep", "--lease-ttl", "3600", "--address", services)
    assert kept.stdout.readline().split()[:3] == ["GROUP", "RANK", "REVISION"]
    assert kept.stdout.readline().split()[0] == group
    listed = ask("route", "list", group)
    assert [route["rank_port"] for route in listed["routes"]] == [9000]
    kept.send_signal(number)
    _, told = kept.communicate(timeout=PATIENCE)
    assert kept.returncode == exit_code, told
    assert ask("route", "list", group)["routes"] == []


def test_a_rank_that_is_kept_tells_of_its_ups_and_downs_and_ends_with_the_reason(ask, start, services, group):
    kept = start("route", "register", group, *RANK, "--keep", "--lease-ttl", "1", "--address", services)
    assert kept.stdout.readline()
    assert kept.stdout.readline()
    newer = ask("instance", "mint", group)
    newer_launch = ["--instance-id", newer["id"], "--started-at", newer["started_at"]]
    ask("route", "register", group, *RANK, *newer_launch)
    out, told = kept.communicate(timeout=PATIENCE)
    assert (out, kept.returncode) == ("", 1)
    assert told.splitlines()[-1].endswith("[STALE_INSTANCE]")
    assert len(ask("route", "list", group)["routes"]) == 1


def test_keeping_and_comparing_exclude_each_other(invoke, group):
    result = invoke("route", "register", group, *RANK, "--keep", "--expected-revision", 0)
    assert result.exit_code == 2
    assert error_line(result).startswith("--keep and --expected-revision exclude each other")
