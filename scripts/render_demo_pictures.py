#!/usr/bin/env python3
"""Renders the pictures that `interlock demo` works on: an evening at a mountain lake, from noise and a few formulas.

    python scripts/render_demo_pictures.py services/interlock_cli/demo/pictures

The package ships the result, so that the demo works on the very same bytes everywhere. Needs NumPy and Pillow.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Plane = NDArray[np.float64]

WIDTH, HEIGHT = 1600, 1200
HORIZON = 700
SUN = (1010, 560)
RANDOM = np.random.default_rng(1868)

ROW = np.arange(HEIGHT, dtype=np.float64)[:, None]
COLUMN = np.arange(WIDTH, dtype=np.float64)[None, :]


def colour(red: int, green: int, blue: int) -> Plane:
    """A colour in 0..1."""
    return np.array([red, green, blue], np.float64) / 255


def step(low: float, high: float, values: Plane) -> Plane:
    """0 below `low`, 1 above `high`, smooth between."""
    t = np.clip((values - low) / (high - low), 0, 1)
    return t * t * (3 - 2 * t)


def mix(below: Plane, above: Plane, amount: Plane) -> Plane:
    """`above` over `below`, by an amount of 0..1 a pixel."""
    return below + (above - below) * amount[..., None]


def noise(height: int, width: int, cell_height: float, cell_width: float, octaves: int, gain: float = 0.5) -> Plane:
    """Smooth noise of several octaves, about -1..1."""
    total, weight, scale = np.zeros((height, width)), 1.0, 0.0
    for _ in range(octaves):
        rows, columns = max(2, int(height / cell_height) + 3), max(2, int(width / cell_width) + 3)
        grid = Image.fromarray(RANDOM.uniform(-1, 1, (rows, columns)).astype(np.float32))
        total += weight * np.asarray(grid.resize((width, height), Image.Resampling.BICUBIC), np.float64)
        scale += weight
        weight *= gain
        cell_height, cell_width = max(1.0, cell_height / 2), max(1.0, cell_width / 2)
    return total / scale * 1.6


def blurred(picture: Plane, radius: float) -> Plane:
    """A soft copy."""
    image = Image.fromarray((np.clip(picture, 0, 1) * 255).astype(np.uint8))
    return np.asarray(image.filter(ImageFilter.GaussianBlur(radius)), np.float64) / 255


def sky() -> Plane:
    """Evening light: deep blue above, gold at the horizon, thin clouds lit from below."""
    height = np.clip(1 - ROW / HORIZON, 0, 1) + np.zeros_like(COLUMN)
    stops = [(0.0, (250, 188, 120)), (0.18, (244, 170, 128)), (0.42, (176, 158, 176)), (0.7, (92, 122, 172))]
    stops.append((1.0, (38, 70, 128)))
    levels = [level for level, _ in stops]
    light = np.stack([np.interp(height, levels, [c[i] / 255 for _, c in stops]) for i in range(3)], -1)
    distance = np.hypot((COLUMN - SUN[0]) / 1.15, ROW - SUN[1])
    light += np.exp(-distance / 240)[..., None] * colour(150, 84, 20)
    light += np.exp(-((distance / 95) ** 2))[..., None] * colour(190, 150, 80)
    light += step(34, 28, distance)[..., None] * colour(255, 240, 200)
    cirrus = noise(HEIGHT, WIDTH, 90, 520, 6, 0.58) + 0.35 * noise(HEIGHT, WIDTH, 24, 260, 4)
    amount = step(0.12, 0.95, cirrus) * step(0.02, 0.2, height) * (1 - 0.5 * step(0.75, 1, height))
    lit = mix(
        np.broadcast_to(colour(214, 176, 172), light.shape),
        np.broadcast_to(colour(255, 206, 142), light.shape),
        np.exp(-distance / 420),
    )
    shade = 0.82 + 0.18 * step(-0.4, 0.6, noise(HEIGHT, WIDTH, 40, 200, 4))
    return mix(light, lit * shade[..., None], 0.8 * amount)


def ridge(base: float, rise: float, roughness: float, cell: float) -> Plane:
    """Row of a mountain range's upper edge, a column each."""
    line = noise(4, WIDTH, 4, cell, 9, roughness)[0]
    return base - rise * (0.55 + 0.75 * line - 0.35 * np.abs(noise(4, WIDTH, 4, cell / 3, 6, 0.55)[1]))


