"""Writes the Grafana dashboard from its description here: `python scripts/dashboard.py`. A test compares."""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent.parent / "deploy/kubernetes/components/monitoring/dashboard.json"

B, P = 'job="interlock-bootstrap"', 'job="interlock-preprocess"'
_QUANTILE = "histogram_quantile({q}, sum by (le{by}) (rate({name}_bucket{{{of}}}[$__rate_interval])))"


def _rate(metric: str, of: str, by: str = "", more: str = "") -> str:
    selector = f"{of},{more}" if more else of
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{selector}}}[$__rate_interval]))"


def _quantile(q: float, name: str, of: str, by: str = "") -> str:
    return _QUANTILE.format(q=q, name=name, of=of, by=f", {by}" if by else "")


ROWS: list[tuple[str, list[tuple[str, str, str, list[tuple[str, str]]]]]] = [
    (
        "At a glance",
        [
            ("Bootstrap servers up", "stat", "short", [(f"sum(up{{{B}}})", "")]),
            ("Preprocess pods up", "stat", "short", [(f"sum(up{{{P}}})", "")]),
            ("Groups ready", "stat", "short", [(f"max(interlock_groups_ready{{{B}}})", "")]),
            ("Ranks missing", "stat", "short", [(f"max(interlock_ranks_missing{{{B}}})", "")]),
            ("Pictures a thread", "stat", "short", [(f"avg(interlock_preprocess_demand{{{P}}})", "")]),
            (
                "Faults of servers a second",
                "stat",
                "short",
                [
                    (
                        _rate(
                            "grpc_server_call_duration_seconds_count",
                            'job=~"interlock-.*"',
                            more='grpc_status=~"INTERNAL|UNKNOWN|DATA_LOSS"',
                        ),
                        "",
                    )
                ],
            ),
        ],
    ),
    (
        "Bootstrap: groups",
        [
            (
                "Groups",
                "timeseries",
                "short",
                [(f"max(interlock_groups{{{B}}})", "known"), (f"max(interlock_groups_ready{{{B}}})", "ready")],
            ),
            (
                "Ranks",
                "timeseries",
                "short",
                [
                    (f"max(interlock_ranks_registered{{{B}}})", "registered"),
                    (f"max(interlock_ranks_missing{{{B}}})", "missing"),
                ],
            ),
            (
                "Groups that lack ranks",
                "timeseries",
                "short",
                [(f"max by (group) (interlock_group_ranks_missing{{{B}}})", "{{group}}")],
            ),
            (
                "Epochs, expired leases",
                "timeseries",
                "short",
                [
                    (_rate("interlock_epochs_started_total", B), "epochs a second"),
                    (_rate("interlock_lease_expiries_total", B), "leases a second"),
                ],
            ),
            (
                "Refusals by reason",
                "timeseries",
                "reqps",
                [(_rate("interlock_refusals_total", B, "reason"), "{{reason}}")],
            ),
            ("Watches", "timeseries", "short", [(f"sum by (pod) (interlock_watchers{{{B}}})", "{{pod}}")]),
            ("Rooms", "timeseries", "short", [(f"max(interlock_rooms{{{B}}})", "rooms")]),
        ],
    ),
    (
        "Bootstrap: calls and store",
        [
            (
                "Calls a second",
                "timeseries",
                "reqps",
                [(_rate("grpc_server_call_started_total", B, "grpc_method"), "{{grpc_method}}")],
            ),
            (
                "RegisterRoute",
                "timeseries",
                "s",
                [
                    (
                        _quantile(
                            q,
                            "grpc_server_call_duration_seconds",
                            f'{B},grpc_method="interlock.bootstrap.v1.BootstrapService/RegisterRoute"',
                        ),
                        name,
                    )
                    for q, name in ((0.5, "median"), (0.99, "99 %"))
                ],
            ),
            (
                "Commits",
                "timeseries",
                "s",
                [
                    (_quantile(q, "interlock_store_commit_seconds", B), name)
                    for q, name in ((0.5, "median"), (0.99, "99 %"))
                ],
            ),
            (
                "Commits, lost races",
                "timeseries",
                "short",
                [
                    (_rate("interlock_store_commit_seconds_count", B), "commits a second"),
                    (_rate("interlock_committed_requests_total", B), "requests a second"),
                    (_rate("interlock_store_lost_races_total", B), "lost races a second"),
                ],
            ),
        ],
    ),
    (
        "Preprocess",
        [
            (
                "Pictures a second",
                "timeseries",
                "short",
                [
                    (_rate("interlock_preprocess_pictures_served_total", P), "served"),
                    (_rate("interlock_preprocess_pictures_failed_total", P, "reason"), "{{reason}}"),
                ],
            ),
            (
                "Where patches came from",
                "timeseries",
                "short",
                [(_rate("interlock_preprocess_pictures_found_total", P, "how"), "{{how}}")],
            ),
            (
                "Threads and queue",
                "timeseries",
                "short",
                [
                    (f"sum(interlock_preprocess_threads{{{P}}})", "threads"),
                    (f"sum(interlock_preprocess_threads_busy{{{P}}})", "busy"),
                    (f"sum(interlock_preprocess_pictures_queued{{{P}}})", "queued"),
                    (f"sum(interlock_preprocess_pictures_in_flight{{{P}}})", "in flight"),
                ],
            ),
            ("Demand by pod", "timeseries", "short", [(f"interlock_preprocess_demand{{{P}}}", "{{pod}}")]),
            (
                "Wait",
                "timeseries",
                "s",
                [
                    (_quantile(q, "interlock_preprocess_wait_seconds", P), name)
                    for q, name in ((0.5, "median"), (0.99, "99 %"))
                ],
            ),
            (
                "Decode, 95 %",
                "timeseries",
                "s",
                [(_quantile(0.95, "interlock_preprocess_decode_seconds", P, "format"), "{{format}}")],
            ),
            (
                "Kernel, 95 %",
                "timeseries",
                "s",
                [(_quantile(0.95, "interlock_preprocess_kernel_seconds", P, "format"), "{{format}}")],
            ),
            (
                "Bytes",
                "timeseries",
                "Bps",
                [
                    (_rate("interlock_preprocess_source_bytes_total", P, "format"), "{{format}}"),
                    (_rate("interlock_preprocess_patch_bytes_total", P), "patches"),
                ],
            ),
            (
                "Budgets, the fullest pod",
                "timeseries",
                "percentunit",
                [
                    (
                        f"max by (budget) (interlock_preprocess_budget_taken_bytes{{{P}}}"
                        f" / interlock_preprocess_budget_limit_bytes{{{P}}})",
                        "{{budget}}",
                    )
                ],
            ),
            (
                "Evictions",
                "timeseries",
                "short",
                [(_rate("interlock_preprocess_cache_evictions_total", P), "a second")],
            ),
        ],
    ),
    (
        "Processes",
        [
            (
                "Running calls",
                "timeseries",
                "short",
                [('sum by (pod) (interlock_calls_running{job=~"interlock-.*"})', "{{pod}}")],
            ),
        ],
    ),
]
"""Rows, each with panels: title, kind, unit, and the queries with their legends."""


