"""Convert COCO JSON to DOTA's label files."""

from __future__ import annotations

import posixpath
import shlex
from pathlib import Path

import numpy as np

from detaug.coco.rows import clipped, dropped_keys, without_crowds
from detaug.converters.export.folder_export import folder_export
from detaug.converters.export.row_shapes import outlines_of
from detaug.errors import ConversionError
from detaug.files.paths import PathLike
from detaug.files.text import decimal
from detaug.findings.finding import Finding, shown
from detaug.machine.parallel import Progress
from detaug.outputs.folder import label_files
from detaug.outputs.guards import OnError, WithImages
from detaug.outputs.summary import Summary

_KEYS = frozenset({"corners", "segmentation", "area", "difficult"})
_DECIMALS = 3


def coco_to_dota(
    annotations: PathLike,
    output: PathLike,
    *,
    images: PathLike | None = None,
    with_images: WithImages = "none",
    on_error: OnError = "stop",
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert a COCO JSON file into DOTA's label files, rows "x1 y1 x2 y2 x3 y3 x4 y4 class difficult".

    Writes output/labelTxt/NAME.txt for each image. The corners are `corners`, a `segmentation` of four points, the
    smallest rectangle around it, or else those of the box, which is counted. Pixels have up to 3 decimals. A class name
    must have no spaces.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    Crowds are left out, and keys without a place in DOTA; both are counted. Other label files in output/labelTxt are an
    error.

    Args:
        annotations: The COCO JSON file.
        output: The folder to write into.
        images: The folder that file_name is relative to; with it, a missing image is an error.
        with_images: Leave the images where they are, copy them to output/images, or make symbolic links there.
        on_error: "stop" at entries that cannot be used, after reading all of them, or "skip" these.
        report: A JSON file for every finding.
        progress: Called with (files written, files in all).

    >>> from pathlib import Path
    >>> from detaug.converters import coco_to_dota
    >>> _ = coco_to_dota("train.json", "dota")
    >>> print(Path("dota/labelTxt/000001.txt").read_text())
    382 89 500 89 500 243 382 243 house 0
    68 233 119 233 119 284 68 284 ball 0
    214 238 261 238 261 285 214 285 ball 0
    93 89 297 89 297 337 93 337 tree 0
    <BLANKLINE>
    """
    export = folder_export(annotations, output, images, with_images, on_error, report)
    rows, findings = export.read()
    for name in rows.table.categories.values():
        if " " in name:
            raise ConversionError(
                f"{rows.table.path}: class names in DOTA have no spaces, got {shown(name)}; rename it"
            )
    rows, crowds = without_crowds(rows)
    findings += crowds
    rows, outlines, faults = outlines_of(rows)
    lines, missing = dict[int, str](), 0
    for box in rows.boxes.tolist():
        corners = outlines.rotated_box(box)
        missing += corners is None
        if corners is None:
            x0, y0, x1, y1 = rows.table.boxes[box].tolist()
            corners = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])
        difficult = int(rows.table.row("annotations", box).get("difficult") == 1)
        numbers = " ".join(decimal(value, _DECIMALS) for value in corners.ravel().tolist())
        lines[box] = f"{numbers} {rows.class_name(box)} {difficult}\n"
    findings += [*faults, *([Finding(str(export.source), "outline-missing", count=missing)] if missing else [])]
    findings += [*clipped(rows), *dropped_keys(rows, _KEYS)]
    export.stop_on_errors(rows, findings)
    folder, image_folder = export.folder / "labelTxt", export.folder / "images"
    texts: dict[Path, str] = {}
    for image, boxes in rows:
        texts[folder / f"{posixpath.splitext(rows.file_name(image))[0]}.txt"] = "".join(lines[box] for box in boxes)
    with export.writing(findings):
        export.write(rows, texts, image_folder, progress, labels=label_files(folder, ".txt"))
    where = export.left_images or image_folder
    command = ["detaug", "convert-dota", str(folder), export.images_again or str(image_folder), "-o", "again.json"]
    return export.summary(rows, findings, where, f"and back: {shlex.join(command)}")
