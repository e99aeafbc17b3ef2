"""Check boxes that users give: one rule for every entrance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from detaug.arrays import Floats, Ints

OUTSIDE = 1.0
"""Pixels by which a box may reach out of its image, and is clipped; one that is farther out is a mistake.

Annotation tools round to whole pixels and count them from 0 or from 1, and JSON files are read by the same rule.
"""


class BoxFault(NamedTuple):
    """The first box that is wrong, and why."""

    row: int
    kind: str
    """"infinite", "swapped", "outside" or "empty"."""
    rule: str
    """What boxes must be, for an error "boxes must be ..."."""


def find_fault(boxes: Floats, sides: Floats | Ints, *, relative: bool = False) -> BoxFault | None:
    """Return the first fault of boxes (B, 4) XYXY, or None.

    `sides`: (B, 4) width, height, width, height of each box's image. `relative`: boxes are 0..1, not pixels.
    """
    limits, slack = (np.ones_like(sides), OUTSIDE / sides) if relative else (sides, np.full_like(sides, OUTSIDE))
    with np.errstate(invalid="ignore"):
        outside = (boxes < -slack) | (boxes > limits + slack)
        inside = boxes.clip(0, limits)
    faults = [
        ("infinite", ~np.isfinite(boxes).all(1), "finite numbers"),
        ("swapped", (boxes[:, :2] > boxes[:, 2:]).any(1), "XYXY with x0 <= x1 and y0 <= y1"),
        ("outside", outside.any(1), "relative to their image, in 0..1" if relative else "in the pixels of their image"),
        (
            "empty",
            (inside[:, :2] >= inside[:, 2:]).any(1),
            "of some width and height in their image; leave out those without",
        ),
    ]
    for kind, wrong, rule in faults:
        if wrong.any():
            row = int(np.argmax(wrong))
            width, height = sides[row, :2].astype(int).tolist()
            size = f" of {width} x {height}" if kind == "outside" and not relative else ""
            return BoxFault(row, kind, rule + size)
    return None


def to_relative(boxes: Floats, sides: Floats | Ints) -> Floats:
    """Return boxes (B, 4) in pixels relative to their images, in 0..1, clipped. `sides`: see `find_fault`."""
    return np.asarray((boxes / sides).clip(0, 1))
