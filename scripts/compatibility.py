"""Tells what today's contract would break for those who use the last release.

    python -m scripts.compatibility

A release is kept in `protos/releases/VERSION/`: the image of its protos, its reasons, and what absent fields meant. A
proto says nothing of the last two, and clients rely on them all the same. docs/compatibility.md has the rules.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scripts.versions import version

ROOT = Path(__file__).parent.parent
IMAGE = "image.binpb"
TABLES = {"reasons.json": "reason", "defaults.json": "field"}
"""Tables of `vectors/` that a release keeps, with the column that names a row."""


def releases(root: Path = ROOT) -> list[str]:
    """The versions that were released, oldest first."""
    found = [folder.name for folder in (root / "protos" / "releases").iterdir()]
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def breaks(root: Path = ROOT) -> list[str]:
    """What today's contract breaks, each with a line that names it. Empty: nothing."""
    release = root / "protos" / "releases" / releases(root)[-1]
    found = [*_broken_protos(root, release / IMAGE)]
    for table, name in TABLES.items():
        found += _broken_rows(table, name, _rows(release / table, name), _rows(root / "vectors" / table, name))
    return found


def build_image(root: Path, image: Path) -> None:
    """Writes the protos of a tree as one file; the same protos give the same bytes."""
    build = [_buf(), "build", "protos", "--as-file-descriptor-set", "--exclude-source-info", "-o", str(image)]
    subprocess.run(build, cwd=root, check=True)


def is_changed(root: Path = ROOT) -> bool:
    """Whether the contract differs at all from the last release."""
    release = root / "protos" / "releases" / releases(root)[-1]
    with TemporaryDirectory() as folder:
        image = Path(folder, IMAGE)
        build_image(root, image)
        kept = {release / IMAGE: image, **{release / table: root / "vectors" / table for table in TABLES}}
        return any(before.read_bytes() != now.read_bytes() for before, now in kept.items())


def _buf() -> str:
    """The `buf` of this environment."""
    beside = Path(sys.executable).with_name("buf")
    return str(beside) if beside.exists() else shutil.which("buf") or "buf"


def _broken_protos(root: Path, image: Path) -> list[str]:
    run = subprocess.run(
        [_buf(), "breaking", "protos", "--against", str(image)], cwd=root, capture_output=True, text=True, check=False
    )
    if run.returncode and not run.stdout:
        raise RuntimeError(f"buf breaking failed: {run.stderr.strip()}")
    return run.stdout.splitlines()


def _rows(path: Path, name: str) -> dict[str, Any]:
    return {row[name]: row for row in json.loads(path.read_text())}


def _broken_rows(table: str, name: str, before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    for key, row in before.items():
        if key not in now:
            yield f"vectors/{table}: {name} {key} is gone"
        elif now[key] != row:
            yield f"vectors/{table}: {name} {key} was {row}, and is {now[key]}"


def main() -> None:
    release = releases()[-1]
    if version() == release and is_changed():
        sys.exit(f"{release} is released, and the contract has changed since: begin the next version (`make version`)")
    if found := breaks():
        print(*found, sep="\n")
        sys.exit(f"this breaks clients of release {release}; docs/compatibility.md says how to change a contract")
    print(f"nothing breaks for clients of release {release}")


if __name__ == "__main__":
    main()
