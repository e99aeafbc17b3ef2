"""Shapes of a labeling tool that belong together: join them to one object, make points its keypoints."""

from __future__ import annotations

from collections.abc import Sequence

from detaug.converters.records.record import Edges, Object, Record, unused_shape
from detaug.findings.finding import Finding


def join_shapes(record: Record, shapes: Sequence[Object], box: Edges | None = None) -> None:
    """Make the first of several shapes the object of all of them, and append a finding about the last one.

    The object has the polygons or masks of all, and the rotated box, the keypoints and each column of the first shape
    with one. box: that of the object, if one of the shapes is its box; without it boxes are polygons, too.
    """
    first, last = shapes[0], shapes[-1]
    first.columns = {name: value for shape in reversed(shapes) for name, value in shape.columns.items()}
    first.rings = [ring for shape in shapes for ring in shape.rings or (() if box else _around(shape))]
    first.masks = [mask for shape in shapes for mask in shape.masks]
    first.corners = next((shape.corners for shape in shapes if shape.corners), ())
    first.key_points = next((shape.key_points for shape in shapes if shape.key_points), {})
    first.is_crowd = any(shape.is_crowd for shape in shapes)
    first.edges = box
    place = last.object_index, last.line
    record.findings.append(Finding(record.about(last.line), "shapes-joined", *place, before=first.class_name))


def _around(item: Object) -> Sequence[Sequence[float]]:
    """Return the polygon of a shape that is nothing but a box."""
    if item.edges is None or item.masks or item.corners or item.key_points:
        return ()
    left, top, right, bottom = item.edges
    return [[left, top, right, top, right, bottom, left, bottom]]


def add_key_point(
    record: Record, index: int, owners: Sequence[Object], name: str, point: tuple[float, float, int]
) -> None:
    """Make a point (x, y, COCO's visibility) a keypoint of its one owner; without one it has no place."""
    if len(owners) != 1 or name in owners[0].key_points:
        unused_shape(record, index, "point")
    else:
        owners[0].key_points = {**owners[0].key_points, name: point}
