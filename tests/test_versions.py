"""One version for the project and its packages, and releases that keep what clients rely on."""

import json
import shutil
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

import interlock
from scripts.compatibility import breaks, is_changed, releases
from scripts.release import begin, release
from scripts.versions import PLACES, set_version, version, versions

ROOT = Path(__file__).parent.parent


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what a release reads and writes."""
    for folder in ("protos", "vectors"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    protos = (path.relative_to(ROOT) for path in ROOT.glob("services/**/*.proto"))
    for path in ("buf.yaml", "CHANGELOG.md", *PLACES, *protos):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def test_all_packages_have_the_version_of_the_library():
    assert versions() == {key: {interlock.__version__} for key in PLACES}
    assert version() == interlock.__version__


def test_a_package_with_another_version_is_named(tree):
    path = "packages/python/pyproject.toml"
    text = (tree / path).read_text()
    (tree / path).write_text(text.replace(interlock.__version__, "9.9.9"))
    with pytest.raises(ValueError, match=r"packages/python/pyproject.toml.*9\.9\.9"):
        version(tree)
    set_version(interlock.__version__, tree)
    assert (tree / path).read_text() == text


def test_a_version_is_set_everywhere_and_nothing_else_changes(tree):
    set_version("17.0.3", tree)
    assert versions(tree) == {key: {"17.0.3"} for key in PLACES}
    for path in PLACES:
        before, after = (root / path for root in (ROOT, tree))
        pairs = list(zip(before.read_text().splitlines(), after.read_text().splitlines(), strict=True))
        assert {new for old, new in pairs if old != new} == {
            old.replace(interlock.__version__, "17.0.3") for old, new in pairs if old != new
        }


@pytest.mark.parametrize("text", ["1.2", "v1.2.3", "1.2.3-rc1", "1.2.3\n", ""])
def test_what_is_no_version_is_refused(tree, text):
    with pytest.raises(ValueError, match="no version"):
        set_version(text, tree)
    assert version(tree) == interlock.__version__


def test_a_release_keeps_the_contract(tree):
    assert is_changed(tree)
    released = release(tree)
    assert released == interlock.__version__ == version(tree)
    assert releases(tree)[-1] == released

    folder = tree / "protos" / "releases" / released
    image = FileDescriptorSet.FromString((folder / "image.binpb").read_bytes())
    own = {file.name for file in image.file if file.name.startswith("interlock/")}
    assert own == {path.relative_to(ROOT / "protos").as_posix() for path in (ROOT / "protos").glob("**/*.proto")}
    for table in ("reasons.json", "defaults.json"):
        assert json.loads((folder / table).read_text()) == json.loads((ROOT / "vectors" / table).read_text())
    assert breaks(tree) == []
    assert not is_changed(tree)
    lines = (tree / "CHANGELOG.md").read_text().splitlines()
    assert f"## {released}" in lines
    assert not [line for line in lines if "unreleased" in line]


def test_the_next_version_begins_after_a_release(tree):
    with pytest.raises(ValueError, match="was not released"):
        begin("17.0.0", tree)
    released = release(tree)
    begin("17.0.0", tree)
    assert version(tree) == "17.0.0"
    assert f"## 17.0.0, unreleased\n\n## {released}\n" in (tree / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("following", ["0.0.9", interlock.__version__, "later"])
def test_the_next_version_must_be_later(tree, following):
    release(tree)
    with pytest.raises(ValueError, match="cannot be"):
        begin(following, tree)


def test_a_release_that_breaks_clients_of_the_last_one_is_refused(tree):
    path = tree / "protos/interlock/bootstrap/v1/bootstrap.proto"
    path.write_text(path.read_text().replace("uint32 rank_port = 5;", "uint32 rank_port = 50;"))
    with pytest.raises(ValueError, match=r"(?s)would break.*rank_port"):
        release(tree)
    assert releases(tree) == releases(ROOT)


def test_a_version_is_released_once(tree):
    release(tree)
    with pytest.raises(ValueError, match="was released before"):
        release(tree)
