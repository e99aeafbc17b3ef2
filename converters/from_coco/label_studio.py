"""Convert COCO JSON to tasks of Label Studio.

Sources: https://labelstud.io/guide/tasks, https://labelstud.io/tags; converter/imports/coco.py of label-studio-sdk.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np

from detaug.coco.rings import join_rings, turned_box, without_overlaps
from detaug.coco.rows import clipped, dropped_keys
from detaug.coco.writer import PREFIX
from detaug.converters.export.folder_export import folder_export
from detaug.converters.export.row_shapes import SHAPE_KEYS, CocoShapes, Shape, shapes_of
from detaug.converters.records.rle_pack import pack_mask
from detaug.files.paths import PathLike
from detaug.files.text import is_plain, joined_spaces
from detaug.findings.finding import Finding
from detaug.machine.parallel import Progress
from detaug.outputs.guards import OnError, WithImages, check_choice
from detaug.outputs.summary import Summary

TaskKind = Literal["annotations", "predictions"]

LOCAL_FILES = "/data/local-files/?d="
"""What Label Studio puts in front of paths of its local files."""

_CROWD, _IMAGE, _SCORE = "iscrowd", "image", "score"
_TAGS = {
    "rectanglelabels": "RectangleLabels",
    "polygonlabels": "PolygonLabels",
    "brushlabels": "BrushLabels",
    "keypointlabels": "KeyPointLabels",
}


def coco_to_label_studio(
    annotations: PathLike,
    output: PathLike,
    *,
    kind: TaskKind = "annotations",
    image_root: str = LOCAL_FILES,
    images: PathLike | None = None,
    with_images: WithImages = "none",
    on_error: OnError = "stop",
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert a COCO JSON file into tasks of Label Studio, to correct it there or to begin with its boxes.

    Writes output/tasks.json, to be imported into a project; output/label_config.xml, its labeling interface; and the
    classes in the order of their ids into output/classes.txt, since an export has no such list.

    An annotation becomes a rectangle, rotated if it has corners; a polygon; or a brush, from a mask. Keypoints are in
    its region (parentID), a hidden one is `hidden`. Several rings become one, joined by bridges of no width. Further
    keys are texts and numbers of the region, and so is iscrowd of a crowd. The `score` of predictions is that of their
    region, and the mean that of the task, by which Label Studio sorts.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    A region has one shape: a box that is not the one around its polygon, and corners beside one, are counted. Existing
    files with other content are an error.

    Args:
        annotations: The COCO JSON file.
        output: The folder to write into.
        kind: "annotations" are complete; "predictions" are shown for the annotators to begin with.
        image_root: What is put in front of each file_name to make the address of the image: that of Label Studio's
            local files, or such as s3://bucket/photos/.
        images: The folder that file_name is relative to; with it, a missing image is an error.
        with_images: Leave the images where they are, copy them to output/images, or make symbolic links there.
        on_error: "stop" at entries that cannot be used, after reading all of them, or "skip" these.
        report: A JSON file for every finding.
        progress: Called with (files written, files in all).

    >>> from detaug.converters import coco_to_label_studio
    >>> summary = coco_to_label_studio("train.json", "studio", kind="predictions", image_root="s3://photos/")
    >>> print(summary.output, summary.boxes)
    studio 167
    """
    check_choice("kind", kind, TaskKind)
    export = folder_export(annotations, output, images, with_images, on_error, report)
    rows, findings = export.read(one_file=True)
    rows, shapes, faults = shapes_of(rows)
    tasks = _Tasks(shapes, kind, image_root)
    content = "".join(tasks.lines())
    counts = (Finding(str(export.source), kind, count=count) for kind, count in tasks.counts.items() if count)
    if lost := tasks.lost_corners:
        note = f"annotations.corners, in {lost:,} of its rows, are beside a polygon"
        findings.append(Finding(str(export.source), "key-dropped", before=["annotations.corners", lost], note=note))
    known = SHAPE_KEYS | frozenset(tasks.columns) | ({_SCORE} if tasks.has_scores else frozenset())
    findings += [*faults, *counts, *clipped(rows), *dropped_keys(rows, known, of_categories=frozenset({"keypoints"}))]
    findings += shapes.unordered_points()
    export.stop_on_errors(rows, findings)
    names = [*map(joined_spaces, rows.table.categories.values())]
    file, classes = export.folder / "tasks.json", export.folder / "classes.txt"
    texts = {
        classes: "".join(f"{name}\n" for name in names),
        export.folder / "label_config.xml": "\n".join(tasks.config(names)) + "\n",
        file: content,
    }
    image_folder = export.folder / "images"
    with export.writing(findings):
        export.write(rows, texts, image_folder, progress)
    where = export.left_images or image_folder
    exported = str(file) if kind == "annotations" else "EXPORT.json"
    images_again = export.images_again or str(image_folder)
    command = ["detaug", "convert", exported, "-o", "again.json", "--images", images_again, "--classes", str(classes)]
    return export.summary(rows, findings, where, f"and back: {shlex.join(command)}")


