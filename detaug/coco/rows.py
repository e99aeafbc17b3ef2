"""Select the images and boxes of a COCO JSON file that can be converted, with findings about the rest."""

from __future__ import annotations

import math
import posixpath
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from detaug.arrays import Bools, Ints
from detaug.coco.examine import examine_file
from detaug.coco.repair import REPAIRS
from detaug.coco.table import Table
from detaug.coco.unused_parents import NO_PARENT
from detaug.coco.writer import ANNOTATION_FILE, TOOL_ID
from detaug.errors import AnnotationError, ConversionError
from detaug.files.text import is_plain, is_utf8, joined_spaces
from detaug.findings.entries import Findings, Where
from detaug.findings.finding import Finding, shown

_IMAGE_KEYS = frozenset({"id", "file_name", "width", "height", ANNOTATION_FILE, TOOL_ID})
_BOX_KEYS = frozenset({"id", "image_id", "category_id", "bbox", "area", "iscrowd", TOOL_ID})
_CATEGORY_KEYS = frozenset({"id", "name"})
_OUTLINES = "segmentation", "corners"
_UNUSED_IDS = frozenset({"annotation-id", "annotation-id-repeated"})  # conversions assign new ones, or none
_NO_FAULTS = _UNUSED_IDS.union(REPAIRS)
_CLEANED = {"image-size", "file-name-outside", "box-missing"}
_EMPTY: tuple[object, ...] = (None, "", 0, [], {})


@dataclass(frozen=True)
class CocoRows:
    """A COCO JSON file without the entries that cannot be used. Positions are those in the JSON file's lists."""

    table: Table
    images: Ints
    """Positions of the images, in the JSON file's order."""
    first: Ints
    """(len(images) + 1,): boxes[first[n] : first[n + 1]] are those of images[n]."""
    boxes: Ints
    """Positions of the annotations, grouped by image, in the JSON file's order within one."""

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        """Yield (position of an image, positions of its annotations)."""
        for n, image in enumerate(self.images.tolist()):
            yield image, self.boxes[self.first[n] : self.first[n + 1]].tolist()

    def file_name(self, image: int) -> str:
        """Return the file name of an image, without "./" and the like."""
        return posixpath.normpath(self.table.file_names[image])

    def videos(self) -> list[dict[str, Any]]:
        """Return the entries of the videos; none for a JSON file without."""
        if not self.table.coco.has_videos:
            return []
        wrong = {row for finding in self.table.findings if finding.where == "videos" for row in finding.rows.tolist()}
        return [row for index, row in enumerate(self.table.coco.document["videos"]) if index not in wrong]

    def class_name(self, box_at: int) -> str:
        """Return the class name of an annotation."""
        return self.table.categories[int(self.table.category_ids[box_at])]

    def class_counts(self) -> dict[str, int]:
        """Count the boxes of each class, in the order of the category ids."""
        counts = Counter(map(self.class_name, self.boxes.tolist()))
        return {name: counts[name] for name in self.table.categories.values()}

    def crowds(self) -> int:
        """Count the boxes that are crowds."""
        return int(self.table.crowd[self.boxes].sum())

    def images_without_boxes(self) -> int:
        """Count the images without boxes."""
        return int((np.diff(self.first) == 0).sum())

    def without(self, images: Collection[int], boxes: Collection[int] = ()) -> CocoRows:
        """Return the rows without some images, their boxes, and some other boxes."""
        left = self.images[~np.isin(self.images, list(images))]
        return _group_by_image(self.table, left, np.sort(self.boxes[~np.isin(self.boxes, list(boxes))]))