def dashboard() -> dict[str, Any]:
    """The whole of it, as Grafana imports it."""
    source = {"type": "prometheus", "uid": "${source}"}
    panels: list[dict[str, Any]] = []
    y = 0
    for title, contents in ROWS:
        panels.append(
            {
                "type": "row",
                "title": title,
                "gridPos": {"h": 1, "w": 24, "x": 0, "y": y},
                "collapsed": False,
                "panels": [],
            }
        )
        y += 1
        stats = contents[0][1] == "stat"
        width, height = (4, 4) if stats else (8, 8)
        for number, (name, kind, unit, queries) in enumerate(contents):
            line, column = divmod(number, 24 // width)
            panels.append(
                {
                    "type": kind,
                    "title": name,
                    "datasource": source,
                    "gridPos": {"h": height, "w": width, "x": column * width, "y": y + line * height},
                    "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                    "targets": [
                        {"refId": chr(ord("A") + at), "datasource": source, "expr": query, "legendFormat": legend}
                        for at, (query, legend) in enumerate(queries)
                    ],
                }
            )
        y += -(-len(contents) // (24 // width)) * height
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    return {
        "uid": "interlock",
        "title": "Interlock",
        "tags": ["interlock"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus", "hide": 0}]
        },
        "panels": panels,
    }


def text() -> str:
    """As it stands in the file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
