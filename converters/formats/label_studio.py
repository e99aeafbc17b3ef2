"""Label Studio: exports as JSON and JSON-MIN. Coordinates are percent of the image.

Sources: https://labelstud.io/guide/task_format, https://labelstud.io/tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from detaug.converters.files.image_headers import IMAGE_EXTENSIONS
from detaug.converters.files.paths import last_part
from detaug.converters.findings.finding import Finding
from detaug.converters.formats.label_studio_brush import read_brush
from detaug.converters.records.json_list import items_of_json
from detaug.converters.records.record import (
    Contents,
    Mask,
    Object,
    ObjectError,
    Record,
    Source,
    ellipse,
    id_of,
    list_of,
    number_of,
    object_of,
    points_of,
    read_objects,
    records_of_lists,
    rotated,
    text_of,
    unused_shape,
)

_UPLOADED = re.compile(r"^[0-9a-f]{8}-")
"""What Label Studio puts in front of the names of uploaded files."""

_ABOUT = ("choices", "textarea", "number", "rating", "labels", "relation", "taxonomy", "datetime", "pairwise")
"""Types of results without a shape: about the region of their id, or about the image."""


def read_label_studio(source: Source) -> Contents:
    """Read tasks. Of several annotations of a task that marked as ground truth counts, or else the first.

    A task without an annotation that is not cancelled is left out. A rectangle with a rotation has `corners`; a key
    point belongs to the region that it is in, in the list of regions (parentID). Choices, texts and numbers of a region
    are columns, by the name of their tag; of several labels the first is the class and all are in `labels`.
    """
    findings: list[Finding] = []

    def read(file: str) -> Iterator[Record]:
        for index, task in enumerate(items_of_json(source.name(file), "an export of Label Studio")):
            yield from _records(file, index, task, findings)

    return Contents(records_of_lists(source, read), findings=findings)


def _records(file: str, index: int, task: Any, findings: list[Finding]) -> Iterator[Record]:
    record = Record(file)
    try:
        task = object_of(task, f"task {index}")
        record.tool_id = id_of(task.get("id"))
        is_whole = isinstance(task.get("data"), dict)
        record.names = _names(task["data"] if is_whole else task, task.get("file_upload"))
        results = _results(file, task, findings) if is_whole else _results_of_min(task)
        if results is None:
            findings.append(Finding(record.about(None), "task-unfinished"))
            return
        _read(record, [object_of(result, "a result") for result in results])
    except ObjectError as error:
        record.findings.append(Finding(file, error.kind, None, note=f"task {index}: {error}"))
    yield record


def _names(data: dict[str, Any], upload: Any) -> list[str]:
    """Return the names that the image of a task may have: paths of URLs, without what uploading put in front."""
    paths = {key: _path(value) for key, value in data.items() if isinstance(value, str)}
    found = [path for path in paths.values() if path.lower().endswith(IMAGE_EXTENSIONS)]
    path = paths.get("image") or next(iter(found), upload if isinstance(upload, str) else "")
    if not path:
        raise ObjectError("the data of a task must have the path of an image")
    name = last_part(path)
    return list(dict.fromkeys([path, name, _UPLOADED.sub("", name)]))


def _path(url: str) -> str:
    """Return the path in a URL: of local files it is ?d=."""
    try:
        parts = urlsplit(url)
        return parse_qs(parts.query).get("d", [unquote(parts.path)])[0].replace("\\", "/")
    except ValueError:  # a host in brackets
        return url


def _results(file: str, task: dict[str, Any], findings: list[Finding]) -> list[Any] | None:
    """Return the results of the annotation of a task that counts; None if it has none."""
    found = task.get("annotations", task.get("completions"))
    entries = [object_of(each, "an annotation") for each in list_of(found, "annotations")]
    entries = [each for each in entries if not (each.get("was_cancelled") or each.get("skipped"))]  # as its converter
    if len(entries) > 1:
        findings.append(Finding(file, "annotation-unused", before=str(task.get("id")), count=len(entries) - 1))
    best = next((each for each in entries if each.get("ground_truth")), entries[0] if entries else None)
    return None if best is None else list_of(best.get("result"), "result")


def _results_of_min(task: dict[str, Any]) -> list[Any]:
    """Return the regions of JSON-MIN, which are lists by the name of their tag, as results of JSON."""
    found = []
    for name, regions in task.items():
        for region in regions if isinstance(regions, list) else ():
            if isinstance(region, dict) and "original_width" in region:
                found.append({**region, "value": region, "from_name": name})
    return found


def _read(record: Record, results: list[dict[str, Any]]) -> None:
    """Read the regions of a task; results without a shape are about the region of their id."""
    regions = [each for each in results if _kind(each) or each.get("type") not in _ABOUT]
    about: dict[str, list[dict[str, Any]]] = {}
    for each in results:
        about.setdefault(str(each.get("id", id(each))), []).append(each)
    sizes = [(each.get("original_width"), each.get("original_height")) for each in regions]
    size = next(((w, h) for w, h in sizes if type(w) is type(h) is int and min(w, h) > 0 and max(w, h) < 1e6), None)
    record.size, record.unit = size, size or (100, 100)
    by_id: dict[str, Object] = {}
    points: list[tuple[int, dict[str, Any]]] = []

    def parse(item: tuple[int, dict[str, Any]]) -> Object | None:
        index, result = item
        key = str(result.get("id", id(result)))
        if key in by_id:  # the same region with its labels, of a tag of its own
            return None
        if _kind(result) == "keypoint":
            points.append(item)
            return None
        found = _object(record, index, result, about[key])
        if found:
            by_id[key] = found
        return found

    read_objects(record, enumerate(regions), parse)
    read_objects(record, points, lambda item: _add_point(record, *item, by_id))
    record.columns = _columns([each for each in results if str(each.get("id")) not in by_id], [])


def _kind(result: dict[str, Any]) -> str:
    """Return the kind of a region by its keys, "" where it has no shape."""
    value = result.get("value")
    if not isinstance(value, dict):
        return ""
    if "points" in value:
        return "polygon"
    if "radiusX" in value:
        return "ellipse"
    if "rle" in value:
        return "brush"
    if {"x", "y", "width", "height"} <= value.keys():
        return "rectangle"
    return "keypoint" if {"x", "y"} <= value.keys() else ""


def _object(record: Record, index: int, result: dict[str, Any], about: list[dict[str, Any]]) -> Object | None:
    kind, value = _kind(result), object_of(result.get("value"), "value")
    if not kind:
        unused_shape(record, index, str(result.get("type"))[:40])
        return None
    if result.get("image_rotation"):
        raise ObjectError("image_rotation must be 0: turn the image back in Label Studio, and export again")
    labels = [name for each in about for name in _labels(each)]
    found = Object(text_of(labels[0] if labels else None, "its label"), columns=_columns(about, labels))
    found.tool_id = id_of(result.get("id"))
    across, down = (side / 100 for side in record.unit or (100, 100))
    if kind == "polygon":
        numbers = points_of(value.get("points"), "points", 3)
        found.rings = [[number * (down if at % 2 else across) for at, number in enumerate(numbers)]]
    elif kind == "brush":
        found.masks = [Mask(read_brush(value.get("rle"), record.size))]
    elif kind == "ellipse":
        x, y, *radii = (number_of(value.get(key), key) for key in ("x", "y", "radiusX", "radiusY"))
        degrees = number_of(value.get("rotation") or 0, "rotation")
        found.edges, ring = ellipse(x * across, y * down, radii[0] * across, radii[1] * down, degrees)
        found.rings = [ring]
    else:
        x, y, width, height = (number_of(value.get(key), key) for key in ("x", "y", "width", "height"))
        edges = x * across, y * down, (x + width) * across, (y + height) * down
        if degrees := number_of(value.get("rotation") or 0, "rotation"):
            found.corners = rotated(edges, degrees, edges[0], edges[1])
        else:
            found.edges = edges
    return found


def _labels(result: dict[str, Any]) -> list[Any]:
    """Return the labels of a region: rectanglelabels, polygonlabels, labels and so on."""
    value = result.get("value")
    found = [value[key] for key in value if key.endswith("labels")] if isinstance(value, dict) else []
    return [name for names in found if isinstance(names, list) for name in names]


def _columns(about: list[dict[str, Any]], labels: list[Any]) -> dict[str, Any]:
    columns: dict[str, Any] = {"labels": labels} if len({*map(str, labels)}) > 1 else {}
    for each in about:
        value = each.get("value")
        for key in ("choices", "text", "number", "rating"):
            if isinstance(value, dict) and key in value and not _kind(each):
                given = value[key]
                columns[str(each.get("from_name") or key)] = (
                    given[0] if isinstance(given, list) and len(given) == 1 else given
                )
    return columns


def _add_point(record: Record, index: int, result: dict[str, Any], by_id: dict[str, Object]) -> None:
    """Make a point a key point of the region that it is in."""
    owner, labels, value = by_id.get(str(result.get("parentID"))), _labels(result), result["value"]
    x, y = number_of(value.get("x"), "x"), number_of(value.get("y"), "y")
    name = text_of(labels[0] if labels else None, "its label")
    if owner is None or name in owner.key_points:
        unused_shape(record, index, "keypoint")
        return
    across, down = (side / 100 for side in record.unit or (100, 100))
    owner.key_points = {**owner.key_points, name: (x * across, y * down, 2)}
