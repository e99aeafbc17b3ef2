"""The dataset doctor: everything in a COCO json and its images that training would stop at or learn wrongly.

from detaug.converters import check_coco
print(check_coco("train.json", "VOC2012/JPEGImages"))
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from detaug.converters.check.boxes import check_boxes, class_counts, usable_boxes
from detaug.converters.check.clean import Cleaned, write_clean
from detaug.converters.check.images import Header, check_images, read_headers
from detaug.converters.coco.examine import examine_file
from detaug.converters.coco.table import Table
from detaug.converters.conversion.outputs import output_files
from detaug.converters.files.atomic import write_json
from detaug.converters.files.image_headers import ImageHeader
from detaug.converters.findings.entries import Findings, count_findings, from_messages
from detaug.converters.findings.kinds import CHECK_KINDS, Severity
from detaug.converters.findings.text import counted, shown

PathLike: TypeAlias = "str | os.PathLike[str]"
Progress = Callable[[int, int], None]

_EXAMPLES = 3
_MOST_CLASSES = 40
_ORDER = {kind: at for at, kind in enumerate(CHECK_KINDS)}
_MOST_PIXELS = 2**28  # a larger image is not decoded: it may take all memory, and the process with it


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One thing found. entry: such as annotations[5], "" for the json as a whole and for files of the folder."""

    kind: str
    severity: Severity
    entry: str
    id: int | str | None
    file_name: str | None
    message: str


@dataclass(frozen=True)
class CheckSummary:
    """What a check found. str() is the text that the command prints.

    class_counts: boxes to train on per class, in the order of the category ids.
    """

    annotations: Path
    image_folder: Path
    images: int
    images_without_boxes: int
    class_counts: dict[str, int]
    kind_counts: dict[str, int]
    """How many findings of each kind, errors first."""
    cleaned: Cleaned | None
    report: Path | None
    _table: Table = field(repr=False)
    _found: tuple[Findings, ...] = field(repr=False)

    @property
    def table(self) -> Table:
        """The json as columns."""
        return self._table

    @property
    def errors(self) -> int:
        """Findings that training would stop at, or learn wrongly from."""
        return self._count("error")

    @property
    def warnings(self) -> int:
        return self._count("warning")

    @property
    def findings(self) -> Iterator[CheckFinding]:
        """Every finding, by kind, errors first."""
        for found in self._found:
            yield from (_finding(self._table, found, row) for row in found.rows.tolist())

    def _count(self, severity: Severity) -> int:
        return sum(count for kind, count in self.kind_counts.items() if CHECK_KINDS[kind].severity == severity)

    def __str__(self) -> str:
        return "\n".join(_summary_lines(self, self._table, self._found))


