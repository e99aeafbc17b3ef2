"""The outlines of objects that come as nodes of a DALI pipeline, and their masks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detaug.arrays import Array, Floats, Ints
from detaug.boxes.masks import objects_of, pixel_grid, rasterise
from detaug.boxes.placement import Placement
from detaug.boxes.shapes import Shapes, corners_of_boxes
from detaug.boxes.views import Views
from detaug.coco.outlines import OutlineColumns
from detaug.errors import InputError


def outlines_of(
    rings: Sequence[Array], vertices: Sequence[Array], boxes: Floats, counts: Ints, size: Floats, *, relative: bool
) -> Shapes:
    """Return the outlines of the boxes of a batch; a box without a ring has that of the box.

    `rings`: for each sample (P, 3): the box, the first vertex and the end. `vertices`: for each (V, 2) x, y, `relative`
    to the image or in pixels. `boxes`: (B, 4) relative, `counts` (n,) of each image; `size`: (n, 2) height, width.
    Raises InputError for anything else.
    """
    sides = size[:, ::-1]
    for index, sample in enumerate(zip(rings, vertices, counts.tolist(), strict=True)):
        _check(index, *sample)
    first_box, first_vertex = (np.cumsum([0, *map(int, lengths)]) for lengths in (counts, map(len, vertices)))
    shift = np.repeat(
        np.stack([first_box, first_vertex, first_vertex], axis=1)[:-1], [len(own_rings) for own_rings in rings], 0
    )
    table = np.concatenate([own_rings.reshape(-1, 3).astype(np.int64) for own_rings in rings]) + shift
    box, start, end = table[np.argsort(table[:, 0], kind="stable")].T
    length = end - start
    place = np.arange(length.sum()) + np.repeat(start - np.cumsum(length) + length, length)
    pixels = [
        own_vertices.reshape(-1, 2) * (side if relative else 1)
        for own_vertices, side in zip(vertices, sides, strict=True)
    ]
    count = int(counts.sum())
    outlines = OutlineColumns(
        points=np.concatenate(pixels)[place].astype(np.float32),
        first_point=np.append(0, np.cumsum(length)),
        first_ring=np.append(0, np.cumsum(np.bincount(box, minlength=count))),
        runs=np.zeros(0, np.int32),
        first_run=np.zeros(count + 1, np.int64),
        corners=np.full((count, 4, 2), np.nan),
    )
    missing = np.flatnonzero(np.diff(outlines.first_ring) == 0)
    pixels_of_boxes = boxes * np.tile(sides, 2).repeat(counts, 0)
    whole = corners_of_boxes(pixels_of_boxes[missing])
    heights = size[:, 0].astype(np.int64).repeat(counts)
    return Shapes(outlines=outlines.with_rings(missing, whole)).of(
        np.zeros(count, np.int64), heights, boxes=pixels_of_boxes
    )


def _check(index: int, rings: Array, vertices: Array, boxes: int) -> None:
    """Raise InputError for rings and vertices of a sample that do not fit."""
    if (rings.size and rings.shape[1:] != (3,)) or (vertices.size and vertices.shape[1:] != (2,)):
        shapes = f"{rings.shape} and {vertices.shape}"
        raise InputError(f"sample {index}: polygons must be rings (P, 3) and vertices (V, 2), got shapes {shapes}")
    if not np.isfinite(vertices).all():
        raise InputError(f"sample {index}: the vertices of polygons must be finite numbers")
    box, start, end = rings.reshape(-1, 3).T
    wrong = (box < 0) | (box >= boxes) | (start < 0) | (start > end) | (end > len(vertices))
    if wrong.any():
        raise InputError(
            f"sample {index}: rings must be of its {boxes} boxes and {len(vertices)} vertices, "
            f"got {rings[np.argmax(wrong)].tolist()}"
        )


def masks_of(views: Views) -> list[Array]:
    """Return the masks (M, H, W) uint8 of the boxes that are left, for each image."""
    objects, table = objects_of(Placement.of_views(views)), views.shapes.mask_table
    ends = np.cumsum((views.labels >= 0).sum(1)).tolist()
    sizes = views.size.astype(int).tolist()
    return [
        rasterise(table, objects.part(slice(start, end)), pixel_grid(height, width, 1)).view(np.uint8)
        for start, end, (height, width) in zip([0, *ends], ends, sizes, strict=False)
    ]
