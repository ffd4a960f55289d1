"""`interlock preview`."""

import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from cli.running import error_line
from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, kernels, plan
from interlock_cli.errors import CommandError
from interlock_cli.npy import read_patches

PROFILE = PROFILES[DEFAULT_PROFILE_NAME]


def _npy(array: np.ndarray, **options: object) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


def _patches() -> np.ndarray:
    rgb = np.random.default_rng(7).integers(0, 256, (61, 97, 3), np.uint8)
    return kernels.get("reference").resize_patchify(rgb, plan(97, 61, PROFILE), PROFILE)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_patches_come_out_of_the_drawn_picture_again(invoke, tmp_path, order):
    patches = _patches()
    (tmp_path / "a.npy").write_bytes(_npy(np.asarray(patches, order=order)))
    result = invoke("preview", "a.npy", "-o", "a.png")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "a.png: 686x434 PNG\n", "")
    drawn = np.asarray(Image.open(tmp_path / "a.png"))
    again = kernels.get("reference").resize_patchify(drawn, plan(686, 434, PROFILE), PROFILE)
    assert np.array_equal(again, patches)


@pytest.mark.parametrize(("name", "file_format"), [("a.JPG", "JPEG"), ("a.webp", "WEBP"), ("a.png", "PNG")])
def test_the_ending_chooses_the_format(invoke, tmp_path, name, file_format):
    np.save(tmp_path / "a.npy", _patches())
    result = invoke("preview", "a.npy", "-o", name, "--json")
    assert json.loads(result.stdout) == {"output": name, "format": file_format, "width": 686, "height": 434}
    with Image.open(tmp_path / name) as picture:
        assert (picture.format, picture.size) == (file_format, (686, 434))


def test_an_unknown_ending_is_refused(invoke, tmp_path):
    np.save(tmp_path / "a.npy", _patches())
    result = invoke("preview", "a.npy", "-o", "a.xyz")
    assert result.exit_code == 2
    assert error_line(result).startswith("--output 'a.xyz' has no known ending; known are .png, .jpg, .jpeg, .webp")


GOOD = _npy(np.zeros((1, 1, 3, 14, 14), np.uint16))
HUGE = GOOD.replace(b"(1, 1, 3, 14, 14), }" + b" " * 17, b"(999999999999, 9999999, 3, 14, 14), }")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "no .npy file: "),
        (b"\x93NUMPY", "no .npy file: "),
        (GOOD[:40], "no .npy file: "),
        (b"\x93NUMPY\x03\x00" + GOOD[8:], "no .npy file: "),
        (GOOD[:-1], "1175 bytes of patches; its header says 1176"),
        (GOOD + b"\0", "1177 bytes of patches; its header says 1176"),
        (HUGE, "1176 bytes of patches; its header says 11759998823988240001176"),
        (_npy(np.zeros((1, 1, 3, 14, 14), np.int16)), "holds int16 of shape (1, 1, 3, 14, 14); expected uint16"),
        (_npy(np.zeros((1, 1, 3, 14, 14), ">u2")), "holds >u2 of shape (1, 1, 3, 14, 14); expected uint16"),
        (_npy(np.zeros((1, 3, 14, 14), np.uint16)), "holds uint16 of shape (1, 3, 14, 14); expected uint16"),
        (_npy(np.zeros((1, 1, 3, 14, 15), np.uint16)), "holds uint16 of shape (1, 1, 3, 14, 15); expected uint16"),
        (_npy(np.zeros((0, 1, 3, 14, 14), np.uint16)), "holds uint16 of shape (0, 1, 3, 14, 14); expected uint16"),
        (GOOD.replace(b"(1, 1, 3, 14, 14), }  ", b"(-1, -1, 3, 14, 14), }"), "holds uint16 of shape (-1, -1, 3,"),
        (_npy(np.array([{}], object)), "holds object of shape (1,); expected uint16"),
        (_npy(np.zeros((1, 1, 3, 8, 8), np.uint16)), "patches are uint16[1, 1, 3, 8, 8]; expected uint16[grid_height,"),
        (GOOD.replace(b"(1, 1, 3, 14, 14)", b"(" + b"9" * 17 + b")"), "no .npy file: "),
    ],
)  # fmt: skip
def test_a_damaged_patch_file_is_one_line(invoke, tmp_path, data, line):
    (tmp_path / "a.npy").write_bytes(data)
    result = invoke("preview", "a.npy", "-o", "a.png")
    assert (result.exit_code, result.stdout) == (1, "")
    assert error_line(result).startswith(f"a.npy: {line}")
    assert [file.name for file in tmp_path.iterdir()] == ["a.npy"]


def test_a_patch_file_with_any_byte_changed_is_refused_or_read_but_no_fault_of_the_command(tmp_path):
    file = tmp_path / "a.npy"
    random = np.random.default_rng(11)
    refused = 0
    for position in range(128):
        for byte in random.integers(0, 256, 6):
            file.write_bytes(GOOD[:position] + bytes([byte]) + GOOD[position + 1 :])
            try:
                assert read_patches(file).shape == (1, 1, 3, 14, 14)
            except CommandError:
                refused += 1
    assert refused > 400


def test_an_archive_of_arrays_is_no_patch_file(invoke, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npy", "w") as archive:
        archive.writestr("a.npy", GOOD)
    assert error_line(invoke("preview", "a.npy", "-o", "a.png")).startswith("a.npy: no .npy file: ")


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("missing/a.png", "cannot write missing/a.png: no such file or directory"),
        ("a.npy/b.png", "cannot write a.npy/b.png: not a directory"),
        ("folder.png", "cannot write folder.png: it is no regular file"),
        ("x" * 300 + ".png", f"cannot write {'x' * 300}.png: file name too long"),
    ],
)
def test_a_picture_that_cannot_be_written_is_one_line(invoke, tmp_path, output, line):
    (tmp_path / "a.npy").write_bytes(GOOD)
    (tmp_path / "folder.png").mkdir()
    result = invoke("preview", "a.npy", "-o", output)
    assert (result.exit_code, result.stdout) == (1, "")
    assert error_line(result) == line
    assert {file.name for file in tmp_path.iterdir()} == {"a.npy", "folder.png"}


def test_a_format_that_cannot_have_such_sides_is_one_line(invoke, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((1, 1200, 3, 14, 14), np.uint16))
    result = invoke("preview", "a.npy", "-o", "a.webp")
    assert result.exit_code == 1
    assert error_line(result).startswith("cannot write a.webp: ")
    assert [file.name for file in tmp_path.iterdir()] == ["a.npy"]
