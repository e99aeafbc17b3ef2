"""COCO json to Pascal VOC: the way back from voc_to_coco, by the same numbered decisions.

from detaug.converters import coco_to_voc
summary = coco_to_voc("train.json", "VOC", images="images", with_images="link")
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple, get_args
from xml.sax.saxutils import escape

from detaug.converters.coco.rows import (
    CocoRows,
    check_class_names,
    clipped,
    dropped_keys,
    leave_out,
    read_coco_rows,
    stem_findings,
)
from detaug.converters.coco.writer import whole
from detaug.converters.conversion.choices import OnError, Progress, WithImages
from detaug.converters.conversion.folder import (
    check_folder,
    check_with_images,
    place_images,
    refuse_other_content,
    write_texts,
)
from detaug.converters.conversion.images import missing_images
from detaug.converters.conversion.outputs import output_files
from detaug.converters.conversion.summary import Summary, report_and_stop
from detaug.converters.files.paths import PathLike
from detaug.converters.files.text import is_plain
from detaug.converters.findings.errors import ConversionError
from detaug.converters.findings.finding import Finding
from detaug.converters.voc.pairs import Origin

_FLAGS = ("truncated", "difficult", "occluded")
_ATTRIBUTES = frozenset({*_FLAGS, "pose"})
_DECIMALS = 9  # of a pixel: what double precision leaves of a photograph's coordinates after adding 1


def coco_to_voc(
    annotations: PathLike,
    output: PathLike,
    *,
    split: str | None = None,
    origin: Origin = "one",
    images: PathLike | None = None,
    with_images: WithImages = "none",
    on_error: OnError = "stop",
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert a COCO json file into a Pascal VOC data set.

    Writes output/Annotations/NAME.xml for each image, in subfolders where file_name has them, the names in the
    json's order into output/ImageSets/Main/SPLIT.txt, and the classes in the order of their ids into
    output/classes.txt, since XML does not hold it: voc_to_coco with that split and those classes gives the
    same ids, names and boxes again.

    split: the name of the split; without it that of the json. origin: "one" for pixels counted from 1 and
    boxes that include their last pixel, the devkit's rule (decision 1): x, y, width, height become x + 1,
    y + 1, x + width, y + height. "zero" for x, y, x + width, y + height. Decimals stay, to 9 places. images:
    the folder that file_name is relative to; with it, an image that is not there is an error. with_images:
    leave the images where they are, copy them to output/JPEGImages, or make symbolic links there. on_error:
    "stop" at entries that cannot be used, after looking at all of them, or "skip" these. report: a json file
    for every finding (see findings.KINDS). progress: called with (files written, files in all).

    difficult, truncated, occluded and pose are written as the json has them; a crowd becomes difficult. Other
    keys (segmentation, ...) have no place in VOC: they are counted in the findings. The depth is given as 3,
    what DALI decodes to, since a json does not have it. No file is replaced by other content: what exists is
    either the same already, or an error before anything is written. The split's file is written last.

    Raises ConversionError, a ValueError, for input that cannot be converted, and ValueError for arguments.

    >>> from detaug.converters import coco_to_voc
    >>> print(coco_to_voc("train.json", "voc-again"))
    48 images (4 without boxes), 168 boxes in 6 classes
      ball          39
      car           29
      fish          31
      house         18
      mug           27
      tree          24
    written: voc-again
    and back: detaug convert-voc voc-again -o train.json --split train --classes voc-again/classes.txt
    """
    source, folder, image_folder = Path(annotations), Path(output), None if images is None else Path(images)
    split = source.stem if split is None else split
    _check_arguments(split, origin, on_error)
    check_with_images(with_images, image_folder)
    paths = output_files({"report": report}, source)
    check_folder(folder)
    rows, findings = _usable(source, image_folder)
    findings += [*clipped(rows), *dropped_keys(rows, _ATTRIBUTES)]
    texts = _texts(rows, folder, split, origin, findings)
    report_and_stop(findings, on_error, paths.get("report"))
    if not len(rows.images):
        raise ConversionError(f"{source}: no image is left to write; nothing was written", findings)
    copies = _copies(rows, folder, image_folder) if image_folder and with_images != "none" else {}
    refuse_other_content(texts, copies)
    place_images(copies, with_images)
    write_texts(texts, progress)
    return Summary(
        folder,
        folder / "JPEGImages" if copies else image_folder or folder / "JPEGImages",
        len(rows.images),
        rows.images_without_boxes(),
        rows.class_counts(),
        tuple(findings),
        paths.get("report"),
        f"and back: detaug convert-voc {folder} -o {split}.json --split {split} --classes {folder / 'classes.txt'}"
        + ("" if copies or image_folder is None else f" --images {image_folder}"),
    )


