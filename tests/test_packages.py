"""The packages of stubs: what can be said of them without the tools of their languages."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("go", "rust", "npm", "maven", "python")
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_the_page_that_its_registry_shows(package):
    page = (ROOT / "packages" / package / "README.md").read_text()
    assert page.startswith("# ")
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", page):
        assert (ROOT / "packages" / package / link).exists(), link


def test_the_light_wheel_needs_what_the_stubs_import_and_allows_what_the_library_does():
    library = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    light = tomllib.loads((ROOT / "packages/python/pyproject.toml").read_text())["project"]
    assert set(light["dependencies"]) == {
        one for one in library["dependencies"] if one.startswith(("grpcio>", "protobuf>"))
    }


def test_the_light_wheel_has_every_stub():
    wheel = tomllib.loads((ROOT / "packages/python/pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    packed = {source.removeprefix("../../") for source in wheel["force-include"]}
    protos = (path.relative_to(ROOT / "protos").parent for path in (ROOT / "protos").glob("interlock/**/*.proto"))
    assert packed == {f"libs/{Path(*folder.parts[:2])}" for folder in protos} | {"libs/interlock/py.typed"}


def test_the_stubs_are_read_by_python_3_10():
    stubs = [
        path for path in TRACKED if re.match(r"libs/interlock/\w+/(__init__\.py|v1/)", path) and path.endswith(".py")
    ]
    assert len([path for path in stubs if path.endswith("_pb2.py")]) == 7
    for path in stubs:
        if not path.startswith(("libs/interlock/client", "libs/interlock/serving")):
            ast.parse((ROOT / path).read_text(), path, feature_version=(3, 10))


def test_lock_files_name_no_registry():
    assert not [path for path in TRACKED if path.endswith("Cargo.lock")]  # each of its entries would
    locks = [path for path in TRACKED if path.endswith("package-lock.json")]
    assert len(locks) == 2
    for path in locks:
        assert not re.findall(r'"resolved": "\w+://', (ROOT / path).read_text()), path
