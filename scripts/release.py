"""Makes a release of the version that the tree has; afterwards, begins the next one.

    make release                # keep what clients of this version rely on; commit and tag that
    make version NEXT=1.3.0     # begin the next version; commit that

docs/compatibility.md says what a release promises.
"""

import re
import shutil
import sys
from pathlib import Path

from scripts.compatibility import IMAGE, ROOT, TABLES, breaks, build_image, releases
from scripts.versions import VERSION, set_version, version

CHANGELOG = "CHANGELOG.md"


def release(root: Path = ROOT) -> str:
    """Keeps the contract of the tree's version in `protos/releases/`, and closes its section of the changelog.

    Returns:
        The version.

    Raises:
        ValueError: it was released before, it breaks clients of the last release, or the changelog has no section.
    """
    current = version(root)
    if current in releases(root):
        raise ValueError(f"{current} was released before: protos/releases/{current} is there")
    if broken := breaks(root):
        raise ValueError("\n".join([f"{current} would break clients of the last release:", *broken]))
    _put_heading(root, f"## {current}, unreleased", f"## {current}")
    folder = root / "protos" / "releases" / current
    folder.mkdir(parents=True)
    build_image(root, folder / IMAGE)
    for table in TABLES:
        shutil.copy(root / "vectors" / table, folder / table)
    return current


def begin(following: str, root: Path = ROOT) -> None:
    """Writes the next version everywhere, and opens its section of the changelog.

    Raises:
        ValueError: it is not later than the tree's version, or that one was not released.
    """
    current = version(root)
    if not VERSION.fullmatch(following) or _numbers(following) <= _numbers(current):
        raise ValueError(f"the version after {current} cannot be {following!r}")
    if current not in releases(root):
        raise ValueError(f"{current} was not released; `make release` does it")
    _put_heading(root, f"## {current}", f"## {following}, unreleased\n\n## {current}")
    set_version(following, root)


def _put_heading(root: Path, before: str, after: str) -> None:
    changelog = root / CHANGELOG
    lines = changelog.read_text().splitlines()
    if lines.count(before) != 1:
        raise ValueError(f"{CHANGELOG} needs one section {before!r}")
    lines[lines.index(before)] = after
    changelog.write_text("\n".join(lines) + "\n")


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def main() -> None:
    try:
        for following in sys.argv[1:]:
            begin(following)
            print(f"the next version is {following}; commit this")
        if not sys.argv[1:]:
            released = release()
            print(f"released {released}: commit this, tag it v{released}, run `make packages`, then `make version`")
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
