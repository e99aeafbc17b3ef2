"""Which images of a data set to look at: a random few, or those with the smallest, most or oddest boxes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from detaug.sources.coco_reader import CocoReader

Array = NDArray[Any]
How: TypeAlias = Literal["random", "smallest", "crowded", "suspicious"]


class Pick(NamedTuple):
    """The image at `row` of the json's list, and why it is worth a look; "" where it was drawn by lot."""

    row: int
    note: str


class Score(NamedTuple):
    """How much an image is what is looked for, and in what way."""

    value: float
    note: str


def pick(reader: CocoReader, rows: int, *, how: How = "random", only: str | None = None, seed: int = 0) -> list[Pick]:
    """Up to `rows` images worth a look, the most so first.

    how: "random" (by `seed`; images without boxes come last), "smallest" (the smallest box), "crowded" (the most
    boxes), or "suspicious": two boxes that nearly coincide, a box that is very thin, very small or as large as the
    image.
    only: the name of a class; images without it, and boxes of other classes, do not count.
    Raises ValueError if `only` is not a class of the data set, or if no image is left to pick.
    """
    if rows < 1:
        raise ValueError(f"rows must be at least 1, got {rows}")
    label = None if only is None else _label(reader, only)
    picks = _by_lot(reader, rows, label, seed) if how == "random" else _best(reader, rows, label, _SCORES[how])
    if not picks:
        raise ValueError(f"{reader.annotations} has no image with {'boxes' if only is None else f'a {only}'}")
    return picks


def _label(reader: CocoReader, name: str) -> int:
    names = reader.class_names
    if name not in names[1:]:
        raise ValueError(f"only must be a class of {reader.annotations}: {', '.join(names[1:])}; got {name!r}")
    return names.index(name)


def _by_lot(reader: CocoReader, rows: int, label: int | None, seed: int) -> list[Pick]:
    order = np.random.default_rng(seed).permutation(len(reader)).tolist()
    boxed = (row for row in order if len(labels := objects(reader, row)[1]) and (label is None or label in labels))
    empty = (row for row in order if label is None and not len(objects(reader, row)[1]))
    return [Pick(row, "") for row in islice(chain(boxed, empty), rows)]


def _best(reader: CocoReader, rows: int, label: int | None, score: Callable[[Array, Array], Score]) -> list[Pick]:
    """The images with boxes whose scores are highest, the first of equals first."""
    scores: dict[int, Score] = {}
    for row in range(len(reader)):
        boxes, labels = objects(reader, row)
        boxes = boxes if label is None else boxes[labels == label]
        if len(boxes):
            scores[row] = score(boxes, reader.sizes[row, ::-1])
    best = sorted(scores, key=lambda row: -scores[row].value)[:rows]
    return [Pick(row, scores[row].note) for row in best]


def objects(reader: CocoReader, row: int) -> tuple[Array, Array]:
    """(M, 4) XYXY pixels and (M,) labels of the image at `row`."""
    boxes, labels, _ = reader.views(np.array([row])).packed()
    return boxes[0], labels[0]


# ---------------------------------------------------------------- scores


def _smallest(boxes: Array, size: Array) -> Score:
    """By its share of the image: that is how small a resized image shows it."""
    width, height = _sides(boxes)[np.argmin(_sides(boxes).prod(1))]
    return Score(-width * height / size.prod(), f"smallest {width:.3g} x {height:.3g}")


def _crowded(boxes: Array, size: Array) -> Score:
    return Score(len(boxes), f"{len(boxes)} boxes")


def _suspicious(boxes: Array, size: Array) -> Score:
    """The oddest thing about the boxes; all four are in 0..1, and 0.9 is odd."""
    sides = _sides(boxes)
    overlap, thin = _largest_iou(boxes), float((sides.max(1) / sides.min(1)).max())
    small, share = float(sides.min()), float((sides.prod(1) / size.prod()).max())
    return max(
        Score(overlap, f"two boxes alike, IoU {overlap:.2f}"),
        Score(1 - 1 / thin, f"a box {thin:.3g} : 1"),
        Score(1 - small / 16, f"a box {small:.3g} px thin"),
        Score(share, f"a box over {share:.0%} of the image"),
    )


_SCORES: dict[str, Callable[[Array, Array], Score]] = {
    "smallest": _smallest,
    "crowded": _crowded,
    "suspicious": _suspicious,
}


def _sides(boxes: Array) -> Array:
    """(M, 2) widths and heights."""
    return boxes[:, 2:] - boxes[:, :2]


def _largest_iou(boxes: Array) -> float:
    """Of any two of the boxes; 0 for one box."""
    low, high = np.maximum(boxes[:, None, :2], boxes[:, :2]), np.minimum(boxes[:, None, 2:], boxes[:, 2:])
    shared, areas = np.maximum(high - low, 0).prod(2), _sides(boxes).prod(1)
    iou = shared / (areas[:, None] + areas - shared)
    return float(np.triu(iou, 1).max())
