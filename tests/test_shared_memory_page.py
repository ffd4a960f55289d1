"""The commands, the example and the pod of docs/shared-memory.md are right as they stand there."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from interlock.reasons import Reason
from interlock_preprocess import PreprocessSettings

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "shared-memory.md").read_text()
PATIENCE = 60
VARIABLE = "INTERLOCK_PREPROCESS_SHARED_MEMORY_FOLDER"


def test_the_commands_and_the_example_run_as_they_stand(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    export, serve, preprocess = re.findall(r"^    (?:interlock )?(\S.*)$", PAGE[: PAGE.index("## Two")], re.MULTILINE)[
        :3
    ]
    assert export == f"export {VARIABLE}=/dev/shm/interlock"
    for name in ("cat.jpg", "photo.jpg"):
        shutil.copy(ROOT / "tests" / "data" / "corpus" / "jpeg_baseline_420.jpg", tmp_path / name)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as outside:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT / "libs"), str(ROOT / "services")]),
            VARIABLE: f"{outside}/made",
        }

        def run(*words, **options):
            return subprocess.Popen(
                [sys.executable, *words], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, **options
            )

        words = shlex.split(serve.removesuffix("&").replace("50052", "0"))
        with run("-m", "interlock_cli", *words) as server:
            try:
                address = server.stdout.readline().split()[-1]
                words = shlex.split(preprocess.replace("127.0.0.1:50052", address))
                with run("-m", "interlock_cli", *words, "--json") as command:
                    assert '"in_shared_memory": true' in command.communicate(timeout=PATIENCE)[0]
                with run("-c", example.replace("127.0.0.1:50052", address)) as program:
                    assert program.communicate(timeout=PATIENCE)[0].split()[-1] == "True"
            finally:
                server.terminate()
                server.wait(PATIENCE)


def test_settings_and_reasons_of_the_page_exist():
    settings = {name for name in re.findall(r"`([a-z]+_[a-z_]+)`", PAGE) if name.startswith(("max_", "region_"))}
    assert settings == {"region_owner", "max_regions", "max_region_bytes", "region_ttl_seconds"}
    assert all(hasattr(PreprocessSettings(), name) for name in settings)
    reasons = set(re.findall(r"`([A-Z]+_[A-Z_]+)`", PAGE))
    assert reasons == {Reason.REGION_WRITE_FAILED, Reason.REGION_RANGE_IN_USE}
    assert PAGE.count(f"name: {VARIABLE}") == 2
