"""Alerts and dashboard, by Prometheus' own tool."""

import json
import shutil
import subprocess
import sys

import pytest
import yaml

from deploy.alerts import CASES
from deploy.manifests import KUBERNETES, ROOT, built, named

DASHBOARD = KUBERNETES / "components" / "monitoring" / "dashboard.json"


def groups():
    return named(built("prod"), "PrometheusRule", "interlock")["spec"]["groups"]


def alerts():
    return {rule["alert"]: rule for group in groups() for rule in group["rules"]}


def promtool(*arguments):
    assert shutil.which("promtool"), "`promtool` is not on the PATH: apt-get install prometheus"
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.fixture
def rules(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": groups()}))
    return file


def test_the_rules_are_such_that_prometheus_takes_them(rules):
    told = promtool("check", "rules", rules)
    assert told.returncode == 0, told.stdout + told.stderr
    assert f"{len(alerts())} rules found" in told.stdout


def test_every_alert_has_a_case_and_says_what_is_wrong_and_how_bad():
    assert sorted(case.alert for case in CASES) == sorted(alerts())
    for name, rule in alerts().items():
        assert rule["labels"].keys() == {"severity"}, name
        assert rule["labels"]["severity"] in ("warning", "critical"), name
        assert rule["annotations"].keys() == {"summary", "description"}, name


@pytest.mark.parametrize("case", CASES, ids=[case.alert for case in CASES])
def test_an_alert_fires_when_it_should_and_not_else(case, rules, tmp_path):
    def told(series):
        """Whether promtool agrees that the alert is silent."""
        test = {
            "rule_files": [str(rules)],
            "evaluation_interval": "1m",
            "tests": [
                {
                    "interval": "1m",
                    "input_series": [{"series": name, "values": values} for name, values in series.items()],
                    "alert_rule_test": [{"eval_time": f"{case.minutes}m", "alertname": case.alert, "exp_alerts": []}],
                }
            ],
        }
        file = tmp_path / "test.yaml"
        file.write_text(yaml.safe_dump(test))
        return promtool("test", "rules", file)

    quiet = told(case.quiet)
    assert quiet.returncode == 0, quiet.stdout + quiet.stderr
    fires = told(case.fires)
    assert fires.returncode == 1
    summary = alerts()[case.alert]["annotations"]["summary"].split("{{")[0].strip()
    assert f'alertname="{case.alert}"' in fires.stdout + fires.stderr
    assert summary in fires.stdout + fires.stderr


def test_the_dashboard_is_what_the_script_writes():
    told = subprocess.run(
        [sys.executable, "-c", "import dashboard; print(dashboard.text(), end='')"],
        cwd=ROOT / "scripts",
        capture_output=True,
        text=True,
        check=True,
    )
    assert DASHBOARD.read_text() == told.stdout


def test_every_query_of_the_dashboard_is_one_that_prometheus_takes(tmp_path):
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(queries) > 30
    recorded = [
        {"record": f"dashboard:query{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(queries)
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    told = promtool("check", "rules", file)
    assert told.returncode == 0, told.stdout + told.stderr


def test_panels_do_not_lie_over_each_other():
    taken = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
