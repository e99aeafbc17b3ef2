"""Draw metrics.jsonl as one page for a browser: losses, learning rate, AP, the classes, and the images beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from PIL import Image

from detaug.arrays import Floats
from detaug.files.atomic import write_atomically
from detaug.pages.frame import render
from detaug.pages.line_chart import BLUE, GREEN, GREY, MOST_POINTS, ORANGE, PINK, Line, line_chart, round_up

COLORS = (BLUE, ORANGE, GREEN, PINK, "#56b4e9", "#e69f00", "#a6761d", GREY)
PICTURES = {"train_batch.jpg": "The first batch", "predictions.jpg": "Predictions of the last evaluation"}
PICTURE_WIDTH, MOST_LETTERS = 1400, 60
MORE_KINDS = ("segm", "keypoints", "rotated", "semantic")
"""What an evaluation has beside the scores of boxes, or instead of them."""
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
    entries = [json.loads(line) for line in text.splitlines()]
    steps = [entry for entry in entries if "loss" in entry]
    evaluations = [entry for entry in entries if "evaluation" in entry]
    page = render(
        "training/curves.html",
        title=title,
        command="train",
        last_step=steps[-1] if steps else None,
        losses=_losses(steps) if steps else (),
        scores=_scores(evaluations) if evaluations else (),
        classes=_classes(evaluations) if evaluations else (),
        score=_score_of_class(evaluations) if evaluations else "",
        pictures=[
            (heading, _picture(folder / name)) for name, heading in PICTURES.items() if (folder / name).is_file()
        ],
        letters=MOST_LETTERS,
    )
    write_atomically(path, [page])
    return path


def shown_scores(kind: str) -> tuple[str, ...]:
    """Return the names of the scores that are shown of a kind of `CocoEvaluator`, or of maps.

    AP50 does not see wrong angles of near-squares: a square that is rotated by 45 degrees still has an IoU of 0.71.
    """
    if kind == "semantic":
        return ("mIoU", "accuracy")
    return ("AP", "AP50", "AP75") if kind == "rotated" else ("AP", "AP50")


def _losses(steps: Sequence[Entry]) -> list[Markup]:
    numbers = np.array([entry["step"] for entry in steps], float)
    names = [name for name in steps[-1] if name not in NOT_LOSSES]
    losses = {name: Curve(numbers, np.array([entry.get(name, np.nan) for entry in steps], float)) for name in names}
    means = {name: _means(curve) for name, curve in losses.items()}
    rates = np.array([entry["lr"] for entry in steps], float)
    return [
        _chart("Losses, means of neighboring steps", "step", means),
        _chart("Learning rate", "step", {"learning rate": Curve(numbers, rates)}),
    ]


def _scores(evaluations: Sequence[Entry]) -> list[Markup]:
    """Return the charts of AP: of boxes, of what else the model finds, and of each class; or those of mIoU."""
    epochs = np.array([entry["epoch"] for entry in evaluations], float)
    every = [entry["evaluation"] for entry in evaluations]
    kinds = {name: [metrics[name] for metrics in every] for name in MORE_KINDS if name in every[0]}
    if "AP" in every[0]:
        kinds = {"": every, **kinds}
    scores = {
        f"{kind} {name}".strip(): Curve(epochs, _known([metrics[name] for metrics in rows]))
        for kind, rows in kinds.items()
        for name in shown_scores(kind)
    }
    classes = [Curve(epochs, values) for values in _by_class(evaluations).values()]
    mean = next(name for name in ("rotated AP", "semantic mIoU", "AP") if name in scores)
    return [
        _chart("AP" if "AP" in scores else "mIoU and accuracy of pixels", "epoch", scores),
        _chart(f"{_score_of_class(evaluations)} of each class in gray", "epoch", {mean: scores[mean]}, classes),
    ]


def _score_of_class(evaluations: Sequence[Entry]) -> str:
    return "IoU" if "semantic" in evaluations[0]["evaluation"] else "AP"


def _classes(evaluations: Sequence[Entry]) -> Iterator[tuple[str, list[str]]]:
    """Yield each class with its last AP or IoU, its best one, and the epoch of that."""
    for name, values in _by_class(evaluations).items():
        cells = ["-"] * 3
        if np.isfinite(values).any():
            best = int(np.nanargmax(values))
            last = f"{values[-1]:.3f}" if np.isfinite(values[-1]) else "-"
            cells = [last, f"{values[best]:.3f}", str(evaluations[best]["epoch"])]
        yield name, cells


def _by_class(evaluations: Sequence[Entry]) -> dict[str, Floats]:
    """Return the AP of each class in each evaluation: of rotated boxes, where the model finds them, else of boxes; or
    the IoU of the classes of a map.
    """
    evaluated = [entry["evaluation"] for entry in evaluations]
    if _score_of_class(evaluations) == "IoU":
        by_class = [metrics["semantic"]["iou"] for metrics in evaluated]
    else:
        by_class = [metrics.get("rotated", metrics).get("AP_by_class", {}) for metrics in evaluated]
    return {name: _known([classes.get(name, -1) for classes in by_class]) for name in by_class[-1]}


def _known(scores: Sequence[float]) -> Floats:
    """Return scores, NaN in the place of -1, where there is no object to find."""
    values = np.array(scores, float)
    return np.where(values < 0, np.nan, values)


def _means(curve: Curve) -> Curve:
    """Return the means of neighboring points, at most as many as a line shows."""
    parts = min(len(curve.x), MOST_POINTS)
    x, y = (np.array([part.mean() for part in np.array_split(values, parts)]) for values in curve)
    return Curve(x, y)


def _chart(title: str, x: str, curves: dict[str, Curve], faint: Sequence[Curve] = ()) -> Markup:
    """Return a chart with axes from 0 to what the curves reach."""
    shown = {name: _finite(curve) for name, curve in curves.items()}
    below = [_finite(curve) for curve in faint]
    last = next(iter(curves.values())).x[-1]
    highest = max(curve.y.max(initial=0) for curve in (*shown.values(), *below))
    return line_chart(
        title,
        x,
        "",
        {name: Line(*curve, COLORS[number % len(COLORS)]) for number, (name, curve) in enumerate(shown.items())},
        [Line(*curve, GREY, 1) for curve in below],
        x_range=(0, float(last)),
        y_range=(0, round_up(highest)),
    )


def _finite(curve: Curve) -> Curve:
    finite = np.isfinite(curve.y)
    return Curve(curve.x[finite], curve.y[finite])


def _picture(path: Path) -> Image.Image:
    with Image.open(path) as file:
        picture: Image.Image = file.convert("RGB")
    picture.thumbnail((PICTURE_WIDTH, picture.height))
    return picture
