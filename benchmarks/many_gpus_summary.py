"""Summarise the results of benchmarks/many_gpus.py, by part "kind-gpus-seed", and draw its loss curves."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

TITLES = {"loader": "loader alone", "decode": "decoding alone", "speed": "training"}
"""Titles of the timed kinds, the most important first."""

WINDOW = 20
"""Each point of a curve is the mean of so many steps."""


def label(part: str) -> str:
    """Return the name of a curve."""
    _, gpus, seed = part.split("-")
    return f"{gpus} GPU{'s' * (gpus != '1')}{', seed 1' * (seed == '1')}"


def curves(results: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the smoothed losses of the parts, by label."""
    found = {part: each["losses"] for part, each in sorted(results.items()) if each.get("losses")}
    return {label(part): smooth(losses) for part, losses in found.items()}


def smooth(losses: list[float]) -> np.ndarray:
    """Return a point for each step from `WINDOW` on: the mean of the last `WINDOW` steps."""
    return np.convolve(losses, np.ones(WINDOW) / WINDOW, "valid") if len(losses) >= WINDOW else np.empty(0)


def summary(results: dict[str, Any]) -> list[str]:
    smoothed = curves(results)
    lines = ["", f"loss, mean of {WINDOW} steps", "step  " + "  ".join(smoothed)] if smoothed else []
    steps = min((len(curve) for curve in smoothed.values()), default=0)
    for at in sorted({round(each) for each in np.linspace(0, steps - 1, 11)}) if steps else []:
        values = (f"{curve[at]:{len(name)}.3f}" for name, curve in smoothed.items())
        lines.append(f"{at + WINDOW:4}  {'  '.join(values)}")
    lines += [difference(smoothed, *pair) for pair in compared(smoothed)]
    for part, each in sorted(results.items()):
        if found := each.get("evaluation"):
            lines.append(f"{label(part)}: AP50 on test {found['AP50']:.3f}, AP {found['AP']:.3f}")
    return [*lines, *(line for kind in TITLES for line in scaling(kind, results))]


def compared(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of curves: each with one GPU and the same seed; the two seeds on one GPU, for the noise."""
    others = {name: "1 GPU, seed 1" if name.startswith("2 GPUs, ") else "1 GPU" for name in names}
    return [(name, other) for name, other in others.items() if other in others and other != name]


def difference(smoothed: dict[str, np.ndarray], name: str, other: str) -> str:
    """Return the relative difference of two smoothed curves in words."""
    steps = min(len(smoothed[name]), len(smoothed[other]))
    apart = np.abs(smoothed[name][:steps] / smoothed[other][:steps] - 1)
    what = f"{name} / {other}{' (the noise)' * (name == '1 GPU, seed 1')}"
    if not steps:
        return f"{what}: too few steps"
    return f"{what}: at most {apart.max():.1%} apart, on average {apart.mean():.1%}, over {steps + WINDOW - 1} steps"


def scaling(kind: str, results: dict[str, Any]) -> list[str]:
    """Return a line for each number of GPUs; the column "a GPU" is the rate of each GPU relative to one GPU alone."""
    found = sorted({int(name.split("-")[1]) for name in results if name.startswith(kind)})
    rates = {gpus: values_of("images_per_second", kind, gpus, results) for gpus in found}
    lines = []
    for gpus, turns in rates.items():
        rate, cpu = statistics.median(turns), values_of("cpu_seconds_per_1000_images", kind, gpus, results)
        ratio = f"{rate / gpus / statistics.median(rates[1]):.3f}" if 1 in rates else "-"
        says = f"{gpus:4}  {rate:8,.0f}  {ratio:>5}  {statistics.median(cpu):13.3f}  "
        lines.append(says + ", ".join(f"{each:,.0f}" for each in turns))
    return ["", TITLES[kind], "GPUs  images/s  a GPU  CPU s / 1,000  turns, images/s", *lines] if lines else []


def values_of(name: str, kind: str, gpus: int, results: dict[str, Any]) -> list[float]:
    return [each[name] for part, each in results.items() if part.startswith(f"{kind}-{gpus}-")]


COLOURS = [(0, 114, 178), (120, 180, 220), (213, 94, 0), (240, 170, 110), (0, 158, 115), (110, 60, 160)]
PICTURE = (960, 560)
EDGE = 60


def draw_curves(drawn: dict[str, np.ndarray], model: str, path: Path) -> None:
    """Draw loss over steps, both axes linear from 0. Writes no picture if all curves have fewer than two points."""
    drawn = {name: curve for name, curve in drawn.items() if len(curve) > 1}
    if not drawn:
        return
    image = Image.new("RGB", PICTURE, "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(16)
    width, height = PICTURE[0] - 2 * EDGE, PICTURE[1] - 2 * EDGE
    top, last = max(curve.max() for curve in drawn.values()), max(map(len, drawn.values())) + WINDOW - 1
    draw.text((EDGE, 20), f"{model}: loss, mean of {WINDOW} steps", "black", ImageFont.load_default(20))
    for tick in range(5):
        y = PICTURE[1] - EDGE - height * tick / 4
        draw.line((EDGE, y, PICTURE[0] - EDGE, y), (225, 225, 225))
        draw.text((EDGE - 8, y), f"{top * tick / 4:.1f}", "black", font, anchor="rm")
        x = EDGE + width * tick / 4
        draw.text((x, PICTURE[1] - EDGE + 8), f"{last * tick / 4:.0f}", "black", font, anchor="ma")
    for at, ((name, curve), colour) in enumerate(zip(drawn.items(), cycle(COLOURS), strict=False)):
        xs = EDGE + width * (np.arange(len(curve)) + WINDOW) / last
        ys = PICTURE[1] - EDGE - height * curve / top
        draw.line(list(zip(xs.tolist(), ys.tolist(), strict=True)), colour, 2)
        draw.text((PICTURE[0] - EDGE, EDGE + 22 * at), name, colour, font, anchor="ra")
    image.save(path)
