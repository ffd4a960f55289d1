"""The command; see the package."""

import argparse
import sys
from pathlib import Path

from scripts.make_vectors.files import Files
from scripts.make_vectors.meanings import meaning_files
from scripts.make_vectors.messages import message_files
from scripts.make_vectors.refusals import refusal_files
from scripts.make_vectors.texts import text_files
from scripts.make_vectors.values import value_files
from scripts.make_vectors.vision import vision_files

FOLDER = Path(__file__).parent.parent.parent / "vectors"
MADE = (".json", ".bin")
"""What is a vector in that folder; the rest is written by hand."""


def all_files() -> Files:
    """Every vector file."""
    makers = (meaning_files, message_files, refusal_files, text_files, value_files, vision_files)
    return {path: content for make in makers for path, content in make().items()}


def kept_files() -> Files:
    """Every vector file of the tree."""
    paths = (path for path in FOLDER.rglob("*") if path.suffix in MADE)
    return {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in paths}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.make_vectors", description="Makes the files in vectors/.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the tree has other files")
    check = parser.parse_args().check
    made, kept = all_files(), kept_files()
    changed = sorted(path for path in made.keys() | kept.keys() if made.get(path) != kept.get(path))
    for path in changed:
        print(path)
        if not check:
            if path in made:
                (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
                (FOLDER / path).write_bytes(made[path])
            else:
                (FOLDER / path).unlink()
    if check and changed:
        print("these vectors are not what the reference gives; run `make vectors`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
