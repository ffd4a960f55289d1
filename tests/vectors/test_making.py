"""The vectors of the tree are what the reference gives."""

import json

from scripts.make_vectors.__main__ import all_files, kept_files
from vectors.reading import FOLDER


def test_the_generator_gives_the_files_of_the_tree_byte_for_byte():
    made, kept = all_files(), kept_files()
    assert made.keys() == kept.keys()
    assert [path for path in made if made[path] != kept[path]] == []


def test_every_file_is_read_by_readers_that_know_only_ascii_and_doubles():
    for path in FOLDER.rglob("*.json"):
        numbers: list[int] = []
        json.loads(path.read_text("ascii"), parse_int=lambda text, numbers=numbers: numbers.append(int(text)))
        assert all(int(float(number)) == number for number in numbers), path


def test_the_page_names_every_file():
    page = (FOLDER / "README.md").read_text()
    for path in kept_files():
        assert path.split("/")[0] in page, path
