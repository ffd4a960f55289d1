"""What Kustomize makes of deploy/kubernetes, as objects, and what stands in them."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"

Object = dict[str, Any]

VARIANTS = ("dev", "prod", "prod-with-all")
"""The overlays, and `prod` with the components that it leaves out."""


@cache
def kustomize() -> tuple[str, ...]:
    """The command that builds an overlay. `make tools` brings one; kubectl has one too."""
    path = os.pathsep.join([str(ROOT / "build" / "tools"), os.environ.get("PATH", "")])
    if found := shutil.which("kustomize", path=path):
        return (found, "build")
    kubectl = shutil.which("kubectl")
    assert kubectl, "neither kustomize (`make tools`) nor kubectl is there to build the manifests with"
    return (kubectl, "kustomize")


@cache
def built(variant: str) -> list[Object]:
    """The objects of a variant, as they would be applied."""
    if variant != "prod-with-all":
        return _build(KUBERNETES / "overlays" / variant)
    with tempfile.TemporaryDirectory(dir=KUBERNETES.parents[1]) as folder:
        here = Path(folder)
        wanted = {
            "resources": [os.path.relpath(KUBERNETES / "overlays" / "prod", here)],
            "components": [
                os.path.relpath(KUBERNETES / "components" / name, here)
                for name in ("shared-memory", "autoscale-on-demand")
            ],
        }
        (here / "kustomization.yaml").write_text(yaml.safe_dump(wanted))
        return _build(here)


def _build(folder: Path) -> list[Object]:
    told = subprocess.run([*kustomize(), str(folder)], check=False, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return list(yaml.safe_load_all(told.stdout))


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [one for one in objects if one["kind"] in kinds]


def named(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = (one for one in of_kind(objects, kind) if one["metadata"]["name"] == name)
    return found


def name_of(one: Object) -> str:
    return f"{one['kind']}/{one['metadata']['name']}"


def pod_templates(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Every pod that there will be: who makes it, and its template."""
    for one in objects:
        if one["kind"] in ("Deployment", "StatefulSet"):
            yield name_of(one), one["spec"]["template"]
        elif one["kind"] == "CronJob":
            yield name_of(one), one["spec"]["jobTemplate"]["spec"]["template"]


def containers(template: Object) -> list[Object]:
    spec = template["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def interlock_containers(objects: list[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Those that run a service of ours: who makes them, the pod template, the container."""
    for name, template in pod_templates(objects):
        for container in containers(template):
            if container.get("args", [None])[0] == "serve":
                yield name, template, container


def environment(container: Object, pod_name: str = "pod-0") -> dict[str, str]:
    """What the container's process sees, references between the variables resolved as the kubelet does."""
    values: dict[str, str] = {}
    for variable in container.get("env", []):
        if "value" in variable:
            text = variable["value"]
            for name, value in values.items():
                text = text.replace(f"$({name})", value)
        elif field := variable["valueFrom"].get("fieldRef"):
            assert field == {"fieldPath": "metadata.name"}
            text = pod_name
        else:
            field = variable["valueFrom"]["resourceFieldRef"]
            assert field["containerName"] == container["name"]
            section, _, resource = field["resource"].partition(".")
            assert (resource, field["divisor"]) == ("cpu", "1")
            text = container["resources"][section][resource]
        values[variable["name"]] = text
    return values


def selected(objects: list[Object], labels: dict[str, str]) -> list[Object]:
    """The pod templates that have all these labels."""
    return [
        template for _, template in pod_templates(objects) if labels.items() <= template["metadata"]["labels"].items()
    ]


def port_names(template: Object) -> dict[str, int]:
    return {
        port["name"]: port["containerPort"] for container in containers(template) for port in container.get("ports", [])
    }


def byte_count(quantity: str) -> int:
    """A quantity such as `6Gi`."""
    return int(quantity[:-2]) * {"Mi": 1 << 20, "Gi": 1 << 30}[quantity[-2:]]
