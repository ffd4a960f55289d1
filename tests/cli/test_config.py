"""`interlock config check`, and that a server tells of all that is wrong with its settings at once."""

import json

WRONG = """
[server]
port = 70000
hots = "127.0.0.1"

[bootstrap]
max_groups = 0

[tls]
key_file = "server.key"
"""


def test_all_faults_are_told_at_once(run, tmp_path):
    (tmp_path / "interlock.toml").write_text(WRONG)
    result = run("config", "check", "--config", "interlock.toml")
    assert (result.returncode, result.stderr) == (2, "")
    assert result.stdout.splitlines() == [
        "interlock.toml: [server] port: expected an integer from 0 to 65535, got 70000",
        "interlock.toml: [server] has no setting 'hots'; did you mean 'host'?",
        "interlock.toml: [bootstrap] max_groups: expected an integer, at least 1, got 0",
    ]
    served = run("serve", "bootstrap", "--config", "interlock.toml", "--watch-buffer", "x")
    assert served.returncode == 2
    for fault in (*result.stdout.splitlines(), "--watch-buffer: expected an integer"):
        assert fault in served.stderr


def test_files_that_settings_name_are_looked_at(run, tmp_path):
    (tmp_path / "interlock.toml").write_text(
        '[server]\nhost = "0.0.0.0"\n[tls]\nkey_file = "k"\ncertificate_file = "c"\n[access]\ncredentials_file = "t"\n'
    )
    result = run("config", "check", "bootstrap", "--config", "interlock.toml", "--json")
    assert result.returncode == 2
    assert json.loads(result.stdout) == {"faults": ["c: No such file or directory", "t: No such file or directory"]}


def test_what_differs_from_the_defaults_is_shown(run, tmp_path):
    (tmp_path / "interlock.toml").write_text("[server]\nport = 6000\ngrace_seconds = 25\n")
    result = run("config", "check", "--config", "interlock.toml", "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout)["changed"] == [{"table": "server", "name": "port", "value": "6000"}]
    assert run("config", "check", "--config", "interlock.toml").stdout.split() == (
        ["TABLE", "SETTING", "VALUE", "[server]", "port", "6000"]
    )
