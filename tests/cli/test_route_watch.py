"""`interlock route watch`: lines, JSON lines, and the live table on a terminal."""

import json
import signal

import pytest

from cli.running import PATIENCE
from cli.terminal import Terminal
from interlock.client import BootstrapClient
from interlock.topology import Instance, ParallelSizes, RankKey, Route

SHARED = ["--tp-size", "2", "--page-size", "64", "--kv-cache-dtype", "bfloat16", "--pool", "kv"]
INSTANCE = ["--instance-id", "launch", "--started-at", "1000"]


def _register(group, tp, *more):
    address = ["--rank-ip", f"10.0.0.{tp}", "--rank-port", 9000 + tp]
    return ["route", "register", group, "--tp", tp, *address, *SHARED, *INSTANCE, "--incarnation", 7, *more]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_watch_follows_a_group_until_ctrl_c(ask, services, start, group, form):
    ask(*_register(group, 0))
    more = ["--json"] if form == "json" else []
    watch = start("route", "watch", group, "--address", services, *more)

    def line():
        text = watch.stdout.readline().rstrip("\n")
        return json.loads(text) if form == "json" else text.split(maxsplit=1)[1]

    if form == "json":
        first = line()
        assert [route["key"]["tp"] for route in first["snapshot"]] == [0]
        assert first["state"]["ready"] is False
    else:
        assert line() == "snapshot    incomplete, 1 of 2 registered, epoch 1"
        assert line() == "live        dp=0 cp=0 tp=0 pp=0  10.0.0.0:9000"
    ask(*_register(group, 1))
    ask("route", "deregister", group, "--tp", 0)
    ask(*_register(group, 0, "--instance-id", "next", "--started-at", 2000))
    if form == "json":
        registered, removed, relaunched = line(), line(), line()
        assert [event["event"] for event in registered["events"]] == ["route_registered"]
        assert registered["events"][0]["route"]["rank_ip"] == "10.0.0.1"
        assert registered["state"]["ready"] is True
        assert removed["events"] == [
            {"event": "route_removed", "key": {"dp": 0, "cp": 0, "tp": 0, "pp": 0}, "incarnation": 7}
        ]
        assert [event["event"] for event in relaunched["events"]] == ["epoch_started", "route_registered"]
        assert relaunched["events"][0]["instance"] == {"id": "next", "started_at": 2000}
    else:
        assert [line() for _ in range(7)] == [
            "registered  dp=0 cp=0 tp=1 pp=0  10.0.0.1:9001",
            "state       ready, 2 of 2 registered, epoch 1",
            "removed     dp=0 cp=0 tp=0 pp=0",
            "state       incomplete, 1 of 2 registered, epoch 1",
            "epoch       2  'next' started at 2000",
            "registered  dp=0 cp=0 tp=0 pp=0  10.0.0.0:9000",
            "state       incomplete, 1 of 2 registered, epoch 2",
        ]
    watch.send_signal(signal.SIGINT)
    assert watch.communicate(timeout=PATIENCE) == ("", "")
    assert watch.returncode == 0


def test_a_watch_shows_a_group_that_nobody_knows_yet(services, start, group):
    watch = start("route", "watch", group, "--address", services)
    assert watch.stdout.readline() == "0  snapshot    empty, 0 of 0 registered, epoch 0\n"


def _serve(start, port=0):
    """A server with a state folder that outlives it, and its address."""
    server = start("serve", "bootstrap", "--port", port, "--json", "--log-level", "error")
    return server, json.loads(server.stdout.readline())["address"]


def _stop(server):
    server.terminate()
    assert server.wait(PATIENCE) == 0


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_watch_says_that_its_service_is_away_and_goes_on_where_it_stopped(start, run, group, form):
    server, address = _serve(start)
    revision = json.loads(run(*_register(group, 0), "--address", address, "--json").stdout)["revision"]
    watch = start("route", "watch", group, "--address", address, *(["--json"] if form == "json" else []))
    assert watch.stdout.readline()
    _stop(server)
    assert watch.stderr.readline().startswith(f"interlock: {address} is away and looked for: ")
    _serve(start, address.rpartition(":")[2])
    assert watch.stderr.readline() == f"interlock: {address} is back\n"
    assert run(*_register(group, 1), "--address", address).returncode == 0
    watch.stdout.readline() if form == "text" else None  # the live route of the snapshot
    line = watch.stdout.readline()
    if form == "text":
        assert line == f"{revision + 1}  registered  dp=0 cp=0 tp=1 pp=0  10.0.0.1:9001\n"
    else:
        assert [event["event"] for event in json.loads(line)["events"]] == ["route_registered"]
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=PATIENCE)
    assert watch.returncode == 0