def check_coco(
    annotations: PathLike,
    images: PathLike,
    *,
    decode: bool = False,
    against: Sequence[PathLike] = (),
    size: tuple[int, int] | None = None,
    clean: PathLike | None = None,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> CheckSummary:
    """Check a COCO json and its images.

    annotations: the json. images: the folder that its file names are relative to. decode: decode every image,
    with DALI, on the CUDA device if there is one. against: json files of other splits; images that are in one
    of them too are errors. Their images are looked for in `images`, then beside them. size: the (H, W) pixels
    that training resizes to, by which boxes are tiny; None is the images' own. clean: a json file to write
    without what errors are about. report: a json file for every finding. progress: called with (images
    done, images in all), for their headers and then, with decode, for their pixels.

    Nothing but `clean` and `report` is written. Symbolic links in the image folder are followed.

    Raises AnnotationError, a ValueError, for a file that is no COCO json and for a folder without its images.

    >>> from detaug.converters import check_coco
    >>> summary = check_coco("train.json", "demo/VOC/JPEGImages")
    >>> print(summary.errors, "errors,", summary.warnings, "warnings:", summary.kind_counts)
    0 errors, 14 warnings: {'box-unusual': 2, 'image-unreferenced': 12}
    """
    annotations, folder = Path(annotations), Path(images)
    targets = output_files({"clean": clean, "report": report}, annotations, *against)
    table = examine_file(annotations)
    others = [_other_split(path, folder) for path in against]
    headers = read_headers(table, folder, progress)
    findings = [*table.findings, *check_images(table, folder, headers, others), *check_boxes(table, size)]
    if decode:
        findings += _undecodable(table, folder, headers, progress)
    findings.sort(key=lambda found: _ORDER[found.kind])
    cleaned = write_clean(table, findings, targets["clean"]) if clean is not None else None
    summary = _summary(table, folder, findings, cleaned, targets.get("report"))
    if report is not None:
        write_json(targets["report"], report_document(summary))
    return summary


def _summary(
    table: Table, folder: Path, findings: Sequence[Findings], cleaned: Cleaned | None, report: Path | None
) -> CheckSummary:
    names = table.categories
    return CheckSummary(
        annotations=table.path,
        image_folder=folder,
        images=len(table.file_names),
        images_without_boxes=len(table.file_names) - len(np.unique(table.image_at[usable_boxes(table)])),
        class_counts={_unique_name(number, names): count for number, count in class_counts(table).items()},
        kind_counts=count_findings(findings),
        cleaned=cleaned,
        report=report,
        _table=table,
        _found=tuple(findings),
    )


def _unique_name(number: int, names: dict[int, str]) -> str:
    name = names[number]
    return name if list(names.values()).count(name) == 1 else f"{name} (id {number})"


def _other_split(path: PathLike, folder: Path) -> tuple[Table, Path]:
    other = examine_file(Path(path))
    is_there = any(name and (folder / name).is_file() for name in other.file_names)
    return other, folder if is_there else other.path.parent


def _undecodable(
    table: Table, folder: Path, headers: Sequence[Header], progress: Callable[[int, int], None] | None
) -> Iterator[Findings]:
    from detaug.converters.check.decode import find_undecodable

    pixels = {at: header.width * header.height for at, header in enumerate(headers) if isinstance(header, ImageHeader)}
    rows = [at for at, area in pixels.items() if area <= _MOST_PIXELS]
    broken = find_undecodable([folder / table.file_names[at] for at in rows], progress)
    messages = {rows[n]: reason for n, reason in broken.items()}
    messages |= {at: f"not tried, {area:,} pixels" for at, area in pixels.items() if area > _MOST_PIXELS}
    if messages:
        yield from_messages("image-broken", "images", messages)


# ----------------------------------------------------------------------------------------------------------
# The report


def _finding(table: Table, found: Findings, row: int) -> CheckFinding:
    in_list = found.where in ("images", "annotations", "categories")
    number = table.row(found.where, row).get("id") if in_list else None
    return CheckFinding(
        kind=found.kind,
        severity=found.severity,
        entry=f"{found.where}[{row}]" if in_list else "",
        id=number if type(number) in (int, str) else None,
        file_name=table.file_name(found.where, row) or None,
        message=found.describe(row),
    )


def report_document(summary: CheckSummary) -> dict[str, object]:
    """What --report writes: counts, the meaning of each kind that occurs, and every finding."""
    return {
        "annotations": str(summary.annotations),
        "image_folder": str(summary.image_folder),
        "images": summary.images,
        "class_counts": summary.class_counts,
        "errors": summary.errors,
        "warnings": summary.warnings,
        "counts": summary.kind_counts,
        "kinds": {kind: asdict(CHECK_KINDS[kind]) for kind in summary.kind_counts},
        "findings": [asdict(finding) for finding in summary.findings],
    }


def _summary_lines(summary: CheckSummary, table: Table, found: Sequence[Findings]) -> Iterator[str]:
    boxes = sum(summary.class_counts.values())
    yield f"{summary.annotations}, images in {summary.image_folder}"
    yield (
        f"{counted(summary.images, 'image')} ({summary.images_without_boxes:,} without boxes), "
        f"{counted(boxes, 'box', 'boxes')} in {counted(len(summary.class_counts), 'class', 'classes')}"
    )
    yield from _class_lines(summary.class_counts)
    for each in found:
        yield ""
        yield f"{each.severity} {each.kind} ({len(each):,}): {CHECK_KINDS[each.kind].meaning}"
        yield from (f"  {table.entry(each.where, row)}{each.describe(row)}" for row in each.rows[:_EXAMPLES].tolist())
        if len(each) > _EXAMPLES:
            yield f"  and {len(each) - _EXAMPLES:,} more"
    yield ""
    yield from _last_lines(summary)


def _class_lines(counts: dict[str, int]) -> Iterator[str]:
    names = {name: shown(name)[1:-1] for name in list(counts)[:_MOST_CLASSES]}
    width = max(map(len, names.values()), default=0)
    yield from (f"  {short:<{width}}  {counts[name]:>9,}" for name, short in names.items())
    if len(counts) > len(names):
        yield f"  and {len(counts) - len(names):,} classes more"


def _last_lines(summary: CheckSummary) -> Iterator[str]:
    if summary.cleaned:
        yield str(summary.cleaned)
    if summary.report:
        yield f"every finding: {summary.report}"
    counts = f"{counted(summary.errors, 'error')}, {counted(summary.warnings, 'warning')}"
    if not summary.errors:
        yield f"{counts}: ready for training"
    elif summary.cleaned:
        yield f"{counts} in {summary.annotations}; train with {summary.cleaned.path}"
    else:
        yield f"{counts}: training would stop or learn wrongly; --clean FILE writes a json without what is wrong"
