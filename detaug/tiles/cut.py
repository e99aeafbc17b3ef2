"""Cut the objects of source images to tiles, by the views, placements and shapes that a loader's crop uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from detaug.arrays import Bools, Floats, Ints, padded, pairs
from detaug.boxes import polygons
from detaug.boxes.mask_table import MaskTable
from detaug.boxes.masks import Grid, moved_points, objects_of, rasterise
from detaug.boxes.placement import Placement, place_key_points
from detaug.boxes.shapes import Shapes, corners_of_boxes
from detaug.boxes.tight import fit_to_shapes
from detaug.boxes.units import ONE
from detaug.boxes.views import Views, whole_images, whole_where_close
from detaug.coco.outlines import OutlineColumns, ends_of_part, join_outlines
from detaug.sources.source import Source
from detaug.tiles.windows import TileWindows

RINGS = 1024
"""Rings that are cut together."""

PAIRS = 1 << 21
"""Pairs of a tile and an object that are looked at together, about: 100 MB."""


class CutObjects(NamedTuple):
    """B objects in tiles, in the order of the tiles."""

    tile: Ints
    """(B,)"""
    rows: Ints
    """(B,): the annotation of the source that each is."""
    boxes: Floats
    """(B, 4) XYXY, pixels of the tile."""
    visible: Floats
    """(B,): the fraction of its area that the tile shows."""
    shapes: Shapes
    """In pixels of the tiles."""
    left_out: Ints
    """For each source image: parts of objects in tiles of which too little is visible."""


def cut_objects(source: Source, tiles: TileWindows, min_visibility: float) -> CutObjects:
    """Return the objects in tiles of a source's source images.

    An object belongs to a tile that shows at least `min_visibility` of its area: that of its mask, else of its rotated
    box, else of its box, as far as the source reads them; a crowd, to a tile that shows any of it. What a cut or a
    scaled source image leaves thinner than a pixel is left out, and so are objects of whose mask no pixel is seen.
    `tiles`: those of a source image are consecutive.
    """
    parts = [_cut(source, tiles, chunk, min_visibility) for chunk in _chunks(source, tiles)]
    if not parts:
        return _cut(source, tiles, slice(0, 0), min_visibility)
    tile, rows, boxes, visible = (np.concatenate([part[column] for part in parts]) for column in range(4))
    shapes = [part.shapes for part in parts]
    return CutObjects(tile, rows, boxes, visible, _joined(shapes), np.sum([part.left_out for part in parts], axis=0))


def _chunks(source: Source, tiles: TileWindows) -> Iterator[slice]:
    """Yield slices of the tiles, of whole source images."""
    _, counts, _ = source.objects()
    work = np.cumsum(counts[tiles.image] + 1)
    start = 0
    while start < len(work):
        done = int(work[start - 1]) if start else 0
        end = int(np.searchsorted(work, done + PAIRS, side="right"))
        # on to the end of its source image
        end = int(np.searchsorted(tiles.image, tiles.image[min(max(end, start + 1), len(work)) - 1], side="right"))
        yield slice(start, end)
        start = end


def _cut(source: Source, tiles: TileWindows, chunk: slice, min_visibility: float) -> CutObjects:
    own = tiles.some(chunk)
    views = _views(source, own)
    before = (views.labels >= 0).sum(1)
    views = views.clip()
    image, place = np.nonzero(views.labels >= 0)
    placement = Placement.of_views(views)
    shapes = _placed(source.shapes, placement)
    visible = _visible(source.shapes, shapes, placement, views.visible[image, place])
    stays = (visible > 0) & ((visible >= min_visibility - 1e-9) | _crowds(source, placement.rows))
    views = fit_to_shapes(_keep(views, stays))
    sides = (views.pixel_boxes()[..., 2:] - views.pixel_boxes()[..., :2])[image, place]
    untouched = (visible >= 1 - 1e-9) & ~own.is_scaled[image]
    views = _keep(views, untouched | (sides >= 1 - 1e-6).all(1), image, place)
    left = np.flatnonzero(views.labels[image, place] >= 0)
    boxes, shapes = whole_where_close(views.unpadded()[0]), shapes.some(left)
    tile = image[left] + (chunk.start or 0)
    missing = before - np.bincount(image[left], minlength=len(before))
    left_out = np.bincount(own.image, missing, len(source)).astype(np.int64)
    return CutObjects(tile, placement.rows[left], boxes, visible[left], shapes, left_out)


def _views(source: Source, tiles: TileWindows) -> Views:
    """Return the tiles as views of their source images, with the boxes that reach into them, not clipped."""
    boxes, counts, labels = source.objects()
    size = source.sizes[tiles.image].astype(np.float64)
    start = tiles.windows[:, :2] / size[:, ::-1]
    end = (tiles.windows[:, :2] + tiles.windows[:, 2:]) / size[:, ::-1]
    tile, row = pairs(np.concatenate([[0], np.cumsum(counts)]), tiles.image)
    meets = (boxes[row, :2] < end[tile]).all(1) & (boxes[row, 2:] > start[tile]).all(1)
    tile, row = tile[meets], row[meets]
    count = np.bincount(tile, minlength=len(size))
    views = whole_images(
        padded(boxes[row], count, 0), padded(labels[row], count, -1), size, padded(row, count, -1), source.shapes
    )
    return views.crop_to(start, end).at_size(tiles.sizes.astype(np.float64))


def _visible(of_images: Shapes, placed: Shapes, placement: Placement, of_boxes: Floats) -> Floats:
    """Return (B,): the visible fraction of each object: of its polygon if it has one, else its rotated box or box.

    `placed`: the shapes in pixels of the tiles; `of_boxes`: (B,) the visible fraction of their boxes.
    """
    visible: Floats = of_boxes.copy()
    sides: Floats = placement.layers.rectangle[placement.image, placement.layer, 2:]
    cut = np.flatnonzero(of_boxes < 1 - 1e-9)
    if placed.outlines is not None:
        outlines = placed.outlines.of(cut)
        whole, seen = _areas(outlines, sides[cut])
        runs = np.diff(outlines.first_run) > 0
        assert of_images.outlines is not None
        whole[runs] += of_images.outlines.of(placement.rows[cut[runs]]).pixels_of_runs()
        seen += outlines.pixels_of_runs()
    elif placed.corners is not None:
        relative = placed.corners[cut] / sides[cut, None]
        whole, seen = polygons.area(relative), polygons.area(polygons.clip(relative))
    else:
        return visible
    has_area = whole > 0
    visible[cut[has_area]] = np.minimum(seen[has_area] / whole[has_area], 1)
    return visible


def _areas(outlines: OutlineColumns, sides: Floats) -> tuple[Floats, Floats]:
    """Return (B,): the areas of all rings of each polygon, and of what is in 0..width, 0..height, `sides` (B, 2)."""
    lengths = np.diff(outlines.first_point)
    owner = np.repeat(np.arange(len(sides)), np.diff(outlines.first_ring))
    whole, seen = np.zeros((2, len(sides)))
    order = np.argsort(lengths, kind="stable")  # rings of about the same length are padded together
    for rings in np.split(order, np.arange(RINGS, len(order), RINGS)) if len(order) else ():
        vertex = outlines.first_point[rings][:, None] + np.minimum(
            np.arange(lengths[rings[-1]]), lengths[rings][:, None] - 1
        )
        points, scale = outlines.points[vertex] / sides[owner[rings], None], sides[owner[rings]].prod(1)
        np.add.at(whole, owner[rings], polygons.area(points) * scale)
        np.add.at(seen, owner[rings], polygons.area(polygons.clip(points)) * scale)
    return whole, seen


def _keep(views: Views, stays: Bools, *places: Ints) -> Views:
    """Return the views without some of B boxes: those that are left, or those at `places` (image and box)."""
    keep = np.ones(views.labels.shape, bool)
    keep[places or np.nonzero(views.labels >= 0)] = stays
    return views.keep(keep)


def _crowds(source: Source, rows: Ints) -> Bools:
    """Return (B,): which annotations are crowds, in which detections are neither right nor wrong."""
    crowd = source.columns.get("iscrowd")
    return np.zeros(len(rows), bool) if crowd is None else np.asarray(crowd[rows] == 1)


def _placed(shapes: Shapes, placement: Placement) -> Shapes:
    """Return the shapes of objects in pixels of their tiles; keypoints outside of them are not labeled."""
    rows, key_points, outlines = placement.rows, shapes.keypoints, shapes.outlines
    if key_points is not None:
        key_points = replace(key_points, points=place_key_points(key_points, shapes.classes, placement))
    corners = None if shapes.corners is None else placement.move(shapes.corners[rows])
    if outlines is not None:
        table = shapes.mask_table if shapes.masks else MaskTable.of(outlines, shapes.heights)
        outlines = _placed_outlines(table, placement)
    return Shapes(key_points, corners, outlines, shapes.masks, shapes.tight)


def _placed_outlines(table: MaskTable, placement: Placement) -> OutlineColumns:
    """Return polygons in pixels of the tiles: rings are moved, and not cut; RLE masks are cut."""
    rows = placement.rows
    chosen = table.outlines.of(rows)
    points = chosen.points.astype(np.float64)
    runs = [np.zeros(0, np.int64)] * len(rows)
    if (of_runs := np.flatnonzero(table.has_runs[rows])).size:
        objects, sides = objects_of(placement), placement.layers.rectangle[placement.image, placement.layer, 2:]
        hulls = polygons.hull(placement.move(corners_of_boxes(table.run_boxes[rows].astype(np.float64))))
        for index in of_runs.tolist():
            width, height = sides[index].astype(int).tolist()
            left, top = np.floor(hulls[index, :2]).clip(0).astype(int).tolist()
            right, bottom = np.ceil(hulls[index, 2:]).clip(0, sides[index]).astype(int).tolist()
            y, x = (np.arange(*span)[None] * ONE + ONE // 2 for span in ((top, bottom), (left, right)))
            (mask,) = rasterise(table, objects.part(np.array([index])), Grid(y, x))
            runs[index] = ends_of_part(mask, (left, top), (height, width))
    corners = placement.move(np.nan_to_num(chosen.corners))
    return chosen._replace(
        points=moved_points(points, chosen.first_point, chosen.first_ring, placement).astype(np.float32),
        runs=np.concatenate([np.zeros(0, np.int64), *runs]).astype(np.int32),
        first_run=np.concatenate([[0], np.cumsum([len(own_runs) for own_runs in runs], dtype=np.int64)]),
        corners=np.where(np.isnan(chosen.corners), np.nan, corners),
    )


def _joined(parts: list[Shapes]) -> Shapes:
    first = parts[0]
    key_points, corners, outlines = first.keypoints, first.corners, first.outlines
    if key_points is not None:
        points = [part.keypoints.points for part in parts if part.keypoints is not None]
        key_points = replace(key_points, points=np.concatenate(points))
    if corners is not None:
        corners = np.concatenate([part.corners for part in parts if part.corners is not None])
    if outlines is not None:
        outlines = join_outlines([part.outlines for part in parts if part.outlines is not None])
    return Shapes(key_points, corners, outlines, first.masks, first.tight)
