"""A kernel that does not work is told of once, and the next one takes its place."""

import logging
from importlib import import_module

import numpy as np
import pytest

from interlock.vision import kernels

REFERENCE = kernels.get("reference")


@pytest.fixture
def nothing_tried(monkeypatch):
    """As in a process that has not asked for a kernel yet."""
    monkeypatch.setattr(kernels, "_broken", {})
    kernels._working.cache_clear()
    yield
    kernels._working.cache_clear()


def with_simd(monkeypatch, simd) -> None:
    def load(name: str) -> kernels.Kernel:
        return simd() if name == "simd" else kernels.Kernel(name, module_of(name).resize_patchify)

    monkeypatch.setattr(kernels, "_load", load)


def module_of(name: str):
    return import_module(f"interlock.vision.kernels.{name}")


def fails_to_load() -> kernels.Kernel:
    raise ImportError("numba needs another NumPy\nthan this")


def one_word_wrong() -> kernels.Kernel:
    def resize_patchify(*arguments, **options):
        words = REFERENCE.resize_patchify(*arguments, **options)
        words[-1, -1, -1, -1, -1] ^= 1
        return words

    return kernels.Kernel("simd", resize_patchify)


@pytest.mark.parametrize(
    ("simd", "cause"),
    [
        (fails_to_load, "ImportError: numba needs another NumPy than this"),
        (one_word_wrong, "RuntimeError: it makes other patches than the reference of 56x42 at 14"),
    ],
)
def test_the_next_kernel_takes_its_place_and_the_cause_is_logged_once(nothing_tried, monkeypatch, caplog, simd, cause):
    with_simd(monkeypatch, simd)
    with caplog.at_level(logging.WARNING):
        assert [kernels.get().name for _ in range(3)] == ["numexpr"] * 3
    assert [record.getMessage() for record in caplog.records] == [
        f"kernel simd does not work here, numexpr takes its place: {cause}"
    ]
    assert kernels.available() == ("numexpr", "reference")
    assert [kernel.name for kernel in kernels.warm_up()] == ["numexpr", "reference"]
    with pytest.raises(ValueError, match=f"no kernel 'simd' here, it does not work: {cause}; available: numexpr"):
        kernels.get("simd")


def test_without_numba_there_is_no_simd_kernel(nothing_tried, monkeypatch):
    find_spec = kernels.find_spec
    monkeypatch.setattr(kernels, "find_spec", lambda name: None if name == "numba" else find_spec(name))
    assert kernels.available() == ("numexpr", "reference")
    assert kernels.get().name == "numexpr"


def test_all_kernels_that_are_loaded_give_the_same(nothing_tried):
    rgb = np.zeros((42, 56, 3), np.uint8)
    profile = kernels.VisionProfile(14, 1, 100, 0)
    plan = kernels.plan(56, 42, profile)
    words = {kernel.resize_patchify(rgb, plan, profile).tobytes() for kernel in kernels.warm_up()}
    assert len(words) == 1
