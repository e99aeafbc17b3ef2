"""Supervisely: DATASET/ann/IMAGE.jpg.json of DATASET/img/IMAGE.jpg, and meta.json with the classes.

Source: https://developer.supervisely.com/getting-started/supervisely-annotation-format/objects.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from detaug.converters.records import record as records
from detaug.converters.records.png_mask import mask_of_png
from detaug.converters.records.record import AnnotationFiles, Contents, Mask, Object, Record, object_of, text_of
from detaug.errors import ConversionError, InputError
from detaug.files.known_files import what_file_is
from detaug.files.paths import last_part, list_files
from detaug.files.text import read_json

_FOLDER = re.compile(r"(?<![^/])ann/(?=[^/]*$)")
"""Of the annotations of a dataset: the images are in img."""

_FILE_KEYS = frozenset(
    ("description", "tags", "size", "objects", "name", "imageId", "imageName", "createdAt", "updatedAt")
)
_OBJECT_KEYS = frozenset(
    (
        *("id", "classId", "classTitle", "geometryType", "description", "tags", "points", "angle", "bitmap", "nodes"),
        *("vertices", "faces", "labelerLogin", "createdAt", "updatedAt", "nnCreated", "nnUpdated"),
    )
)
"""Those that are read, and those that say nothing of the object: who drew it, and when."""

_PARTS = {"points": ("exterior", "interior"), "bitmap": ("origin", "data")}
_NODE_KEYS = ("loc", "disabled")
"""The keys of parts of an object."""


def read_supervisely(source: AnnotationFiles) -> Contents:
    """Read rectangles, polygons with holes, bitmaps and graphs, whose nodes are keypoints.

    Tags of objects and images are columns: their values, or 1 for a tag without one; several of a name are a list. A
    line whose ends meet is a polygon; points and other lines have no place.
    Coordinates are taken as they are; whole numbers that the SDK has written mean pixels, not their edges.
    """
    metas = [file for file in source.files if last_part(file) == "meta.json"]
    classes = [entry for file in metas for entry in _classes(source.folder / file)]
    nodes = {str(entry.get("title")): _node_names(entry) for entry in classes}
    files = [file for file in source.files if file not in metas]
    if not files:
        others = (name for name in list_files(source.folder, (".json",)) if name not in metas)
        known = next((f"; {name} {what}" for name in others if (what := what_file_is(source.folder / name))), "")
        raise ConversionError(f"{source.folder} has {metas[0]} and no annotations of images, ann/NAME.jpg.json{known}")
    names = [str(entry["title"]) for entry in classes if str(entry.get("title") or "").strip()]
    key_points = {name: list(own_nodes.values()) for name, own_nodes in nodes.items() if own_nodes}
    skeletons = {str(entry.get("title")): _edges(entry) for entry in classes}
    return records.contents_of_files(
        source._replace(files=files),
        partial(_read, nodes),
        class_names=list(dict.fromkeys(names)),
        key_points=key_points,
        skeletons=skeletons,
    )


def _read(nodes: Mapping[str, Mapping[str, str]], source: AnnotationFiles, record: Record) -> None:
    document = object_of(read_json(source.name(record.file)), "an annotation")
    records.count_unread(record, document, _FILE_KEYS)
    record.names = [_FOLDER.sub("img/", record.stem)]
    size = document.get("size")
    width, height = (size.get(key) if isinstance(size, dict) else None for key in ("width", "height"))
    record.size = (width, height) if type(width) is int and type(height) is int else None
    record.columns = _tags(record, document) | _description(document)
    objects = records.list_of(document.get("objects"), "objects")
    for item in objects:
        records.count_unread(record, item, _OBJECT_KEYS)
    records.read_objects(record, enumerate(objects), lambda item: _object(record, *item, nodes))


def _classes(path: Path) -> list[dict[str, Any]]:
    try:
        meta = read_json(path)
    except InputError as error:
        raise ConversionError(f"{path} {error}") from None
    classes = meta.get("classes") if isinstance(meta, dict) else None
    return [entry for entry in classes if isinstance(entry, dict)] if isinstance(classes, list) else []


def _node_names(entry: dict[str, Any]) -> dict[str, str]:
    """Return the names of the nodes of a class of graphs, by their ids."""
    config = entry.get("geometry_config")
    nodes = config.get("nodes") if isinstance(config, dict) else None
    members = nodes.items() if isinstance(nodes, dict) else ()
    return {key: str(node.get("label") or key) if isinstance(node, dict) else key for key, node in members}


def _edges(entry: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the pairs of nodes, from 1, that a class of graphs has edges between."""
    config = entry.get("geometry_config")
    edges = config.get("edges") if isinstance(config, dict) else None
    number_of = {key: number for number, key in enumerate(_node_names(entry), 1)}
    usable = [edge for edge in edges if isinstance(edge, dict)] if isinstance(edges, list) else []
    pairs = [(str(edge.get("src")), str(edge.get("dst"))) for edge in usable]
    return [(number_of[one], number_of[other]) for one, other in pairs if one in number_of and other in number_of]


