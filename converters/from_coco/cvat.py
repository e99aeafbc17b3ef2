"""Convert COCO JSON to CVAT for images 1.1.

Source: cvat/apps/dataset_manager/formats/cvat.py of CVAT 2, which reads and writes it.
"""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from numpy.typing import NDArray

from detaug.coco.key_points import names_of_points
from detaug.coco.outlines import ends_of_runs
from detaug.coco.rings import box_of_mask, turned_box
from detaug.coco.rows import clipped, dropped_keys
from detaug.converters.export.folder_export import folder_export
from detaug.converters.export.row_shapes import SHAPE_KEYS, CocoShapes, Shape, shapes_of
from detaug.files.paths import PathLike
from detaug.files.text import decimal, is_plain, joined_spaces
from detaug.findings.finding import Finding
from detaug.machine.parallel import Progress
from detaug.outputs.guards import OnError, WithImages
from detaug.outputs.summary import Summary

_DECIMALS = 6  # of a pixel and of a degree
_CROWD = "is_crowd"
"""The attribute of crowds, by which CVAT's own COCO JSON file has them, too."""
_OF_CATEGORIES = frozenset({"keypoints", "skeleton"})

Element = tuple[str, str]
"""Its tag, and its attributes as text."""


def coco_to_cvat(
    annotations: PathLike,
    output: PathLike,
    *,
    images: PathLike | None = None,
    with_images: WithImages = "none",
    on_error: OnError = "stop",
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert a COCO JSON file into the XML of CVAT for images 1.1, to look at it and to correct it in CVAT.

    Writes output/annotations.xml, for a task of the same images whose labels are those of its meta. An annotation
    becomes a box, with a rotation if it has corners; a polygon for each ring; a mask; and a skeleton if it has
    keypoints. An object of several shapes has them in one group (group_id), as CVAT's own COCO JSON file does. Further
    keys are attributes, which are text, and is_crowd those of crowds; occluded, group_id, and tags of images, stay.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    Four corners that are not a rectangle become a polygon; they are counted, and so are keys without a place. Existing
    files with other content are an error.

    Args:
        annotations: The COCO JSON file.
        output: The folder to write into.
        images: The folder that file_name is relative to; with it, a missing image is an error.
        with_images: Leave the images where they are, copy them to output/images, or make symbolic links there.
        on_error: "stop" at entries that cannot be used, after reading all of them, or "skip" these.
        report: A JSON file for every finding.
        progress: Called with (files written, files in all).

    >>> from detaug.converters import coco_to_cvat
    >>> summary = coco_to_cvat("train.json", "cvat", images="demo/VOC/JPEGImages")
    >>> print(summary.next_step)
    and back: detaug convert cvat/annotations.xml -o again.json --images demo/VOC/JPEGImages
    """
    export = folder_export(annotations, output, images, with_images, on_error, report)
    rows, findings = export.read(one_file=True)
    rows, shapes, faults = shapes_of(rows)
    text = _XmlText(shapes)
    content = "".join(text.lines())
    for key, lost in (+text.dropped).items():
        why = "made room for the group of an object" if key == "group_id" else "is not a rectangle, beside a polygon"
        note = f"annotations.{key}, in {lost:,} of its rows, {why}"
        findings.append(Finding(str(export.source), "key-dropped", before=[f"annotations.{key}", lost], note=note))
    counts = (Finding(str(export.source), kind, count=count) for kind, count in text.counts.items() if count)
    known = SHAPE_KEYS | frozenset(text.columns)
    findings += [*faults, *counts, *clipped(rows), *dropped_keys(rows, known, frozenset({"tags"}), _OF_CATEGORIES)]
    export.stop_on_errors(rows, findings)
    file, image_folder = export.folder / "annotations.xml", export.folder / "images"
    with export.writing(findings):
        export.write(rows, {file: content}, image_folder, progress)
    where = export.left_images or image_folder
    command = ["detaug", "convert", str(file), "-o", "again.json", "--images", export.images_again or str(image_folder)]
    return export.summary(rows, findings, where, f"and back: {shlex.join(command)}")


class _XmlText:
    """Writes the XML, and counts what is lost."""

    def __init__(self, shapes: CocoShapes) -> None:
        self.shapes = shapes
        self.rows = shapes.rows
        self.counts, self.dropped = Counter[str](), Counter[str]()
        self.columns = sorted(filter(is_plain, shapes.columns))
        used = (self.rows.table.row("annotations", box).get("group_id") for box in self.rows.boxes.tolist())
        self._last_group = max((number for number in used if type(number) is int), default=0)

    def lines(self) -> Iterator[str]:
        """Yield the parts of the file."""
        yield '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>\n'
        yield f"<meta>\n<task>\n<size>{len(self.rows.images)}</size>\n<mode>annotation</mode>\n<labels>\n"
        yield from self._labels()
        yield "</labels>\n</task>\n</meta>\n"
        for number, (image, boxes) in enumerate(self.rows):
            height, width = self.rows.table.sizes[image].tolist()
            name = quoteattr(self.rows.file_name(image))
            yield f'<image id="{number}" name={name} width="{width}" height="{height}">\n'
            shapes = [self.shapes.of(box) for box in boxes]
            joining = _joining_groups(shapes)
            for shape in shapes:
                yield from self._elements(shape, joining)
            yield from (f'<tag label={quoteattr(tag)} source="file"></tag>\n' for tag in self._tags(image))
            yield "</image>\n"
        yield "</annotations>\n"

    def _labels(self) -> Iterator[str]:
        attributes = "".join(_attribute_of_label(name, "text") for name in self.columns)
        if self.rows.table.crowd[self.rows.boxes].any():
            attributes += _attribute_of_label(_CROWD, "checkbox")
        inside = f"<attributes>{attributes}</attributes>"
        categories = {row["id"]: row for row in self.rows.table.coco.document["categories"]}
        names = {number: joined_spaces(name) for number, name in self.rows.table.categories.items()}
        for number, name in names.items():
            points = names_of_points(categories[number]) or self.shapes.point_names[number]
            skeleton = _skeleton(points, categories[number].get("skeleton")) if points else ""
            yield _label(name, "skeleton" if points else "any", inside + skeleton)
            yield from (_label(point, "points", f"<parent>{escape(name)}</parent>") for point in points)
        tags = dict.fromkeys(tag for image in self.rows.images.tolist() for tag in self._tags(image))
        yield from (_label(tag, "tag", "") for tag in tags if tag not in names.values())

    def _tags(self, image: int) -> list[str]:
        tags = self.rows.table.row("images", image).get("tags")
        return [tag for tag in tags if isinstance(tag, str) and is_plain(tag)] if isinstance(tags, list) else []

    def _elements(self, shape: Shape, joining: set[tuple[str, Any]]) -> Iterator[str]:
        elements = [_mask(shape.mask)] if shape.mask is not None else []
        elements += [("polygon", f' points="{_numbers(ring.tolist())}"') for ring in shape.rings]
        rotated = None if shape.corners is None else turned_box(shape.corners)
        if rotated:
            elements.append(_rotated_element(*rotated))
        elif shape.corners is not None and elements:
            self.dropped["corners"] += 1
        elif shape.corners is not None:
            self.counts["corners-outline"] += 1
            elements.append(("polygon", f' points="{_numbers(shape.corners.tolist())}"'))
        if shape.has_own_box if elements else not _is_around_points(shape):
            if rotated:  # a group of two boxes is two objects
                self.counts["box-outline"] += 1
            else:
                elements.append(_box(shape.edges))
        elements += [("skeleton", "")] if shape.key_points else []
        group = _group_of(shape)
        if len(elements) > 1 or (shape.class_name, group) in joining:
            self.dropped["group_id"] += group is not None
            self._last_group += len(elements) > 1
            group = self._last_group if len(elements) > 1 else None
        usual = f' source="file" occluded="{int(shape.columns.get("occluded") in (1, True))}"'
        usual += "" if group is None else f' group_id="{group}"'
        attributes, label = self._attributes(shape), quoteattr(joined_spaces(shape.class_name))
        for tag, more in elements:
            points = _points_of_skeleton(shape) if tag == "skeleton" else ""
            yield f'<{tag} label={label}{usual}{more} z_order="0">{attributes}{points}</{tag}>\n'

    def _attributes(self, shape: Shape) -> str:
        texts: dict[str, str] = {}
        for name, value in shape.columns.items():
            is_own = name == "occluded" and value in (0, 1) if name != "group_id" else _group_of(shape) is not None
            if is_own or not is_plain(name):
                continue
            is_text = isinstance(value, str) and is_plain(value.replace("\n", ""))
            self.counts["value-text"] += not is_text
            texts[name] = value if is_text else json.dumps(value)
        texts |= {_CROWD: "true"} if shape.is_crowd else {}
        return "".join(f"<attribute name={quoteattr(name)}>{escape(text)}</attribute>" for name, text in texts.items())


def _joining_groups(shapes: Iterable[Shape]) -> set[tuple[str, Any]]:
    """Return (class, group_id) of objects that would be taken for one object, since at most one of them is a box."""
    counts, boxes = Counter[tuple[str, Any]](), Counter[tuple[str, Any]]()
    for shape in shapes:
        key = shape.class_name, _group_of(shape)
        counts[key] += 1
        boxes[key] += shape.mask is None and not shape.rings
    return {key for key, count in counts.items() if key[1] is not None and count > 1 and boxes[key] < 2}


def _group_of(shape: Shape) -> int | None:
    group = shape.columns.get("group_id")
    return group if type(group) is int and group > 0 else None


def _is_around_points(shape: Shape) -> bool:
    """Return whether the box is the one around the labeled keypoints."""
    if not shape.key_points:
        return False
    points = np.array([(x, y) for x, y, visible in shape.key_points.values() if visible])
    return bool(np.abs([*points.min(0), *points.max(0)] - np.array(shape.edges)).max() <= 1e-3)


def _box(edges: Iterable[float]) -> Element:
    names = zip(("xtl", "ytl", "xbr", "ybr"), edges, strict=True)
    return "box", "".join(f' {name}="{decimal(edge, _DECIMALS)}"' for name, edge in names)


def _rotated_element(x: float, y: float, width: float, height: float, degrees: float) -> Element:
    if min(degrees, 360 - degrees) < 1e-5:  # a box with a rotation of 0 is none in CVAT
        width, height, degrees = height, width, 90.0
    tag, edges = _box((x - width / 2, y - height / 2, x + width / 2, y + height / 2))
    return tag, f'{edges} rotation="{decimal(degrees, 9)}"'


def _mask(mask: NDArray[np.bool_]) -> Element:
    """Return a mask as runs along the rows of its box, the first one outside of the object."""
    left, top, right, bottom = box_of_mask(mask)
    part = mask[top:bottom, left:right]
    runs = ",".join(map(str, np.diff(ends_of_runs(part.T), prepend=0).tolist()))
    return "mask", f' rle="{runs}" left="{left}" top="{top}" width="{right - left}" height="{bottom - top}"'


def _numbers(points: Iterable[Iterable[float]]) -> str:
    return ";".join(",".join(decimal(number, _DECIMALS) for number in point) for point in points)


def _points_of_skeleton(shape: Shape) -> str:
    points = []
    for name, (x, y, visible) in shape.key_points.items():
        state = f'outside="{int(not visible)}" occluded="{int(visible == 1)}"'
        points.append(f'<points label={quoteattr(name)} source="file" {state} points="{_numbers([[x, y]])}"></points>')
    return "".join(points)


def _label(name: str, kind: str, inside: str) -> str:
    return f"<label><name>{escape(name)}</name><type>{kind}</type>{inside}</label>\n"


def _attribute_of_label(name: str, kind: str) -> str:
    default = "false" if kind == "checkbox" else ""
    return (
        f"<attribute><name>{escape(name)}</name><mutable>False</mutable><input_type>{kind}</input_type>"
        f"<default_value>{default}</default_value><values>{default}</values></attribute>"
    )


def _skeleton(points: list[str], pairs: Any) -> str:
    """Return the drawing of a skeleton, its points on a circle, with an edge for each pair of points, from 1."""
    angles = [2 * math.pi * number / len(points) for number in range(len(points))]
    places = [(50 + 40 * math.sin(angle), 50 - 40 * math.cos(angle)) for angle in angles]
    lines = []
    numbers = range(1, len(points) + 1)
    for a, b in (pair for pair in pairs or () if isinstance(pair, list) and len(pair) == 2 and {*pair} <= {*numbers}):
        (x1, y1), (x2, y2) = places[a - 1], places[b - 1]
        ends = f'x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}"'
        lines.append(f'<line {ends} data-type="edge" data-node-from="{a}" data-node-to="{b}"></line>')
    for number, (name, (x, y)) in enumerate(zip(points, places, strict=True), 1):
        node = f'data-type="element node" data-element-id="{number}" data-node-id="{number}"'
        lines.append(f'<circle r="1.5" cx="{x:.2f}" cy="{y:.2f}" {node} data-label-name={quoteattr(name)}></circle>')
    return f"<svg>{escape(''.join(lines))}</svg>"
