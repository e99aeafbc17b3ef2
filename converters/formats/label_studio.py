"""Label Studio: exports as JSON and JSON-MIN. Coordinates are percent of the image.

Sources: https://labelstud.io/guide/task_format, https://labelstud.io/tags; converter/imports/coco.py and get_local_path
of label-studio-sdk; for URLs of images also io_storages/localfiles/models.py and data_import/models.py of label-studio.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import cycle
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from detaug.converters.coco.file_names import is_video
from detaug.converters.files.image_headers import IMAGE_EXTENSIONS
from detaug.converters.files.paths import last_part, list_files
from detaug.converters.findings.finding import Finding, shown
from detaug.converters.records.groups import add_key_point
from detaug.converters.records.json_list import items_of_json
from detaug.converters.records.record import (
    Contents,
    Mask,
    Object,
    ObjectError,
    Record,
    Source,
    id_of,
    list_of,
    number_of,
    numbers_of,
    object_of,
    points_of,
    read_objects,
    records_of_lists,
    text_of,
    unused_shape,
)
from detaug.converters.records.rle_pack import unpack_mask

_UPLOADED = re.compile(r"^[0-9a-f]{8}-")
"""What Label Studio puts in front of the names of uploaded files."""

_DROPPED = re.compile(r"[^-\w.]")
"""What Django's get_valid_filename drops of these names, after it has made underscores of the spaces in them."""

_ABOUT = ("choices", "textarea", "number", "rating", "labels", "relation", "taxonomy", "datetime", "pairwise")
"""Types of results without a shape: about the region of their id, or about the image."""


def read_label_studio(source: Source) -> Contents:
    """Read tasks. Of several annotations of a task that marked as ground truth counts, or else the first.

    A task without an annotation that is not cancelled is left out. A rectangle with a rotation has `corners`; a key
    point belongs to the region that it is in, in the list of regions (parentID). Choices, texts and numbers of a region
    are columns, by the name of their tag; of several labels the first is the class and all are in `labels`.
    """
    findings: list[Finding] = []
    renamed = _renamed_images(source)

    def read(file: str) -> Iterator[Record]:
        usual_tag = cache(partial(_tag_in_file, source.name(file)))
        for index, task in enumerate(items_of_json(source.name(file), "an export of Label Studio")):
            if record := _record(file, index, task, findings, renamed, usual_tag):
                yield record

    return Contents(records_of_lists(source, read), findings=findings)


def _renamed_images(source: Source) -> dict[str, list[str]]:
    """Return the images whose names change where they are uploaded, by the new name."""
    found: dict[str, list[str]] = {}
    for image in list_files(source.images, IMAGE_EXTENSIONS):
        uploaded = _DROPPED.sub("", last_part(image).strip().replace(" ", "_"))
        if uploaded != last_part(image):
            found.setdefault(uploaded, []).append(image)
    return found


def _record(
    file: str,
    index: int,
    task: Any,
    findings: list[Finding],
    renamed: dict[str, list[str]],
    usual_tag: Callable[[], str],
) -> Record | None:
    """Return the record of a task; None, with a finding, for one that is not annotated."""
    record = Record(file)
    try:
        task = object_of(task, f"task {index}")
        record.tool_id = id_of(task.get("id"))
        is_whole = isinstance(task.get("data"), dict)
        results = _results(file, task, findings) if is_whole else _results_of_min(task)
        data, upload = task["data"] if is_whole else task, task.get("file_upload")
        if results is None:
            with suppress(ObjectError):
                record.names = _names(data, upload, "", usual_tag)
            findings.append(Finding(record.about(None), "task-unfinished"))
            return None
        record.names = _names(data, upload, _tag_of_image(results), usual_tag)
        images = renamed.get(record.names[-1], ())
        record.names += images if len(images) == 1 else ()
        _read_regions(record, [object_of(result, "a result") for result in results])
    except ObjectError as error:
        record.findings.append(Finding(file, error.kind, None, note=f"task {index}: {error}"))
    return record


def _tag_of_image(results: Iterable[Any]) -> str:
    """Return the name of the tag of the image that the regions of a task are in, "" if they do not say it."""
    shapes = (each for each in results if isinstance(each, dict) and _kind(each))
    tags = sorted({str(each["to_name"]) for each in shapes if each.get("to_name")})
    if len(tags) > 1:
        raise ObjectError(f"its regions are in several images, {' and '.join(tags)}; make a task of each image")
    return tags[0] if tags else ""