def _check_arguments(split: str, origin: str, on_error: str) -> None:
    if PurePosixPath(split).name != split or not is_plain(split):
        raise ValueError(f"split must be a name without slashes, got {split!r}")
    for name, value, choices in (("origin", origin, Origin), ("on_error", on_error, OnError)):
        if value not in get_args(choices):
            raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, got {value!r}")


def _usable(source: Path, images: Path | None) -> tuple[CocoRows, list[Finding]]:
    rows, findings = read_coco_rows(source)
    check_class_names(rows)
    names = {at: rows.file_name(at) for at in rows.images.tolist()}
    rows, more = leave_out(rows, [*stem_findings(rows), *missing_images(names, images)])
    return rows, [*findings, *more]


def _copies(rows: CocoRows, folder: Path, images: Path) -> dict[Path, Path]:
    names = map(rows.file_name, rows.images.tolist())
    return {folder / "JPEGImages" / name: images / name for name in names}


# ----------------------------------------------------------------------------------------------------------
# The files


def _texts(rows: CocoRows, folder: Path, split: str, origin: Origin, findings: list[Finding]) -> dict[Path, str]:
    """Every text file by path, in the order in which they are written."""
    texts, stems = {}, []
    for at, boxes in rows:
        stems.append(posixpath.splitext(rows.file_name(at))[0])
        texts[folder / "Annotations" / f"{stems[-1]}.xml"] = _xml(rows, at, boxes, origin, findings)
    texts[folder / "classes.txt"] = _lines(map(_spaced, rows.table.categories.values()))
    texts[folder / "ImageSets" / "Main" / f"{split}.txt"] = _lines(stems)
    return texts


def _lines(names: Iterator[str] | list[str]) -> str:
    return "".join(f"{name}\n" for name in names)


def _spaced(name: str) -> str:
    """As voc_to_coco reads a class name."""
    return " ".join(name.split())


def _xml(rows: CocoRows, at: int, boxes: list[int], origin: Origin, findings: list[Finding]) -> str:
    height, width = rows.table.sizes[at].tolist()
    name = rows.file_name(at).rpartition("/")[2]
    objects = "".join(_object(_voc_object(rows, box_at, origin, findings)) for box_at in boxes)
    return (
        f"<annotation>\n\t<filename>{escape(name)}</filename>\n"
        f"\t<size>\n\t\t<width>{width}</width>\n\t\t<height>{height}</height>\n\t\t<depth>3</depth>\n\t</size>\n"
        f"{objects}</annotation>\n"
    )


class _Object(NamedTuple):
    name: str
    pose: str
    flags: dict[str, int]
    corners: tuple[float, float, float, float]
    """(xmin, ymin, xmax, ymax), as VOC writes them."""


def _object(item: _Object) -> str:
    flags = "".join(f"\t\t<{name}>{value}</{name}>\n" for name, value in item.flags.items())
    corners = zip(("xmin", "ymin", "xmax", "ymax"), item.corners, strict=True)
    box = "".join(f"\t\t\t<{name}>{_number(value)}</{name}>\n" for name, value in corners)
    return (
        f"\t<object>\n\t\t<name>{escape(item.name)}</name>\n\t\t<pose>{escape(item.pose)}</pose>\n{flags}"
        f"\t\t<bndbox>\n{box}\t\t</bndbox>\n\t</object>\n"
    )


def _number(value: float) -> str:
    """Up to 9 decimals, none for whole numbers, never an exponent, which other readers of VOC stop at."""
    return re.sub(r"\.?0+$", "", f"{value:.{_DECIMALS}f}") if value % 1 else str(whole(value))


def _voc_object(rows: CocoRows, box_at: int, origin: Origin, findings: list[Finding]) -> _Object:
    row = rows.table.row("annotations", box_at)
    written = rows.class_name(box_at)
    name = _spaced(written)
    entry = rows.table.entry("annotations", box_at)
    if name != written:
        findings.append(Finding(str(rows.table.path), "name-spaces", before=written, after=name))
    flags = {key: _flag(key, row.get(key), entry, rows, findings) for key in _FLAGS}
    if row.get("iscrowd") == 1 and not flags["difficult"]:
        flags["difficult"] = 1
        findings.append(Finding(str(rows.table.path), "crowd-difficult", note=f"{entry}a crowd became difficult"))
    left, top, right, bottom = rows.table.boxes[box_at].tolist()
    first = 1 if origin == "one" else 0
    return _Object(name, _pose(row.get("pose")), flags, (left + first, top + first, right, bottom))


def _flag(key: str, value: object, entry: str, rows: CocoRows, findings: list[Finding]) -> int:
    if value in (0, 1, None):
        return int(value == 1)
    note = f"{entry}{key} must be 0 or 1, got {str(value)[:60]!r}; 0 was taken"
    findings.append(Finding(str(rows.table.path), "flag-invalid", before=key, after=0, note=note))
    return 0


def _pose(value: object) -> str:
    text = _spaced(value) if isinstance(value, str) else ""
    return text if text and is_plain(text) else "Unspecified"
