"""Draw metrics.jsonl as one page for a browser: losses, learning rate, AP, the classes, and the pictures beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from detaug.arrays import Floats
from detaug.files.atomic import write_atomically
from detaug.pages.frame import END, data_uri, head, shorten
from detaug.pages.line_chart import BLUE, GREEN, GREY, MOST_POINTS, ORANGE, PINK, Line, line_chart, round_up

COLORS = (BLUE, ORANGE, GREEN, PINK, "#56b4e9", "#e69f00", "#a6761d", GREY)
PICTURES = {"batches.png": "The first batch", "predictions.png": "Detections of the last evaluation"}
PICTURE_WIDTH, MOST_LETTERS = 1400, 60
NOT_LOSSES = ("step", "lr", "images_per_second", "waiting")

Entry = dict[str, Any]


class Curve(NamedTuple):
    """Points (N,), (N,)."""

    x: Floats
    y: Floats


def write_curves(folder: Path, title: str) -> Path:
    """Write curves.html beside the metrics.jsonl of a training, and return its path."""
    path = folder / "curves.html"
    text = (folder / "metrics.jsonl").read_text(encoding="utf-8")
    write_atomically(path, ["\n".join(_page([json.loads(line) for line in text.splitlines()], folder, title))])
    return path


def _page(entries: Sequence[Entry], folder: Path, title: str) -> Iterator[str]:
    """Yield the page in pieces."""
    steps = [entry for entry in entries if "loss" in entry]
    evaluations = [entry for entry in entries if "evaluation" in entry]
    yield head(title, "train")
    if steps:
        yield from _losses(steps)
    if evaluations:
        yield from _scores(evaluations)
        yield from _classes(evaluations)
    for name, heading in PICTURES.items():
        if (folder / name).is_file():
            yield f"<h2>{heading}</h2>{_picture(folder / name)}"
    yield END


def _losses(steps: Sequence[Entry]) -> Iterator[str]:
    last = steps[-1]
    rate, waiting = last.get("images_per_second", 0), last.get("waiting", 0)
    speed = f"{rate:,.4g} images/s a process, {waiting:.1%} of the time waiting for data"
    yield f"<p>{last['step']:,} steps; {speed}.</p><h2>Steps</h2><div class='row'>"
    at = np.array([entry["step"] for entry in steps], float)
    names = [name for name in last if name not in NOT_LOSSES]
    losses = {name: Curve(at, np.array([entry.get(name, np.nan) for entry in steps], float)) for name in names}
    means = {name: _means(curve) for name, curve in losses.items()}
    yield _chart("Losses, means of neighbouring steps", "step", means)
    rates = np.array([entry["lr"] for entry in steps], float)
    yield _chart("Learning rate", "step", {"learning rate": Curve(at, rates)})
    yield "</div>"


def _scores(evaluations: Sequence[Entry]) -> Iterator[str]:
    """Yield the charts of AP: of boxes, of what else the model finds, and of each class."""
    epochs = np.array([entry["epoch"] for entry in evaluations], float)
    kinds = {"": [entry["evaluation"] for entry in evaluations]}
    kinds |= {f"{name} ": [each[name] for each in kinds[""]] for name in ("segm", "keypoints") if name in kinds[""][0]}
    scores = {
        f"{kind}{name}": Curve(epochs, _known([each[name] for each in found]))
        for kind, found in kinds.items()
        for name in ("AP", "AP50")
    }
    classes = [Curve(epochs, values) for values in _by_class(evaluations).values()]
    yield "<h2>Evaluations</h2><div class='row'>"
    yield _chart("AP", "epoch", scores)
    yield _chart("AP of each class in grey", "epoch", {"AP": scores["AP"]}, classes)
    yield "</div>"


def _classes(evaluations: Sequence[Entry]) -> Iterator[str]:
    yield "<h2>Classes</h2><table><tr><td>class</td><td>last AP</td><td>best AP</td><td>in epoch</td></tr>"
    for name, values in _by_class(evaluations).items():
        cells = ["-"] * 3
        if np.isfinite(values).any():
            best = int(np.nanargmax(values))
            last = f"{values[-1]:.3f}" if np.isfinite(values[-1]) else "-"
            cells = [last, f"{values[best]:.3f}", str(evaluations[best]["epoch"])]
        row = "".join(f"<td>{cell}</td>" for cell in cells)
        yield f"<tr><td><bdi>{escape(shorten(name, MOST_LETTERS))}</bdi></td>{row}</tr>"
    yield "</table>"


def _by_class(evaluations: Sequence[Entry]) -> dict[str, Floats]:
    found = [entry["evaluation"].get("AP_by_class", {}) for entry in evaluations]
    return {name: _known([each.get(name, -1) for each in found]) for name in found[-1]}


def _known(scores: Sequence[float]) -> Floats:
    """Return scores, NaN in the place of -1, where there is no object to find."""
    values = np.array(scores, float)
    return np.where(values < 0, np.nan, values)


def _means(curve: Curve) -> Curve:
    """Return the means of neighbouring points, at most as many as a line shows."""
    parts = min(len(curve.x), MOST_POINTS)
    x, y = (np.array([part.mean() for part in np.array_split(each, parts)]) for each in curve)
    return Curve(x, y)


def _chart(title: str, x: str, curves: dict[str, Curve], faint: Sequence[Curve] = ()) -> str:
    """Return a chart with axes from 0 to what the curves reach."""
    shown = {name: _finite(curve) for name, curve in curves.items()}
    below = [_finite(curve) for curve in faint]
    last = next(iter(curves.values())).x[-1]
    highest = max(curve.y.max(initial=0) for curve in (*shown.values(), *below))
    return line_chart(
        title,
        x,
        "",
        {name: Line(*curve, COLORS[at % len(COLORS)]) for at, (name, curve) in enumerate(shown.items())},
        [Line(*curve, GREY, 1) for curve in below],
        x_range=(0, float(last)),
        y_range=(0, round_up(highest)),
    )


def _finite(curve: Curve) -> Curve:
    finite = np.isfinite(curve.y)
    return Curve(curve.x[finite], curve.y[finite])


def _picture(path: Path) -> str:
    with Image.open(path) as file:
        picture = file.convert("RGB")
    picture.thumbnail((PICTURE_WIDTH, picture.height))
    size = f'width="{picture.width}" height="{picture.height}"'
    return f'<img {size} alt="" src="{data_uri(picture, "JPEG", quality=85)}">'
