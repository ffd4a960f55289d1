"""`interlock route`, `interlock info` and `interlock check`, against a served Bootstrap."""

import json

import pytest

from cli.running import error_line

SHARED = ["--tp-size", "2", "--page-size", "64", "--kv-cache-dtype", "bfloat16", "--pool", "swa", "--pool", "kv"]
INSTANCE = ["--instance-id", "launch", "--started-at", "1000"]
LAYOUT = {
    "num_draft_tokens": 3,
    "compression_ratios": [1, 4],
    "kv_layer_ids": [0, 1],
    "kv_item_lens": [2**63, 18432],
    "state_types": ["swa"],
    "state_item_lens": [[9216]],
    "z_new": {"b": 1, "a": [1.5, None]},
}


def _register(group, tp, *more):
    address = ["--rank-ip", f"10.0.0.{tp}", "--rank-port", 9000 + tp]
    return ["route", "register", group, "--tp", tp, *address, *SHARED, *INSTANCE, "--incarnation", 7, *more]


def test_a_group_from_its_first_rank_to_its_aggregate(ask, group):
    first = ask(*_register(group, 0, "--expected-revision", 0))
    assert (first["epoch"], first["registered"], first["expected"], first["ready"]) == (1, 1, 2, False)
    assert first["instance"] == {"id": "launch", "started_at": 1000}

    listed = ask("route", "list", group)
    assert listed["state"]["missing_keys"] == [{"dp": 0, "cp": 0, "tp": 1, "pp": 0}]
    assert listed["routes"] == [
        {
            "key": {"dp": 0, "cp": 0, "tp": 0, "pp": 0},
            "incarnation": 7,
            "sizes": {"dp": 1, "cp": 1, "tp": 2, "pp": 1},
            "rank_ip": "10.0.0.0",
            "rank_port": 9000,
            "page_size": 64,
            "kv_cache_dtype": "bfloat16",
            "pools": ["kv", "swa"],
        }
    ]

    not_ready = ask("info", group, exit_code=1)["error"]
    assert not_ready["reason"] == "NOT_READY"
    assert not_ready["state"]["missing_keys"] == [{"dp": 0, "cp": 0, "tp": 1, "pp": 0}]

    second = ask(*_register(group, 1, "--expected-revision", first["revision"]))
    assert second["revision"] > first["revision"]
    assert (second["registered"], second["ready"]) == (2, True)

    info = ask("info", group)
    assert info["revision"] == second["revision"]
    assert info["info"] == {
        "sizes": {"dp": 1, "cp": 1, "tp": 2, "pp": 1},
        "page_size": 64,
        "kv_cache_dtype": "bfloat16",
        "load_balance_method": "follow_bootstrap_room",
        "enable_dsa_cache_layer_split": False,
        "enable_kv_cache_sharding": False,
        "decode_allocation_policy": "early",
        "pools": ["kv", "swa"],
    }
    text = ask.text("info", group).stdout
    rows = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert rows["sizes.tp"] == "2"
    assert rows["pools"] == "kv, swa"
    assert rows["dsv41_spec_layout"] == "undeclared"
    assert rows["instance"] == "'launch' started at 1000"


def test_tables_show_what_is_live_and_what_is_missing(ask, group):
    result = ask.text(*_register(group, 0, "--prefill-http-port", 30000))
    heading, _ = result.stdout.splitlines()
    assert heading.split() == ["GROUP", "RANK", "REVISION", "EPOCH", "REGISTERED", "EXPECTED", "READY"]
    assert ask.text("route", "list", group).stdout.splitlines() == [
        "RANK                 ADDRESS        INCARNATION  HTTP PORT  STATE",
        "dp=0 cp=0 tp=0 pp=0  10.0.0.0:9000            7      30000  live",
        "dp=0 cp=0 tp=1 pp=0  -                        -          -  missing",
    ]
    refused = ask.text("info", group)
    assert refused.exit_code == 1
    assert refused.stdout.splitlines() == ["RANK                 STATE", "dp=0 cp=0 tp=1 pp=0  missing"]
    assert error_line(refused) == f"group '{group}' is not ready: 1 of 2 ranks are registered [NOT_READY]"


