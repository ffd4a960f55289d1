"""deploy/kubernetes beside Kubernetes' own schemas, its `restricted` standard, and what Interlock's code knows."""

import ipaddress
import shlex

import click
import kubernetes_validate
import pytest

from deploy.manifests import (
    KUBERNETES,
    VARIANTS,
    built,
    byte_count,
    containers,
    environment,
    interlock_containers,
    name_of,
    named,
    of_kind,
    pod_templates,
    port_names,
    selected,
)
from interlock.serving.config import declared_settings, resolve
from interlock.serving.health import LIVENESS, READINESS
from interlock.serving.server import ServerSettings
from interlock_cli import main
from interlock_cli.settings import all_settings
from interlock_preprocess.settings import PreprocessSettings

VERSIONS = ("1.31", "1.33", "1.36")

OF_OTHERS = {
    "Certificate": "cert-manager.io/v1",
    "Issuer": "cert-manager.io/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
    "ServiceMonitor": "monitoring.coreos.com/v1",
}
"""Kinds that Kubernetes does not know by itself."""

SERVED_BY_ALL = 512 << 20
"""What a Preprocess process takes besides its budgets (docs/kubernetes.md)."""

every_variant = pytest.mark.parametrize("variant", VARIANTS)


@pytest.mark.parametrize("version", VERSIONS)
@every_variant
def test_every_object_is_valid_for_every_version(variant, version):
    seen = 0
    for one in built(variant):
        if OF_OTHERS.get(one["kind"]) == one["apiVersion"]:
            continue
        kubernetes_validate.validate(one, version, strict=True)
        seen += 1
    assert seen >= 8


def test_the_validation_finds_a_field_that_does_not_exist():
    wrong = {**named(built("prod"), "Deployment", "interlock-bootstrap")}
    wrong["spec"] = {**wrong["spec"], "replica": 3}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


@every_variant
def test_no_object_is_there_twice_and_all_are_in_the_namespace(variant):
    objects = built(variant)
    names = [name_of(one) for one in objects]
    assert len(names) == len(set(names))
    for one in objects:
        assert one["metadata"].get("namespace") == (None if one["kind"] == "Namespace" else "interlock"), name_of(one)


