"""`interlock topology export` and `import`, between real stores."""

import json

from cli.running import serving

ROUTE = ("--rank-ip", "10.0.0.1", "--rank-port", "9000", "--page-size", "64")


def test_a_group_moves_from_one_state_folder_to_another_with_its_revision(run, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with serving(tmp_path / "one", "bootstrap", "--state-folder", str(tmp_path / "one")) as address:
        assert run("route", "register", "a", *ROUTE, "--address", address).returncode == 0
        before = json.loads(run("group", "list", "--json", "--address", address).stdout)
        busy = run("topology", "export", "--state-folder", "one")
        assert busy.returncode == 4
    exported = run("topology", "export", "--state-folder", "one", "-o", "dump.json")
    assert (exported.returncode, exported.stderr) == (0, "1 groups are in dump.json\n")
    imported = run("topology", "import", "dump.json", "--state-folder", "two")
    assert (imported.returncode, imported.stdout) == (0, "1 groups were written, 0 were so already\n")
    with serving(tmp_path / "two", "bootstrap", "--state-folder", str(tmp_path / "two")) as address:
        assert json.loads(run("group", "list", "--json", "--address", address).stdout) == before


def test_what_is_no_dump_is_refused_in_one_line(run, tmp_path):
    (tmp_path / "no.json").write_text("[")
    (tmp_path / "other.json").write_text("{}")
    for name, message in (
        ("no.json", "no.json: no JSON: "),
        ("other.json", "other.json: this is no dump"),
        ("none.json", "none.json: no such file or directory"),
    ):
        result = run("topology", "import", name, "--state-folder", "here")
        assert (result.returncode, message in result.stderr) == (1, True)
        assert len(result.stderr.splitlines()) == 1
