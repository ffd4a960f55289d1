"""The real Preprocess service, and the patches that the reference kernel gives on this side."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from client.scripted import PATIENCE
from interlock.reasons import Reason
from interlock.vision import (
    DEFAULT_PROFILE_NAME,
    PROFILES,
    DecodeOptions,
    Plan,
    VisionError,
    VisionProfile,
    decode,
    kernels,
    plan,
)
from interlock_preprocess import PreprocessService

CORPUS = sorted(path for path in (Path(__file__).parent.parent / "data" / "corpus").iterdir() if path.suffix != ".json")


@dataclass(frozen=True)
class Running:
    address: str
    service: PreprocessService

    async def at_rest(self) -> bool:
        """Waits until nothing is open, queued, at work or held."""
        async with asyncio.timeout(PATIENCE):
            while not self.service.counters.at_rest:  # noqa: ASYNC110  # plain counters
                await asyncio.sleep(0.01)
        return True


Start = Callable[..., Awaitable[Running]]


def reference(
    source: Path | NDArray[np.uint8],
    profile: VisionProfile = PROFILES[DEFAULT_PROFILE_NAME],
    options: DecodeOptions | None = None,
    geometry: Plan | None = None,
) -> NDArray[np.uint16]:
    """The patches, made on this side by the oracle."""
    rgb = source if isinstance(source, np.ndarray) else decode(source.read_bytes(), options or DecodeOptions()).rgb
    height, width, _ = rgb.shape
    return kernels.get("reference").resize_patchify(rgb, geometry or plan(width, height, profile), profile)


def reason_or_reference(path: Path) -> NDArray[np.uint16] | Reason:
    """The patches, or the reason for which there are none."""
    try:
        return reference(path)
    except VisionError as error:
        return error.reason
