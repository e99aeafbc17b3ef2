"""Write a COCO JSON file without the entries that cannot be used, everything else unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from detaug.arrays import Bools, Ints
from detaug.coco.table import Table
from detaug.coco.writer import document_text
from detaug.files.atomic import write_atomically
from detaug.findings.entries import Findings, Where
from detaug.findings.finding import counted
from detaug.findings.kinds import CHECK_KINDS

Row = dict[str, Any]

_REMOVED = object()
"""The new value of a key that is left out of its row."""


@dataclass(frozen=True)
class Cleaned:
    """The entries that `--clean` left out and changed. str() is the line that the command prints."""

    path: Path
    images: int
    """Left out; images joined with an earlier one are not counted."""
    annotations: int
    """Left out."""
    with_images: int
    """Annotations left out only because their image was."""
    categories: int
    """Left out."""
    videos: int
    """Left out."""
    renumbered: int
    """Annotations that got another id."""
    joined: int
    """Images with the file of an earlier one, which got their annotations."""
    repaired: dict[str, int]
    """Entries that were repaired, by kind of finding."""

    def __str__(self) -> str:
        return f"written: {self.path}, {'; '.join(self._parts()) or 'nothing was left out'}"

    def _parts(self) -> Iterator[str]:
        left_out = {"image": self.images, "annotation": self.annotations}
        parts = [counted(number, one) for one, number in left_out.items() if number]
        parts += [counted(self.categories, "category", "categories")] if self.categories else []
        parts += [counted(self.videos, "video")] if self.videos else []
        only = f" ({self.with_images:,} of them only for their image)" if self.with_images else ""
        if parts:
            yield f"without {', '.join(parts[:-1])}{' and ' if parts[1:] else ''}{parts[-1]}{only}"
        if self.renumbered:
            yield f"{counted(self.renumbered, 'annotation')} got another id"
        for kind, number in self.repaired.items():
            repair = CHECK_KINDS[kind].repair
            assert repair is not None
            text, *nouns = repair
            yield text.format(counted(number, *nouns))
        if self.joined:
            yield f"{counted(self.joined, 'image')} joined with an earlier one of the same file"


@dataclass(frozen=True)
class NotCleaned:
    """The reason why `--clean` wrote nothing. str() is the line that the command prints."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"not written: {self.path}, {self.reason}"


def write_clean(
    table: Table,
    findings: Iterable[Findings],
    path: Path,
    drop_classes: Sequence[str] = (),
    *,
    only_maps: bool = False,
) -> Cleaned | NotCleaned:
    """Write the JSON file without the rows that have errors and without the annotations of images and classes left out.

    All other rows stay, with their ids and all their keys, but for shapes that `CocoReader` would refuse. Nothing is
    written where no object would be left, or where those left would be wrong. drop_classes: names of classes to leave
    out. only_maps: whether images have maps and no boxes, so that they are of use without an object.
    """
    findings = list(findings)
    errors = [finding for finding in findings if finding.severity == "error"]
    lists = (*_LISTS, _VIDEOS) if table.coco.has_videos else _LISTS
    usable = {where: _without_errors(table, errors, where) for where in lists}
    for index in range(len(usable["categories"])):
        usable["categories"][index] &= table.row("categories", index).get("name") not in drop_classes
    if _VIDEOS in usable:
        usable["images"] &= np.isin(table.videos.video_ids, _ids(table, _VIDEOS, usable[_VIDEOS]))
    joined = _joined(table, usable["images"])
    with_category = usable["annotations"] & np.isin(table.category_ids, _ids(table, "categories", usable["categories"]))
    usable["annotations"] = with_category & np.append(usable["images"], False)[table.image_index]
    new_ids = _new_ids(table, errors, usable["annotations"])
    usable["images"][list(joined)] = False
    if reason := _fault(table, errors, usable, only_maps=only_maps):
        return NotCleaned(path, reason)
    changes = {"annotations": _changes(table, usable["annotations"], new_ids, joined)}
    changes |= {"categories": dict[int, Row](), "images": dict[int, Row]()}
    _change_shapes(table, findings, changes)
    rows = {str(where): _rows(table, where, mask, changes.get(where, {})) for where, mask in usable.items()}
    write_atomically(path, document_text(table.coco.document, rows))
    left_out = {"videos": 0} | {str(where): int((~mask).sum()) for where, mask in usable.items()}
    left_out["images"] -= len(joined)
    repaired = _count_repaired(findings, usable)
    with_images = int((with_category & ~usable["annotations"]).sum())
    return Cleaned(
        path, **left_out, with_images=with_images, renumbered=len(new_ids), joined=len(joined), repaired=repaired
    )


_LISTS: tuple[Where, ...] = ("images", "annotations", "categories")
_VIDEOS: Where = "videos"


def _without_errors(table: Table, errors: Sequence[Findings], where: Where) -> Bools:
    """Return which rows of a list have no error."""
    usable = np.ones(len(table.coco.document[where]), bool)
    for finding in errors:
        if finding.where == where and not CHECK_KINDS[finding.kind].is_kept:
            usable[finding.rows] = False
            if finding.kind in ("image-id-repeated", "category-id-repeated") or where == _VIDEOS:
                usable[_ambiguous(table, finding)] = False
    return usable