def mountains(picture: Plane) -> Plane:
    """Five ranges, the far ones pale from haze, with snow on the farthest."""
    ranges = [
        (690, 330, 0.50, 520, colour(150, 150, 178), 0.62, 0.50),
        (700, 215, 0.52, 430, colour(112, 116, 146), 0.46, 0.15),
        (704, 150, 0.52, 360, colour(76, 84, 110), 0.32, 0.0),
        (706, 92, 0.54, 300, colour(48, 58, 74), 0.20, 0.0),
        (708, 48, 0.56, 240, colour(26, 36, 44), 0.08, 0.0),
    ]
    glow = np.exp(-np.abs(COLUMN - SUN[0]) / 420) + np.zeros_like(ROW)
    for base, rise, roughness, cell, rock, haze, snow in ranges:
        top = ridge(base, rise, roughness, cell)[None, :]
        depth = ROW - top
        relief = noise(HEIGHT, WIDTH, 150, 110, 7, 0.54)
        light = 0.5 + 11 * (0.8 * np.gradient(relief, axis=1) - 0.5 * np.gradient(relief, axis=0))
        face = rock * (0.62 + 0.5 * np.clip(light, 0, 1))[..., None]
        covered = step(150, 20, depth + 55 * relief) * snow * (top < base - rise * 0.35)
        face = mix(face, np.broadcast_to(colour(236, 214, 206), face.shape), covered * np.clip(light + 0.25, 0, 1))
        mist = np.clip(haze + 0.42 * step(40, 260, depth) * (haze > 0.1), 0, 1)
        air = mix(
            np.broadcast_to(colour(176, 160, 178), face.shape), np.broadcast_to(colour(250, 190, 132), face.shape), glow
        )
        picture = mix(picture, mix(face, air, mist), step(-0.7, 0.7, depth))
    return picture


def lake(picture: Plane) -> Plane:
    """The scene mirrored in water: displaced by ripples that grow towards the viewer, darker at steep angles."""
    rows = np.arange(HORIZON, HEIGHT)
    near = (rows - HORIZON) / (HEIGHT - HORIZON)
    ripple = np.zeros((len(rows), WIDTH))
    for cell, weight in ((3.0, 0.5), (7.0, 1.0), (16.0, 1.5)):
        waves = noise(2 * len(rows), WIDTH, cell, cell * 16, 2)
        sampled = (len(rows) * 2 - 1) * (1 - 1 / (1 + 2.2 * near)) / (1 - 1 / 3.2)  # perspective: fine far away
        ripple += weight * waves[np.clip(sampled, 0, 2 * len(rows) - 1).astype(int)]
    shift = ripple * (1.5 + 26 * near[:, None] ** 1.2)
    source = HORIZON - 1 - (rows[:, None] - HORIZON) * 1.12 + shift
    mirrored = picture[np.clip(source, 0, HORIZON - 1).astype(int), np.arange(WIDTH)[None, :]]
    water = mirrored * (0.84 - 0.30 * near[:, None, None]) * colour(228, 238, 255)
    water = mix(
        water,
        np.broadcast_to(colour(18, 40, 62), water.shape),
        np.broadcast_to(0.10 + 0.36 * near[:, None], shift.shape),
    )
    path = np.exp(-np.abs(COLUMN - SUN[0]) / (26 + 190 * near[:, None]))
    glitter = step(0.25, 1.1, ripple) * path * (0.85 - 0.5 * near[:, None])
    water += glitter[..., None] * colour(255, 196, 118) * 0.9
    result = picture.copy()
    result[HORIZON:] = water
    shore = np.exp(-np.abs(ROW - HORIZON) / 5)[..., None] * 0.25
    return result * (1 - shore) + shore * colour(255, 214, 170) * 0.9


