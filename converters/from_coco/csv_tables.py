"""Convert COCO JSON to a table of boxes (CSV), as TensorFlow's tutorial and Roboflow, or keras-retinanet, have it."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterable
from typing import Any, Literal

from detaug.coco.rows import CocoRows, clipped, dropped_keys, without_crowds
from detaug.coco.writer import OWN_KEYS
from detaug.converters.export.folder_export import folder_export
from detaug.files.paths import PathLike
from detaug.files.text import decimal, joined_spaces
from detaug.findings.finding import Finding
from detaug.machine.parallel import Progress
from detaug.outputs.guards import OnError, WithImages, check_choice
from detaug.outputs.summary import Summary

CsvStyle = Literal["tensorflow", "retinanet"]

_HEAD = ("filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax")
_CROWD = "iscrowd"
_DECIMALS = 9


def coco_to_csv(
    annotations: PathLike,
    output: PathLike,
    *,
    style: CsvStyle = "tensorflow",
    images: PathLike | None = None,
    with_images: WithImages = "none",
    on_error: OnError = "stop",
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert a COCO JSON file into a table of boxes.

    Writes output/annotations.csv, and the classes with their numbers, from 0, into output/classes.csv.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    Polygons and other keys without a place are counted. Existing files with other content are an error.

    Args:
        annotations: The COCO JSON file.
        output: The folder to write into.
        style: "tensorflow", the head filename,width,height,class,xmin,ymin,xmax,ymax, as TensorFlow's tutorial and
            Roboflow have it. Further keys of annotations with text or a number are further columns, and so is iscrowd
            if there are crowds; images without objects have no row, and are counted. "retinanet", keras-retinanet's
            rows path,x1,y1,x2,y2,class without a head, and path,,,,, of an image without objects; crowds have no place,
            and are counted. x and y are continuous pixels; keras-retinanet itself takes whole ones.
        images: The folder that file_name is relative to; with it, a missing image is an error.
        with_images: Leave the images where they are, copy them beside the table, or make symbolic links there.
        on_error: "stop" at entries that cannot be used, after reading all of them, or "skip" these.
        report: A JSON file for every finding.
        progress: Called with (files written, files in all).

    >>> from pathlib import Path
    >>> from detaug.converters import coco_to_csv
    >>> _ = coco_to_csv("train.json", "csv", style="retinanet")
    >>> print(Path("csv/annotations.csv").read_text()[:62])
    000001.jpg,382,89,500,243,house
    000001.jpg,68,233,119,284,ball
    """
    check_choice("style", style, CsvStyle)
    export = folder_export(annotations, output, images, with_images, on_error, report)
    rows, findings = export.read(one_file=True)
    source = str(export.source)
    if style == "retinanet":
        rows, crowds = without_crowds(rows)
        findings += crowds
    elif empty := rows.images_without_boxes():
        findings.append(Finding(source, "image-without-row", count=empty))
    columns = _columns(rows) if style == "tensorflow" else []
    findings += [*clipped(rows), *dropped_keys(rows, frozenset(columns))]
    export.stop_on_errors(rows, findings)
    table = _retinanet(rows) if style == "retinanet" else _tensorflow(rows, columns)
    names = map(joined_spaces, rows.table.categories.values())
    texts = {
        export.folder / "classes.csv": _text((name, number) for number, name in enumerate(names)),
        export.folder / "annotations.csv": _text(table),
    }
    with export.writing(findings):
        export.write(rows, texts, export.folder, progress)
    command = ["detaug", "convert", str(export.folder), "-o", "again.json"]
    if export.images_again:
        command += ["--images", export.images_again]
    where = export.left_images or export.folder
    return export.summary(rows, findings, where, f"and back: {shlex.join(command)}")


def _columns(rows: CocoRows) -> list[str]:
    """Return the further columns: keys whose values are all text or numbers, and iscrowd if there are crowds."""
    entries = [rows.table.row("annotations", box) for box in rows.boxes.tolist()]
    keys = dict.fromkeys(key for entry in entries for key in entry if key not in OWN_KEYS)
    plain = [key for key in keys if all(isinstance(entry.get(key, ""), str | int | float) for entry in entries)]
    taken = {*_HEAD, "label", "image"}
    crowds = [_CROWD] if rows.table.crowd[rows.boxes].any() else []
    return [*(key for key in plain if key.lower() not in taken and key.strip()), *crowds]


def _tensorflow(rows: CocoRows, columns: list[str]) -> Iterable[list[Any]]:
    yield [*_HEAD, *columns]
    for image, boxes in rows:
        height, width = rows.table.sizes[image].tolist()
        for box in boxes:
            values = (rows.table.row("annotations", box).get(name, "") for name in columns)
            more = [int(value) if isinstance(value, bool) else value for value in values]
            yield [rows.file_name(image), width, height, joined_spaces(rows.class_name(box)), *_edges(rows, box), *more]


def _retinanet(rows: CocoRows) -> Iterable[list[Any]]:
    for image, boxes in rows:
        for box in boxes:
            yield [rows.file_name(image), *_edges(rows, box), joined_spaces(rows.class_name(box))]
        if not boxes:
            yield [rows.file_name(image), *[""] * 5]


def _edges(rows: CocoRows, box: int) -> list[str]:
    return [decimal(edge, _DECIMALS) for edge in rows.table.boxes[box].tolist()]


def _text(table: Iterable[Iterable[Any]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(table)
    return file.getvalue()