def test_a_rank_that_does_not_fit_is_shown_every_field_with_both_values_and_who_holds_it(ask, group):
    ask(*_register(group, 0))
    misfit = [
        "route",
        "register",
        group,
        "--tp",
        1,
        "--tp-size",
        4,
        "--page-size",
        32,
        "--rank-ip",
        "h",
        "--rank-port",
        1,
    ]
    misfit += ["--kv-cache-dtype", "bfloat16", "--pool", "kv", "--pool", "swa", "--enable-kv-cache-sharding"]
    error = ask(*misfit, exit_code=1)["error"]
    assert error["reason"] == "CONTRACT_MISMATCH"
    held_by = {"dp": 0, "cp": 0, "tp": 0, "pp": 0}
    told = [("sizes.tp", "2", "4"), ("page_size", "64", "32"), ("enable_kv_cache_sharding", "false", "true")]
    assert error["mismatches"] == [
        {"field": field, "standing_value": standing, "offered_value": offered, "held_by": held_by}
        for field, standing, offered in told
    ]
    result = ask.text(*misfit)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"does not fit group {group}; what differs:",
        "FIELD                     STANDING  OFFERED  HELD BY",
        "sizes.tp                  2         4        dp=0 cp=0 tp=0 pp=0",
        "page_size                 64        32       dp=0 cp=0 tp=0 pp=0",
        "enable_kv_cache_sharding  false     true     dp=0 cp=0 tp=0 pp=0",
    ]
    assert error_line(result).endswith("[CONTRACT_MISMATCH, field sizes.tp, page_size, enable_kv_cache_sharding]")


def test_the_loser_of_a_compare_and_swap_is_told_what_stands(ask, group):
    first = ask(*_register(group, 0))
    error = ask(*_register(group, 1, "--expected-revision", 0), exit_code=1)["error"]
    assert error["reason"] == "REVISION_CONFLICT"
    assert error["conflict"]["revision"] == first["revision"]
    assert error["conflict"]["instance"] == {"id": "launch", "started_at": 1000}


def test_ranks_registered_by_hand_join_the_launch_that_is_served(ask, group):
    by_hand = ["--rank-ip", "::1", "--rank-port", 1, "--page-size", 1, "--tp-size", 2]
    first = ask("route", "register", group, "--tp", 0, *by_hand)
    second = ask("route", "register", group, "--tp", 1, *by_hand)
    assert second["instance"] == first["instance"]
    assert (second["epoch"], second["ready"]) == (1, True)
    # When the last one has gone, the next one begins a launch that the group accepts.
    for tp in range(2):
        assert ask("route", "deregister", group, "--tp", tp)["removed"] is True
    third = ask("route", "register", group, "--tp", 0, *by_hand)
    assert third["instance"]["started_at"] > first["instance"]["started_at"]
    assert (third["epoch"], third["registered"]) == (2, 1)


def test_deregistering_touches_only_what_it_names(ask, group):
    ask(*_register(group, 0))
    assert ask("route", "deregister", group, "--tp", 1)["removed"] is False
    assert ask("route", "deregister", group, "--incarnation", 6)["removed"] is False
    assert ask("route", "deregister", group, "--instance-id", "other", "--started-at", 5)["removed"] is False
    result = ask.text("route", "deregister", group)
    assert result.stdout.splitlines()[1].split()[:6] == [group, "dp=0", "cp=0", "tp=0", "pp=0", "yes"]
    assert ask("route", "deregister", group)["removed"] is False
    assert ask("route", "list", group)["state"]["registered"] == 0
    assert ask("route", "deregister", "never-registered")["revision"] == 0


def test_a_layout_is_read_and_shown_in_the_form_of_the_engine(ask, group, tmp_path):
    (tmp_path / "layout.json").write_text(json.dumps(LAYOUT))
    (tmp_path / "none.json").write_text("null")
    ask(*_register(group, 0, "--spec-layout", "layout.json"))
    [route] = ask("route", "list", group)["routes"]
    assert route["dsv41_spec_layout"] == LAYOUT
    # Undeclared and declared none are refused beside it, in two different ways.
    offered = []
    for more in ([], ["--no-spec-layout"], ["--spec-layout", "none.json"]):
        [mismatch] = ask(*_register(group, 1, *more), exit_code=1)["error"]["mismatches"]
        assert mismatch["field"] == "dsv41_spec_layout"
        offered.append(mismatch["offered_value"])
    assert offered == ["undeclared", "none", "none"]
    assert ask(*_register(group, 1, "--spec-layout", "layout.json"))["ready"] is True