def conifer(mask: Plane, column: float, foot: float, height: float) -> None:
    """Adds one spruce to a mask: a tapering trunk with drooping, ragged branches."""
    top = int(foot - height)
    for row in range(max(0, top), min(HEIGHT, int(foot))):
        t = (row - top) / height
        tier = (t * (9 + height / 60)) % 1
        reach = height * 0.20 * t**0.85 * (0.42 + 0.58 * tier) * RANDOM.uniform(0.72, 1.08)
        left, right = column - reach * RANDOM.uniform(0.8, 1.1) - 1.2, column + reach * RANDOM.uniform(0.8, 1.1) + 1.2
        low, high = max(0, int(left)), min(WIDTH, int(right) + 1)
        mask[row, low:high] = np.maximum(mask[row, low:high], RANDOM.uniform(0.72, 1.0, high - low) ** 0.5)


def foreground(picture: Plane) -> Plane:
    """A dark bank with reeds and spruces on both sides, edged by the light from behind."""
    bank = HEIGHT - 95 + 60 * np.cos((COLUMN / WIDTH - 0.5) * np.pi) + 18 * noise(4, WIDTH, 4, 300, 5)[:1]
    grass = bank - 26 * RANDOM.random((1, WIDTH)) ** 3
    mask = step(-1.5, 1.5, ROW - grass)
    for side in (0, 1):
        for _ in range(24):
            away = RANDOM.random() ** 1.6
            column = away * 430 if side == 0 else WIDTH - away * 330
            conifer(mask, column, HEIGHT - 20 - 70 * (1 - away), (760 - 470 * away) * RANDOM.uniform(0.55, 1.0))
    soft = blurred(np.repeat(mask[..., None], 3, -1), 0.9)[..., 0]
    light = np.exp(-np.hypot(COLUMN - SUN[0], ROW - 820) / 520)
    leaves = 0.8 + 0.3 * noise(HEIGHT, WIDTH, 14, 5, 3)
    dark = colour(9, 14, 15) * leaves[..., None] + light[..., None] * colour(34, 20, 8) * leaves[..., None]
    return mix(picture, dark, np.clip(soft, 0, 1))


def photographed(picture: Plane) -> Plane:
    """What a camera adds: bloom around the light, a tone curve, vignette, softness of the lens, grain."""
    bright = np.clip(picture - 0.78, 0, 1) * 2
    picture = picture + 0.45 * blurred(bright, 18) + 0.30 * blurred(bright, 60)
    picture = 1 - np.exp(-1.55 * np.clip(picture, 0, None))
    picture = picture / (1 - np.exp(-1.55)) * 0.985
    picture = np.clip(picture, 0, 1) ** 1.12
    radius = np.hypot((COLUMN - WIDTH / 2) / WIDTH, (ROW - HEIGHT / 2) / HEIGHT)
    picture = picture * (1 - 0.42 * step(0.3, 0.78, radius))[..., None]
    picture = 0.6 * picture + 0.4 * blurred(picture, 0.7)
    grain = RANDOM.normal(0, 1, (HEIGHT, WIDTH, 1)) * 0.010 + RANDOM.normal(0, 1, (HEIGHT, WIDTH, 3)) * 0.004
    return np.clip(picture + grain * (0.4 + 1.2 * np.sqrt(np.clip(picture, 0, 1))), 0, 1)


def render() -> Image.Image:
    """The whole picture."""
    return Image.fromarray((photographed(foreground(lake(mountains(sky())))) * 255 + 0.5).astype(np.uint8))


def main() -> None:
    """Writes the pictures into a folder."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    picture = render()
    picture.save(folder / "lake.jpg", quality=80, optimize=True, progressive=True)
    small = picture.crop((640, 420, 1400, 990)).resize((320, 240), Image.Resampling.LANCZOS)
    small.save(folder / "sun.png", optimize=True)
    tall = picture.crop((60, 0, 600, 1200)).resize((270, 600), Image.Resampling.LANCZOS)
    tall.save(folder / "spruces.webp", quality=80, method=6)


if __name__ == "__main__":
    main()
