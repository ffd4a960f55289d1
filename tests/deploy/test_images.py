"""deploy/docker beside the project: what is copied exists, what is pinned is what the project asks for. The steps
themselves are run by scripts/check_image_steps.sh."""

import os
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.manifests import ROOT
from interlock.serving.config import declared_settings
from interlock_cli.settings import all_settings

DOCKER = ROOT / "deploy" / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def instructions(name):
    return re.findall(rf"^{name} (.*)$", DOCKERFILE, flags=re.MULTILINE)


def stages():
    """Name of each stage, with its instructions."""
    parts = re.split(r"^FROM (\S+) AS (\S+)\n", DOCKERFILE, flags=re.MULTILINE)[1:]
    return {name: (base, text) for base, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


def wanted(extra):
    """The requirements of an extra with those of the extras that it names."""
    requirements = [Requirement(text) for text in PROJECT["optional-dependencies"][extra]]
    own = [one for one in requirements if one.name != "interlock"]
    named = [extra for one in requirements if one.name == "interlock" for extra in one.extras]
    return own + [one for extra in named for one in wanted(extra)]


def pinned(name):
    text = (DOCKER / "requirements" / f"{name}.txt").read_text()
    return {canonicalize_name(package): version for package, version in re.findall(r"^(\S+?)==(\S+) \\$", text, re.M)}


@pytest.mark.parametrize(("image", "extra"), [("bootstrap", "bootstrap"), ("preprocess", "all")])
def test_what_an_image_has_is_what_the_project_asks_for(image, extra):
    versions = pinned(image)
    for requirement in [*map(Requirement, PROJECT["dependencies"]), *wanted(extra)]:
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is pinned at {version}: `make pins`"


@pytest.mark.parametrize("name", ["bootstrap", "preprocess", "tools"])
def test_every_pin_has_hashes_and_none_says_where_it_is_from(name):
    text = (DOCKER / "requirements" / f"{name}.txt").read_text()
    for entry in re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in entry, entry
    assert "://" not in text


def test_the_image_of_bootstrap_has_nothing_that_only_preprocess_needs():
    assert not {"numpy", "numba", "pillow", "numexpr"} & pinned("bootstrap").keys()


def test_everything_that_is_copied_exists_and_is_let_through():
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    let_through = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    assert ignored[1] == "*"
    copied = [source for words in instructions("COPY") if "--from" not in words for source in words.split()[:-1]]
    assert len(copied) >= 8
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(source == path or source.startswith(f"{path}/") for path in let_through), source
    for script in DOCKER.glob("*.sh"):
        assert os.access(script, os.X_OK)


def test_the_base_is_pinned_by_its_digest_and_every_stage_stands_on_it():
    base, _ = stages()["base"]
    assert re.fullmatch(r"python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", base)
    assert all(on in stages() for name, (on, _) in stages().items() if name != "base")


def test_what_runs_is_not_root_and_has_no_installer_and_no_health_check():
    (runtime,) = (text for name, (_, text) in stages().items() if name == "runtime")
    assert "pip uninstall" in runtime
    assert re.search(r"^USER 65532:65532$", runtime, re.MULTILINE)
    for name in ("bootstrap", "preprocess"):
        on, text = stages()[name]
        assert on == "runtime"
        assert not re.search(r"^(USER|RUN)\b", text, re.MULTILINE)
    assert "HEALTHCHECK" not in DOCKERFILE
    assert "apt-get" not in DOCKERFILE


def test_variables_of_the_images_are_settings_that_exist():
    known = {declared.variable for kind in all_settings() for declared in declared_settings(kind)}
    assert set(re.findall(r"\b(INTERLOCK_\w+)=", DOCKERFILE)) <= known
    assert "INTERLOCK_PREPROCESS_KERNEL_CACHE_FOLDER" in DOCKERFILE
