"""Convert COCO JSON to Pascal VOC: the inverse of voc_to_coco."""

from __future__ import annotations

import math
import posixpath
import shlex
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from xml.sax.saxutils import escape

import numpy as np

from detaug.coco.rings import smallest_rectangle, turned_box
from detaug.coco.rows import CocoRows, clipped, dropped_keys
from detaug.coco.table import THIN
from detaug.coco.writer import whole
from detaug.converters.export.folder_export import folder_export
from detaug.converters.export.row_shapes import Outlines, is_ring_of, outlines_of
from detaug.converters.records.record import Edges
from detaug.converters.voc.xml import CORNERS, ROTATED, Origin
from detaug.errors import InputError
from detaug.files.paths import PathLike
from detaug.files.text import decimal, is_plain, joined_spaces
from detaug.findings.finding import Finding, shown
from detaug.machine.parallel import Progress
from detaug.outputs.guards import OnError, WithImages, check_choice
from detaug.outputs.summary import Summary

_FLAGS = ("truncated", "difficult", "occluded")
_ATTRIBUTES = frozenset({*_FLAGS, "pose"})
_OF_ROTATED = frozenset({"corners", "segmentation", "area"})
Rectangle = tuple[float, float, float, float, float]
"""(cx, cy, w, h, angle) of a <robndbox>."""
_DECIMALS = 9  # of a pixel: what double precision leaves of an image's coordinates after adding 1