def test_on_a_terminal_a_table_changes_in_place_and_outlives_its_service(start, run, group, tmp_path):
    server, address = _serve(start)
    registered = json.loads(run(*_register(group, 0), "--address", address, "--json").stdout)
    with Terminal(tmp_path, "route", "watch", group, "--address", address) as terminal:
        terminal.wait_for(
            f"{group}  incomplete  1 of 2 ranks registered, 1 missing", "missing: dp=0 cp=0 tp=1 pp=0", "#."
        )
        run(*_register(group, 1), "--address", address)
        picture = terminal.wait_for(f"{group}  ready  2 of 2 ranks registered", "10.0.0.1:9001", "##")
        assert "missing:" not in picture
        _stop(server)
        terminal.wait_for(f"{address} is away since ", "below is what it said last", "10.0.0.1:9001")
        _serve(start, address.rpartition(":")[2])
        terminal.wait_for(f"{address} is back since ", "10.0.0.1:9001")
        run(*_register(group, 1, "--rank-port", 9999, "--incarnation", 8), "--address", address)
        terminal.wait_for("10.0.0.1:9999")
        terminal.press("\x03")
        code, lines = terminal.end()
        assert code == 0
        assert lines[0].startswith(f"{address} is back since ")
        assert lines[1:6] == [
            f"{group}  ready  2 of 2 ranks registered",
            f"epoch 1  revision {registered['revision'] + 2}  'launch' started at 1000",
            "# live  ? undeclared  . missing",
            "           pp=0",
            "tp         01",
        ]
        cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
        assert [row[:4] for row in cells] == [
            ["RANK", "STATE", "ADDRESS", "INCARNATION"],
            ["dp=0 cp=0 tp=0 pp=0", "live", "10.0.0.0:9000", "7"],
            ["dp=0 cp=0 tp=1 pp=0", "live", "10.0.0.1:9999", "8"],
        ]
        # One was there before the watch began; the other one was seen to come.
        assert [row[4].startswith("before ") for row in cells[1:]] == [True, False]


def test_a_large_group_on_a_small_terminal_shows_first_what_is_in_trouble(services, group, tmp_path):
    sizes = ParallelSizes(8, 1, 8, 1)
    absent = {RankKey(2, 0, 5, 0), RankKey(7, 0, 7, 0)}
    with BootstrapClient(services) as client:
        for key in sizes.rank_keys():
            if key not in absent:
                client.register_route(Route(key, 1, sizes, "10.0.0.1", 9000, 64), Instance("launch", 1000), group=group)
    with Terminal(tmp_path, "route", "watch", group, "--address", services, columns=60, lines=24) as terminal:
        picture = terminal.wait_for("62 of 64 ranks registered", "more ranks")
        lines = [line.rstrip() for line in picture.splitlines()]
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 60
        assert "dp=2 cp=0  #####.##" in lines
        rows = [line.split("│")[1:3] for line in lines if line.startswith("│")]
        assert [[cell.strip() for cell in row] for row in rows[1:]] == [
            ["dp=0 cp=0 tp=0 pp=0", "live"],
            ["dp=2 cp=0 tp=5 pp=0", "missing"],
            ["dp=7 cp=0 tp=7 pp=0", "missing"],
        ]
        assert "... and 61 more ranks" in picture
        terminal.press("\x03")
        assert terminal.end()[0] == 0


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(services, group, tmp_path):
    with Terminal(tmp_path, "route", "watch", group, "--address", services, term="dumb") as terminal:
        terminal.wait_for("0  snapshot    empty, 0 of 0 registered, epoch 0")
        terminal.press("\x03")
        assert terminal.end()[0] == 0
