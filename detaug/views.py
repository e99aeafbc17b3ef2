"""What the geometric ops move: for each image of a batch a view on it, and the boxes seen in that view.

This is NumPy in double precision, for a whole batch at once; the pixels come later, in one resample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True)
class Views:
    """N views. Geometric ops return new ones; nothing is changed in place."""

    boxes: Floats
    """(N, M, 4) XYXY, relative to the view; inside it, in [0, 1]."""
    labels: Ints
    """(N, M), 1..K; -1 where there is no box, or none any more."""
    matrix: Floats
    """(N, 2, 3): a point (x, y) relative to the view -> source pixels."""
    size: Floats
    """(N, 2): (height, width) of the view; in source pixels until `Resize`, in output pixels after it."""
    shown: Floats
    """(N, 2, 2): the part of the source that may be seen, from (x0, y0) to (x1, y1) in pixels."""
    fill: tuple[float, ...] | None = None
    """RGB, 0..255, of what lies beside it; None while the view cannot reach outside."""

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, rows: slice) -> Views:
        """Some of the views."""
        return Views(
            self.boxes[rows],
            self.labels[rows],
            self.matrix[rows],
            self.size[rows],
            self.shown[rows],
            self.fill,
        )

    def look(self, start: Floats, end: Floats) -> Views:
        """The views that span start..end of these: (N, 2) each, (x, y), relative.

        start > end along an axis mirrors it; below 0 and above 1 lies outside. Boxes are not clipped.
        """
        boxes = (self.boxes - np.tile(start, 2)[:, None]) / np.tile(end - start, 2)[:, None]
        low, high = np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])
        return replace(
            self,
            boxes=np.concatenate([low, high], axis=2),
            matrix=compose(self.matrix, view_matrix(start, end)),
            size=self.size * abs(end - start)[:, ::-1],
        )

    def clip(self, keep: Bools) -> Views:
        """The boxes that `keep`, (N, M), leaves, cut off at the view's border."""
        boxes = np.where(keep[..., None], self.boxes.clip(0, 1), 0)
        return replace(self, boxes=boxes, labels=np.where(keep, self.labels, -1))

    def seen(self) -> Floats:
        """(N, 2, 2): the part of the source that is in view, in pixels, from the view's (0, 0) to its (1, 1)."""
        return corners(self.matrix).clip(self.shown[:, :1], self.shown[:, 1:])

    def beyond(self) -> float:
        """By how many source pixels the views reach outside what may be seen, at most."""
        return float(np.abs(corners(self.matrix) - self.seen()).max(initial=0))

    def in_view(self) -> Bools:
        """(N, M): is it a box, and is some of it inside the view?"""
        inside = self.boxes.clip(0, 1)
        return np.asarray((self.labels >= 0) & (inside[..., :2] < inside[..., 2:]).all(2))

    def to_output(self) -> Floats:
        """(N, 2, 3): source pixels -> pixels of the view at its size."""
        return invert(self.matrix) * self.size[:, ::-1, None]

    def packed(self) -> tuple[Floats, Ints, Ints]:
        """Boxes (N, M, 4) in pixels of the view and labels (N, M), the real ones first, and their counts (N,).

        M is the fullest image's count; behind the real ones, boxes are 0 and labels -1.
        """
        counts = (self.labels >= 0).sum(1)
        order = np.argsort(self.labels < 0, axis=1, kind="stable")[:, : counts.max(initial=0)]
        labels = np.take_along_axis(self.labels, order, 1)
        boxes = np.take_along_axis(self.boxes, order[..., None], 1) * np.tile(self.size[:, ::-1], 2)[:, None]
        return np.where(labels[..., None] >= 0, boxes, 0), labels, counts


def whole_images(boxes: Floats, labels: Ints, size: Floats) -> Views:
    """The views that are the whole images. `boxes`: (N, M, 4) XYXY, relative. `size`: (N, 2) (height, width)."""
    shown = np.stack([np.zeros_like(size), size[:, ::-1]], axis=1)
    return Views(boxes, labels, view_matrix(shown[:, 0], shown[:, 1]), size, shown)


def pad_rows(rows: Sequence[NDArray[Number]], width: int, fill: float) -> NDArray[Number]:
    """(N, M, ...) from N arrays (M_i, ...), padded with `fill`; `width` is M."""
    padded = np.full((len(rows), width, *rows[0].shape[1:]), fill, rows[0].dtype)
    for at, row in enumerate(rows):
        padded[at, : len(row)] = row
    return padded


def view_matrix(start: Floats, end: Floats) -> Floats:
    """(N, 2, 3): the unit square -> start..end, (N, 2) each, (x, y)."""
    matrix = np.zeros((len(start), 2, 3))
    matrix[:, [0, 1], [0, 1]] = end - start
    matrix[:, :, 2] = start
    return matrix


def compose(matrix: Floats, view: Floats) -> Floats:
    """(N, 2, 3): first `view`, then `matrix`."""
    both: Floats = matrix[:, :, :2] @ view
    both[:, :, 2] += matrix[:, :, 2]
    return both


def invert(matrix: Floats) -> Floats:
    """(N, 2, 3): the inverse maps."""
    linear = np.linalg.inv(matrix[:, :, :2])
    return np.concatenate([linear, -linear @ matrix[:, :, 2:]], axis=2)


def corners(matrix: Floats) -> Floats:
    """(N, 2, 2): where the view's corners (0, 0) and (1, 1) lie in the source, (x, y) pixels."""
    return np.stack([matrix[:, :, 2], matrix.sum(2)], axis=1)
