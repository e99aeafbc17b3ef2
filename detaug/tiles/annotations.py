"""The annotations of tiles as rows of a COCO JSON file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.coco.boxes import DECIMALS
from detaug.coco.outlines import OutlineColumns, encode_counts
from detaug.coco.rings import area_of, cut_ring
from detaug.coco.table import Table
from detaug.coco.writer import whole
from detaug.tiles.reader import TileReader

_BOX_DECIMALS = 6
"""More than of polygons, so that boxes of tiles are those of the source images."""


def annotation_rows(table: Table, reader: TileReader) -> Iterator[dict[str, Any]]:
    """Yield the annotations of all tiles of the source images of a JSON file, in the order of the tiles."""
    order = np.argsort(table.image_index, kind="stable")  # rows of the reader, grouped by image
    _, counts, _ = reader.objects()
    tile_of_box = np.repeat(np.arange(len(reader)), counts)
    for index, (row, tile) in enumerate(zip(reader.cut.rows.tolist(), tile_of_box.tolist(), strict=True)):
        entry = table.row("annotations", int(order[row]))
        x0, y0, x1, y1 = reader.cut.boxes[index].tolist()
        yield {
            **entry,
            "id": index + 1,
            "image_id": tile + 1,
            "bbox": [whole(round(value, _BOX_DECIMALS)) for value in (x0, y0, x1 - x0, y1 - y0)],
            **_shapes(entry, reader, index, tile),
            "part_of": entry["id"],
        }


def _shapes(entry: dict[str, Any], reader: TileReader, index: int, tile: int) -> dict[str, Any]:
    """Return the keys of an annotation that change with what the tile shows."""
    height, width = reader.sizes[tile].tolist()
    scale = width * height / float(reader.windows[tile, 2:].prod())
    visible, shapes, keys = float(reader.cut.visible[index]), reader.cut.shapes, dict[str, Any]()
    is_cut = visible < 1 - 1e-9
    if isinstance(entry.get("area"), int | float) and (is_cut or scale != 1):
        keys["area"] = whole(round(entry["area"] * visible * scale, DECIMALS))
    if shapes.outlines is not None and entry.get("segmentation"):
        keys |= _outline(shapes.outlines, index, height, width)
    if shapes.corners is not None and (entry.get("corners") or is_cut):
        keys["corners"] = [
            [whole(round(coordinate, DECIMALS)) for coordinate in point] for point in shapes.corners[index].tolist()
        ]
    if shapes.keypoints is not None and entry.get("keypoints"):
        points = shapes.keypoints.points[index, : len(entry["keypoints"]) // 3]
        keys["keypoints"] = [number for point in points.tolist() for number in _key_point(*point)]
        if "num_keypoints" in entry:
            keys["num_keypoints"] = int((points[:, 2] > 0).sum())
    if "truncated" in entry and is_cut:
        keys["truncated"] = 1
    return keys


def _key_point(x: float, y: float, visibility: float) -> list[float | int]:
    """Return a point as COCO has it, which counts pixels from 0 at their centers."""
    if not visibility:
        return [0, 0, 0]
    return [*(whole(round(coordinate - 0.5, _BOX_DECIMALS)) for coordinate in (x, y)), int(visibility)]


def _outline(outlines: OutlineColumns, index: int, height: int, width: int) -> dict[str, Any]:
    """Return the polygon of an object that is in the tile, as COCO has it; for an RLE mask also its area."""
    runs: NDArray[Any] = outlines.runs[outlines.first_run[index] : outlines.first_run[index + 1]].astype(np.int64)
    if len(runs):
        lengths = np.diff(runs, prepend=0)
        return {
            "segmentation": {"size": [height, width], "counts": encode_counts(lengths)},
            "area": int(lengths[1::2].sum()),
        }
    rings = []
    for ring in range(outlines.first_ring[index], outlines.first_ring[index + 1]):
        points = outlines.points[outlines.first_point[ring] : outlines.first_point[ring + 1]].astype(np.float64)
        inside = cut_ring(points, width, height)
        if len(inside) >= 3 and area_of(inside) > 0:
            rings.append([whole(round(coordinate, DECIMALS)) for coordinate in inside.ravel().tolist()])
    return {"segmentation": rings}
