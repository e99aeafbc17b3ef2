"""Label Studio: exports as JSON and JSON-MIN. Coordinates are percent of the image.

Sources: https://labelstud.io/guide/task_format, https://labelstud.io/tags; converter/imports/coco.py and get_local_path
of label-studio-sdk; for URLs of images also io_storages/localfiles/models.py and data_import/models.py of label-studio.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain, cycle
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from detaug.coco.file_names import is_video
from detaug.converters.records.groups import add_key_point
from detaug.converters.records.json_list import items_of_json
from detaug.converters.records.png_mask import mask_of_png
from detaug.converters.records.record import (
    AnnotationFiles,
    Contents,
    Mask,
    Object,
    ObjectError,
    Record,
    count_unread,
    id_of,
    list_of,
    number_of,
    numbers_of,
    object_of,
    points_of,
    read_objects,
    records_of_lists,
    text_of,
    unread_elements,
    unused_shape,
)
from detaug.converters.records.rle_pack import unpack_mask
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.paths import last_part, list_files
from detaug.findings.finding import Finding, listed, shown

_UPLOADED = re.compile(r"^[0-9a-f]{8}-")
"""What Label Studio puts in front of the names of uploaded files."""

_DROPPED = re.compile(r"[^-\w.]")
"""What Django's get_valid_filename drops of these names, after it has made underscores of the spaces in them."""

_ABOUT = ("choices", "textarea", "number", "rating", "labels", "relation", "taxonomy", "datetime", "pairwise")
"""Types of results without a shape: about the region of their id, or about the image."""

_UNREAD = ("relation", "pairwise")
"""Types of results about several regions or images, which have no place in the JSON file."""

_SHAPE_KEYS = (
    *("x", "y", "width", "height", "rotation", "radiusX", "radiusY", "points", "rle", "imageDataURL", "vertices"),
)

_RESULT_KEYS = frozenset(
    (
        *("id", "type", "value", "from_name", "to_name", "original_width", "original_height", "image_rotation"),
        *("origin", "parentID", "item_index", "score", "meta", "readonly", "hidden", "locked", "selected", "from_id"),
        *("to_id", "direction", *_SHAPE_KEYS, "closed", "format"),
        *("choices", "text", "number", "rating", "taxonomy", "datetime"),
    )
)
"""Keys of results and of their values, which JSON-MIN has in one, that are read, or say nothing more; also *labels."""

_MIN_KEYS = frozenset(("id", "annotation_id", "annotator", "created_at", "updated_at", "lead_time"))
"""Keys of a task of JSON-MIN that are about the annotation."""


def read_label_studio(source: AnnotationFiles) -> Contents:
    """Read tasks. Of several annotations of a task that marked as ground truth counts, or else the first.

    A task without an annotation that is not cancelled is left out. A task with a list of images has a record of each,
    with the regions of its number (item_index). A rectangle with a rotation has `corners`; a keypoint belongs to the
    region that it is in, in the list of regions (parentID). Choices, texts and numbers of a region are columns, by the
    name of their tag; of several labels the first is the class and all are in `labels`. Texts and numbers of a task's
    data are columns of its image.
    """
    findings: list[Finding] = []
    unread = Counter[str]()
    renamed = _renamed_images(source)

    def read(file: str) -> Iterator[Record]:
        usual_tag = cache(partial(_tag_in_file, source.name(file)))
        annotated: set[str] = set()
        for index, task in enumerate(items_of_json(source.name(file), "an export of Label Studio")):
            yield from _records(file, index, task, findings, renamed, usual_tag, annotated, unread)

    return Contents(records_of_lists(source, read), findings=chain(findings, unread_elements(unread)))


def _renamed_images(source: AnnotationFiles) -> dict[str, list[str]]:
    """Return the images whose names change where they are uploaded, by the new name."""
    renamed: dict[str, list[str]] = {}
    for image in list_files(source.images, IMAGE_EXTENSIONS):
        uploaded = _DROPPED.sub("", last_part(image).strip().replace(" ", "_"))
        if uploaded != last_part(image):
            renamed.setdefault(uploaded, []).append(image)
    return renamed


