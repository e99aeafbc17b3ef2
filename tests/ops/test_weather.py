"""Shadows, fog and rain against Pillow's polygons, torch's interpolation, and discs one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from reference import v2functional

import detaug as da
from detaug.ops.weather import clouds_over, smooth

SIZE = (60, 80)
GRAY = np.full((*SIZE, 3), 200, np.uint8)


def after(op: da.Op, n: int, device: str = "cpu", image: np.ndarray = GRAY) -> da.Samples:
    """Return n images after the op."""
    return da.batch([image] * n, device=device).then(da.Resize(image.shape[:2]), op)


def planned(samples: da.Samples) -> dict[str, np.ndarray]:
    """Return what the op planned, by its own names."""
    return {name.partition(".")[2]: array for name, array in samples.plan.inputs.items() if name.startswith("1.")}


def pillow_polygon(corners: np.ndarray) -> np.ndarray:
    """Return which pixels are in a polygon, by Pillow, of a grid 15 times as fine as SIZE."""
    fine = Image.new("1", (SIZE[1] * 15, SIZE[0] * 15))
    ImageDraw.Draw(fine).polygon([tuple(corner) for corner in corners * 15 - 0.5], fill=1)
    return np.asarray(fine)


def test_shadows_are_polygons_that_take_their_share(device: str) -> None:
    samples = after(da.RandomShadow((0.1, 0.2, 0.9, 1), (1, 3), 6, (0.2, 0.7), p=0.8), 24, device)
    inputs, off, light = planned(samples), [], 0
    for image, apply, corners, intensity in zip(
        samples.images, inputs["apply"], inputs["corners"], inputs["intensity"], strict=True
    ):
        left = np.ones(SIZE)
        for polygon, share in zip(corners, intensity * apply, strict=True):
            left[pillow_polygon(polygon)[7::15, 7::15]] *= 1 - share
        off.append((np.abs(image - 200 * left[..., None]) > 0.51).mean())
        light += not apply
        assert (image[:12] == 200).all()
        assert (image[:, :8] == 200).all()
        assert (image[:, 72:] == 200).all()
    assert max(off) < 0.008  # Pillow paints the sides too
    assert 0 < light < 12


def test_shadows_draw_their_ranges() -> None:
    drawn = da.RandomShadow((0.25, 0.5, 0.75, 1), (1, 3), 5, (0.2, 0.6)).draw(np.random.default_rng(1), 9000)
    count = (drawn["intensity"] > 0).sum(1)
    assert np.abs(np.bincount(count) / 9000 - [0, 1 / 3, 1 / 3, 1 / 3]).max() < 0.02
    found = drawn["intensity"][drawn["intensity"] > 0]
    assert (found.min(), found.mean(), found.max()) == pytest.approx((0.2, 0.4, 0.6), abs=0.01)
    for axis, low, high in ((0, 0.25, 0.75), (1, 0.5, 1)):
        corner = drawn["corners"][..., axis]
        assert (corner.min(), corner.mean(), corner.max()) == pytest.approx((low, (low + high) / 2, high), abs=0.01)


def test_fog_is_white_between_points_and_blurred(device: str) -> None:
    photo = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
    samples = after(da.RandomFog((0.5, 1), 0.3, p=1), 3, device, photo)
    for image, grid, sigma in zip(
        samples.images, planned(samples)["grid"], planned(samples)["sigma"].tolist(), strict=True
    ):
        assert sigma == pytest.approx(0.8)
        share = torch.nn.functional.interpolate(torch.from_numpy(grid)[None, None], photo.shape[:2], mode="bilinear")
        mixed = (torch.from_numpy(photo).permute(2, 0, 1) * (1 - share[0]) + 255 * share[0]).round()
        expected = v2functional().gaussian_blur(mixed, [7, 7], [sigma] * 2).permute(1, 2, 0).numpy()
        assert np.abs(image - expected).max() < 1.6
        assert np.ptp(share.numpy()) > 0.2


def test_fog_is_as_dense_as_discs_one_by_one() -> None:
    """Discs that are painted in the rectangles of Albumentations, 8 times."""
    rng, (height, width), density = np.random.default_rng(0), (200, 300), 0.8
    region = int(width // 3 * density)
    count, y, x = np.zeros((height, width)), *np.mgrid[:height, :width]
    for side in [side for side in 0.9 ** np.arange(10) if side * height > region]:
        for _ in range(8 * int(height * width * side**2 / region**2 * density * 10)):
            at_y, at_x = (rng.uniform(-side / 2, side / 2, 2) + 0.5) * (height, width)
            count += (y - at_y) ** 2 + (x - at_x) ** 2 <= rng.integers(8, 16) ** 2  # a tenth of 200 * 0.8, and half
    expected = count.reshape(20, 10, 20, 15).mean((1, 3)) / 8
    (found,) = clouds_over(np.array([[height, width]], float), np.array([density]))
    assert found.mean() == pytest.approx(expected.mean(), rel=0.05)
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.95
    drawn = da.RandomFog().amounts(np.random.default_rng(1), 2000)
    assert (drawn["density"].min(), drawn["density"].max()) == pytest.approx((0.3, 1), abs=0.01)
    noise = smooth(drawn["noise"])
    assert noise.shape[1:] == found.shape
    assert (noise.mean(), noise.std()) == pytest.approx((0, 1), abs=0.02)


@pytest.mark.parametrize(("blur", "width", "slant"), [(7, 1, 2), (5, 3, -4), (1, 2, 0)])
def test_rain_is_blurred_streaks(blur: int, width: int, slant: float, device: str) -> None:
    color, length = np.array([210, 90, 20]), 24
    op = da.RandomRain((slant, slant), length, width, tuple(color), blur, 0.8, 2 / SIZE[0], p=1)
    samples = after(op, 6, device)
    beside = np.array([-1, 1, 1, -1]) * width * np.hypot(1, slant / length) / 2
    for image, ends in zip(samples.images, planned(samples)["ends"], strict=True):
        share = np.zeros(SIZE)
        for x, y in ends:
            corners = np.column_stack([x + beside + [0, 0, slant, slant], y + np.array([0, 0, length, length])])
            covered = pillow_polygon(corners).reshape(SIZE[0], 15, SIZE[1], 15).mean((1, 3))
            padded = np.pad(covered, blur // 2)
            share += np.lib.stride_tricks.sliding_window_view(padded, (blur, blur)).mean((2, 3))
        off = np.abs(image - np.minimum(200 + share[..., None].clip(0, 1) * color, 255) * 0.8)
        off, share = (each[4:-4, 4:-4] for each in (off, share))  # streaks go on beyond the border
        assert off.max() < (30 if blur == 1 else 10)  # Pillow paints the sides too; streaks are upright in the square
        assert off[share > 0].mean() < 3


def test_rain_draws_its_ranges() -> None:
    rain = da.RandomRain((-5, 10), density=0.5, p=0.25)
    inputs = planned(da.batch([np.zeros((80, 100, 3), np.uint8)] * 200).then(da.Resize((80, 100)), rain))
    assert 30 < inputs["apply"].sum() < 70
    ends = inputs["ends"][inputs["apply"] != 0]
    assert ends.shape[1] == 40
    for axis, most in ((0, 100), (1, 70)):  # of 80 rows, a streak is an eighth
        found = ends[..., axis]
        assert (found.min(), found.mean(), found.max()) == pytest.approx((0, most / 2, most), abs=2)
    slant = rain.amounts(np.random.default_rng(0), 9000)["slant"]
    assert (slant.min(), slant.mean(), slant.max()) == pytest.approx((-5, 2.5, 10), abs=0.2)
    assert (inputs["streak"][:, 1] == 10).all()
    tall = planned(after(da.RandomRain(length=500, p=1), 3))
    assert (tall["ends"][..., 1] <= 1).all()


def test_defaults_are_those_of_albumentations() -> None:
    assert da.RandomRain() == da.RandomRain((-10, 10), None, 1, (200, 200, 200), 7, 0.7, 1 / 3, 0.5)
    assert da.RandomFog() == da.RandomFog((0.3, 1), 0.08, 0.5)
    assert da.RandomShadow() == da.RandomShadow((0, 0.5, 1, 1), (1, 2), 5, (0.5, 0.5), 0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: da.RandomFog((0, 1)), "density must be above 0"),
        (lambda: da.RandomFog((0.5, 1.1)), "density must be"),
        (lambda: da.RandomFog(alpha=2), "alpha must be a fraction of white in"),
        (lambda: da.RandomRain((-2000, 0)), "slant must be"),
        (lambda: da.RandomRain(length=0), "length must be None or a whole number from 1"),
        (lambda: da.RandomRain(width=0), r"width must be a whole number in 1\.\.99"),
        (lambda: da.RandomRain(blur=2.5), "blur must be a whole number"),
        (lambda: da.RandomRain(color=(1, 2)), "color must be"),
        (lambda: da.RandomRain(brightness=2), "brightness must be a factor in"),
        (lambda: da.RandomRain(density=0), "density must be above 0, at most 10"),
        (lambda: da.RandomShadow((0, 0.5, 1)), r"region must be \(x0, y0, x1, y1\) in 0\.\.1"),
        (lambda: da.RandomShadow((0.5, 0, 0.5, 1)), "region must be"),
        (lambda: da.RandomShadow((0, 0.5, 1, 2)), "region must be"),
        (lambda: da.RandomShadow(count=(0, 2)), "count must be"),
        (lambda: da.RandomShadow(count=(1, 2.5)), "count must be two whole numbers"),
        (lambda: da.RandomShadow(corners=2), r"corners must be a whole number in 3\.\.20"),
        (lambda: da.RandomShadow(intensity=(0.5, 1.5)), "intensity must be"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
