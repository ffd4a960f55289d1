"""Every test that takes `face` holds for the synchronous and the asynchronous clients alike."""

import pytest

from client.scripted import AsyncFace, Face, SyncFace


@pytest.fixture(params=[SyncFace(), AsyncFace()], ids=lambda face: face.name)
def face(request: pytest.FixtureRequest) -> Face:
    return request.param