def _records(
    file: str,
    index: int,
    task: Any,
    findings: list[Finding],
    renamed: dict[str, list[str]],
    usual_tag: Callable[[], str],
    annotated: set[str],
    unread: Counter[str],
) -> Iterator[Record]:
    """Yield the records of a task, one for each of its images; none, with a finding, for one that is not annotated.

    annotated: the tasks of JSON-MIN so far, which has an entry for each annotation of a task; this one is added.
    unread: counts the results that are about no region and no image.
    """
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
            findings.append(Finding(record.about(None), "task-unfinished", note=_unfinished(task)))
            return
        results = [object_of(result, "a result") for result in results]
        unread.update(str(result["type"]) for result in results if result.get("type") in _UNREAD)
        tag = _tag_of_image(results)
        pages = _pages(data, tag, results)
        if pages:
            parts = [
                (_names_of_path(path), page_results)
                for path, page_results in zip(pages, _by_page(results, pages), strict=True)
            ]
        else:
            parts = [(_names(data, upload, tag, usual_tag), results)]
        if not is_whole and record.tool_id is not None:
            key = repr((record.tool_id, parts[0][0]))
            if key in annotated:
                findings.append(Finding(file, "annotation-unused", before=str(record.tool_id)))
                return
            annotated.add(key)
        for names, page_results in parts:
            page = Record(file, names, tool_id=record.tool_id)
            images = renamed.get(names[-1], ())
            page.names = [*names, *(images if len(images) == 1 else ())]
            try:
                _read_regions(page, page_results)
                page.columns = {**(_further(page, data, tag) if is_whole else _of_min(page, data, tag)), **page.columns}
            except ObjectError as error:
                page.findings.append(Finding(file, error.kind, None, note=f"task {index}: {error}"))
            yield page
    except ObjectError as error:
        record.findings.append(Finding(file, error.kind, None, note=f"task {index}: {error}"))
        yield record


def _unfinished(task: dict[str, Any]) -> str:
    """Return why a task has no annotation, where it has what may become one; "" where it has nothing."""
    kinds = [what for what in ("predictions", "drafts") if isinstance(task.get(what), list) and task[what]]
    return f"a task has {' and '.join(kinds)} only: submit it in Label Studio, and export again" if kinds else ""


def _of_min(record: Record, task: dict[str, Any], tag: str) -> dict[str, Any]:
    """Return what a task of JSON-MIN says of its image: what `_further` returns, choices and texts."""
    data = {key: value for key, value in task.items() if key not in _MIN_KEYS}
    columns = {}
    for key, value in data.items():
        if isinstance(value, dict) and value.keys() == {"choices"}:
            columns[key] = value["choices"]
        elif isinstance(value, list) and value and not any(isinstance(member, dict) for member in value):
            columns[key] = [] if _are_places(value) else value
    others = {key: [] if _are_regions(value) else value for key, value in data.items() if key not in columns}
    return _further(record, others, tag) | {key: value for key, value in columns.items() if value}


def _are_regions(value: Any) -> bool:
    """Return whether a value of a task of JSON-MIN is a list of regions."""
    return isinstance(value, list) and all(isinstance(member, dict) and "original_width" in member for member in value)


def _are_places(values: list[Any]) -> bool:
    """Return whether all of a list are paths or URLs of images or videos."""
    return all(isinstance(text, str) and _is_place(text) for text in values)


def _is_place(text: str) -> bool:
    return "://" in text or _path(text).lower().endswith(IMAGE_EXTENSIONS) or is_video(_path(text))