def read_coco_rows(path: str | Path) -> tuple[CocoRows, list[Finding]]:
    """Read a COCO JSON file to convert it; every error that `detaug check` finds in it without its images is a finding.

    Raises ConversionError where nothing can be converted: no COCO JSON file, no images, or categories that contradict
    each other.
    """
    try:
        table = examine_file(path)
    except AnnotationError as error:
        raise ConversionError(str(error)) from None
    errors = [finding for finding in table.findings if finding.severity == "error" and finding.kind not in _NO_FAULTS]
    for finding in errors:
        if finding.where not in ("images", "annotations", "videos"):
            row = int(finding.rows[0])
            remedy = f"detaug check {path} IMAGES explains it"
            raise ConversionError(
                f"{path}: {table.entry(finding.where, row)}{finding.describe(row)} ({finding.kind}); {remedy}"
            )
    images = _without_errors(table, errors, "images")
    boxes = _without_errors(table, errors, "annotations") & table.has_box & table.has_category
    orphans = int((boxes & ~np.append(images, False)[table.image_index]).sum())
    findings = [*_repairs(table)]
    for finding in errors:
        remedy = f"; detaug check {table.path} IMAGES --clean NEW.json repairs it" if finding.kind in _CLEANED else ""
        for row in finding.rows.tolist():
            note = f"{table.entry(finding.where, row)}{finding.describe(row)}{remedy} ({finding.kind})"
            findings.append(Finding(str(table.path), "entry-invalid", note=note))
    if orphans:
        findings.append(Finding(str(path), "boxes-without-image", before=orphans, count=orphans))
    return _group_by_image(table, np.flatnonzero(images), np.flatnonzero(boxes)), findings


def _without_errors(table: Table, errors: list[Findings], where: Where) -> Bools:
    usable = np.ones(len(table.coco.document[where]), bool)
    for error in errors:
        if error.where == where:
            usable[error.rows] = False
        if error.where == where and error.kind == "image-id-repeated":  # their boxes cannot be told apart
            usable &= ~np.isin(table.image_ids, table.image_ids[error.rows])
    return usable


def _repairs(table: Table) -> Iterator[Finding]:
    """Yield a finding for each kind of repair and list of the JSON file."""
    for repair in table.findings:
        if repair.kind in REPAIRS:
            row = int(repair.rows[0])
            note = f"{len(repair):,} {repair.where}, such as {table.entry(repair.where, row)}{repair.describe(row)}"
            yield Finding(str(table.path), repair.kind, note=note, count=len(repair))


def _group_by_image(table: Table, images: Ints, boxes: Ints) -> CocoRows:
    boxes = boxes[np.isin(table.image_index[boxes], images)]
    boxes = boxes[np.argsort(table.image_index[boxes], kind="stable")]
    first = np.searchsorted(table.image_index[boxes], np.append(images, len(table.image_ids)))
    return CocoRows(table, images, first, boxes)


def without_crowds(rows: CocoRows) -> tuple[CocoRows, list[Finding]]:
    """Return the rows without crowds, for a format that cannot mark them, and a finding with their number."""
    crowds = rows.boxes[rows.table.crowd[rows.boxes]].tolist()
    findings = [Finding(str(rows.table.path), "crowd-dropped", count=len(crowds))] if crowds else []
    return rows.without((), crowds), findings


def clipped(rows: CocoRows) -> Iterator[Finding]:
    """Yield the boxes that reach past their image by up to 1 pixel and are cut at its edge."""
    for finding in rows.table.findings:
        if finding.kind == "box-clipped":
            for row in finding.rows[np.isin(finding.rows, rows.boxes)].tolist():
                note = f"{rows.table.entry('annotations', row)}{finding.describe(row)}, and was cut at the edge"
                before = rows.table.row("annotations", row)["bbox"]
                yield Finding(str(rows.table.path), "box-clipped", before=before, note=note)


