"""`interlock preprocess`, in process and over gRPC."""

import json
import os
import pty
import re
import resource
import signal
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.running import COMMAND, PATIENCE, environment, error_line, serving
from interlock.vision import (
    DEFAULT_PROFILE_NAME,
    PROFILES,
    AlphaHandling,
    DecodeOptions,
    ExifOrientation,
    SixteenBitGrey,
    VisionProfile,
    decode,
    kernels,
    plan,
)
from interlock_cli.progress import speed
from vision.corpus import FILES, FOLDER, pixels_are_promised, read, sha256

PROFILE = PROFILES[DEFAULT_PROFILE_NAME]

REASONS = {
    "png_1x42924.png": "NO_LEGAL_PLAN",
    "png_bomb_200mp.png": "IMAGE_TOO_MANY_PIXELS",
    "jpeg_truncated.jpg": "IMAGE_TRUNCATED",
    "jpeg_no_eoi.jpg": "IMAGE_TRUNCATED",
    "png_truncated.png": "IMAGE_TRUNCATED",
    "empty.bin": "IMAGE_EMPTY",
}
"""Of the files that the manifest says fail; the others are not recognised."""


def _reference(data: bytes, options: DecodeOptions | None = None, profile: VisionProfile = PROFILE) -> np.ndarray:
    picture = decode(data, options)
    geometry = plan(picture.width, picture.height, profile)
    return kernels.get("reference").resize_patchify(picture.rgb, geometry, profile)


@pytest.mark.parametrize("over_grpc", [False, True], ids=["here", "address"])
def test_every_file_of_the_corpus_gives_the_result_of_the_manifest(run, services, tmp_path, over_grpc):
    address = ["--address", services, "--timeout", "60"] if over_grpc else []
    result = run("preprocess", *(FOLDER / name for name in FILES), "-o", "out", "--json", *address, timeout=300)
    assert result.returncode == 1
    pictures = json.loads(result.stdout)["pictures"]
    assert [Path(picture["file"]).name for picture in pictures] == list(FILES)
    failed = []
    for entry, picture in zip(FILES.values(), pictures, strict=True):
        name = entry["file"]
        if not entry["expect"]["ok"] or name in REASONS:
            assert picture["error"]["reason"] == REASONS.get(name, "IMAGE_UNRECOGNIZED")
            assert picture["error"]["field"] == ("data" if over_grpc else picture["error"]["field"]) != ""
            failed.append(name)
            continue
        patches = np.load(tmp_path / picture["output"])
        assert patches.dtype == np.dtype("<u2")
        assert list(patches.shape) == picture["shape"]
        assert patches.shape[2:] == (3, 14, 14)
        assert (picture["width"], picture["height"]) == (entry["expect"]["width"], entry["expect"]["height"])
        assert picture["format"] == entry["pil_format"]
        if entry.get("heavy"):
            assert np.array_equal(patches, _reference(read(name)))
            continue
        assert patches.shape[:2] == (entry["plan"]["vit_h"], entry["plan"]["vit_w"])
        assert picture["plan"]["token_count"] == entry["plan"]["tokens"]
        if pixels_are_promised(entry):
            assert sha256(patches) == entry["patches"]["horizontal_first_sha256"], name
    assert set(REASONS) <= set(failed)
    assert len(os.listdir(tmp_path / "out")) == len(FILES) - len(failed)
    lines = result.stderr.splitlines()
    assert len(lines) == len(failed)
    for name in failed:
        [line] = [line for line in lines if line.startswith(f"interlock: {FOLDER / name}: ")]
        assert f"[{REASONS.get(name, 'IMAGE_UNRECOGNIZED')}, field " in line


@pytest.mark.parametrize("kernel", kernels.available())
def test_every_kernel_gives_the_same_bytes(invoke, tmp_path, kernel):
    result = invoke("preprocess", FOLDER / "png_wide_2400x1080.png", "-o", "a.npy", "--kernel", kernel)
    assert (result.exit_code, result.stderr) == (0, "")
    expected = FILES["png_wide_2400x1080.png"]["patches"]["horizontal_first_sha256"]
    assert sha256(np.load(tmp_path / "a.npy")) == expected


