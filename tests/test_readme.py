"""The README's example runs as it stands, after the commands that the README gives; and its links lead somewhere."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PHOTO = "png_phone_1080x2400.png"
CORPUS = ROOT / "tests" / "data" / "corpus"


@pytest.fixture
def interlock(tmp_path):
    """Runs `interlock` as the README does, against an address of the test's own."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "libs"), str(ROOT / "services")]),
        "STATE_DIRECTORY": str(tmp_path / "state"),
    }

    def command(words, **options):
        return subprocess.Popen(
            [sys.executable, *words], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, **options
        )

    return command


def test_the_example_runs_against_the_services_that_the_readme_starts(interlock, tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (register,) = re.findall(r"^    interlock (route register .*)$", README, re.MULTILINE)
    assert "    interlock serve all &" in README
    shutil.copy(CORPUS / PHOTO, tmp_path / "photo.jpg")

    with interlock(["-m", "interlock_cli", "serve", "all", "--port", "0", "--json"]) as server:
        try:
            address = json.loads(server.stdout.readline())["address"]
            with interlock(["-m", "interlock_cli", *shlex.split(register), "--address", address]) as registration:
                registration.communicate(timeout=60)
            assert registration.returncode == 0

            example = example.replace("127.0.0.1:50051", address)
            with interlock(["-c", example]) as client:
                printed, _ = client.communicate(timeout=60)
        finally:
            server.terminate()
    assert client.returncode == 0
    assert server.returncode == 0
    ready, patches = printed.splitlines()
    assert re.fullmatch(r"ready at revision \d+: .*dp=1, cp=1, tp=1, pp=1.*, 64 tokens a page", ready)
    expected = next(
        file for file in json.loads((CORPUS / "manifest.json").read_text())["files"] if file["file"] == PHOTO
    )
    plan = expected["plan"]
    assert patches == f"({plan['vit_h']}, {plan['vit_w']}, 3, 14, 14) uint16 {plan['tokens']} tokens"


def test_every_link_leads_to_a_file():
    links = re.findall(r"\]\((?!http)([^)]+)\)", README)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