def _tag_in_file(path: str) -> str:
    """Return the name of the tag of the images that the tasks of a file are about, of the first one that says it."""
    for task in items_of_json(path, "an export of Label Studio"):
        with suppress(ObjectError):  # a task that is at fault is named where it is read
            task = object_of(task, "a task")
            for each in list_of(task.get("annotations", task.get("completions")), "annotations"):
                if tag := _tag_of_image(list_of(object_of(each, "an annotation").get("result"), "result")):
                    return tag
    return ""


def _names(data: dict[str, Any], upload: Any, tag: str, usual_tag: Callable[[], str]) -> list[str]:
    """Return the names that the image of a task may have: paths of URLs, without what uploading put in front.

    tag: that of the image, whose name the data often have too. usual_tag: returns that of other tasks.
    """
    paths = {key: _path(value) for key, value in data.items() if isinstance(value, str)}
    found = {key: path for key, path in paths.items() if path.lower().endswith(IMAGE_EXTENSIONS)}
    path = found.get(tag) or paths.get("image") or next(iter(found.values()), upload if isinstance(upload, str) else "")
    if not path:
        film = next((each for each in paths.values() if is_video(each)), "")
        has = f", and has that of the video {shown(film)}: label its frames" if film else ""
        raise ObjectError(f"the data of a task must have the path of an image{has}")
    if path in found.values() and len({*found.values()}) > 1 and not {tag, "image"} & found.keys():
        other = "" if tag else usual_tag()
        if other not in found:
            raise ObjectError(f"its data have several images, {' and '.join(found)}; call the annotated one image")
        path = found[other]
    name = last_part(path)
    return list(dict.fromkeys([path, name, _UPLOADED.sub("", name)]))


def _path(url: str) -> str:
    """Return the path in a URL: of local files it is ?d=, of uploads to a bucket ?filepath=; keys there may have #."""
    try:
        parts = urlsplit(url, allow_fragments=not url.startswith(("s3://", "gs://", "azure-blob://")))
        query = parse_qs(parts.query)
        return (query.get("d") or query.get("filepath") or [unquote(parts.path)])[0].replace("\\", "/")
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


_SHAPE_KEYS = ("x", "y", "width", "height", "rotation", "radiusX", "radiusY", "points", "rle")