OPTIONS = [
    ("jpeg_exif_6.jpg", ["--exif-orientation", "apply"], DecodeOptions(exif_orientation=ExifOrientation.APPLY)),
    ("png_la.png", ["--alpha-handling", "composite"], DecodeOptions(alpha_handling=AlphaHandling.COMPOSITE)),
    (
        "png_la.png",
        ["--alpha-handling", "composite", "--background", "#0a10ff"],
        DecodeOptions(alpha_handling=AlphaHandling.COMPOSITE, background=(10, 16, 255)),
    ),
    ("png_gray16.png", ["--sixteen-bit-grey", "high_byte"], DecodeOptions(sixteen_bit_grey=SixteenBitGrey.HIGH_BYTE)),
]


@pytest.mark.parametrize("over_grpc", [False, True], ids=["here", "address"])
@pytest.mark.parametrize(("name", "args", "options"), OPTIONS)
def test_decode_options_do_what_they_say(invoke, services, tmp_path, over_grpc, name, args, options):
    address = ["--address", services] if over_grpc else []
    result = invoke("preprocess", FOLDER / name, "-o", "a.npy", *args, *address)
    assert (result.exit_code, result.stderr) == (0, "")
    patches = np.load(tmp_path / "a.npy")
    assert np.array_equal(patches, _reference(read(name), options))
    assert patches.shape != (plain := _reference(read(name))).shape or not np.array_equal(patches, plain)


@pytest.mark.parametrize("over_grpc", [False, True], ids=["here", "address"])
def test_a_profile_may_be_named_or_given_in_a_file(invoke, services, tmp_path, over_grpc):
    address = ["--address", services] if over_grpc else []
    (tmp_path / "p.toml").write_text(
        "patch_size = 8\ndownsample_ratio = 2\nmax_image_tokens = 64\nmin_pixels = 0\nimage_mean = [0.48, 0.46, 0.41]"
    )
    named = "deepseek-v4-flash-vision-exp"
    given = VisionProfile(8, 2, 64, 0, image_mean=(0.48, 0.46, 0.41))
    for args, profile in ((["--profile", named], PROFILES[named]), (["--profile-file", "p.toml"], given)):
        result = invoke("preprocess", FOLDER / "png_rgb8.png", "-o", "a.npy", *args, *address)
        assert (result.exit_code, result.stderr) == (0, "")
        assert np.array_equal(np.load(tmp_path / "a.npy"), _reference(read("png_rgb8.png"), None, profile))


def test_one_picture_may_go_into_an_existing_folder(invoke, tmp_path):
    (tmp_path / "out").mkdir()
    result = invoke("preprocess", FOLDER / "png_rgb8.png", "-o", "out")
    assert result.exit_code == 0
    assert os.listdir(tmp_path / "out") == ["png_rgb8.png.npy"]
    heading, row = result.stdout.splitlines()
    assert heading.split() == ["OUTPUT", "FORMAT", "SIZE", "SHAPE", "TOKENS", "DECODE", "MS", "KERNEL", "MS"]
    assert row.split()[:5] == ["out/png_rgb8.png.npy", "PNG", "64x48", "34x45x3x14x14", "194"]


@pytest.mark.parametrize("over_grpc", [False, True], ids=["here", "address"])
def test_of_several_pictures_the_bad_ones_are_reported_and_the_others_written(invoke, services, tmp_path, over_grpc):
    address = ["--address", services] if over_grpc else []
    files = [FOLDER / "empty.bin", FOLDER / "png_rgb8.png", "nonsuch.png", tmp_path]
    result = invoke("preprocess", *files, "-o", "out", *address)
    assert result.exit_code == 1
    field = "data" if over_grpc else "encoded"
    assert set(result.stderr.splitlines()) == {
        f"interlock: {FOLDER / 'empty.bin'}: the picture has no bytes [IMAGE_EMPTY, field {field}]",
        "interlock: cannot read nonsuch.png: no such file or directory",
        f"interlock: cannot read {tmp_path}: is a directory",
    }
    assert os.listdir(tmp_path / "out") == ["png_rgb8.png.npy"]
    assert len(result.stdout.splitlines()) == 2


