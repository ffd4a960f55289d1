"""Tries the packages in `dist/`: a program in each language that has nothing but the packed package uses it.

    python -m scripts.check_packages [ECOSYSTEM,...]

Each program prints the bytes of one message, which must be those that Python gives. The wheels are tried more widely by
`scripts.check_wheels`.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from interlock.bootstrap.v1.bootstrap_pb2 import RoomAssignment
from scripts import check_wheels
from scripts.packages import DIST, GO_MODULE, PACKAGES
from scripts.versions import ROOT, version

PROGRAMS = ROOT / "scripts" / "package_consumers"
EXPECTED = RoomAssignment(room=2**64 - 1, dp_rank=7).SerializeToString().hex()


def go(folder: Path) -> str:
    """From `dist/go` as a module proxy; what it needs itself comes from the module cache, or from the proxy in use."""
    shutil.copy(PROGRAMS / "main.go", folder)
    cache, proxy = _output(["go", "env", "GOMODCACHE", "GOPROXY"], folder).splitlines()
    environment = {
        "GOPROXY": f"file://{DIST / 'go'},file://{cache}/cache/download,{proxy}",
        "GOMODCACHE": str(folder / "modules"),
        "GOFLAGS": "-mod=mod -modcacherw",
        "GONOSUMDB": "*",
    }
    _output(["go", "mod", "init", "example.com/consumer"], folder, environment)
    _output(["go", "get", f"{GO_MODULE}@v{version()}"], folder, environment)
    return _output(["go", "run", "."], folder, environment)


def rust(folder: Path) -> str:
    """From the unpacked crate; what it needs itself was built with it."""
    with tarfile.open(DIST / "rust" / f"interlock-protos-{version()}.crate") as archive:
        archive.extractall(folder, filter="data")
    (folder / "src").mkdir()
    shutil.copy(PROGRAMS / "main.rs", folder / "src")
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "consumer"\nversion = "0.0.0"\nedition = "2024"\n\n[workspace]\n\n[dependencies]\n'
        f'interlock-protos = {{ path = "interlock-protos-{version()}" }}\nprost = "0.14"\n'
    )
    environment = {"CARGO_TARGET_DIR": str(PACKAGES / "rust" / "target")}
    return _output(["cargo", "run", "--quiet"], folder, environment)


def npm(folder: Path) -> str:
    """From the tarball."""
    shutil.copy(PROGRAMS / "main.mjs", folder)
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    tarball = DIST / "npm" / f"interlock-protos-{version()}.tgz"
    _output(["npm", "install", "--silent", "--no-audit", "--no-fund", str(tarball)], folder)
    return _output(["node", "main.mjs"], folder)


def maven(folder: Path) -> str:
    """From the jar, with protobuf from the local repository that building it has filled."""
    jar = DIST / "maven" / f"interlock-protos-{version()}.jar"
    listing = folder / "classpath"
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(PACKAGES / "maven"), "dependency:build-classpath"]
    _output([*command, f"-Dmdep.outputFile={listing}", "-DincludeScope=runtime"], folder)
    classes = os.pathsep.join([str(jar), listing.read_text()])
    return _output(["java", "-classpath", classes, str(PROGRAMS / "Main.java")], folder)


CONSUMERS: Mapping[str, Callable[[Path], str]] = {"go": go, "rust": rust, "npm": npm, "maven": maven}


def _output(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    run = subprocess.run(
        command, cwd=folder, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    if run.returncode:
        sys.exit(f"{' '.join(command)} fails:\n{run.stdout}{run.stderr}")
    return run.stdout.strip()


def main() -> None:
    chosen = sys.argv[1].split(",") if sys.argv[1:] else ["python", *CONSUMERS]
    for ecosystem in chosen:
        if ecosystem == "python":
            check_wheels.check_all(DIST / "python")
            continue
        with tempfile.TemporaryDirectory() as folder:
            printed = CONSUMERS[ecosystem](Path(folder))
        if printed != EXPECTED:
            sys.exit(f"{ecosystem}: the message has the bytes {printed}; expected {EXPECTED}")
        print(f"{ecosystem}: {printed}", flush=True)


if __name__ == "__main__":
    main()