def coco_to_voc(
    annotations: PathLike,
    output: PathLike,
    *,
    split: str | None = None,
    origin: Origin = "one",
    rotated: bool = False,
    images: PathLike | None = None,
    with_images: WithImages = "none",
    on_error: OnError = "stop",
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert a COCO JSON file into a Pascal VOC dataset.

    Writes output/Annotations/NAME.xml for each image, in subfolders where file_name has them; the names in the JSON
    file's order into output/ImageSets/Main/SPLIT.txt; and the classes in the order of their ids into
    output/classes.txt, since XML cannot store it. voc_to_coco with that split and those classes gives the same ids,
    names and boxes again.

    A <robndbox> has cx, cy, w, h in continuous pixels, whatever `origin` is, and angle: radians, clockwise on the
    screen, of the side w, which goes from the first corner to the second. voc_to_coco gives the corners again, in their
    order if it is clockwise. The angle is in 0 to 2 pi; roLabelImg reads that, and writes 0 to pi. Source:
    libs/pascal_voc_io.py and libs/labelFile.py of https://github.com/cgvict/roLabelImg

    difficult, truncated, occluded and pose are written as in the JSON file; a crowd becomes difficult. Other keys
    (segmentation, ...), and an area that is not the box's, have no place in VOC: they are counted in the findings, as
    are polygons that became rectangles. The depth is 3, what DALI decodes to, since a JSON file does not have it.
    Existing files with other content are an error before anything is written. The split's file is written last.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    Args:
        annotations: The COCO JSON file.
        output: The folder to write into.
        split: The name of the split; without it that of the JSON file.
        origin: "one" for pixels counted from 1 and boxes that include their last pixel, the devkit's rule (decision 1):
            x, y, width, height become x + 1, y + 1, x + width, y + height. "zero" for x, y, x + width, y + height.
            Decimals stay, up to 9 places.
        rotated: Write roLabelImg's <robndbox> for objects with `corners`, a `segmentation` of four points, or another
            polygon, which becomes the smallest rectangle around it; others keep their <bndbox>.
        images: The folder that file_name is relative to; with it, a missing image is an error.
        with_images: Leave the images where they are, copy them to output/JPEGImages, or make symbolic links there.
        on_error: "stop" at entries that cannot be used, after reading all of them, or "skip" these.
        report: A JSON file for every finding.
        progress: Called with (files written, files in all).

    >>> from detaug.converters import coco_to_voc
    >>> print(coco_to_voc("train.json", "voc-again", images="demo/VOC/JPEGImages", with_images="link"))
    48 images (4 without boxes), 167 boxes in 6 classes
      ball          47
      car           20
      fish          32
      house         20
      mug           28
      tree          20
    written: voc-again
    and back: detaug convert-voc voc-again -o train-again.json --split train --classes voc-again/classes.txt
    """
    export = folder_export(annotations, output, images, with_images, on_error, report)
    split = export.source.stem if split is None else split
    if not split or PurePosixPath(split).name != split or not is_plain(split):
        raise InputError(f"split must be a name without slashes, got {shown(split)}")
    check_choice("origin", origin, Origin)
    rows, findings = export.read()
    rectangles: dict[int, Rectangle] = {}
    if rotated:
        rows, outlines, faults = outlines_of(rows)
        rectangles, changes = _rectangles(rows, outlines)
        findings += [*faults, *changes]
    findings += [*clipped(rows), *dropped_keys(rows, _ATTRIBUTES | _OF_ROTATED if rotated else _ATTRIBUTES)]
    texts = _texts(rows, export.folder, split, _Boxes(origin, rotated, rectangles), findings)
    export.stop_on_errors(rows, findings)
    image_folder = export.folder / "JPEGImages"
    with export.writing(findings):
        export.write(rows, texts, image_folder, progress)
    command: list[object] = ["detaug", "convert-voc", export.folder, "-o", f"{split}-again.json", "--split", split]
    command += ["--classes", export.folder / "classes.txt", *(["--origin", origin] if origin == "zero" else [])]
    if export.images_again:
        command += ["--images", export.images_again]
    return export.summary(
        rows, findings, export.left_images or image_folder, f"and back: {shlex.join(map(str, command))}"
    )


class _Boxes(NamedTuple):
    """How boxes are written."""

    origin: Origin
    rotated: bool
    rectangles: dict[int, Rectangle]
    """Those of rotated boxes, by position in the JSON file."""


def _rectangles(rows: CocoRows, outlines: Outlines) -> tuple[dict[int, Rectangle], list[Finding]]:
    """Return the rotated boxes of the annotations that have a polygon, and what changes with them."""
    rectangles, counts = {}, {"outline-rectangle": 0, "box-outline": 0}
    for box in rows.boxes.tolist():
        corners = outlines.rotated_box(box)
        if corners is None:
            continue
        is_rectangle, rings = turned_box(corners) is not None, outlines.rings.get(box, [])
        corners = corners if is_rectangle else smallest_rectangle(corners)
        rectangle = turned_box(corners)
        if rectangle is None or min(rectangle[2:4]) < THIN:
            continue
        rectangles[box] = (*rectangle[:4], math.radians(rectangle[4]))
        counts["outline-rectangle"] += not is_rectangle or (bool(rings) and not is_ring_of(rings, corners))
        size = rows.table.sizes[rows.table.image_index[box]][::-1]
        edges = np.concatenate([corners.min(0).clip(0, size), corners.max(0).clip(0, size)])
        counts["box-outline"] += bool(np.abs(edges - rows.table.boxes[box]).max() > 2e-3)
    return rectangles, [Finding(str(rows.table.path), kind, count=count) for kind, count in counts.items() if count]


def _texts(rows: CocoRows, folder: Path, split: str, how: _Boxes, findings: list[Finding]) -> dict[Path, str]:
    """Return every text file by path, in the order in which they are written."""
    texts, stems = {}, []
    for image, boxes in rows:
        stems.append(posixpath.splitext(rows.file_name(image))[0])
        texts[folder / "Annotations" / f"{stems[-1]}.xml"] = _xml(rows, image, boxes, how, findings)
    texts[folder / "classes.txt"] = _lines(map(joined_spaces, rows.table.categories.values()))
    texts[folder / "ImageSets" / "Main" / f"{split}.txt"] = _lines(stems)
    return texts


def _lines(names: Iterable[str]) -> str:
    return "".join(f"{name}\n" for name in names)


def _xml(rows: CocoRows, image: int, boxes: list[int], how: _Boxes, findings: list[Finding]) -> str:
    height, width = rows.table.sizes[image].tolist()
    name = rows.file_name(image).rpartition("/")[2]
    objects = "".join(_object_xml(_voc_object(rows, box, how, findings)) for box in boxes)
    return (
        f"<annotation>\n\t<filename>{escape(name)}</filename>\n"
        f"\t<size>\n\t\t<width>{width}</width>\n\t\t<height>{height}</height>\n\t\t<depth>3</depth>\n\t</size>\n"
        f"{objects}</annotation>\n"
    )


class _Object(NamedTuple):
    name: str
    pose: str
    flags: dict[str, int]
    box: Edges | Rectangle
    with_type: bool


def _object_xml(item: _Object) -> str:
    flags = "".join(f"\t\t<{name}>{value}</{name}>\n" for name, value in item.flags.items())
    tag, names = ("robndbox", ROTATED) if len(item.box) == len(ROTATED) else ("bndbox", CORNERS)
    values = zip(names, item.box, strict=True)
    box = "".join(f"\t\t\t<{name}>{_number(value)}</{name}>\n" for name, value in values)
    kind = f"\t\t<type>{tag}</type>\n" if item.with_type else ""
    return (
        f"\t<object>\n{kind}\t\t<name>{escape(item.name)}</name>\n\t\t<pose>{escape(item.pose)}</pose>\n{flags}"
        f"\t\t<{tag}>\n{box}\t\t</{tag}>\n\t</object>\n"
    )


def _number(value: float) -> str:
    """Return up to 9 decimals, none for whole numbers, and never an exponent, which other VOC readers cannot parse."""
    return decimal(value, _DECIMALS) if value % 1 else str(whole(value))


def _voc_object(rows: CocoRows, index: int, how: _Boxes, findings: list[Finding]) -> _Object:
    row = rows.table.row("annotations", index)
    class_name = rows.class_name(index)
    name = joined_spaces(class_name)
    entry = rows.table.entry("annotations", index)
    if name != class_name:
        findings.append(Finding(str(rows.table.path), "name-spaces", before=class_name, after=name))
    flags = {key: _flag(key, row.get(key), entry, rows, findings) for key in _FLAGS}
    if row.get("iscrowd") == 1 and not flags["difficult"]:
        flags["difficult"] = 1
        findings.append(Finding(str(rows.table.path), "crowd-difficult", note=f"{entry}a crowd became difficult"))
    left, top, right, bottom = rows.table.boxes[index].tolist()
    first = 1 if how.origin == "one" else 0
    box = how.rectangles.get(index, (left + first, top + first, right, bottom))
    pose = joined_spaces(row["pose"]) if isinstance(row.get("pose"), str) else ""
    return _Object(name, pose if pose and is_plain(pose) else "Unspecified", flags, box, how.rotated)


def _flag(key: str, value: object, entry: str, rows: CocoRows, findings: list[Finding]) -> int:
    if value in (0, 1, None):
        return int(value == 1)
    note = f"{entry}{key} must be 0 or 1, got {shown(value)}; 0 was used"
    findings.append(Finding(str(rows.table.path), "flag-invalid", before=key, after=0, note=note))
    return 0
