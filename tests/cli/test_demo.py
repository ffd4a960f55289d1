"""`interlock demo`: as told, and not as told."""

import json
import os
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from cli.running import error_line
from interlock.client import BootstrapClient
from interlock.vision import kernels


def test_the_demo_tells_the_whole_story_and_writes_the_picture(run, tmp_path):
    result = run("demo")
    assert (result.returncode, result.stderr) == (0, "")
    titles = re.findall(r"^([0-9])\. (.*)$", result.stdout, re.MULTILINE)
    assert [number for number, _ in titles] == list("123456789")
    for shown in (
        "REVISION_CONFLICT",
        "CONTRACT_MISMATCH",
        "page_size: the group has 64 (rank dp=0 cp=0 tp=0 pp=0), offered is 128",
        "kv_cache_dtype: the group has bfloat16 (rank dp=0 cp=0 tp=0 pp=0), offered is fp8_e4m3",
        "0 of 5143824 words differ from the reference kernel",
        "IMAGE_TRUNCATED",
        "Written to demo-output/lake-seen.png: 1512x1134.",
        "All 9 steps are as told",
    ):
        assert shown in result.stdout
    assert os.listdir(tmp_path) == ["demo-output"]
    assert os.listdir(tmp_path / "demo-output") == ["lake-seen.png"]
    with Image.open(tmp_path / "demo-output" / "lake-seen.png") as picture:
        assert (picture.format, picture.size) == ("PNG", (1512, 1134))
        levels = np.asarray(picture)
    assert levels.std() > 40  # a picture, not a grey canvas


def test_the_demo_as_json_has_every_step_and_all_that_it_shows(run):
    result = run("demo", "--json", "--output", "elsewhere")
    assert (result.returncode, result.stderr) == (0, "")
    story = json.loads(result.stdout)
    assert [step["step"] for step in story["steps"]] == list(range(1, 10))
    race, stream = story["steps"][1]["shown"][0], story["steps"][6]["shown"][0]
    assert sorted(row["outcome"] for row in race) == ["REVISION_CONFLICT", "stands", "stands"]
    assert race[2]["registered"] == "2 of 2"
    assert [row["differing_words"] for row in stream] == [0, 0, None, 0]
    assert story["output"] == "elsewhere"
    assert story["seconds"] < 30


def test_one_wrong_word_from_the_kernel_ends_the_demo_at_its_step(invoke, monkeypatch, tmp_path):
    right = kernels.get
    assert right().name == "simd", "the service must not work with the kernel that is the reference"

    def one_word_wrong(rgb, plan, profile, out=None, *, checkpoint=None, **options):
        if out is None:
            out = np.empty((plan.grid_height, plan.grid_width, 3, profile.patch_size, profile.patch_size), np.uint16)
        spoilt = False

        def spoil(rows_done: int) -> None:
            nonlocal spoilt
            if rows_done and not spoilt:
                out.reshape(-1)[0] ^= 1
                spoilt = True
            if checkpoint is not None:
                checkpoint(rows_done)

        return right().resize_patchify(rgb, plan, profile, out, checkpoint=spoil, **options)

    spoilt_kernel = kernels.Kernel("simd", one_word_wrong)
    monkeypatch.setattr(kernels, "get", lambda name=None: right(name) if name else spoilt_kernel)
    result = invoke("demo")
    assert result.exit_code == 1
    assert error_line(result) == (
        "step 6 (A photograph goes through Preprocess and comes back as bf16 patches) is not as told: "
        "1 words differ from the reference"
    )
    assert "1 of 5143824 words differ from the reference kernel" in result.stdout
    assert "\n7. " not in result.stdout
    assert os.listdir(tmp_path / "demo-output") == []


def test_a_check_that_sees_no_misfit_ends_the_demo_at_its_step(invoke, monkeypatch):
    right = BootstrapClient.check_compatibility
    monkeypatch.setattr(
        BootstrapClient,
        "check_compatibility",
        lambda *args, **kwargs: replace(right(*args, **kwargs), incompatibilities=()),
    )
    result = invoke("demo", "--json")
    assert result.exit_code == 1
    line = error_line(result)
    assert line.startswith("step 4 (A decode server checks whether it fits: one does not, one does) is not as told: ")
    assert line.endswith("decode-x was refused for (), not for ('page_size', 'sizes.tp')")
    error = json.loads(result.stdout)["error"]
    assert error["step"] == 4
    assert [step["step"] for step in error["steps"]] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("folder", "line"),
    [("taken", "cannot make folder taken: file exists"), ("taken/x", "cannot make folder taken/x: not a directory")],
)
def test_a_folder_that_cannot_be_made_is_told_before_anything_starts(invoke, tmp_path, folder, line):
    (tmp_path / "taken").write_text("")
    result = invoke("demo", "--output", folder)
    assert (result.exit_code, result.stdout) == (1, "")
    assert error_line(result) == line