def _further(record: Record, data: dict[str, Any], tag: str) -> dict[str, Any]:
    """Return what the data of a task say of its image, beside where this and other files are."""
    further = {key: value for key, value in data.items() if key not in ("image", tag)}
    for key, value in further.items():
        if isinstance(value, dict) or (isinstance(value, list) and not _are_places(value)):
            count_unread(record, {key: value}, ())
    return {
        key: value
        for key, value in further.items()
        if type(value) in (int, float, bool) or (type(value) is str and not _is_place(value))
    }


def _pages(data: dict[str, Any], tag: str, results: Sequence[dict[str, Any]]) -> list[str]:
    """Return the paths of a task with a list of images, such as pages; [] for a task of one image."""
    lists = {
        key: [_path(item) for item in value if isinstance(item, str)]
        for key, value in data.items()
        if type(value) is list
    }
    images = {
        key: paths
        for key, paths in lists.items()
        if paths and len(paths) == len(data[key]) and all(path.lower().endswith(IMAGE_EXTENSIONS) for path in paths)
    }
    on_pages = [result["item_index"] for result in results if type(result.get("item_index")) is int]
    one_image = any(
        isinstance(value, str) and _path(value).lower().endswith(IMAGE_EXTENSIONS) for value in data.values()
    )
    if not on_pages and one_image and tag not in images:
        return []
    if not images:
        if any(on_pages):
            rule = (
                "its regions have item_index, the number of their image in a list, and its data have no list of images"
            )
            raise ObjectError(f"{rule}; make a task of each image")
        return []
    key = next((key for key in (tag, "image") if key in images), next(iter(images)))
    if key not in (tag, "image") and len(images) > 1:
        raise ObjectError(
            f"its data have several lists of images, {' and '.join(images)}; call the annotated one image"
        )
    return images[key]


