"""What importing the client loads, and what happens where packages are missing."""

import json
import subprocess
import sys

import pytest

from client.scripted import gives, preprocess_servicer, serving
from interlock.preprocess.v1 import preprocess_pb2


def in_fresh_interpreter(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_client_loads_no_heavy_package() -> None:
    loaded = set(
        json.loads(in_fresh_interpreter("import json, sys, interlock.client; print(json.dumps(list(sys.modules)))"))
    )
    assert "interlock.client.preprocess" in loaded
    heavy = {"numpy", "PIL", "numba", "numexpr", "google_crc32c", "click", "rich", "interlock.serving"}
    assert loaded & heavy == set()


def test_every_public_name_exists() -> None:
    import interlock.client

    assert [name for name in interlock.client.__all__ if not hasattr(interlock.client, name)] == []
    assert sorted(interlock.client.__all__) == interlock.client.__all__


@pytest.mark.parametrize("missing", ["numpy", "google_crc32c"])
def test_without_a_package_patches_are_refused_with_the_command_to_install_it(missing: str) -> None:
    told = in_fresh_interpreter(
        f"""
import sys
sys.modules[{missing!r}] = None
from interlock.client import MissingPackageError, PreprocessClient
with PreprocessClient("127.0.0.1:1") as client:
    for ask in (lambda: client.preprocess(b"x"), lambda: client.preprocess_many([b"x"])):
        try:
            ask()
        except MissingPackageError as error:
            assert isinstance(error, ImportError)
            print(error)
"""
    )
    assert told.count("pip install 'interlock[patches]'") == 2
    assert missing in told


def test_plans_need_neither_numpy_nor_pillow() -> None:
    plan = preprocess_pb2.Plan(canvas_width=14, canvas_height=14, resize_width=14, resize_height=14, grid_width=1)
    answer = preprocess_pb2.PlanImagesResponse(results=[preprocess_pb2.PlanResult(plan=plan)])
    with serving(preprocess=preprocess_servicer(PlanImages=gives(answer))) as address:
        told = in_fresh_interpreter(
            f"""
import sys
for name in ("numpy", "PIL", "google_crc32c"):
    sys.modules[name] = None
from interlock.client import PreprocessClient
from interlock.vision import DecodeOptions, VisionProfile
with PreprocessClient({address!r}) as client:
    print(client.plan_images([(14, 14)])[0].plan.canvas_width, DecodeOptions().alpha_handling)
"""
        )
    assert told == "14 drop\n"