def _results_of_min(task: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the regions of JSON-MIN, which are lists by the name of their tag, as results of JSON.

    It has no ids: what has no label, such as a text, is about the region of the same shape.
    """
    results: list[dict[str, Any]] = [
        {**region, "value": region, "from_name": name, "id": (name, at)}
        for name, regions in task.items()
        for at, region in enumerate(regions if isinstance(regions, list) else ())
        if isinstance(region, dict) and "original_width" in region
    ]

    def shape_of(region: dict[str, Any]) -> str:
        return repr([region.get(key) for key in _SHAPE_KEYS])

    ids = {shape_of(each): each["id"] for each in results if _labels_of(each)}
    for each in results:
        if not _labels_of(each):
            each["id"] = ids.get(shape_of(each), each["id"])
    return results


def _read_regions(record: Record, results: list[dict[str, Any]]) -> None:
    """Read the regions of a task; results without a shape are about the region of their id."""
    regions: list[tuple[str, str, dict[str, Any]]] = []  # kind, id, result
    about: dict[str, list[dict[str, Any]]] = {}
    for each in results:
        kind, key = _kind(each), str(each.get("id", id(each)))
        about.setdefault(key, []).append(each)
        if kind or each.get("type") not in _ABOUT:
            regions.append((kind, key, each))
    sizes = [(each.get("original_width"), each.get("original_height")) for _, _, each in regions]
    size = next(((w, h) for w, h in sizes if type(w) is type(h) is int and min(w, h) > 0 and max(w, h) < 1e6), None)
    record.size, record.unit = size, size or (100, 100)
    by_id: dict[str, Object] = {}
    points: list[tuple[int, dict[str, Any]]] = []

    def parse(item: tuple[int, tuple[str, str, dict[str, Any]]]) -> Object | None:
        index, (kind, key, result) = item
        if key in by_id:  # the same region with its labels, of a tag of its own
            return None
        if kind == "keypoint":
            points.append((index, result))
            return None
        if not kind:
            object_of(result.get("value"), "value")
            unused_shape(record, index, str(result.get("type"))[:40])
            return None
        by_id[key] = _object(record, kind, result, about[key])
        return by_id[key]

    read_objects(record, enumerate(regions), parse)
    read_objects(record, points, lambda item: _add_point(record, *item, by_id))
    of_regions = {str(each.get("id")) for _, _, each in regions}  # also of key points and of shapes that have no place
    record.columns = _columns([each for each in results if str(each.get("id")) not in of_regions], [])


def _kind(result: dict[str, Any]) -> str:
    """Return the kind of a region by its keys, "" where it has no shape."""
    value = result.get("value")
    if not isinstance(value, dict):
        return ""
    for key, kind in (("points", "polygon"), ("radiusX", "ellipse"), ("rle", "brush")):
        if key in value:
            return kind
    if not {"x", "y"} <= value.keys():
        return ""
    return "rectangle" if {"width", "height"} <= value.keys() else "keypoint"


def _object(record: Record, kind: str, result: dict[str, Any], about: list[dict[str, Any]]) -> Object:
    value = result["value"]
    if result.get("image_rotation"):
        raise ObjectError("image_rotation must be 0: turn the image back in Label Studio, and export again")
    labels = [name for each in about for name in _labels_of(each)]
    name, columns = text_of(labels[0] if labels else None, "its label"), _columns(about, labels)
    found = Object(name, columns=columns, tool_id=id_of(result.get("id")))
    degrees = number_of(value.get("rotation") or 0, "rotation")
    if degrees % 180 and record.size is None:  # percent of the width are not percent of the height
        raise ObjectError("a region with a rotation must have original_width and original_height")
    if kind == "polygon":
        found.rings = [_in_pixels(record, points_of(value.get("points"), "points", 3))]
    elif kind == "brush":
        found.masks = [Mask(unpack_mask(value.get("rle"), record.size))]
    elif kind == "ellipse":
        x, y, across, down = _numbers(record, value, "x", "y", "radiusX", "radiusY")
        found.set_ellipse(x, y, across, down, degrees)
    else:
        x, y, width, height = _numbers(record, value, "x", "y", "width", "height")
        found.set_box((x, y, x + width, y + height), degrees, x, y)
    return found


def _numbers(record: Record, value: dict[str, Any], *keys: str) -> list[float]:
    """Return numbers of a value, along x and y in turn, in pixels."""
    return _in_pixels(record, numbers_of(map(value.get, keys), keys))


def _in_pixels(record: Record, numbers: Sequence[float]) -> list[float]:
    """Return numbers in percent of the width and the height, in turn, in the unit of the record."""
    return [number * side / 100 for number, side in zip(numbers, cycle(record.unit or (100, 100)), strict=False)]


def _labels_of(result: dict[str, Any]) -> list[Any]:
    """Return the labels of a region: rectanglelabels, polygonlabels, labels and so on."""
    value = result.get("value")
    found = [value[key] for key in value if key.endswith("labels")] if isinstance(value, dict) else []
    return [name for names in found if isinstance(names, list) for name in names]


def _columns(about: list[dict[str, Any]], labels: list[Any]) -> dict[str, Any]:
    columns: dict[str, Any] = {"labels": labels} if len({*map(str, labels)}) > 1 else {}
    for each in about:
        value = each.get("value")
        for key in ("choices", "text", "number", "rating"):  # often together with the shape of the region
            if isinstance(value, dict) and key in value:
                entry = value[key]
                is_single = isinstance(entry, list) and len(entry) == 1
                columns[str(each.get("from_name") or key)] = entry[0] if is_single else entry
    return columns


def _add_point(record: Record, index: int, result: dict[str, Any], by_id: dict[str, Object]) -> None:
    """Make a point a key point of the region that it is in."""
    owner, labels, value = by_id.get(str(result.get("parentID"))), _labels_of(result), result["value"]
    x, y = _numbers(record, value, "x", "y")
    name = text_of(labels[0] if labels else None, "its label")
    visible = 1 if value.get("hidden") is True else 2  # as its converter writes COCO's points
    add_key_point(record, index, [owner] if owner else [], name, (x, y, visible))
