"""Containers of the manifests, started: probes are answered, calls are served, and what is scraped has the names that
alerts, dashboard and autoscaler ask for."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2

from deploy.manifests import KUBERNETES, built, environment, named
from deploy.starting import Started, scraped, started
from etcd_cluster import EtcdCluster, etcd_cluster, make_certificates
from interlock.client import BootstrapClient, PreprocessClient, RefusedError
from interlock.topology import Instance, ParallelSizes, RankKey, Route
from preprocess.callers import picture_file

OF_PROMETHEUS = {"up": {"job", "pod"}}
OF_OTHER_EXPORTERS = {
    "kube_cronjob_status_last_successful_time": {"namespace", "cronjob"},
    "certmanager_certificate_expiration_timestamp_seconds": {"namespace", "name"},
}
"""Of kube-state-metrics and cert-manager, which run elsewhere in the cluster."""
TARGET = {"job", "pod", "namespace", "le"}
"""Labels that Prometheus adds, and that of a histogram."""

LAUNCH = Instance("launch", 1)
ROUTE = Route(RankKey(0, 0, 0, 0), 1, ParallelSizes(1, 1, 2, 1), "10.0.0.1", 9000, 64)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with etcd_cluster(1, make_certificates(tmp_path_factory.mktemp("etcd"))) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory, etcd: EtcdCluster) -> Iterator[dict[str, Started]]:
    """Those of `prod`."""
    with ExitStack() as stack:
        yield {
            service: stack.enter_context(started("prod", service, tmp_path_factory.mktemp(service), etcd))
            for service in ("bootstrap", "preprocess")
        }


@pytest.mark.parametrize("service", ["bootstrap", "preprocess"])
def test_a_container_of_prod_answers_all_its_probes(services, service):
    for probe in ("startup", "liveness", "readiness"):
        assert services[service].probe(probe) == health_pb2.HealthCheckResponse.SERVING


def test_bootstrap_of_prod_serves_callers_with_certificate_and_token(services, etcd):
    bootstrap = services["bootstrap"]
    with BootstrapClient(bootstrap.address, credentials=bootstrap.credentials) as client:
        client.register_route(ROUTE, LAUNCH, group="team-a")
        assert [group.group for group in client.list_groups()] == ["team-a"]
    assert etcd.keys("/interlock/")
    without_token = type(bootstrap.credentials)(
        ca_file=bootstrap.credentials.ca_file,
        certificate_file=bootstrap.credentials.certificate_file,
        key_file=bootstrap.credentials.key_file,
    )
    with BootstrapClient(bootstrap.address, credentials=without_token) as client, pytest.raises(RefusedError):
        list(client.list_groups())


def test_preprocess_of_prod_makes_patches(services):
    preprocess = services["preprocess"]
    with PreprocessClient(preprocess.address, credentials=preprocess.credentials, shared_memory=False) as client:
        assert client.preprocess(picture_file(1, 300, 200)).plan.token_count > 0


def test_preprocess_with_the_volume_for_shared_memory_puts_patches_there(tmp_path):
    with started("prod-with-all", "preprocess", tmp_path) as preprocess:
        folder = tmp_path / "patches"
        with PreprocessClient(
            preprocess.address,
            credentials=preprocess.credentials,
            shared_memory=True,
            shared_memory_folder=folder,
            shared_memory_bytes=64 << 20,
        ) as client:
            assert client.preprocess(picture_file(1, 300, 200)).in_shared_memory


def test_the_pod_of_dev_serves_both_to_everyone(tmp_path):
    with started("dev", "all", tmp_path) as both:
        assert both.probe("readiness") == health_pb2.HealthCheckResponse.SERVING
        with BootstrapClient(both.address) as client:
            client.register_route(ROUTE, LAUNCH)
        with PreprocessClient(both.address, shared_memory=False) as client:
            assert client.preprocess(picture_file(1, 300, 200)).plan.token_count > 0
        assert (tmp_path / "state" / "bootstrap.db").exists()
        assert {"interlock_groups", "interlock_preprocess_demand"} <= both.metrics().keys()


# Metrics


@pytest.fixture(scope="module")
def exposed(services, etcd) -> dict[str, set[str]]:
    """All that Prometheus gets of `prod`, after calls of each kind: names with their labels."""
    bootstrap, preprocess = services["bootstrap"], services["preprocess"]
    with BootstrapClient(bootstrap.address, credentials=bootstrap.credentials) as client:
        client.register_route(ROUTE, LAUNCH, group="team-b")
        with pytest.raises(RefusedError):
            client.get_rank_info(RankKey(0, 0, 1, 0), group="none")
    with PreprocessClient(preprocess.address, credentials=preprocess.credentials, shared_memory=False) as client:
        client.preprocess(picture_file(2, 300, 200, "JPEG"))
        with pytest.raises(RefusedError):
            client.preprocess(b"this is no picture")
    names: dict[str, set[str]] = {}
    member = etcd.members[0]
    for one in (bootstrap.metrics(), preprocess.metrics(), scraped(member.metrics_port)):
        for name, labels in one.items():
            names.setdefault(name, set()).update(labels)
    return names


def expressions() -> list[tuple[str, str]]:
    """Every query of alerts and dashboard, by where it stands."""
    rules = named(built("prod"), "PrometheusRule", "interlock")["spec"]["groups"]
    dashboard = json.loads((KUBERNETES / "components/monitoring/dashboard.json").read_text())
    return [(rule["alert"], rule["expr"]) for group in rules for rule in group["rules"]] + [
        (panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", [])
    ]


def test_every_query_asks_for_metrics_and_labels_that_are_there(exposed):
    known = {**exposed, **OF_PROMETHEUS, **OF_OTHER_EXPORTERS}
    asked = set()
    for where, expression in expressions():
        selectors = re.findall(r"([a-z_]+)\{([^}]*)\}", expression)
        assert selectors, where
        labels_there = set(TARGET)
        for metric, matchers in selectors:
            assert metric in known, f"{where}: nothing exposes {metric}"
            asked.add(metric)
            labels_there |= known[metric]
            for label in re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", matchers):
                assert label in known[metric] | TARGET, f"{where}: {metric} has no label {label}"
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            for label in filter(None, map(str.strip, grouped.split(","))):
                assert label in labels_there, f"{where}: no label {label}"
    # What was made to be looked at is looked at.
    ours = {name for name in exposed if name.startswith("interlock_") and not name.endswith("_created")}
    unseen = {
        name for name in ours if not any(name.startswith(re.sub(r"_(bucket|sum|count)$", "", seen)) for seen in asked)
    }
    assert unseen == set()


def test_the_autoscaler_asks_for_a_metric_that_is_there(exposed):
    scaler = named(built("prod-with-all"), "HorizontalPodAutoscaler", "interlock-preprocess")
    (metric,) = scaler["spec"]["metrics"]
    assert exposed[metric["pods"]["metric"]["name"]] == set()


# etcd


def test_the_variables_of_etcd_are_flags_that_it_has():
    known = set(re.findall(r"--([a-z-]+)", subprocess.run(["etcd", "--help"], capture_output=True, text=True).stdout))
    members = named(built("prod"), "StatefulSet", "interlock-etcd")
    (container,) = members["spec"]["template"]["spec"]["containers"]
    for variable in environment(container):
        assert variable.removeprefix("ETCD_").lower().replace("_", "-") in known, variable


def test_a_cluster_of_etcd_is_what_its_members_and_bootstrap_believe_it_is():
    objects = built("prod")
    members = named(objects, "StatefulSet", "interlock-etcd")["spec"]
    (container,) = members["template"]["spec"]["containers"]
    pods = [f"interlock-etcd-{number}" for number in range(members["replicas"])]
    hosts = [f"{pod}.{members['serviceName']}.interlock.svc" for pod in pods]
    variables = environment(container, pods[0])
    assert variables["ETCD_INITIAL_CLUSTER"] == ",".join(
        f"{pod}=https://{host}:2380" for pod, host in zip(pods, hosts, strict=True)
    )
    assert variables["ETCD_INITIAL_ADVERTISE_PEER_URLS"] == f"https://{hosts[0]}:2380"
    assert variables["ETCD_ADVERTISE_CLIENT_URLS"] == f"https://{hosts[0]}:2379"
    (bootstrap,) = named(objects, "Deployment", "interlock-bootstrap")["spec"]["template"]["spec"]["containers"]
    assert environment(bootstrap)["INTERLOCK_ETCD_ENDPOINTS"] == ",".join(f"https://{host}:2379" for host in hosts)
    assert set(hosts) <= set(named(objects, "Certificate", "interlock-etcd")["spec"]["dnsNames"])


def test_the_backup_saves_a_snapshot_that_a_new_member_starts_from(services, etcd, tmp_path: Path):
    bootstrap = services["bootstrap"]
    with BootstrapClient(bootstrap.address, credentials=bootstrap.credentials) as client:
        client.register_route(ROUTE, LAUNCH, group="kept")
    job = named(built("prod"), "CronJob", "interlock-etcd-backup")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    save, check = job["initContainers"]
    (drop,) = job["containers"]
    variables = environment(save, "backup-1")
    assert etcd.certificates is not None
    variables |= {
        "ETCDCTL_ENDPOINTS": etcd.members[0].client_url,
        "ETCDCTL_CACERT": str(etcd.certificates.ca),
        "ETCDCTL_CERT": str(etcd.certificates.certificate),
        "ETCDCTL_KEY": str(etcd.certificates.key),
    }
    backups = tmp_path / "backups"
    backups.mkdir()

    def run(command: list[str]) -> None:
        words = [word.replace("$(POD_NAME)", "backup-1").replace("/backups", str(backups)) for word in command]
        path = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        subprocess.run(words, env=variables | path, check=True, capture_output=True)

    run(save["command"])
    snapshot = backups / "backup-1.db"
    # Debian's etcd has the command of etcd 3.4, where etcdctl does what etcdutl does since.
    assert check["command"] == ["etcdutl", "snapshot", "status", "/backups/$(POD_NAME).db"]
    run(["etcdctl", *check["command"][1:]])
    old, new = backups / "old.db", backups / "new.db"
    old.touch()
    new.touch()
    fifteen_days_ago = datetime.now().timestamp() - 16 * 86_400
    subprocess.run(["touch", "-d", f"@{fifteen_days_ago:.0f}", old], check=True)
    run(drop["command"])
    assert {file.name for file in backups.iterdir()} == {snapshot.name, new.name}
    subprocess.run(
        ["etcdctl", "snapshot", "restore", snapshot, "--data-dir", tmp_path / "restored"],
        check=True,
        capture_output=True,
    )
    with etcd_cluster(1, etcd.certificates, "--data-dir", str(tmp_path / "restored")) as restored:
        assert [key for key in restored.keys("/interlock/") if "kept" in key]
