"""Builds the packages of all languages into `dist/`, as their registries take them.

    make packages                  # all of them
    make packages ONLY=go,python   # some

All have the version of the tree. A tool that is missing is named, and is a failure.
"""

import argparse
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.versions import ROOT, version

DIST = ROOT / "dist"
PACKAGES = ROOT / "packages"
GO_MODULE = "interlock.dev/protos"
_TIMESTAMP = (2020, 1, 1, 0, 0, 0)  # the same sources give the same archive


class MissingToolError(Exception):
    """A tool that builds a package is not installed."""


def build_python() -> list[Path]:
    """Two wheels: the project, and its stubs alone."""
    built = DIST / "python"
    _run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", built, ROOT, PACKAGES / "python"]
    )
    return sorted(built.glob("*.whl"))


def build_go() -> list[Path]:
    """A folder that is a module proxy (`GOPROXY=file://...`): what the real one serves once the version is tagged."""
    folder = DIST / "go" / GO_MODULE / "@v"
    folder.mkdir(parents=True)
    name = f"v{version()}"
    module = PACKAGES / "go"
    (folder / "list").write_text(f"{name}\n")
    (folder / f"{name}.info").write_text(f'{{"Version":"{name}"}}\n')
    shutil.copy(module / "go.mod", folder / f"{name}.mod")
    with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [*_tracked(module), ROOT / "LICENSE"]:
            inside = path.relative_to(module) if path.is_relative_to(module) else Path(path.name)
            archive.writestr(zipfile.ZipInfo(f"{GO_MODULE}@{name}/{inside.as_posix()}", _TIMESTAMP), path.read_bytes())
    return [folder / f"{name}.zip"]


def build_rust() -> list[Path]:
    """A crate."""
    package = PACKAGES / "rust"
    with _licensed(package):
        _run(["cargo", "package", "--quiet", "--allow-dirty", "--no-verify"], package)
    return [_taken(package / "target" / "package" / f"interlock-protos-{version()}.crate", "rust")]


def build_npm() -> list[Path]:
    """A tarball."""
    package = PACKAGES / "npm"
    _run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], package)
    with _licensed(package):
        _run(["npm", "pack", "--silent", "--ignore-scripts"], package)
    return [_taken(package / f"interlock-protos-{version()}.tgz", "npm")]


def build_maven() -> list[Path]:
    """A jar, and the POM that says what it needs."""
    package = PACKAGES / "maven"
    _run(["mvn", "--batch-mode", "--quiet", "--file", package, "-DskipTests", "package"])
    jar = _taken(package / "target" / f"interlock-protos-{version()}.jar", "maven")
    return [jar, Path(shutil.copy(package / "pom.xml", jar.with_suffix(".pom")))]


BUILDERS: dict[str, Callable[[], list[Path]]] = {
    "python": build_python,
    "go": build_go,
    "rust": build_rust,
    "npm": build_npm,
    "maven": build_maven,
}


def _run(command: Sequence[str | Path], folder: Path = ROOT) -> None:
    if not shutil.which(command[0]):
        raise MissingToolError(f"{command[0]} is not installed")
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def _licensed(package: Path) -> Iterator[None]:
    """Puts the licence into a folder, for packers that take nothing from outside of it."""
    licence = Path(shutil.copy(ROOT / "LICENSE", package))
    try:
        yield
    finally:
        licence.unlink()


def _tracked(folder: Path) -> list[Path]:
    """The files of a folder that belong to the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=folder, capture_output=True, text=True, check=True).stdout
    return [folder / name for name in sorted(listed.split("\0")) if name]


def _taken(artefact: Path, ecosystem: str) -> Path:
    (DIST / ecosystem).mkdir(parents=True)
    return Path(shutil.move(artefact, DIST / ecosystem / artefact.name))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make packages", description="Builds the packages of all languages.")
    parser.add_argument("--only", default=",".join(BUILDERS), help="ecosystems, with commas between")
    chosen = parser.parse_args().only.split(",")
    if unknown := set(chosen) - BUILDERS.keys():
        parser.error(f"no such ecosystem: {', '.join(sorted(unknown))}; known are {', '.join(BUILDERS)}")
    failed = []
    for ecosystem in chosen:
        shutil.rmtree(DIST / ecosystem, ignore_errors=True)
        try:
            for artefact in BUILDERS[ecosystem]():
                print(f"{artefact.relative_to(ROOT)}  {artefact.stat().st_size:,} bytes", flush=True)
        except (MissingToolError, subprocess.CalledProcessError) as error:
            failed.append(f"{ecosystem}: {error}")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