def _ambiguous(table: Table, finding: Findings) -> list[int]:
    """Return the entries whose id later ones use for something else: references to the id may mean either."""
    first: dict[int, int] = {}
    for index in range(len(table.coco.document[finding.where])):
        number = table.row(finding.where, index).get("id")
        if type(number) is int:
            first.setdefault(number, index)
    ids = {index: table.row(finding.where, index).get("id") for index in finding.rows.tolist()}
    pairs = ((first[number], index) for index, number in ids.items() if type(number) is int)
    return [one for one, two in pairs if _meaning(table, finding.where, one) != _meaning(table, finding.where, two)]


def _meaning(table: Table, where: Where, index: int) -> list[Any]:
    return [table.row(where, index).get(key) for key in ("file_name", "height", "width", "name")]


def _joined(table: Table, usable: Bools) -> dict[int, int]:
    """Return images with the file of an earlier one -> that one; those of another size become unusable."""
    first: dict[str, int] = {}
    joined: dict[int, int] = {}
    for image in np.flatnonzero(usable).tolist():
        one = first.setdefault(table.path_of(image), image)
        if one != image and (table.sizes[one] == table.sizes[image]).all():
            joined[image] = one
        elif one != image:
            usable[image] = False
    return joined


def _ids(table: Table, where: Where, usable: Bools) -> Ints:
    return np.array([table.row(where, int(row))["id"] for row in np.flatnonzero(usable)], np.int64)


def _new_ids(table: Table, errors: Sequence[Findings], usable: Bools) -> dict[int, int]:
    """Return ids that no annotation has, for the usable annotations without an id of their own."""
    wrong = [finding.rows for finding in errors if finding.kind in ("annotation-id", "annotation-id-repeated")]
    rows = sorted({int(row) for wrong_rows in wrong for row in wrong_rows if usable[row]})
    entries = [entry for entry in table.coco.document["annotations"] if isinstance(entry, dict)] if rows else []
    taken = {entry["id"] for entry in entries if type(entry.get("id")) is int}
    free = (number for number in count(1) if number not in taken)
    return dict(zip(rows, free, strict=False))


def _count_repaired(findings: Sequence[Findings], usable: Mapping[Where, Bools]) -> dict[str, int]:
    """Count the entries that stay and were repaired, by kind of finding."""
    counts = {kind: 0 for kind, row in CHECK_KINDS.items() if row.repair}
    for finding in findings:
        if finding.kind in counts:
            counts[finding.kind] += int(usable[finding.where][finding.rows].sum())
    return {kind: number for kind, number in counts.items() if number}


def _changes(table: Table, usable: Bools, new_ids: dict[int, int], joined: dict[int, int]) -> dict[int, Row]:
    """Return the keys of annotations that get another value, by row."""
    changes: dict[int, Row] = {row: {"bbox": box} for row, box in table.shape_boxes.items()}
    for row, number in new_ids.items():
        changes[row] = changes.get(row, {}) | {"id": number}
    for row in np.flatnonzero(usable & np.isin(table.image_index, list(joined))).tolist():
        image = table.row("images", joined[int(table.image_index[row])])
        changes[row] = changes.get(row, {}) | {"image_id": image["id"]}
    return changes


def _change_shapes(table: Table, findings: Sequence[Findings], changes: Mapping[str, dict[int, Row]]) -> None:
    """Leave out shapes that readers refuse, and count keypoints again."""
    for finding in findings:
        removes = CHECK_KINDS[finding.kind].removes
        for row in finding.rows.tolist() if removes or finding.kind == "keypoints-count" else ():
            points = table.row(finding.where, row).get("keypoints") or [] if finding.kind == "keypoints-count" else []
            new: Row = {"num_keypoints": sum(visible > 0 for visible in points[2::3])}
            new = dict.fromkeys(removes, _REMOVED) if removes else new
            changes[finding.where][row] = changes[finding.where].get(row, {}) | new


def _fault(table: Table, errors: Sequence[Findings], usable: dict[Where, Bools], *, only_maps: bool) -> str:
    """Return why the rows left would be no dataset; "" where they are one."""
    relative = [error.kind.partition("-")[0] for error in errors if error.kind.endswith("-relative")]
    if relative:
        return f"since {' and '.join(relative)} are relative to their images; write pixels"
    if any(error.kind == "box-corners" for error in errors):
        return "since boxes that are corners are wrong also where they fit; correct them all"
    for where in ("images", "categories"):
        if not usable[where].any():
            return f"since none of the {where} can be used"
    has_class = bool((table.image_categories[usable["images"]] >= 0).any())
    if not only_maps and not has_class and not (usable["annotations"] & ~table.crowd).any():
        return "since no object would be left to train on"
    return ""


def _rows(table: Table, where: Where, usable: Bools, changes: dict[int, Row]) -> Iterator[Row]:
    for index in np.flatnonzero(usable).tolist():
        row = table.coco.document[where][index]
        if index in changes:
            row = {key: value for key, value in (row | changes[index]).items() if value is not _REMOVED}
        yield row