def test_none_and_undeclared_differ_in_json_and_in_the_table(ask, group):
    one_rank = ["--rank-ip", "h", "--rank-port", 1, "--page-size", 1]
    ask("route", "register", group, *one_rank, "--no-spec-layout")
    assert ask("info", group)["info"]["dsv41_spec_layout"] is None
    assert "dsv41_spec_layout             none\n" in ask.text("info", group).stdout


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "no JSON: "),
        ("[" * 100_000, "no JSON: "),
        ("[1]", "expected an object with the layout, or null for a server that has none "),
        ('{"kv_layer_ids": [1, -1]}', "kv_layer_ids must be a list of numbers from 0 to 18446744073709551615 "),
        ('{"kv_layer_ids": [1.0]}', "kv_layer_ids must be a list of numbers "),
        ('{"kv_layer_ids": [true]}', "kv_layer_ids must be a list of numbers "),
        ('{"num_draft_tokens": "3"}', "num_draft_tokens must be a number "),
        ('{"state_types": "swa"}', "state_types must be a list of texts "),
        ('{"state_item_lens": [1]}', "state_item_lens must be a list of lists of numbers "),
        ('{"new": 1e999}', "new: "),
        ('{"new": NaN}', "new: "),
        (" " * 1_100_000, "more than 1048576 bytes, the most that is read"),
    ],
)
def test_a_file_that_is_no_layout_is_one_line(ask, group, tmp_path, text, line):
    (tmp_path / "layout.json").write_text(text)
    result = ask.text("check", group, "--page-size", 1, "--spec-layout", "layout.json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert error_line(result).startswith(f"layout.json: {line}")


def test_every_fault_of_a_request_is_named_in_one_line(ask, group):
    faulty = ["route", "register", group, "--rank-ip", "a b", "--rank-port", 0, "--page-size", 0, "--tp", 3]
    error = ask(*faulty, exit_code=1)["error"]
    fields = [violation["field"] for violation in error["field_violations"]]
    assert fields == ["route.key.tp", "route.rank_ip", "route.rank_port", "route.page_size"]
    line = error_line(ask.text(*faulty))
    assert all(field in line for field in fields)
    assert line.endswith("[INVALID_FIELD]")


@pytest.mark.parametrize(
    ("args", "code", "line"),
    [
        (["info", "nonsuch"], 1, "group 'nonsuch' is unknown: "),
        (["route", "list", "nonsuch"], 1, "nobody has registered in group 'nonsuch' [UNKNOWN_GROUP"),
        (["check", "nonsuch", "--page-size", 1], 1, "group 'nonsuch' is unknown: "),
        (["info", "Not A Label"], 1, "group: must be 1 to 63 of a-z, 0-9 and '-'"),
        (["info", "\udc80"], 2, "a text on the command line is no valid UTF-8; see "),
        (["check", "g", "--page-size", 1, "--pool", "KV"], 2, "--pool: unknown pool name 'KV'"),
        (["check", "g", "--page-size", -1], 2, "invalid value for '--page-size': -1 is not in the range"),
        (["check", "g", "--page-size", 1, "--no-spec-layout", "--spec-layout", "f"], 2, "--spec-layout and --no-spec-"),
        (["route", "deregister", "g", "--started-at", 1], 2, "--instance-id and --started-at go together"),
        (["info", "g", "--address", "127.0.0.1:1"], 3, "127.0.0.1:1: "),
        (["route", "watch", "g", "--address", "127.0.0.1:1"], 3, "127.0.0.1:1: "),
        (["group", "show", "nonsuch"], 1, "nobody has registered in group 'nonsuch' [UNKNOWN_GROUP"),
        (["group", "force-epoch", "nonsuch", "--yes"], 1, "nobody has registered in group 'nonsuch' [UNKNOWN_GROUP"),
        (["group", "force-epoch", "g", "--yes", "--floor-id", "x"], 2, "--floor-id and --floor-started-at go together"),
        (["group", "list", "--address", "a b"], 2, "address is 'a b'; expected host:port"),
    ],
)  # fmt: skip
def test_an_error_has_its_line_and_its_exit_code(ask, args, code, line):
    result = ask.text(*args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert error_line(result).startswith(line)


def test_a_decode_server_that_fits_is_told_so(ask, group):
    ask(*_register(group, 0))
    fits = ["check", group, "--page-size", 64, "--tp-size", 4, "--kv-cache-dtype", "bfloat16"]
    answer = ask(*fits)
    assert (answer["fits"], answer["incompatibilities"], answer["ready"]) == (True, [], False)
    assert ask.text(*fits).stdout == (
        f"fits group {group} at revision {answer['revision']}, as far as its ranks have declared: it is not ready yet\n"
    )
    ask(*_register(group, 1))
    answer = ask(*fits)
    assert answer["ready"] is True
    assert ask.text(*fits).stdout == f"fits group {group} at revision {answer['revision']}\n"


def test_a_decode_server_that_does_not_fit_sees_every_violation(ask, group):
    ask(*_register(group, 0))
    misfit = ["check", group, "--page-size", 32, "--tp-size", 3, "--cp-size", 2, "--pool", "kv"]
    answer = ask(*misfit, exit_code=1)
    assert answer["fits"] is False
    violations = {v["field"]: (v["prefill_value"], v["decode_value"]) for v in answer["incompatibilities"]}
    assert violations == {
        "page_size": ("64", "32"),
        "pools": ("kv,swa", "kv"),
        "sizes.cp": ("1", "2"),
        "sizes.tp": ("2", "3"),
    }
    result = ask.text(*misfit)
    assert (result.exit_code, result.stderr) == (1, "")
    heading, *rows = result.stdout.splitlines()
    assert heading.split() == ["FIELD", "PREFILL", "DECODE", "WHY"]
    assert [row.split()[0] for row in rows] == list(violations)
