"""`interlock group`, against a served Bootstrap."""

import json
import os
import pty
import subprocess

from cli.running import COMMAND, PATIENCE, environment, error_line

INSTANCE = ["--instance-id", "launch", "--started-at", "1785312000000000000"]
LAUNCH = "'launch' started at 1785312000000000000 (2026-07-29 08:00:00 UTC)"


def _register(ask, group, dp, tp, *more):
    key = ["--dp", dp, "--dp-size", 2, "--tp", tp, "--tp-size", 4]
    address = ["--rank-ip", f"10.0.{dp}.{tp}", "--rank-port", 9000, "--page-size", 64]
    return ask("route", "register", group, *key, *address, *INSTANCE, *more)


def _six_of_eight(ask, group):
    """A group that lacks two ranks, and in which one rank has yet to declare what the others did."""
    _register(ask, group, 0, 0, "--kv-layout", "mla")
    for dp, tp in [(0, 1), (0, 2), (0, 3), (1, 0), (1, 3)]:
        registered = _register(ask, group, dp, tp, "--kv-cache-dtype", "bfloat16", "--pool", "kv", "--kv-layout", "mla")
    return registered["revision"]


def test_groups_are_listed_with_their_state(ask, group):
    revision = _six_of_eight(ask, group)
    [state] = [state for state in ask("group", "list")["groups"] if state["group"] == group]
    assert (state["ready"], state["revision"], state["missing_count"]) == (False, revision, 2)
    heading, *rows = ask.text("group", "list").stdout.splitlines()
    assert heading.split()[:6] == ["GROUP", "STATE", "REGISTERED", "EXPECTED", "EPOCH", "REVISION"]
    [row] = [row for row in rows if row.startswith(group)]
    assert row.split() == [group, "incomplete", "6", "8", "1", str(revision), "launch", "1785312000000000000"]


def test_a_group_is_shown_with_what_it_lacks_and_why(ask, group):
    revision = _six_of_eight(ask, group)
    assert ask.text("group", "show", group).stdout.splitlines() == [
        f"GROUP     {group}",
        "state     incomplete: 6 of 8 ranks registered, 2 missing, 1 undeclared",
        f"revision  {revision}",
        "epoch     1",
        f"instance  {LAUNCH}",
        f"floor     {LAUNCH}",
        "",
        "ranks: # live  ? undeclared  . missing",
        "           pp=0",
        "tp         0123",
        "dp=0 cp=0  ?###",
        "dp=1 cp=0  #..#",
        "",
        "missing: no route in epoch 1 (never came, was deregistered, or its lease ran out)",
        "  dp=1 cp=0 tp=1-2 pp=0",
        "",
        "undeclared: registered, and yet to declare what another rank declared",
        "  dp=0 cp=0 tp=0 pp=0: kv_cache_dtype, pools",
        "",
        "SHARED BY ITS RANKS           VALUE",
        "sizes.dp                      2",
        "sizes.cp                      1",
        "sizes.tp                      4",
        "sizes.pp                      1",
        "page_size                     64",
        "kv_cache_dtype                bfloat16",
        "kv_layout                     mla",
        "dsv41_spec_layout             undeclared",
        "load_balance_method           follow_bootstrap_room",
        "enable_dsa_cache_layer_split  no",
        "enable_kv_cache_sharding      no",
        "decode_allocation_policy      early",
        "pools                         kv",
    ]
    shown = ask("group", "show", group)
    assert shown["state"]["revision"] == revision
    assert shown["missing"] == [{"dp": 1, "cp": 0, "tp": tp, "pp": 0} for tp in (1, 2)]
    assert shown["undeclared"] == [{"key": {"dp": 0, "cp": 0, "tp": 0, "pp": 0}, "fields": ["kv_cache_dtype", "pools"]}]
    assert (shown["contract"]["page_size"], shown["contract"]["pools"]) == (64, ["kv"])


def test_a_long_list_of_missing_ranks_is_cut_and_whole_in_json(ask, group):
    key = ["--dp-size", 40, "--rank-ip", "h", "--rank-port", 1, "--page-size", 1]
    ask("route", "register", group, *key)
    lines = ask.text("group", "show", group).stdout.splitlines()
    assert lines[lines.index("  dp=16 cp=0 tp=0 pp=0") + 1] == "  ... and 23 more lines; --json has all"
    assert len(ask("group", "show", group)["missing"]) == 39


def test_a_forced_epoch_drops_the_routes_and_moves_the_floor(ask, group):
    revision = _six_of_eight(ask, group)
    forced = ask("group", "force-epoch", group, "--yes", "--floor-id", "run-7", "--floor-started-at", 7)
    assert forced == {"group": group, "revision": revision + 1, "epoch": 2, "dropped_routes": 6}
    assert ask.text("group", "show", group).stdout.splitlines() == [
        f"GROUP     {group}",
        "state     empty: no live route",
        f"revision  {revision + 1}",
        "epoch     2",
        "instance  -",
        "floor     'run-7' started at 7 (1970-01-01 00:00:00 UTC)",
    ]
    shown = ask("group", "show", group)
    assert (shown["contract"], shown["missing"], shown["undeclared"]) == (None, [], [])
    # The launch that was above the new floor all the time is taken again.
    assert _register(ask, group, 0, 0)["epoch"] == 3
    assert ask.text("group", "force-epoch", group, "--yes").stdout.splitlines()[1].split() == [
        *(group, "4", str(revision + 3), "1")
    ]


def test_where_nobody_can_be_asked_routes_are_dropped_only_with_yes(ask, services, run, group):
    _register(ask, group, 0, 0)
    result = run("group", "force-epoch", group, "--address", services, stdin=subprocess.DEVNULL)
    assert (result.returncode, result.stdout) == (2, "")
    assert error_line(result).startswith("this drops routes: say --yes where nobody can be asked; ")
    assert ask("route", "list", group)["state"]["registered"] == 1


def test_on_a_terminal_it_asks_before_it_drops_routes(ask, services, group, tmp_path):
    _register(ask, group, 0, 0)

    def answered(answer: str) -> "subprocess.CompletedProcess[str]":
        ours, theirs = pty.openpty()
        os.write(ours, answer.encode())
        command = [*COMMAND, "group", "force-epoch", group, "--address", services, "--json"]
        try:
            return subprocess.run(
                command, stdin=theirs, env=environment(tmp_path), capture_output=True, text=True, timeout=PATIENCE
            )
        finally:
            os.close(theirs)
            os.close(ours)

    refused = answered("n\n")
    assert refused.returncode == 1
    assert refused.stderr.endswith("interlock: nothing was changed\n")
    assert ask("route", "list", group)["state"]["registered"] == 1
    done = answered("y\n")
    assert (done.returncode, done.stderr) == (0, f"Drop 1 routes of group {group}? [y/N]: ")
    assert json.loads(done.stdout)["dropped_routes"] == 1
