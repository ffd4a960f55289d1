"""The topology benchmark runs, without the peer, and says what came out as all benchmarks do."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_quick_run_without_the_peer_prints_our_rows_and_the_one_goal_that_needs_no_peer():
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.topology", "--quick", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    report = json.loads(run.stdout)
    assert report["benchmark"] == "topology"
    assert report["versions"].keys() == {"python", "grpcio", "protobuf"}

    measured = [row for row in report["rows"] if "ours" in row]
    assert [(row["what"], row["size"]) for row in measured] == [
        ("topology", "512 ranks, 64 clients, 64 decode clients"),
        ("rooms", "10000 rooms, 64 clients, ours 1000 a call"),
        ("registration", "512 ranks, 64 clients"),
        *(("registration", f"{ranks} ranks, 64 clients") for ranks in (64, 512, 2048)),
        *(("registration, watched", f"{ranks} ranks, 64 clients") for ranks in (64, 512, 2048)),
    ]
    assert all(row["ours"] > 0 and row["rounds"] >= 1 and "peer" not in row for row in measured)
    (left_out,) = (row for row in report["rows"] if row["what"] == "left out")
    assert "recovery" in left_out["size"]

    (goal,) = report["goals"]
    assert goal == {
        "name": "growth_exponent",
        "value": goal["value"],
        "limit": 1.1,
        "better": "lower",
        "met": goal["value"] <= 1.1,
    }