def _tags(record: Record, entry: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, list[Any]] = {}
    for tag in records.part_of(record, entry, "tags", list):
        if not isinstance(tag, dict) or not tag.get("name"):
            record.unread["tags without a name"] += 1
        else:
            values.setdefault(str(tag["name"]), []).append(1 if tag.get("value") is None else tag["value"])
    return {name: own[0] if len(own) == 1 else own for name, own in values.items()}


def _description(entry: dict[str, Any]) -> dict[str, Any]:
    return {"description": entry["description"]} if entry.get("description") else {}


def _closed(record: Record, index: int, entry: dict[str, Any]) -> list[float] | None:
    """Return the ring that a line makes whose ends meet."""
    points = object_of(entry.get("points"), "points")
    return records.ring_of_line(record, index, records.points_of(points.get("exterior"), "exterior"))


def _object(record: Record, index: int, value: Any, nodes: Mapping[str, Mapping[str, str]]) -> Object | None:
    entry = object_of(value, "an object")
    kind, annotation = str(entry.get("geometryType")), Object(text_of(entry.get("classTitle"), "classTitle"))
    annotation.columns = _tags(record, entry) | _description(entry)
    annotation.tool_id = records.id_of(entry.get("id"))
    parts = [(entry.get(key), known) for key, known in _PARTS.items()]
    nodes_of_entry = entry.get("nodes")
    parts += [(node, _NODE_KEYS) for node in (nodes_of_entry.values() if isinstance(nodes_of_entry, dict) else ())]
    for part, known in parts:
        records.count_unread(record, part, known)
    if kind in ("rectangle", "polygon"):
        points = object_of(entry.get("points"), "points")
        exterior = records.points_of(points.get("exterior"), "exterior", 2 if kind == "rectangle" else 3)
        holes = [
            records.points_of(hole, "interior", 3)
            for hole in records.list_of(points.get("interior"), "interior", optional=True)
        ]
        if kind == "rectangle":
            annotation.edges = records.edges_of(exterior)
        else:
            annotation.rings = [records.ring_with_holes(exterior, holes)]
    elif kind == "line" and (ring := _closed(record, index, entry)):
        annotation.rings = [ring]
    elif kind == "oriented_bbox":
        two = entry.get("points")
        two = two.get("exterior") if isinstance(two, dict) else two
        left, top, right, bottom = edges = records.edges_of(records.points_of(two, "points", 2))
        degrees = math.degrees(records.number_of(entry.get("angle") or 0, "angle"))
        annotation.set_box(edges, degrees, (left + right) / 2, (top + bottom) / 2)
    elif kind == "cuboid" and isinstance(entry.get("points"), list):
        annotation.rings = [records.hull_of(records.points_of(entry["points"], "points", 4))]
    elif kind == "cuboid_2d":
        corners = [
            object_of(vertex, "a vertex").get("loc") for vertex in object_of(entry.get("vertices"), "vertices").values()
        ]
        annotation.rings = [records.hull_of(records.points_of(corners, "vertices", 4))]
    elif kind in ("bitmap", "alpha_mask"):
        bitmap = object_of(entry.get("bitmap"), "bitmap")
        left, top = records.points_of([bitmap.get("origin")], "origin")
        annotation.masks = [
            Mask(mask_of_png(bitmap.get("data"), "data of a bitmap", packed=True), round(left), round(top))
        ]
    elif kind == "graph":
        names = nodes.get(annotation.class_name, {})
        for key, node in object_of(entry.get("nodes"), "nodes").items():
            x, y = records.points_of([object_of(node, "a node").get("loc")], "loc")
            if (name := names.get(key, key)) in annotation.key_points:
                raise records.ObjectError(f"a graph must have each keypoint once, got {name!r} twice")
            annotation.key_points = {**annotation.key_points, name: (x, y, 1 if node.get("disabled") else 2)}
    else:
        records.unused_shape(record, index, kind[:40])
        return None
    return annotation
