"""`interlock bench`: how it runs benchmarks and shows what they say. The benchmarks here say the same at once."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.running import PATIENCE, environment, error_line
from interlock_cli.commands import bench

REPORT = {
    "benchmark": "kernel",
    "rounds": 7,
    "machine": "x86_64, 2 cores",
    "versions": {"python": "3.11.0", "numpy": "2.4.6"},
    "rows": [
        {"what": "cutting", "picture": "12 MP", "ours": 6.5},
        {"what": "cutting", "picture": "640x480", "ours": 0.25, "peer": 4.0},
        {"what": "copying", "bytes": 1000},
    ],
    "goals": [
        {"name": "ratio", "value": 3.04, "limit": 3.0, "better": "higher", "met": True},
        {"name": "share", "value": 0.12, "limit": 0.1, "better": "lower", "met": False},
    ],
}

SAYING = f"import sys\nprint({json.dumps(json.dumps(REPORT))} if sys.argv[1] == '--json' else '')\n"
FAILING = "raise SystemExit('12 MP JPEG: we and the peer gave different bytes')\n"
WAITING = """
import pathlib, time
try:
    pathlib.Path(__file__ + ".ready").touch()
    time.sleep(600)
finally:
    pathlib.Path(__file__ + ".ended").touch()
"""


@pytest.fixture
def say(tmp_path, monkeypatch):
    """Puts a benchmark in the place of the real ones."""

    def put(name: str, program: str) -> Path:
        folder = tmp_path / "source" / "benchmarks"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
        (folder / f"{name}.py").write_text(program)
        monkeypatch.setattr(bench, "_folder", lambda: folder.parent)
        return folder / f"{name}.py"

    return put


def test_rows_that_measure_the_same_stand_in_one_table_and_the_goals_in_the_last(invoke, say):
    say("kernel", SAYING)
    result = invoke("bench", "kernel")
    assert (result.exit_code, result.stderr) == (0, "interlock: measuring kernel\n")
    assert [line.split() for line in result.stdout.splitlines() if line] == [
        ["kernel:", "x86_64,", "2", "cores,", "7", "rounds;", "python", "3.11.0,", "numpy", "2.4.6"],
        ["cutting"],
        ["PICTURE", "OURS", "PEER"],
        ["12", "MP", "6.5", "-"],
        ["640x480", "0.25", "4"],
        ["copying"],
        ["BYTES"],
        ["1000"],
        ["GOAL", "VALUE", "LIMIT", "MET"],
        ["ratio", "3.04", ">=", "3", "yes"],
        ["share", "0.12", "<=", "0.1", "no"],
    ]


def test_json_has_the_reports_and_output_keeps_each_as_a_file(invoke, say, tmp_path):
    for name in ("kernel", "service"):
        say(name, SAYING)
    result = invoke("bench", "service", "kernel", "service", "--json", "--output", "kept")
    assert json.loads(result.stdout) == {"benchmarks": [REPORT, REPORT]}
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["kernel.json", "service.json"]
    assert json.loads((tmp_path / "kept" / "kernel.json").read_text()) == REPORT


def test_quick_and_the_folder_of_the_peers_are_handed_on(invoke, say, tmp_path):
    report = json.dumps(REPORT | {"rows": []})
    say("kernel", f"import json, sys\nprint(json.dumps(json.loads({report!r}) | {{'benchmark': sys.argv[1:]}}))\n")
    (tmp_path / "peers").mkdir()
    result = invoke("bench", "kernel", "--quick", "--peers", "peers", "--json")
    (said,) = json.loads(result.stdout)["benchmarks"]
    assert said["benchmark"] == ["--json", "--quick", "--peers", str(tmp_path / "peers")]


def test_a_benchmark_that_fails_ends_the_command_with_its_last_words(invoke, say):
    say("service", FAILING)
    result = invoke("bench", "service")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == (
        "interlock: the benchmark service failed: 12 MP JPEG: we and the peer gave different bytes"
    )


def test_an_unknown_benchmark_and_a_missing_folder_of_peers_are_wrong_usage(invoke):
    result = invoke("bench", "gpu")
    assert result.exit_code == 2
    assert "'gpu' is not one of 'kernel', 'decoding', 'topology', 'service'" in error_line(result)
    assert invoke("bench", "--peers", "nowhere").exit_code == 2


def test_where_there_are_no_benchmarks_the_message_says_where_they_are(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "a" / "interlock_cli" / "commands" / "bench.py"))
    result = invoke("bench", "kernel")
    assert (result.exit_code, result.stdout) == (1, "")
    assert error_line(result).startswith("this installation has no benchmarks; they are in the wheel and in a checkout")


def test_those_of_this_checkout_are_found_and_run(tmp_path):
    folder = bench._folder()
    for name in bench._NAMES:
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", "--help"],
            env={**environment(tmp_path), "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "--json" in done.stdout


def test_sigterm_lets_the_benchmark_end_what_it_began(say, tmp_path):
    program = say("kernel", WAITING)
    script = (
        "import pathlib, sys, interlock_cli\n"
        "from interlock_cli.commands import bench\n"
        f"bench._folder = lambda: pathlib.Path({str(program.parents[1])!r})\n"
        "sys.argv = ['interlock', 'bench', 'kernel']\n"
        "interlock_cli.main()\n"
    )
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen([sys.executable, "-c", script], env={**environment(tmp_path), "PYTHONPATH": path})
    with process:
        while not Path(f"{program}.ready").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 143
    assert Path(f"{program}.ended").exists()
