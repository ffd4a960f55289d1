"""The one version of the project and of its packages in every language.

    python -m scripts.versions          # tell it, and fail unless all places agree
    python -m scripts.versions 1.2.3    # set it everywhere

`interlock.__version__` is the source; the registries of other languages want theirs written into files of their own.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = "libs/interlock/__init__.py"
PLACES: Mapping[str, str] = {
    SOURCE: r'^__version__ = "(.+)"$',
    "packages/python/pyproject.toml": r'^version = "(.+)"$',
    "packages/rust/Cargo.toml": r'^name = "interlock-protos"\nversion = "(.+)"$',
    "packages/npm/package.json": r'^  "version": "(.+)",$',
    "packages/npm/package-lock.json": r'"name": "@interlock/protos",\n\s+"version": "(.+)"',
    "packages/maven/pom.xml": r"<artifactId>interlock-protos</artifactId>\n\s+<version>(.+)</version>",
    "packages/maven/README.md": r"<artifactId>interlock-protos</artifactId>\n\s+<version>(.+)</version>",
    "examples/clients/node/package-lock.json": r'"name": "@interlock/protos",\n\s+"version": "(.+)"',
    "examples/clients/java/pom.xml": r"<artifactId>interlock-protos</artifactId>\n\s+<version>(.+)</version>",
}
"""Files that say the version, each with what stands around it; a file may say it several times."""

VERSION = re.compile(r"\d+\.\d+\.\d+")
"""The form that all registries take for a release."""


def versions(root: Path = ROOT) -> dict[str, set[str]]:
    """What each file says."""
    return {path: set(re.findall(around, (root / path).read_text(), re.MULTILINE)) for path, around in PLACES.items()}


def version(root: Path = ROOT) -> str:
    """The version.

    Raises:
        ValueError: the files do not agree; the message names them.
    """
    said = versions(root)
    (source,) = said[SOURCE]
    wrong = {path: sorted(found) for path, found in said.items() if found != {source}}
    if wrong:
        raise ValueError(f"{SOURCE} says {source}, but: {wrong}; `python -m scripts.versions {source}` sets them all")
    return source


def set_version(new: str, root: Path = ROOT) -> None:
    """Writes a version into every file.

    Raises:
        ValueError: it is not of the form 1.2.3, or a file says none.
    """
    if not VERSION.fullmatch(new):
        raise ValueError(f"{new!r} is no version; expected three numbers, as in 1.2.3")
    for path, around in PLACES.items():
        text, count = re.subn(
            around,
            lambda found: found[0].replace(found[1], new),
            (root / path).read_text(),
            flags=re.MULTILINE,
        )
        if not count:
            raise ValueError(f"{path} says no version where one is expected: {around}")
        (root / path).write_text(text)


def main() -> None:
    try:
        for new in sys.argv[1:]:
            set_version(new)
        print(version())
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
