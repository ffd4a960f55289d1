"""Random pictures with random legal geometry, far beyond what `plan` would choose."""

import numpy as np

from interlock.vision import Plan, VisionProfile


def geometry(
    canvas: tuple[int, int], resized: tuple[int, int], offset: tuple[int, int], profile: VisionProfile
) -> Plan:
    """The plan of a canvas (width, height), resized picture (width, height) and offset (left, top)."""
    grid_width, grid_height = (side // profile.patch_size for side in canvas)
    token_grid_width, token_grid_height = (-(-side // profile.downsample_ratio) for side in (grid_width, grid_height))
    return Plan(
        *canvas,
        *resized,
        top=offset[1],
        left=offset[0],
        grid_width=grid_width,
        grid_height=grid_height,
        token_grid_width=token_grid_width,
        token_grid_height=token_grid_height,
        token_count=token_grid_height * (token_grid_width + 1) + 2,
    )


def random_case(rng: np.random.Generator) -> tuple[np.ndarray, Plan, VisionProfile]:
    """A picture, a plan and a profile."""
    profile = VisionProfile(
        patch_size=int(rng.choice([5, 8, 14, 14, 14, 16, 28])),
        downsample_ratio=int(rng.integers(1, 5)),
        max_image_tokens=1024,
        min_pixels=0,
    )
    if rng.random() < 0.2:
        mean, std = rng.uniform(0, 1, 3), rng.uniform(0.05, 2, 3)
        profile = VisionProfile(profile.patch_size, 3, 1024, 0, None, tuple(mean.tolist()), tuple(std.tolist()))
    canvas = tuple(int(side) * profile.patch_size for side in rng.integers(1, 12, 2))
    width, height = (int(side) for side in rng.integers(1, 260, 2))
    match rng.integers(0, 10):
        case 0:
            width = int(rng.integers(1, 4))
        case 1:
            height = int(rng.integers(1, 4))
        case 2:
            height = int(rng.integers(600, 2000))
        case 3:
            width = int(rng.integers(600, 2000))
    shrunk = tuple(int(rng.integers(1, side + 1)) for side in canvas)
    resized = (
        canvas,
        (canvas[0], shrunk[1]),
        (shrunk[0], canvas[1]),
        shrunk,
        (min(width, canvas[0]), canvas[1]),
        (canvas[0], min(height, canvas[1])),
        (min(width, canvas[0]), min(height, canvas[1])),
    )[rng.integers(0, 7)]
    offset = tuple(int(rng.integers(0, side - inner + 1)) for side, inner in zip(canvas, resized, strict=True))
    return _content(rng, width, height), geometry(canvas, resized, offset, profile), profile


def _content(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    match rng.integers(0, 6):
        case 0:
            return np.zeros((height, width, 3), np.uint8)
        case 1:
            return np.full((height, width, 3), 255, np.uint8)
        case 2:  # hard edges: over- and undershoot of the filter
            return rng.integers(0, 2, (height, width, 3), dtype=np.uint8) * np.uint8(255)
        case 3:
            ramp = np.linspace(0, 255, height * width * 3).astype(np.uint8)
            return ramp.reshape(height, width, 3)
        case _:
            return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
