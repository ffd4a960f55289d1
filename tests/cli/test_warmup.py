"""`interlock warmup`."""

import json
import os
from pathlib import Path

from cli.running import error_line


def machine_code(folder: Path) -> dict[Path, int]:
    """numba's files of machine code and when they were written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.nb[ic]")}


def test_compiled_kernels_are_kept_in_the_folder_and_taken_from_there_by_the_next(run, start, tmp_path):
    first = run("warmup", "--kernel-cache-folder", "kernels", "--json")
    assert (first.returncode, first.stderr) == (0, "")
    told = json.loads(first.stdout)
    assert told["kernels"] == ["simd", "numexpr", "reference"]
    made = machine_code(tmp_path / "kernels")
    assert len(made) >= 12
    assert {str(path.relative_to(tmp_path)).startswith(told["kept_in"]) for path in made} == {True}

    again = run("warmup", "--kernel-cache-folder", "kernels")
    assert again.returncode == 0
    assert again.stdout.startswith("kernels that work here: simd, numexpr, reference (")

    settings = ["--port", "0", "--json", "--kernel-cache-folder", tmp_path / "kernels"]
    server = start("serve", "preprocess", *settings)
    assert json.loads(server.stdout.readline())["serving"] == ["preprocess"]
    assert machine_code(tmp_path / "kernels") == made


def test_a_folder_that_cannot_be_written_to_is_one_line_and_exit_code_1(run, tmp_path):
    (tmp_path / "file").write_text("")
    result = run("warmup", "--kernel-cache-folder", os.path.join("file", "kernels"))
    assert (result.returncode, result.stdout) == (1, "")
    assert error_line(result) == "compiled kernels cannot be kept in file/kernels"
