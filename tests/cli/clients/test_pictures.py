"""The folder of pictures that every client program sends."""

import hashlib
import json
import struct
from pathlib import Path

import google_crc32c
import pytest

from interlock_cli.demo.clients.checkout import Checkout
from interlock_cli.demo.clients.pictures import DAMAGED, MADE_HERE, write_pictures

CHECKOUT = Checkout(Path(__file__).parents[3])
CORPUS = CHECKOUT.corpus


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    write_pictures(CHECKOUT, folder)
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    return json.loads((folder / "expected.json").read_text())


def test_the_folder_holds_the_pictures_and_what_must_come_back(folder, expected):
    names = [entry["file"] for entry in expected["pictures"]]
    assert sorted(file.name for file in folder.iterdir()) == sorted([*names, *DAMAGED, "expected.json"])


def test_what_must_come_back_is_what_the_corpus_says(expected):
    published = {entry["file"]: entry for entry in json.loads((CORPUS / "manifest.json").read_text())["files"]}
    assert [entry["file"] for entry in expected["pictures"]][: len(MADE_HERE)] == list(MADE_HERE)
    same_everywhere = [entry for entry in expected["pictures"] if not published[entry["file"]]["decoder_dependent"]]
    assert len(same_everywhere) > 20
    for entry in same_everywhere:
        assert entry["patches_sha256"] == published[entry["file"]]["patches"]["horizontal_first_sha256"]


def test_a_service_gives_these_patches(services, expected, folder):
    from interlock.client import PreprocessClient

    with PreprocessClient(services) as client:
        for entry in expected["pictures"]:
            patches = client.preprocess(folder / entry["file"], profile=entry["profile"])
            data = patches.array.tobytes()
            assert hashlib.sha256(data).hexdigest() == entry["patches_sha256"]
            assert google_crc32c.value(data) == entry["crc32c"]
            assert (patches.plan.grid_width, patches.plan.grid_height) == (entry["grid_width"], entry["grid_height"])
            words = struct.unpack("<8H", data[:16])
            assert [struct.unpack("<f", struct.pack("<I", word << 16))[0] for word in words] == entry["first_values"]


def test_the_damaged_ones_are_damaged_in_two_ways(expected):
    assert expected["damaged"] == [
        {"file": "jpeg_truncated.jpg", "reason": "IMAGE_TRUNCATED"},
        {"file": "text.jpg", "reason": "IMAGE_UNRECOGNIZED"},
    ]