def _by_page(results: Sequence[dict[str, Any]], pages: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Return the results of each image of a list: those of its number, item_index, and those about the whole task."""
    numbers = {
        str(result["id"]): result["item_index"]
        for result in results
        if "id" in result and result.get("item_index") is not None
    }
    by_page: list[list[dict[str, Any]]] = [[] for _ in pages]
    for result in results:
        number = result.get("item_index")
        number = numbers.get(str(result.get("id"))) if number is None else number
        if number is None and len(pages) > 1 and _kind(result):
            raise ObjectError(
                f"a region must have item_index, since its task has {len(pages)} images; export it as JSON"
            )
        if number is not None and (type(number) is not int or not 0 <= number < len(pages)):
            raise ObjectError(f"item_index must be from 0 to {len(pages) - 1}, got {str(number)[:20]!r}")
        for page in by_page if number is None else [by_page[number]]:
            page.append(result)
    return by_page


def _tag_of_image(results: Iterable[Any]) -> str:
    """Return the name of the tag of the image that the regions of a task are in, "" if they do not say it."""
    shapes = (result for result in results if isinstance(result, dict) and _kind(result))
    tags = sorted({str(shape["to_name"]) for shape in shapes if shape.get("to_name")})
    if len(tags) > 1:
        raise ObjectError(f"its regions are in several images, {' and '.join(tags)}; make a task of each image")
    return tags[0] if tags else ""


def _tag_in_file(path: str) -> str:
    """Return the name of the tag of the images that the tasks of a file are about, of the first one that says it."""
    for task in items_of_json(path, "an export of Label Studio"):
        with suppress(ObjectError):  # a task that is at fault is named where it is read
            task = object_of(task, "a task")
            annotations = task.get("annotations", task.get("completions"))
            for annotation in list_of(annotations, "annotations", optional=True):
                if tag := _tag_of_image(list_of(object_of(annotation, "an annotation").get("result"), "result")):
                    return tag
    return ""


def _names(data: dict[str, Any], upload: Any, tag: str, usual_tag: Callable[[], str]) -> list[str]:
    """Return the names that the image of a task may have: paths of URLs, without what uploading put in front.

    tag: that of the image, whose name the data often have too. usual_tag: returns that of other tasks.
    """
    paths = {key: _path(value) for key, value in data.items() if isinstance(value, str)}
    images = {key: path for key, path in paths.items() if path.lower().endswith(IMAGE_EXTENSIONS)}
    path = (
        images.get(tag) or paths.get("image") or next(iter(images.values()), upload if isinstance(upload, str) else "")
    )
    if not path:
        film = next((video for video in paths.values() if is_video(video)), "")
        has = f", and has that of the video {shown(film)}: label its frames" if film else ""
        raise ObjectError(f"the data of a task must have the path of an image{has}")
    if path in images.values() and len({*images.values()}) > 1 and not {tag, "image"} & images.keys():
        other = "" if tag else usual_tag()
        if other not in images:
            raise ObjectError(f"its data have several images, {' and '.join(images)}; call the annotated one image")
        path = images[other]
    return _names_of_path(path)


def _names_of_path(path: str) -> list[str]:
    """Return the names that an image may have: its path, its name, and that without what uploading put in front."""
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
    annotations = task.get("annotations", task.get("completions"))
    listed = list_of(annotations, "annotations", optional=True)  # of a task that is not annotated
    entries = [object_of(annotation, "an annotation") for annotation in listed]
    # As Label Studio's own converter leaves them out.
    entries = [entry for entry in entries if not (entry.get("was_cancelled") or entry.get("skipped"))]
    if len(entries) > 1:
        findings.append(Finding(file, "annotation-unused", before=str(task.get("id")), count=len(entries) - 1))
    best = next((entry for entry in entries if entry.get("ground_truth")), entries[0] if entries else None)
    return None if best is None else list_of(best.get("result"), "result")


def _results_of_min(task: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the regions of JSON-MIN, which are lists by the name of their tag, as results of JSON.

    It has no ids: what has no label, such as a text, is about the region of the same shape.
    """
    results: list[dict[str, Any]] = [
        {**region, "value": region, "from_name": name, "id": (name, index)}
        for name, regions in task.items()
        for index, region in enumerate(regions if isinstance(regions, list) else ())
        if isinstance(region, dict) and "original_width" in region
    ]

    def shape_of(region: dict[str, Any]) -> str:
        return repr([region.get(key) for key in _SHAPE_KEYS])

    ids = {shape_of(result): result["id"] for result in results if _labels_of(result)}
    for result in results:
        if not _labels_of(result):
            result["id"] = ids.get(shape_of(result), result["id"])
    return results


def _read_regions(record: Record, results: list[dict[str, Any]]) -> None:
    """Read the regions of a task; results without a shape are about the region of their id."""
    regions: list[tuple[str, str, dict[str, Any]]] = []  # kind, id, result
    about: dict[str, list[dict[str, Any]]] = {}
    shaped = {str(result.get("id", id(result))) for result in results if _kind(result)}
    for result in results:
        kind, key = _kind(result), str(result.get("id", id(result)))
        about.setdefault(key, []).append(result)
        is_of_text = result.get("type") == "labels" and key not in shaped  # or of sound: labels of a shape have its id
        if kind or result.get("type") not in _ABOUT or is_of_text:
            regions.append((kind, key, result))
        if kind or result.get("type") in _ABOUT:
            _count_unread(record, result)
    sizes = [(result.get("original_width"), result.get("original_height")) for _, _, result in regions]
    size = next(((w, h) for w, h in sizes if type(w) is type(h) is int and min(w, h) > 0 and max(w, h) < 1e6), None)
    record.size, record.unit = size, size or (100, 100)
    by_id: dict[str, Object] = {}
    failed = set[str]()
    tried = dict[str, str]()  # the shape of each region: one with several results is at fault once
    points: list[tuple[int, dict[str, Any]]] = []

    def parse(item: tuple[int, tuple[str, str, dict[str, Any]]]) -> Object | None:
        index, (kind, key, result) = item
        shape = repr([kind, *(result["value"].get(name) or 0 for name in _SHAPE_KEYS)]) if kind else ""
        if kind and tried.get(key, shape) != shape:
            raise ObjectError(f"a region must have an id of its own, got {shown(key)} for two shapes")
        if key in tried:  # the same region with its labels, of a tag of its own
            return None
        if kind == "keypoint":
            points.append((index, result))
            return None
        if not kind:
            object_of(result.get("value"), "value")
            unused_shape(record, index, str(result.get("type"))[:40])
            return None
        tried[key] = shape
        failed.add(key)
        by_id[key] = _object(record, kind, result, about[key])
        failed.remove(key)
        return by_id[key]

    read_objects(record, enumerate(regions), parse)
    read_objects(record, points, lambda item: _add_point(record, *item, by_id))
    of_regions = {str(result.get("id")) for _, _, result in regions}  # also of keypoints, and shapes without a place
    record.columns = _columns([result for result in results if str(result.get("id")) not in of_regions], [])
    left_out = of_regions - by_id.keys() - failed
    lost = (result for result in results if str(result.get("id")) in left_out and not _kind(result))
    record.unread.update(str(result.get("from_name")) for result in lost if result.get("type") in _ABOUT)


def _count_unread(record: Record, result: dict[str, Any]) -> None:
    """Count the keys of a result and of its value that are not read."""
    value = result.get("value")
    if not isinstance(value, dict):
        if result.get("type") not in _UNREAD:
            record.unread[f"{result.get('type')} without a value"] += 1
        value = {}
    for entry in (result, value):
        if not entry.keys() <= _RESULT_KEYS:
            others = {key: member for key, member in entry.items() if not key.endswith("labels")}
            count_unread(record, others, _RESULT_KEYS)


def _kind(result: dict[str, Any]) -> str:
    """Return the kind of a region by its keys, "" where it has no shape."""
    value = result.get("value")
    if not isinstance(value, dict):
        return ""
    for key, kind in (("points", "polygon"), ("radiusX", "ellipse"), ("rle", "brush"), ("imageDataURL", "bitmask")):
        if key in value:
            return kind
    if isinstance(value.get("vertices"), list) and value.get("closed") is True:
        return "vector"
    if not {"x", "y"} <= value.keys():
        return ""
    return "rectangle" if {"width", "height"} <= value.keys() else "keypoint"


def _object(record: Record, kind: str, result: dict[str, Any], about: list[dict[str, Any]]) -> Object:
    value = result["value"]
    if result.get("image_rotation"):
        raise ObjectError("image_rotation must be 0: turn the image back in Label Studio, and export again")
    for values in (entry["value"] for entry in about if isinstance(entry.get("value"), dict)):
        for key in (key for key in values if key.endswith("labels")):
            list_of(values[key], key)
    labels = [name for entry in about for name in _labels_of(entry)]
    if not labels:  # shapes whose class is chosen in a tag of its own, <Choices perRegion>
        choices = [entry["value"]["choices"] for entry in about if "choices" in object_of(entry.get("value"), "value")]
        labels = choices[0] if len(choices) == 1 and isinstance(choices[0], list) and len(choices[0]) == 1 else []
    if not labels:
        rule = "a region must have a label, or one choice of one tag"
        raise ObjectError(f"{rule}: use RectangleLabels or the like in the labeling interface", "object-no-name")
    name, columns = text_of(labels[0], "its label"), _columns(about, labels)
    if "labels" in columns:
        note = f"a region has the labels {listed(labels)}: its class is the first, and the key labels has all"
        record.findings.append(Finding(record.about(None), "labels-several", note=note))
    if result.get("score") is not None:  # of a model
        columns["score"] = result["score"]
    annotation = Object(name, columns=columns, tool_id=id_of(result.get("id")))
    degrees = number_of(value.get("rotation") or 0, "rotation")
    if degrees % 180 and record.size is None:  # percent of the width are not percent of the height
        raise ObjectError("a region with a rotation must have original_width and original_height")
    if kind == "polygon":
        annotation.rings = [_in_pixels(record, points_of(value.get("points"), "points", 3))]
    elif kind == "brush":
        annotation.masks = [Mask(unpack_mask(value.get("rle"), record.size))]
    elif kind == "bitmask":
        annotation.masks = [Mask(_bitmask(record, value["imageDataURL"]))]
    elif kind == "vector":
        annotation.rings = [_in_pixels(record, _vertices(value["vertices"]))]
    elif kind == "ellipse":
        x, y, across, down = _numbers(record, value, "x", "y", "radiusX", "radiusY")
        annotation.set_ellipse(x, y, across, down, degrees)
    else:
        x, y, width, height = _numbers(record, value, "x", "y", "width", "height")
        annotation.set_box((x, y, x + width, y + height), degrees, x, y)
    return annotation


def _bitmask(record: Record, url: Any) -> NDArray[np.bool_]:
    """Return the mask of BitmaskLabels, a PNG as large as the image in a data: URL."""
    mask = mask_of_png(str(url).partition(",")[2], "imageDataURL")
    if record.size and mask.shape[::-1] != record.size:
        raise ObjectError(f"imageDataURL must be as large as its image, {record.size}, got {mask.shape[::-1]}")
    return mask


def _vertices(vertices: list[Any]) -> list[float]:
    """Return x, y, x, y, ... of the vertices of a closed path."""
    points = [object_of(vertex, "a vertex") for vertex in vertices]
    if len(points) < 3 or any(vertex.get("isBezier") for vertex in points):
        raise ObjectError(
            "a closed vector must have at least 3 vertices and no curves; draw it as a polygon or a brush"
        )
    return numbers_of((vertex.get(name) for vertex in points for name in ("x", "y")), "vertices")


def _numbers(record: Record, value: dict[str, Any], *keys: str) -> list[float]:
    """Return numbers of a value, along x and y in turn, in pixels."""
    return _in_pixels(record, numbers_of(map(value.get, keys), keys))


def _in_pixels(record: Record, numbers: Sequence[float]) -> list[float]:
    """Return numbers in percent of the width and the height, in turn, in the unit of the record."""
    return [number * side / 100 for number, side in zip(numbers, cycle(record.unit or (100, 100)), strict=False)]


def _labels_of(result: dict[str, Any]) -> list[Any]:
    """Return the labels of a region: rectanglelabels, polygonlabels, labels and so on."""
    value = result.get("value")
    lists = [value[key] for key in value if key.endswith("labels")] if isinstance(value, dict) else []
    return [name for names in lists if isinstance(names, list) for name in names]


def _columns(about: list[dict[str, Any]], labels: list[Any]) -> dict[str, Any]:
    columns: dict[str, Any] = {"labels": labels} if len({*map(str, labels)}) > 1 else {}
    for result in about:
        value = result.get("value")
        columns |= {"meta": result["meta"]} if result.get("meta") else {}
        for key in (
            "choices",
            "text",
            "number",
            "rating",
            "taxonomy",
            "datetime",
        ):  # often together with the shape of the region
            if isinstance(value, dict) and key in value:
                entry = value[key]
                is_single = isinstance(entry, list) and len(entry) == 1
                columns[str(result.get("from_name") or key)] = entry[0] if is_single else entry
    return columns


def _add_point(record: Record, index: int, result: dict[str, Any], by_id: dict[str, Object]) -> None:
    """Make a point a keypoint of the region that it is in."""
    owner, labels, value = by_id.get(str(result.get("parentID"))), _labels_of(result), result["value"]
    x, y = _numbers(record, value, "x", "y")
    name = text_of(labels[0] if labels else None, "its label")
    visible = 1 if value.get("hidden") is True else 2  # as its converter writes COCO's points
    add_key_point(record, index, [owner] if owner else [], name, (x, y, visible))
