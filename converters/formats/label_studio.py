"""Label Studio: exports as JSON and JSON-MIN. Coordinates are percent of the image.

Sources: https://labelstud.io/guide/task_format, https://labelstud.io/tags; for the URLs of images
io_storages/localfiles/models.py and data_import/models.py of label-studio, and get_local_path of label-studio-sdk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from detaug.converters.files.image_headers import IMAGE_EXTENSIONS
from detaug.converters.files.paths import last_part, list_files
from detaug.converters.findings.finding import Finding
from detaug.converters.formats.label_studio_regions import labels_of, read_regions
from detaug.converters.records.json_list import items_of_json
from detaug.converters.records.record import (
    Contents,
    ObjectError,
    Record,
    Source,
    id_of,
    list_of,
    object_of,
    records_of_lists,
)

_UPLOADED = re.compile(r"^[0-9a-f]{8}-")
"""What Label Studio puts in front of the names of uploaded files."""

_DROPPED = re.compile(r"[^-\w.]")
"""What Django's get_valid_filename drops of these names, after it has made underscores of the spaces in them."""


def read_label_studio(source: Source) -> Contents:
    """Read tasks. Of several annotations of a task that marked as ground truth counts, or else the first.

    A task without an annotation that is not cancelled is left out. A rectangle with a rotation has `corners`; a key
    point belongs to the region that it is in, in the list of regions (parentID). Choices, texts and numbers of a region
    are columns, by the name of their tag; of several labels the first is the class and all are in `labels`.
    """
    findings: list[Finding] = []
    renamed = _renamed_images(source)

    def read(file: str) -> Iterator[Record]:
        for index, task in enumerate(items_of_json(source.name(file), "an export of Label Studio")):
            if record := _record(file, index, task, findings, renamed):
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


def _record(file: str, index: int, task: Any, findings: list[Finding], renamed: dict[str, list[str]]) -> Record | None:
    """Return the record of a task; None, with a finding, for one that is not annotated."""
    record = Record(file)
    try:
        task = object_of(task, f"task {index}")
        record.tool_id = id_of(task.get("id"))
        is_whole = isinstance(task.get("data"), dict)
        record.names = _names(task["data"] if is_whole else task, task.get("file_upload"))
        images = renamed.get(record.names[-1], ())
        record.names += images if len(images) == 1 else ()
        results = _results(file, task, findings) if is_whole else _results_of_min(task)
        if results is None:
            findings.append(Finding(record.about(None), "task-unfinished"))
            return None
        read_regions(record, [object_of(result, "a result") for result in results])
    except ObjectError as error:
        record.findings.append(Finding(file, error.kind, None, note=f"task {index}: {error}"))
    return record


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
    ids = {_shape_of(each): each["id"] for each in results if labels_of(each)}
    for each in results:
        if not labels_of(each):
            each["id"] = ids.get(_shape_of(each), each["id"])
    return results


def _shape_of(region: dict[str, Any]) -> str:
    return repr([region.get(key) for key in _SHAPE_KEYS])
