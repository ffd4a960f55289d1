"""docs/kubernetes.md: its commands parse or run, its overlay builds, and what it names is there."""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
import yaml

from deploy.manifests import KUBERNETES, ROOT, built, kustomize, named, of_kind
from interlock.serving.credentials import Role, read_credentials, token_sha256
from interlock_cli import main

PAGE = ROOT / "docs" / "kubernetes.md"
TEXT = PAGE.read_text()


def lines(program):
    """The command lines of the page that begin so, without what they are piped into."""
    joined = TEXT.replace("\\\n", " ")
    return [line.split(" | ")[0] for line in re.findall(rf"^    ({program} .*)$", joined, re.MULTILINE)]


def test_every_link_leads_to_a_file():
    for link in re.findall(r"\]\((?!http)([^)#]+)", TEXT):
        assert (PAGE.parent / link).exists(), link


def test_every_part_that_is_named_is_there_and_none_is_left_out():
    told = set(re.findall(r"^\| `((?:base|components)/[\w-]+)` \|", TEXT, re.MULTILINE))
    there = {str(path.parent.relative_to(KUBERNETES)) for path in KUBERNETES.glob("*/*/kustomization.yaml")}
    assert told == {path for path in there if not path.startswith("overlays")}


@pytest.mark.parametrize("line", lines("interlock"))
def test_every_command_of_ours_parses(line):
    words = shlex.split(re.sub(r" > \S+", "", line))[1:]
    command = main
    while isinstance(command, click.Group):
        command, words = command.commands[words[0]], words[1:]
    command.make_context(command.name, words)


def test_the_commands_for_tokens_make_the_credentials_that_the_page_speaks_of(tmp_path):
    commands = [line for line in lines("interlock") if line.startswith("interlock token new")]
    for line in commands:
        words, file = line.removeprefix("interlock ").split(" > ")
        told = subprocess.run(
            [sys.executable, "-m", "interlock_cli", *shlex.split(words)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))},
            capture_output=True,
            text=True,
            check=True,
        )
        (tmp_path / file).write_text(told.stdout)
    credentials = read_credentials(tmp_path / "credentials.toml")
    tokens = [file.read_text().strip() for file in tmp_path.glob("*.token")]
    found = [credentials.of_token(token_sha256(token), time.time()) for token in tokens]
    callers = {caller.id: caller for caller in found}
    assert {id: caller.roles for id, caller in callers.items()} == {
        "team-a": {Role.REGISTER, Role.PREPROCESS},
        "routers": {Role.READ},
        "platform": {Role.ADMIN},
    }
    assert callers["team-a"].may_see("team-a-prefill")
    assert not callers["team-a"].may_see("team-b-prefill")


def test_the_overlay_of_the_page_builds_with_images_of_ones_own(tmp_path):
    (text,) = re.findall(r"```yaml\n# kustomization.yaml\n(.*?)```", TEXT, re.DOTALL)
    wanted = yaml.safe_load(text)
    wanted["resources"] = [
        os.path.relpath(ROOT / path.removeprefix("interlock/"), tmp_path.resolve()) for path in wanted["resources"]
    ]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(wanted))
    told = subprocess.run([*kustomize(), str(tmp_path)], capture_output=True, text=True, check=True)
    images = set(re.findall(r"image: (\S+)", told.stdout))
    assert {image.rpartition(":")[0] for image in images if "etcd" not in image} == {
        "your.registry/interlock-bootstrap",
        "your.registry/interlock-preprocess",
    }


def test_images_are_built_under_the_names_that_the_overlays_have():
    built_names = {
        re.search(r"--target (\S+)", line)[1]: re.search(r"-t (\S+)", line)[1] for line in lines("docker build")
    }
    assert built_names == {
        service: f"registry.example/interlock-{service}:0.1.0" for service in ("bootstrap", "preprocess")
    }
    for service, image in built_names.items():
        (container,) = named(built("prod"), "Deployment", f"interlock-{service}")["spec"]["template"]["spec"][
            "containers"
        ]
        assert container["image"] == image


def test_what_kubectl_is_asked_for_exists():
    objects = {f"{one['kind'].lower()}/{one['metadata']['name']}" for one in built("prod")}
    asked = set(re.findall(r"\b((?:deployment|statefulset)/[\w-]+)", TEXT))
    assert asked == {"deployment/interlock-bootstrap", "deployment/interlock-preprocess", "statefulset/interlock-etcd"}
    assert asked <= objects
    assert "secret generic interlock-credentials --from-file=credentials.toml" in TEXT
    secrets = {certificate["spec"]["secretName"] for certificate in of_kind(built("prod"), "Certificate")}
    assert set(re.findall(r"get secret (\S+)", TEXT)) <= secrets
    assert "pod/interlock-0" in TEXT
    assert named(built("dev"), "StatefulSet", "interlock")["spec"]["replicas"] == 1
    for label in re.findall(r"label namespace \S+ (\S+)=true", TEXT):
        policy = named(built("prod"), "NetworkPolicy", "callers")
        assert policy["spec"]["ingress"][0]["from"] == [{"namespaceSelector": {"matchLabels": {label: "true"}}}]


def test_every_overlay_is_reached_by_the_page():
    assert {path.parent.name for path in KUBERNETES.glob("overlays/*/kustomization.yaml")} == set(
        re.findall(r"deploy/kubernetes/overlays/(\w+)", TEXT)
    )
    assert Path(KUBERNETES / "components/monitoring/alerts.yaml").exists()
