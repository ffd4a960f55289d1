"""The compiled loops: there after a warm-up, and done without where they cannot be had."""

import subprocess
import sys

from interlock.vision.decoders import compiled


def test_a_warm_up_loads_all_of_them_and_planning_none():
    script = (
        "import sys, interlock.vision as vision\n"
        "vision.probe(b'P1 1 1 0')\n"
        "assert 'numba' not in sys.modules\n"
        "vision.warm_up()\n"
        "parts = (name.split('.') for name in sys.modules if name.startswith('interlock.vision.decoders.'))\n"
        "print(*sorted(part[-1] for part in parts))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["compiled", "jpeg", "jpeg_rows", "png", "png_rows", "ppm", "ppm_text"]


def test_a_compiler_that_fails_is_logged_once_and_done_without(monkeypatch, caplog):
    def fail(_name):
        raise RuntimeError("no such CPU")

    monkeypatch.setattr(compiled, "import_module", fail)
    compiled.module.cache_clear()
    try:
        assert compiled.module("png_rows") is None
        assert compiled.module("png_rows") is None
        assert [record.message for record in caplog.records] == [
            "png_rows does not work here, Pillow takes its place: RuntimeError: no such CPU"
        ]
    finally:
        compiled.module.cache_clear()