@every_variant
def test_the_namespace_asks_for_restricted_pods_and_gets_them(variant):
    (namespace,) = of_kind(built(variant), "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for name, template in pod_templates(built(variant)):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), name
        for volume in spec["volumes"]:
            assert volume.keys() - {"name"} <= {"secret", "emptyDir", "persistentVolumeClaim"}, name
        for container in containers(template):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert all("hostPort" not in port for port in container.get("ports", [])), name


@every_variant
def test_no_pod_gets_a_token_of_the_cluster(variant):
    objects = built(variant)
    for name, template in pod_templates(objects):
        assert template["spec"]["automountServiceAccountToken"] is False, name
        account = named(objects, "ServiceAccount", template["spec"]["serviceAccountName"])
        assert account["automountServiceAccountToken"] is False, name


@every_variant
def test_every_container_says_what_it_needs_and_its_memory_is_bounded(variant):
    for name, template in pod_templates(built(variant)):
        for container in containers(template):
            resources = container["resources"]
            assert resources["requests"].keys() == {"cpu", "memory"}, name
            assert byte_count(resources["limits"]["memory"]) >= byte_count(resources["requests"]["memory"]), name


@every_variant
def test_every_image_is_pinned(variant):
    for name, template in pod_templates(built(variant)):
        for container in containers(template):
            repository, _, tag = container["image"].rpartition(":")
            assert "/" in repository, name
            assert tag != "latest", name


# Beside the code


@every_variant
def test_args_are_a_command_that_exists_with_flags_that_exist(variant):
    started = list(interlock_containers(built(variant)))
    assert len(started) == (1 if variant == "dev" else 2)
    for name, _, container in started:
        words = list(container["args"])
        command, context = main, click.Context(main)
        while isinstance(command, click.Group):
            command = command.get_command(context, words.pop(0))
            assert command is not None, shlex.join(container["args"])
        command.make_context(name, words)


@every_variant
def test_variables_are_settings_that_exist_with_values_that_are_accepted(variant):
    known = {declared.variable for kind in all_settings() for declared in declared_settings(kind)}
    for name, _, container in interlock_containers(built(variant)):
        variables = environment(container)
        assert variables.keys() <= known, name
        for kind in all_settings():
            resolve(kind, flags={}, environment=variables, file={})


def settings(container, kind):
    return resolve(kind, flags={}, environment=environment(container), file={})


@every_variant
def test_files_that_settings_name_are_where_something_is_mounted(variant):
    for name, template, container in interlock_containers(built(variant)):
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        for variable, value in environment(container).items():
            if not value.startswith("/"):
                continue
            (mount,) = (path for path in mounts if value == path or value.startswith(f"{path}/"))
            if variable.endswith("_FILE"):
                assert "secret" in volumes[mounts[mount]], f"{name}: {variable}"
        claims = {claim["metadata"]["name"] for claim in _claims(variant, name)}
        assert set(mounts.values()) == volumes.keys() | claims, name


def _claims(variant, name):
    kind, _, own_name = name.partition("/")
    return named(built(variant), kind, own_name)["spec"].get("volumeClaimTemplates", [])


@every_variant
def test_ports_are_those_that_the_settings_say(variant):
    for name, template, container in interlock_containers(built(variant)):
        variables = environment(container)
        assert ipaddress.ip_address(variables["INTERLOCK_SERVER_HOST"]).is_unspecified, name
        assert port_names(template) == {
            "grpc": settings(container, ServerSettings).port,
            "health": int(variables["INTERLOCK_SERVER_HEALTH_PORT"]),
            "metrics": int(variables["INTERLOCK_METRICS_PORT"]),
        }, name
        assert variables["INTERLOCK_METRICS_HOST"] == "0.0.0.0", name


@every_variant
def test_probes_ask_on_the_port_for_them_for_what_it_answers(variant):
    for name, _, container in interlock_containers(built(variant)):
        port = settings(container, ServerSettings).health_port
        assert container["startupProbe"]["grpc"] == {"port": port, "service": LIVENESS}, name
        assert container["livenessProbe"]["grpc"] == {"port": port, "service": LIVENESS}, name
        assert container["readinessProbe"]["grpc"] == {"port": port, "service": READINESS}, name


@every_variant
def test_a_pod_has_the_time_that_its_end_takes(variant):
    for name, template, container in interlock_containers(built(variant)):
        waits = container.get("lifecycle", {}).get("preStop", {"sleep": {"seconds": 0}})["sleep"]["seconds"]
        grace = settings(container, ServerSettings).grace_seconds
        # What ends after the last call: decodes under way, the store.
        assert template["spec"]["terminationGracePeriodSeconds"] == waits + grace + 10, name
        if variant != "dev":
            # Before that no proxy must send anything any more: as long as a readiness probe takes to fail.
            assert waits >= 5, name


@every_variant
def test_the_budgets_of_preprocess_fit_its_memory(variant):
    for name, _, container in interlock_containers(built(variant)):
        if container["args"][1] == "bootstrap":
            continue
        preprocess = settings(container, PreprocessSettings)
        budgets = preprocess.source_budget_bytes + preprocess.work_budget_bytes + preprocess.cache_bytes
        regions = preprocess.max_region_bytes if preprocess.shared_memory_folder else 0
        need = budgets + regions + (SERVED_BY_ALL if variant != "dev" else SERVED_BY_ALL // 2)
        assert need <= byte_count(container["resources"]["limits"]["memory"]), name


def test_a_pod_of_preprocess_has_a_thread_for_each_cpu_that_it_asks_for():
    (container,) = (c for _, _, c in interlock_containers(built("prod")) if c["args"][1] == "preprocess")
    assert settings(container, PreprocessSettings).worker_threads == int(container["resources"]["requests"]["cpu"])


def test_the_volume_for_shared_memory_holds_what_callers_may_register():
    objects = built("prod-with-all")
    template = named(objects, "Deployment", "interlock-preprocess")["spec"]["template"]
    (container,) = template["spec"]["containers"]
    preprocess = settings(container, PreprocessSettings)
    (mount,) = (m for m in container["volumeMounts"] if m["mountPath"] == str(preprocess.shared_memory_folder))
    (volume,) = (v for v in template["spec"]["volumes"] if v["name"] == mount["name"])
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
    assert preprocess.max_region_bytes == byte_count("1Gi")
    assert all(
        volume.get("emptyDir", {}).get("medium") is None
        for _, template in pod_templates(built("prod"))
        for volume in template["spec"]["volumes"]
    )


# Beside each other


@every_variant
def test_every_service_leads_to_pods_that_have_its_ports(variant):
    for service in of_kind(built(variant), "Service"):
        pods = selected(built(variant), service["spec"]["selector"])
        assert pods, name_of(service)
        for port in service["spec"]["ports"]:
            assert all(port["targetPort"] in port_names(pod) for pod in pods), name_of(service)
        if service["metadata"]["name"] != "interlock-metrics":
            assert "metrics" not in {port["targetPort"] for port in service["spec"]["ports"]}, name_of(service)


@every_variant
def test_selectors_and_what_disruptions_and_growth_are_about_exist(variant):
    objects = built(variant)
    for one in of_kind(objects, "Deployment", "StatefulSet"):
        selector = one["spec"]["selector"]["matchLabels"]
        assert selected(objects, selector) == [one["spec"]["template"]], name_of(one)
    for one in of_kind(objects, "PodDisruptionBudget"):
        assert len(selected(objects, one["spec"]["selector"]["matchLabels"])) == 1, name_of(one)
    for one in of_kind(objects, "HorizontalPodAutoscaler"):
        target = one["spec"]["scaleTargetRef"]
        scaled = named(objects, target["kind"], target["name"])
        assert "replicas" not in scaled["spec"], "a fixed number would undo what the autoscaler did at every apply"
    for one in of_kind(objects, "StatefulSet"):
        named(objects, "Service", one["spec"]["serviceName"])


def test_bootstrap_has_three_replicas_of_which_one_may_be_missing():
    objects = built("prod")
    bootstrap = named(objects, "Deployment", "interlock-bootstrap")["spec"]
    assert bootstrap["replicas"] == 3
    assert bootstrap["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    for name in ("interlock-bootstrap", "interlock-preprocess", "interlock-etcd"):
        assert named(objects, "PodDisruptionBudget", name)["spec"]["maxUnavailable"] == 1
    assert named(objects, "StatefulSet", "interlock-etcd")["spec"]["replicas"] == 3
    for _, template in pod_templates(objects):
        if "topologySpreadConstraints" in template["spec"]:
            keys = [spread["topologyKey"] for spread in template["spec"]["topologySpreadConstraints"]]
            assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]


def test_preprocess_grows_with_cpu_unless_demand_can_be_measured():
    plain = named(built("prod"), "HorizontalPodAutoscaler", "interlock-preprocess")["spec"]
    assert plain["metrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}
    ]
    better = named(built("prod-with-all"), "HorizontalPodAutoscaler", "interlock-preprocess")["spec"]
    assert [metric["pods"]["metric"]["name"] for metric in better["metrics"]] == ["interlock_preprocess_demand"]
    adapter = (KUBERNETES / "components/autoscale-on-demand/adapter-rule.yaml").read_text()
    assert "seriesQuery: interlock_preprocess_demand{" in adapter


# Who reaches whom


def policies_for(objects, template, direction):
    """What may come in or go out: (peers, ports) of the policies that choose the pod."""
    rules = []
    chosen = False
    for policy in of_kind(objects, "NetworkPolicy"):
        labels = policy["spec"]["podSelector"].get("matchLabels", {})
        if direction in policy["spec"]["policyTypes"] and labels.items() <= template["metadata"]["labels"].items():
            chosen = True
            rules += policy["spec"].get(direction.lower(), [])
    assert chosen, "a pod that no policy chooses is open to all"
    return rules


def ports_of(rules):
    return {port["port"] for rule in rules for port in rule["ports"]}


@every_variant
def test_nothing_is_let_through_by_default_and_every_rule_names_whom_and_where(variant):
    objects = built(variant)
    default = named(objects, "NetworkPolicy", "nothing-by-default")["spec"]
    assert default == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for policy in of_kind(objects, "NetworkPolicy"):
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            for rule in policy["spec"].get(direction, []):
                assert rule[peers], name_of(policy)
                assert rule["ports"], name_of(policy)


def test_who_reaches_whom():
    objects = built("prod")
    reached, reaching = {}, {}
    for name, template in pod_templates(objects):
        reached[name] = ports_of(policies_for(objects, template, "Ingress"))
        reaching[name] = ports_of(policies_for(objects, template, "Egress"))
        assert all(port in port_names(template) for port in reached[name]), name
    assert reached == {
        "Deployment/interlock-bootstrap": {"grpc", "metrics"},
        "Deployment/interlock-preprocess": {"grpc", "metrics"},
        "StatefulSet/interlock-etcd": {"client", "peer", "metrics"},
        "CronJob/interlock-etcd-backup": set(),
    }
    assert reaching == {
        "Deployment/interlock-bootstrap": {53, 2379},
        "Deployment/interlock-preprocess": set(),
        "StatefulSet/interlock-etcd": {53, 2379, 2380},
        "CronJob/interlock-etcd-backup": {53, 2379},
    }


def test_in_dev_callers_alone_reach_the_pod_and_it_reaches_nothing():
    objects = built("dev")
    ((_, template),) = pod_templates(objects)
    assert ports_of(policies_for(objects, template, "Ingress")) == {"grpc"}
    assert ports_of(policies_for(objects, template, "Egress")) == set()


# Certificates and secrets


@every_variant
def test_secrets_that_are_mounted_are_made_by_cert_manager_or_are_the_credentials(variant):
    objects = built(variant)
    made = {one["spec"]["secretName"] for one in of_kind(objects, "Certificate")}
    mounted = {
        volume["secret"]["secretName"]
        for _, template in pod_templates(objects)
        for volume in template["spec"]["volumes"]
        if "secret" in volume
    }
    assert mounted - made == (set() if variant == "dev" else {"interlock-credentials"})
    assert made - mounted <= {"interlock-ca", "interlock-callers-tls"}


def test_certificates_have_the_names_that_servers_are_called_by():
    objects = built("prod")
    issuers = {one["metadata"]["name"] for one in of_kind(objects, "Issuer")}
    certificates = {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, "Certificate")}
    for spec in certificates.values():
        assert spec["issuerRef"]["name"] in issuers
        assert int(spec["renewBefore"][:-1]) < int(spec["duration"][:-1])
    for certificate in ("interlock-bootstrap", "interlock-preprocess"):
        for service in (certificate, f"{certificate}-replicas"):
            named(objects, "Service", service)
            names = certificates[certificate]["dnsNames"]
            assert {service, f"{service}.interlock", f"{service}.interlock.svc"} <= set(names)
    assert certificates["interlock-callers"]["usages"] == ["client auth"]


def test_prod_speaks_mtls_and_asks_for_tokens_and_dev_says_aloud_that_it_does_neither():
    for _, _, container in interlock_containers(built("prod")):
        variables = environment(container)
        assert {"INTERLOCK_TLS_CERTIFICATE_FILE", "INTERLOCK_TLS_KEY_FILE", "INTERLOCK_TLS_CLIENT_CA_FILE"} <= set(
            variables
        )
        assert variables["INTERLOCK_ACCESS_CREDENTIALS_FILE"] == "/etc/interlock/credentials/credentials.toml"
        assert "INTERLOCK_ACCESS_INSECURE" not in variables
    ((_, _, container),) = interlock_containers(built("dev"))
    assert environment(container)["INTERLOCK_ACCESS_INSECURE"] == "true"