def test_a_failed_picture_leaves_what_stood_there_before(invoke, tmp_path):
    (tmp_path / "a.npy").write_text("before")
    result = invoke("preprocess", FOLDER / "jpeg_truncated.jpg", "-o", "a.npy")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "[IMAGE_TRUNCATED, field encoded]" in error_line(result)
    assert (tmp_path / "a.npy").read_text() == "before"
    assert os.listdir(tmp_path) == ["a.npy"]


def test_a_written_file_keeps_its_mode_and_a_new_one_follows_the_umask(invoke, tmp_path):
    (tmp_path / "old.npy").write_text("before")
    (tmp_path / "old.npy").chmod(0o640)
    before = os.umask(0o027)
    try:
        for name in ("old.npy", "new.npy"):
            assert invoke("preprocess", FOLDER / "png_rgb8.png", "-o", name).exit_code == 0
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("old.npy", "new.npy")] == [0o640, 0o640]


def test_a_disk_that_is_full_is_one_line_and_leaves_nothing(tmp_path):
    def at_most_100_kb() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    result = subprocess.run(
        [*COMMAND, "preprocess", str(FOLDER / "png_rgb8.png"), "-o", "a.npy"],
        env=environment(tmp_path),
        cwd=tmp_path,
        preexec_fn=at_most_100_kb,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert error_line(result).startswith("cannot write a.npy: ")
    assert os.listdir(tmp_path) == []


def test_a_command_that_is_stopped_between_two_pictures_leaves_the_first_whole(start, tmp_path):
    # A named pipe as second picture: the command waits in it, at a moment of our choosing.
    os.mkfifo(tmp_path / "later.png")
    process = start("preprocess", FOLDER / "png_rgb8.png", "later.png", "-o", "out")
    writer = os.open(tmp_path / "later.png", os.O_WRONLY)  # waits until the command reads it
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=PATIENCE) == ("", "")
    os.close(writer)
    assert process.returncode == 143
    assert os.listdir(tmp_path / "out") == ["png_rgb8.png.npy"]


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["a/x.png", "b/x.png", "-o", "out"], "'a/x.png' and 'b/x.png' would both be written to 'out/x.png.npy'"),
        (["x.png", "-o", "x.png"], "'x.png' is a source, and would be overwritten"),
        (["x.png", "-o", "./a/../x.png"], "'a/../x.png' is a source, and would be overwritten"),
        (["x.png", "-o", "y.npy", "--background", "ffffff"], "--background needs --alpha-handling composite"),
        (["x.png", "-o", "y.npy", "--alpha-handling", "composite", "--background", "white"],
         "invalid value for '--background': 'white' is no colour; expected RRGGBB, for example ffffff for white"),
        (["x.png", "-o", "y.npy", "--kernel", "nonsuch"], "--kernel: no kernel 'nonsuch' here; available: "),
        (["x.png", "-o", "y.npy", "--kernel", "reference", "--address", "h:1"],
         "--kernel and --address exclude each other"),
        (["x.png", "-o", "y.npy", "--address", "not an address"], "address is 'not an address'; expected host:port"),
        (["x.png", "-o", "y.npy", "--timeout", "0"],
         "invalid value for '--timeout': 0.0 is not in the range 0<x<=86400"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_before_any_work(invoke, tmp_path, args, line):
    (tmp_path / "a").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "x.png")
    result = invoke("preprocess", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert error_line(result).startswith(line)
    assert {file.name for file in tmp_path.iterdir()} == {"a", "x.png"}


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["x.png", "-o", "missing/y.npy"], "cannot write missing/y.npy: no such file or directory"),
        (["x.png", "-o", "y" * 300], f"cannot write {'y' * 300}: file name too long"),
        (["x.png", "x2.png", "-o", "x.png"], "cannot make folder x.png: file exists"),
        (["/dev/zero", "-o", "y.npy"], "/dev/zero: more than 536870912 bytes, the most that is read"),
        (["x.png", "-o", "y.npy", "--profile", "nonsuch"], "no profile is named 'nonsuch'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_or_written_is_one_line(invoke, tmp_path, args, line):
    Image.new("RGB", (8, 8)).save(tmp_path / "x.png")
    result = invoke("preprocess", *args)
    assert (result.exit_code, result.stdout) == (1, "")
    assert error_line(result).startswith(line)
    assert os.listdir(tmp_path) == ["x.png"]


def test_the_service_names_a_profile_that_it_does_not_have(invoke, services, tmp_path):
    result = invoke("preprocess", FOLDER / "png_rgb8.png", "-o", "a.npy", "--address", services, "--profile", "nonsuch")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "UNKNOWN_PROFILE" in error_line(result)
    assert os.listdir(tmp_path) == []


def test_a_service_that_is_not_there_is_exit_code_3(invoke, tmp_path):
    result = invoke("preprocess", FOLDER / "png_rgb8.png", "-o", "a.npy", "--address", "127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (3, "")
    assert error_line(result).startswith("127.0.0.1:1: ")
    assert os.listdir(tmp_path) == []


def test_on_a_terminal_several_pictures_have_a_progress_bar_on_stderr(tmp_path):
    ours, theirs = pty.openpty()
    command = [*COMMAND, "preprocess", *(str(FOLDER / n) for n in ("png_rgb8.png", "empty.bin")), "-o", "out"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path, env={**environment(tmp_path), "TERM": "xterm"}
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65_536):
                shown += part
        except OSError:  # how Linux tells that the other side was closed
            pass
        stdout, _ = process.communicate(timeout=PATIENCE)
    os.close(ours)
    assert process.returncode == 1
    assert b"2/2" in shown
    assert re.search(rb"[0-9.]+/s  [0-9.]+ MP/s", shown)
    assert b"[IMAGE_EMPTY, field encoded]" in shown
    assert stdout.splitlines()[1].startswith(b"out/png_rgb8.png.npy")


@pytest.mark.parametrize(
    ("picture", "profile", "reason"),
    [("empty.bin", "deepseek-v4.1", "IMAGE_EMPTY"), ("png_rgb8.png", "nonsuch", "UNKNOWN_PROFILE")],
)
def test_a_picture_that_the_service_refuses_ends_the_command(run, services, picture, profile, reason):
    result = run("preprocess", FOLDER / picture, "-o", "a.npy", "--address", services, "--profile", profile)
    assert (result.returncode, result.stdout) == (1, "")
    assert reason in result.stderr


def test_a_service_on_this_host_puts_the_patches_into_shared_memory(run, tmp_path):
    files = [FOLDER / "png_wide_2400x1080.png", FOLDER / "png_rgb8.png"]
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
        serving(tmp_path, "preprocess", "--shared-memory-folder", folder) as address,
    ):
        command = ["preprocess", *files, "-o", "out", "--address", address, "--json"]
        for given, expected in ((["--shared-memory-folder", folder], True), ([], False)):
            result = run(*command, *given)
            assert (result.returncode, result.stderr) == (0, "")
            for picture, file in zip(json.loads(result.stdout)["pictures"], files, strict=True):
                assert picture["in_shared_memory"] == expected
                assert np.array_equal(np.load(tmp_path / picture["output"]), _reference(file.read_bytes()))
        assert os.listdir(folder) == []


@pytest.mark.parametrize(
    ("pictures", "pixels", "seconds", "shown"),
    [(1, 0, 0.0, "1000/s  0.0 MP/s"), (3, 36_000_000, 2.0, "1.5/s  18.0 MP/s"), (995, 10**9, 10.0, "100/s  100 MP/s")],
)
def test_speeds_are_shown_in_a_few_digits(pictures, pixels, seconds, shown):
    assert speed(pictures, pixels, seconds) == shown
