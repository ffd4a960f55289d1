"""The synchronous and the asynchronous clients offer the same, and say the same of it."""

import inspect

import pytest

from interlock.client import (
    AsyncBootstrapClient,
    AsyncPatchStream,
    AsyncPreprocessClient,
    BootstrapClient,
    PatchStream,
    PreprocessClient,
)

PAIRS = [(BootstrapClient, AsyncBootstrapClient), (PreprocessClient, AsyncPreprocessClient)]


def offered(client: type) -> dict[str, tuple[list[tuple[str, object, object]], str]]:
    """Parameters with kinds and defaults, and the docstring, of every public method."""
    return {
        name: (
            [(one.name, one.kind, one.default) for one in inspect.signature(method).parameters.values()],
            (inspect.getdoc(method) or "").replace("async ", ""),
        )
        for name, method in inspect.getmembers(client, inspect.isfunction)
        if not name.startswith("_") or name == "__init__"
    }


@pytest.mark.parametrize(("sync", "asynchronous"), PAIRS)
def test_both_faces_have_the_same_methods_parameters_and_docs(sync: type, asynchronous: type) -> None:
    assert offered(sync) == offered(asynchronous)
    assert [name for name, (_, doc) in offered(sync).items() if not doc and name != "__init__"] == []


def test_both_streams_can_be_iterated_cancelled_closed_and_entered() -> None:
    for sync, asynchronous in (("__iter__", "__aiter__"), ("close", "aclose"), ("__enter__", "__aenter__")):
        assert hasattr(PatchStream, sync)
        assert hasattr(AsyncPatchStream, asynchronous)
    assert inspect.signature(PatchStream.cancel) == inspect.signature(AsyncPatchStream.cancel)
