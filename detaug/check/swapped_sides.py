"""Find objects whose left and right keypoints look swapped."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from detaug.arrays import Floats, Ints
from detaug.check.boxes import FEWEST_FOR_USUAL
from detaug.coco.key_points import faults_of_category, names_of_points, places_in_mirror, side_of
from detaug.coco.table import Table
from detaug.errors import InputError
from detaug.findings.entries import Findings, from_messages
from detaug.findings.finding import shown

USUAL = 0.95
"""The fraction of a class's objects that must lie one way for the others to count: people are seen from behind too."""


def swapped_sides(table: Table, rows: Ints, points: Floats) -> Iterator[Findings]:
    """Yield objects whose points of the left all lie where nearly all of their class have those of the right.

    rows: (A,) positions of annotations. points: (A, K, 3) their keypoints. Two pairs or more must be labeled.
    """
    messages = dict[int, str]()
    for category in (table.row("categories", index) for index in range(len(table.coco.document["categories"]))):
        pairs = _pairs(category, points.shape[1])
        if len(pairs) < 2:
            continue
        own = np.flatnonzero(table.category_ids[rows] == category.get("id"))
        left, right = (points[own][:, pairs[:, side]] for side in (0, 1))
        labeled = (left[..., 2] > 0) & (right[..., 2] > 0)
        ways = np.where(labeled, np.sign(left[..., 0] - right[..., 0]), 0)
        count = labeled.sum(1)
        # clear objects alone: two pairs or more, and all of them the same way round
        way = np.where((count >= 2) & (np.abs(ways.sum(1)) == count), np.sign(ways.sum(1)), 0)
        clear = int((way != 0).sum())
        usual = np.sign(way.sum())
        share = float((way == usual).sum()) / max(clear, 1)
        if clear < FEWEST_FOR_USUAL or not USUAL <= share < 1:
            continue
        for n in np.flatnonzero(way == -usual).tolist():
            messages[int(rows[own[n]])] = (
                f"the left of {count[n]} pairs of keypoints lies where {share:.1%} of the objects of "
                f"{shown(table.categories[category['id']])} have the right"
            )
    if messages:
        yield from_messages("keypoints-swapped", "annotations", messages)


def _pairs(category: dict[str, object], count: int) -> Ints:
    """Return (P, 2): positions of the left and the right one of each pair of points; none if they are not known."""
    names = names_of_points(category)
    nothing = np.zeros((0, 2), np.int64)
    try:
        places = nothing if any(faults_of_category(category, count)) else places_in_mirror(category, count)
    except InputError:
        return nothing
    if len(names) > count or sorted(places.ravel().tolist()) != [*range(count)]:
        return nothing
    pairs = [
        (position, int(places[position]))
        for position, name in enumerate(names)
        if side_of(name) == "left" and places[position] != position
    ]
    return np.array(pairs, np.int64).reshape(-1, 2)
