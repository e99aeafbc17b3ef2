"""Convert COCO JSON to LabelMe: a JSON file for each image.

Source: labelme/_label_file.py of LabelMe 5 and 6.
"""

from __future__ import annotations

import base64
import io
import json
import os
import posixpath
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from detaug.coco.rows import clipped, dropped_keys
from detaug.coco.writer import json_text
from detaug.converters.export.folder_export import folder_export
from detaug.converters.export.row_shapes import SHAPE_KEYS, Shape, shapes_of
from detaug.converters.formats.labelme import CROWD, IGNORED
from detaug.errors import ConversionError
from detaug.files.paths import PathLike
from detaug.files.text import joined_spaces
from detaug.findings.finding import Finding
from detaug.machine.parallel import Progress
from detaug.outputs.folder import label_files
from detaug.outputs.guards import OnError, WithImages
from detaug.outputs.summary import Summary

_VERSION = "5.5.0"
"""Of LabelMe: the form that 5 and 6 read without a message."""


def coco_to_labelme(
    annotations: PathLike,
    output: PathLike,
    *,
    images: PathLike | None = None,
    with_images: WithImages = "none",
    on_error: OnError = "stop",
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert a COCO JSON file into LabelMe's files, to look at it and to correct it in LabelMe.

    Writes output/NAME.json for each image, and the classes in the order of their ids into output/labels.txt, since
    LabelMe has no such list. An annotation becomes a rectangle; a polygon for each ring, of one group_id if there are
    several; a mask; or an oriented_rectangle. Keypoints are points of its group_id; a hidden one is `difficult`, as in
    X-AnyLabeling. A crowd has the flag iscrowd. Further keys stay: description, flags, difficult, and others below
    attributes, which LabelMe keeps and X-AnyLabeling shows.

    LabelMe opens oriented_rectangle from 6.2 on. It has no box beside a polygon: one that is not the box around it is
    counted, and so are keys without a place. Existing files with other content, and other files of LabelMe in the
    folder, are an error before anything is written.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    Args:
        annotations: The COCO JSON file.
        output: The folder to write into.
        images: The folder that file_name is relative to; with it, a missing image is an error.
        with_images: Leave the images where they are, copy them beside their JSON file, or make symbolic links there.
        on_error: "stop" at entries that cannot be used, after reading all of them, or "skip" these.
        report: A JSON file for every finding.
        progress: Called with (files written, files in all).

    >>> from detaug.converters import coco_to_labelme
    >>> print(coco_to_labelme("train.json", "labelme", images="demo/VOC/JPEGImages", with_images="link"))
    48 images (4 without boxes), 167 boxes in 6 classes
      ball          47
      car           20
      fish          32
      house         20
      mug           28
      tree          20
    written: labelme
    and back: detaug convert labelme -o again.json --classes labelme/labels.txt
    """
    export = folder_export(annotations, output, images, with_images, on_error, report)
    rows, findings = export.read()
    if IGNORED in rows.table.categories.values():
        raise ConversionError(f"{rows.table.path}: a class named {IGNORED} is not a class in LabelMe; rename it")
    rows, shapes, faults = shapes_of(rows)
    texts: dict[Path, str] = {}
    own_boxes = 0
    for image_index, boxes in rows:
        path = export.folder / f"{posixpath.splitext(rows.file_name(image_index))[0]}.json"
        own_shapes = [shapes.of(box) for box in boxes]
        own_boxes += sum(shape.has_own_box for shape in own_shapes)
        height, width = rows.table.sizes[image_index].tolist()
        image = posixpath.basename(rows.file_name(image_index))
        if export.left_images:
            image = os.path.relpath(export.left_images / rows.file_name(image_index), path.parent)
        row = rows.table.row("images", image_index)
        document = {
            "version": _VERSION,
            "flags": row["flags"] if _are_flags(row.get("flags")) else {},
            "shapes": [entry for n, shape in enumerate(own_shapes, 1) for entry in _shapes(shape, n)],
            "imagePath": image,
            "imageData": None,
            "imageHeight": height,
            "imageWidth": width,
        }
        texts[path] = json.dumps(json.loads(json_text(document)), ensure_ascii=False, indent=2) + "\n"
    labels = export.folder / "labels.txt"
    texts[labels] = "".join(f"{joined_spaces(name)}\n" for name in rows.table.categories.values())
    findings += [*faults, *([Finding(str(export.source), "box-outline", count=own_boxes)] if own_boxes else [])]
    of_objects, of_images, of_categories = SHAPE_KEYS | shapes.columns, frozenset({"flags"}), frozenset({"keypoints"})
    findings += [*clipped(rows), *dropped_keys(rows, of_objects, of_images, of_categories)]
    findings += shapes.unordered_points()
    export.stop_on_errors(rows, findings)
    with export.writing(findings):
        jsons = (path for path in label_files(export.folder, ".json") if b'"imagePath"' in path.read_bytes())
        export.write(rows, texts, export.folder, progress, labels=jsons)
    command = ["detaug", "convert", str(export.folder), "-o", "again.json", "--classes", str(labels)]
    if export.images_again:
        command += ["--images", export.images_again]
    where = export.left_images or export.folder
    return export.summary(rows, findings, where, f"and back: {shlex.join(command)}")


def _are_flags(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(flag, bool) for flag in value.values())


def _shapes(shape: Shape, group: int) -> Iterator[dict[str, Any]]:
    """Yield LabelMe's shapes of an object. group: its group_id, if it has several."""
    parts: list[tuple[str, Any]] = []
    mask = None
    if shape.mask is not None:
        rows, columns = (np.flatnonzero(shape.mask.any(axis)) for axis in (1, 0))
        ends = [columns[[0, -1]].tolist(), rows[[0, -1]].tolist()]  # of the first and the last pixel
        mask = _png(shape.mask[ends[1][0] : ends[1][1] + 1, ends[0][0] : ends[0][1] + 1])
        parts.append(("mask", [[float(x), float(y)] for x, y in zip(*ends, strict=True)]))
    parts += [("polygon", ring.tolist()) for ring in shape.rings]
    if shape.corners is not None:
        parts.append(("oriented_rectangle", shape.corners.tolist()))
    if not parts:
        left, top, right, bottom = shape.edges
        parts.append(("rectangle", [[left, top], [right, bottom]]))
    group_id = group if len(parts) > 1 or shape.key_points else None
    for kind, points in parts:
        entry = _entry(joined_spaces(shape.class_name), points, group_id, kind) | _keys_of(shape)
        yield entry | {"mask": mask if kind == "mask" else None}
    for name, (x, y, visible) in shape.key_points.items():
        if visible:
            yield _entry(name, [[x, y]], group_id, "point") | ({"difficult": True} if visible == 1 else {})


def _entry(label: str, points: Any, group_id: int | None, kind: str) -> dict[str, Any]:
    usual: dict[str, Any] = {"group_id": group_id, "description": "", "shape_type": kind, "flags": {}, "mask": None}
    return {"label": label, "points": points, **usual}


def _keys_of(shape: Shape) -> dict[str, Any]:
    """Return the keys of a shape that say what `columns` do; those without a key of LabelMe are below attributes."""
    rest = dict(shape.columns)
    keys: dict[str, Any] = {"flags": rest.pop("flags") if _are_flags(rest.get("flags")) else {}}
    if shape.is_crowd:
        keys["flags"] = {**keys["flags"], CROWD: True}
    if isinstance(rest.get("description"), str):
        keys["description"] = rest.pop("description")
    if rest.get("difficult") in (0, 1):
        keys["difficult"] = bool(rest.pop("difficult"))
    return keys | ({"attributes": rest} if rest else {})


def _png(mask: Any) -> str:
    from PIL import Image  # slow to import, and only masks need it

    file = io.BytesIO()
    Image.fromarray(mask.astype(np.uint8) * 255).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
