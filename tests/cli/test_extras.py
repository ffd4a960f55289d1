"""What the command says where an optional package is missing."""

import subprocess
import sys

import pytest

from cli.running import error_line


def _run_without(packages: list[str], *args: str) -> "subprocess.CompletedProcess[str]":
    """Runs the command in an interpreter in which the packages cannot be imported."""
    script = (
        f"import sys\nsys.modules.update(dict.fromkeys({packages!r}))\nsys.argv = ['interlock', *{list(args)!r}]\n"
        "from interlock_cli import main\nmain()"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("missing", [["click"], ["rich"], ["click", "rich"]])
def test_on_a_bare_install_the_command_says_what_to_install(missing):
    result = _run_without(missing, "--help")
    assert (result.returncode, result.stdout) == (1, "")
    assert error_line(result) == (
        "the command needs click and rich, which are not installed: pip install 'interlock[all]'"
    )


@pytest.mark.parametrize(
    ("missing", "args", "package", "extra"),
    [
        ("PIL", ["preprocess", "a.jpg", "-o", "a.npy"], "Pillow", "preprocess"),
        ("numpy", ["preprocess", "a.jpg", "-o", "a.npy"], "numpy", "preprocess"),
        ("PIL", ["preview", "a.npy", "-o", "a.png"], "Pillow", "preprocess"),
        ("PIL", ["serve", "preprocess", "--port", "0"], "Pillow", "preprocess"),
        ("grpc_health", ["serve", "all"], "grpcio-health-checking", "all"),
        ("PIL", ["demo"], "Pillow", "all"),
    ],
)
def test_a_missing_package_is_one_line_that_names_the_extra(missing, args, package, extra):
    result = _run_without([missing], *args)
    assert (result.returncode, result.stdout) == (1, "")
    assert error_line(result) == (f"this needs {package}, which is not installed: pip install 'interlock[{extra}]'")


def test_commands_that_need_no_extra_run_without_them():
    result = _run_without(["numpy", "PIL", "numexpr", "google_crc32c", "grpc_health", "grpc_reflection"], "pools")
    assert (result.returncode, result.stderr) == (0, "")
    result = _run_without(["numpy", "PIL"], "plan", "1x1")
    assert (result.returncode, result.stderr) == (0, "")


def test_bootstrap_is_served_without_the_packages_of_preprocess():
    packages = ["numpy", "PIL", "numexpr", "google_crc32c", "numba", "simplejpeg"]
    result = _run_without(packages, "serve", "bootstrap", "--host", "nowhere")
    assert result.returncode == 2
    assert "expected an IP address" in error_line(result)
