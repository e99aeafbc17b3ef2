"""The images and boxes of a COCO json that can be converted, and findings about the rest."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from detaug.converters.coco.examine import examine_file
from detaug.converters.coco.table import Ints, Mask, Table
from detaug.converters.files.text import is_plain
from detaug.converters.findings.entries import Findings, Where
from detaug.converters.findings.errors import AnnotationError, ConversionError
from detaug.converters.findings.finding import Finding

_IMAGE_KEYS = frozenset({"id", "file_name", "width", "height"})
_BOX_KEYS = frozenset({"id", "image_id", "category_id", "bbox", "area", "iscrowd"})
_UNUSED_IDS = frozenset({"annotation-id", "annotation-id-repeated"})  # conversions give new ones, or none
_EMPTY: tuple[object, ...] = (None, "", 0, [], {})


@dataclass(frozen=True)
class CocoRows:
    """A COCO json without what cannot be used. Positions are those in the json's lists."""

    table: Table
    images: Ints
    """Positions of the images, in the json's order."""
    first: Ints
    """(len(images) + 1,): the boxes of images[n] are boxes[first[n]:first[n + 1]]."""
    boxes: Ints
    """Positions of the annotations, grouped by image, in the json's order within one."""

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        """(position of an image, positions of its annotations)."""
        for n, at in enumerate(self.images.tolist()):
            yield at, self.boxes[self.first[n] : self.first[n + 1]].tolist()

    def file_name(self, at: int) -> str:
        return posixpath.normpath(self.table.file_names[at])

    def class_name(self, box_at: int) -> str:
        return self.table.categories[int(self.table.category_ids[box_at])]

    def class_counts(self) -> dict[str, int]:
        """Boxes per class, in the order of the category ids."""
        counts = Counter(map(self.class_name, self.boxes.tolist()))
        return {name: counts[name] for name in self.table.categories.values()}

    def images_without_boxes(self) -> int:
        return int((np.diff(self.first) == 0).sum())

    def without(self, images: Collection[int], boxes: Collection[int] = ()) -> CocoRows:
        """The same without some images, their boxes, and some other boxes."""
        kept = self.images[~np.isin(self.images, list(images))]
        return _rows(self.table, kept, np.sort(self.boxes[~np.isin(self.boxes, list(boxes))]))


def read_coco_rows(path: str | Path) -> tuple[CocoRows, list[Finding]]:
    """Read a COCO json to convert it. What `detaug check` calls an error in it is a finding each.

    Raises ConversionError where nothing could be converted: no COCO json, no images, or categories that
    contradict each other.
    """
    try:
        table = examine_file(path)
    except AnnotationError as error:
        raise ConversionError(str(error)) from None
    errors = [found for found in table.findings if found.severity == "error" and found.kind not in _UNUSED_IDS]
    for found in errors:
        if found.where not in ("images", "annotations"):
            row = int(found.rows[0])
            raise ConversionError(f"{path}: {table.entry(found.where, row)}{found.describe(row)} ({found.kind})")
    images = _kept(table, errors, "images")
    boxes = _kept(table, errors, "annotations") & table.boxed & table.classed
    orphans = int((boxes & ~np.append(images, False)[table.image_at]).sum())
    findings = [_finding(table, found, row) for found in errors for row in found.rows.tolist()]
    if orphans:
        findings.append(Finding(str(path), "boxes-without-image", before=orphans))
    rows = _rows(table, np.flatnonzero(images), np.flatnonzero(boxes))
    return rows, findings


def _kept(table: Table, errors: list[Findings], where: Where) -> Mask:
    kept = np.ones(len(table.coco.document[where]), bool)
    for found in errors:
        if found.where == where:
            kept[found.rows] = False
        if found.where == where and found.kind == "image-id-repeated":  # nobody knows whose their boxes are
            kept &= ~np.isin(table.image_ids, table.image_ids[found.rows])
    return kept


def _finding(table: Table, found: Findings, row: int) -> Finding:
    note = f"{table.entry(found.where, row)}{found.describe(row)} ({found.kind})"
    return Finding(str(table.path), "entry-invalid", note=note)


def _rows(table: Table, images: Ints, boxes: Ints) -> CocoRows:
    boxes = boxes[np.isin(table.image_at[boxes], images)]
    boxes = boxes[np.argsort(table.image_at[boxes], kind="stable")]
    first = np.searchsorted(table.image_at[boxes], np.append(images, len(table.image_ids)))
    return CocoRows(table, images, first, boxes)


def clipped(rows: CocoRows) -> Iterator[Finding]:
    """Boxes that reached past their image by up to 1 pixel and are cut at its edge in the columns."""
    for found in rows.table.findings:
        if found.kind == "box-clipped":
            for at in found.rows[np.isin(found.rows, rows.boxes)].tolist():
                note = f"{rows.table.entry('annotations', at)}{found.describe(at)}, and was cut at the edge"
                before = rows.table.row("annotations", at)["bbox"]
                yield Finding(str(rows.table.path), "box-clipped", before=before, note=note)


def dropped_keys(rows: CocoRows, kept: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """Keys that hold something and that the other format has no place for: one finding each, with how often."""
    counts: Counter[str] = Counter()
    for where, positions, known in (("images", rows.images, _IMAGE_KEYS), ("annotations", rows.boxes, _BOX_KEYS)):
        for at in positions.tolist():
            row = rows.table.row(where, at)  # type: ignore[arg-type]
            counts.update(f"{where}.{key}" for key in row.keys() - known - kept if _says_something(key, row[key]))
    for key, count in sorted(counts.items()):
        note = f"{key}, in {count:,} of its rows, has no place in the other format"
        yield Finding(str(rows.table.path), "key-dropped", before=[key, count], note=note)


def _says_something(key: str, value: Any) -> bool:
    return value not in _EMPTY and (key, value) != ("pose", "Unspecified")


def stem_findings(rows: CocoRows) -> Iterator[tuple[int, Finding]]:
    """(position of an image, why it cannot have an annotation file): a name that no text can hold, or shared."""
    seen: dict[str, str] = {}
    for at in rows.images.tolist():
        name = rows.file_name(at)
        other = seen.setdefault(posixpath.splitext(name)[0], name)
        if not is_plain(name):
            yield at, Finding(name, "file-name-unusable", before=name, note="its name holds control characters")
        elif other != name:
            yield at, Finding(name, "stem-repeated", before=name, after=other)


def leave_out(rows: CocoRows, faults: Sequence[tuple[int, Finding]]) -> tuple[CocoRows, list[Finding]]:
    """The rows without the images that have a fault. The findings are the faults, and how many boxes go with them."""
    left = rows.without({at for at, _ in faults})
    findings = [finding for _, finding in faults]
    if orphans := len(rows.boxes) - len(left.boxes):
        findings.append(Finding(str(rows.table.path), "boxes-without-image", before=orphans))
    return left, findings


def check_class_names(rows: CocoRows) -> None:
    """Refuse class names that are one but for spaces, since only names tell classes apart in the other format."""
    spaced = [" ".join(name.split()) for name in rows.table.categories.values()]
    for name in rows.table.categories.values():
        if not is_plain(name) or spaced.count(" ".join(name.split())) > 1:
            rule = "class names must differ, also without spaces, and not hold control characters"
            raise ConversionError(f"{rows.table.path}: {rule}, got {name!r}; rename it")