def dropped_keys(
    rows: CocoRows,
    supported: frozenset[str] = frozenset(),
    of_images: frozenset[str] = frozenset(),
    of_categories: frozenset[str] = frozenset(),
) -> Iterator[Finding]:
    """Yield a finding, with the number of rows, for each key with a value that the other format has no place for.

    supported: keys of annotations that it has a place for. of_images, of_categories: those of images and categories.
    """
    categories = rows.table.coco.document["categories"]
    counts = Counter(f"categories.{key}" for row in categories for key in _keys_with_value(row) - of_categories)
    known = _IMAGE_KEYS | of_images, _BOX_KEYS | supported
    for where, positions, keys in zip(("images", "annotations"), (rows.images, rows.boxes), known, strict=True):
        for position in positions.tolist():
            row = rows.table.row(where, position)  # type: ignore[arg-type]
            counts.update(f"{where}.{key}" for key in row.keys() - keys if _has_value(key, row[key]))
    of_rows = (rows.table.row("annotations", box) for box in rows.boxes.tolist())
    if "area" in supported:  # of an outline, which the format has
        of_rows = (row for row in of_rows if not any(row.get(key) for key in _OUTLINES))
    counts["annotations.area"] = sum(map(_has_other_area, of_rows))
    for key, count in sorted((+counts).items()):
        lost = "is not its box's and becomes it" if key == "annotations.area" else "has no place in the other format"
        note = f"{key}, in {count:,} of its rows, {lost}"
        yield Finding(str(rows.table.path), "key-dropped", before=[key, count], note=note)


def _keys_with_value(category: dict[str, Any]) -> set[str]:
    """Return the keys of a category, beside its name, that say something."""
    keys = {key for key, value in category.items() if _has_value(key, value)} - _CATEGORY_KEYS
    parent = category.get("supercategory")
    if isinstance(parent, str) and (parent in NO_PARENT or parent == category["name"]):
        keys.discard("supercategory")
    return keys


def _has_value(key: str, value: Any) -> bool:
    return value not in _EMPTY and (key, value) != ("pose", "Unspecified")


def _has_other_area(row: dict[str, Any]) -> bool:
    """Return whether an annotation has an area, such as a segmentation's, other than its box's but for rounding."""
    area, (_, _, width, height) = row.get("area"), row["bbox"]
    if not isinstance(area, int | float) or abs(area) > 1e15:
        return _has_value("area", area)
    return bool(area) and not math.isclose(area, width * height, rel_tol=1e-3, abs_tol=0.5 if area % 1 == 0 else 0.01)


def stem_findings(rows: CocoRows) -> Iterator[tuple[int, Finding]]:
    """Yield (position, finding) of images that cannot have their own annotation file: a name no text can contain,
    or the stem of another image. Images of different shards may have the same name.
    """
    seen: dict[str, tuple[int, str]] = {}
    for image in rows.images.tolist():
        name = rows.file_name(image)
        first, other = seen.setdefault(posixpath.splitext(name)[0], (image, name))
        if not is_utf8(name):
            yield image, Finding(name, "file-name-not-utf8", before=name)
        elif not is_plain(name):
            yield image, Finding(name, "file-name-unusable", before=name, note="its name has control characters")
        elif first != image:
            note = "an image of another shard has this name, too" if other == name else ""
            yield image, Finding(name, "stem-repeated", before=name, after=other, note=note)


def leave_out(rows: CocoRows, faults: Sequence[tuple[int, Finding]]) -> tuple[CocoRows, list[Finding]]:
    """Return the rows without the images that have a fault; and the faults, with the number of boxes left out."""
    left = rows.without({image for image, _ in faults})
    findings = [finding for _, finding in faults]
    if orphans := len(rows.boxes) - len(left.boxes):
        findings.append(Finding(str(rows.table.path), "boxes-without-image", before=orphans, count=orphans))
    return left, findings


def check_class_names(rows: CocoRows) -> None:
    """Raise ConversionError for class names that are equal but for spaces: other formats identify classes by name."""
    names = list(map(joined_spaces, rows.table.categories.values()))
    for name in rows.table.categories.values():
        if not is_plain(name) or names.count(joined_spaces(name)) > 1:
            rule = "class names must differ, also without spaces, and have no control characters"
            raise ConversionError(f"{rows.table.path}: {rule}, got {shown(name)}; rename it")