class _Tasks:
    """Writes the tasks, and counts what is lost."""

    def __init__(self, shapes: CocoShapes, kind: TaskKind, image_root: str) -> None:
        self.shapes, self.rows, self._kind, self._root = shapes, shapes.rows, kind, image_root
        self.counts, self.lost_corners = Counter[str](), 0
        self.columns = sorted(name for name in shapes.columns if is_plain(name) and name not in (*_TAGS, _IMAGE))
        entries = [self.rows.table.row("annotations", box) for box in self.rows.boxes.tolist()]
        self._numbers = {name for name in self.columns if all(map(_is_number, _values(entries, name)))} | {_CROWD}
        self.has_scores = kind == "predictions" and _SCORE in self._numbers
        if self.has_scores:
            self.columns.remove(_SCORE)
        self._has_crowds = False
        self._kinds: set[str] = set()  # of the regions
        self._points: dict[str, None] = {}

    def lines(self) -> Iterator[str]:
        """Yield the parts of the file."""
        start = "[\n"
        for number, (image, boxes) in enumerate(self.rows, 1):
            name, results, ids = self.rows.file_name(image), list[dict[str, Any]](), set[str]()
            for box in boxes:
                region = str(self.rows.table.row("annotations", box).get("id"))
                if region in {"None", *ids}:  # results with one id are one region
                    region = f"r{box}"
                ids.add(region)
                results += self._results(region, self.shapes.of(box))
            # A bucket has plain names, an address has not.
            address = self._root + (name if self._root.startswith(("s3:", "gs:")) else quote(name))
            scores = [result["score"] for result in results if "score" in result]
            mean = {"score": sum(scores) / len(scores)} if scores else {}
            task = {"id": number, "data": {"image": address}, self._kind: [{"result": results} | mean]}
            yield start + json.dumps(task, ensure_ascii=False, allow_nan=False)
            start = ",\n"
        yield "\n]\n"

    def config(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the lines of the labeling interface. After `lines`."""
        yield '<View>\n  <Image name="image" value="$image"/>'
        for kind in sorted(self._kinds | {"rectanglelabels"}):
            labels = self._points if kind == "keypointlabels" else names
            yield f'  <{_TAGS[kind]} name="{kind}" toName="image">'
            yield from (f"    <Label value={quoteattr(name)}/>" for name in labels)
            yield f"  </{_TAGS[kind]}>"
        for name in [*self.columns, *([_CROWD] if self._has_crowds else [])]:
            tag = "Number" if name in self._numbers else "TextArea"
            yield f'  <{tag} name={quoteattr(name)} toName="image" perRegion="true"/>'
        yield "</View>"

    def _results(self, number: str, shape: Shape) -> Iterator[dict[str, Any]]:
        height, width = shape.size
        kind, value = self._region(shape, np.array([100 / width, 100 / height]))
        size = {"original_width": width, "original_height": height, "image_rotation": 0}
        usual = {"to_name": "image", **size}
        labels = {kind: [joined_spaces(shape.class_name)]}
        self._kinds.add(kind)
        score = {"score": shape.columns[_SCORE]} if self.has_scores and _SCORE in shape.columns else {}
        yield {"id": number, "type": kind, "from_name": kind, "value": value | labels, **usual, **score}
        self._has_crowds |= shape.is_crowd
        columns = shape.columns | ({_CROWD: 1} if shape.is_crowd else {})
        for name, content in columns.items():
            if name in self.columns or name == _CROWD:
                about, text = self._about(name, content)
                yield {"id": number, "type": about, "from_name": name, "value": {**value, **text}, **usual}
        for index, (name, (x, y, visible)) in enumerate(shape.key_points.items()):
            if visible:
                self._points[name] = None
                self._kinds.add("keypointlabels")
                place = {"x": x * 100 / width, "y": y * 100 / height, "width": 0.5, "keypointlabels": [name]}
                place |= {"hidden": True} if visible == 1 else {}
                point = {"id": f"{number}-{index}", "parentID": number, "type": "keypointlabels", "value": place}
                yield {**point, "from_name": "keypointlabels", **usual}

    def _region(self, shape: Shape, percent: Any) -> tuple[str, dict[str, Any]]:
        """Return the kind of a region and its shape. percent: (2,) of the image, of a pixel."""
        rotated = None if shape.corners is None else turned_box(shape.corners)
        rings = shape.rings
        if shape.corners is not None and (rings or shape.mask is not None):
            self.lost_corners += 1
        elif shape.corners is not None and rotated is None:
            self.counts["corners-outline"] += 1
            rings = [shape.corners]
        elif rotated:
            self.counts["box-outline"] += shape.has_own_box
            return "rectanglelabels", _rotated_rectangle(rotated, percent)
        if shape.mask is not None:
            self.counts["box-outline"] += shape.has_own_box
            return "brushlabels", {"format": "rle", "rle": pack_mask(shape.mask)}
        if rings:
            self.counts["box-outline"] += shape.has_own_box
            rings, traced = without_overlaps(rings)
            self.counts["rings-traced"] += traced
            self.counts["rings-joined"] += len(rings) > 1
            return "polygonlabels", {"points": (join_rings(rings) * percent).tolist(), "closed": True}
        x, y = (np.array(shape.edges[:2]) * percent).tolist()
        right, bottom = (np.array(shape.edges[2:]) * percent).tolist()
        return "rectanglelabels", {"x": x, "y": y, "width": right - x, "height": bottom - y, "rotation": 0}

    def _about(self, name: str, value: Any) -> tuple[str, dict[str, Any]]:
        """Return the kind and the value of a result about a region, which is a number or a text."""
        if name in self._numbers:
            return "number", {"number": value}
        self.counts["value-text"] += not isinstance(value, str)
        return "textarea", {"text": [value if isinstance(value, str) else json.dumps(value)]}


def _values(entries: Iterable[Mapping[str, Any]], name: str) -> Iterator[Any]:
    """Yield the values of a column, by the name that it has in the JSON file or without the prefix."""
    return (entry[key] for entry in entries for key in (name, f"{PREFIX}{name}") if key in entry)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _rotated_rectangle(box: tuple[float, float, float, float, float], percent: Any) -> dict[str, Any]:
    """Return a rotated rectangle: its left top corner after the rotation, its sides, and the degrees clockwise."""
    x, y, width, height, degrees = box
    if min(degrees, 360 - degrees) < 1e-5:  # a rectangle with a rotation of 0 is none
        width, height, degrees = height, width, 90.0
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    left, top = x - (width * cos - height * sin) / 2, y - (width * sin + height * cos) / 2
    place = [left * percent[0], top * percent[1], width * percent[0], height * percent[1], degrees]
    return dict(zip(("x", "y", "width", "height", "rotation"), map(float, place), strict=True))
