"""The result of a check: counts, findings, the printed text and the report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from detaug.check.clean import Cleaned, NotCleaned
from detaug.check.maps import MapSummary
from detaug.coco.table import Table
from detaug.findings.entries import Findings
from detaug.findings.finding import counted, on_one_line, short_name
from detaug.findings.kinds import CHECK_KINDS, Severity
from detaug.named_options import option

_EXAMPLES = 3
_MOST_CLASSES = 40


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One finding of a check."""

    kind: str
    severity: Severity
    entry: str
    """Such as annotations[5]; "" for the JSON file as a whole and for files of the folder."""
    id: int | str | None
    file_name: str | None
    message: str
    like: str = ""
    """The earlier entry that this one repeats or contradicts, such as annotations[3]; "" for other kinds."""
    origin: str = ""
    """The annotation file and the ids in the labeling tool, where the JSON file has them."""


@dataclass(frozen=True)
class CheckSummary:
    """The result of a check. str() is the text that the command prints."""

    annotations: Path
    image_folder: Path
    images: int
    images_without_boxes: int
    class_counts: dict[str, int]
    """Boxes to train on of each class, in the order of the category ids."""
    kind_counts: dict[str, int]
    """Findings of each kind that occurs, errors first."""
    decoded: bool
    """Whether the images' pixels were decoded; otherwise only their headers and end markers were looked at."""
    cleaned: Cleaned | NotCleaned | None
    report: Path | None
    table: Table = field(repr=False)
    """The JSON file as columns."""
    groups: tuple[Findings, ...] = field(repr=False)
    """The findings, one record for each kind and list, errors first."""
    part: str = ""
    """Such as 1/3, if only a part of the images was decoded."""
    opened: bool = False
    """Whether video files were opened."""
    maps: tuple[MapSummary, ...] = ()
    """What is known of the maps, by name."""

    @property
    def errors(self) -> int:
        """Count the findings that training would stop at, or learn wrongly from."""
        return self._count("error")

    @property
    def warnings(self) -> int:
        """Count the findings that a person should look at."""
        return self._count("warning")

    @property
    def findings(self) -> Iterator[CheckFinding]:
        """Yield every finding, by kind, errors first, and the worst of a kind first."""
        for group in self.groups:
            yield from (_finding(self.table, group, row) for row in group.rows.tolist())

    def _count(self, severity: Severity) -> int:
        return sum(count for kind, count in self.kind_counts.items() if CHECK_KINDS[kind].effect == severity)

    def __str__(self) -> str:
        return "\n".join(map(on_one_line, _lines(self)))


def _finding(table: Table, group: Findings, row: int) -> CheckFinding:
    in_list = group.where in ("images", "annotations", "categories")
    number = table.row(group.where, row).get("id") if in_list else None
    return CheckFinding(
        kind=group.kind,
        severity=group.severity,
        entry=f"{group.where}[{row}]" if in_list else "",
        id=number if type(number) in (int, str) else None,
        file_name=table.file_name(group.where, row) or None,
        message=group.describe(row),
        like=f"{group.where}[{group.like[row]}]" if row in group.like else "",
        origin=table.origin(group.where, row),
    )


def report_document(summary: CheckSummary) -> dict[str, object]:
    """Return the content of --report: counts, the meaning of each kind that occurs, and every finding."""
    kinds = {kind: CHECK_KINDS[kind] for kind in summary.kind_counts}
    return {
        "annotations": str(summary.annotations),
        "image_folder": str(summary.image_folder),
        "images": summary.images,
        "decoded": summary.decoded,
        "part": summary.part,
        "class_counts": summary.class_counts,
        "maps": {
            own.name: {"folder": str(own.folder), "files": own.files, "fractions": own.fractions, "depths": own.depths}
            for own in summary.maps
        },
        "errors": summary.errors,
        "warnings": summary.warnings,
        "counts": summary.kind_counts,
        "kinds": {name: {"severity": kind.effect, "meaning": kind.meaning} for name, kind in kinds.items()},
        "findings": [asdict(finding) for finding in summary.findings],
    }


def _lines(summary: CheckSummary) -> Iterator[str]:
    boxes = sum(summary.class_counts.values())
    yield f"{summary.annotations}, images in {summary.image_folder}"
    yield (
        f"{counted(summary.images, 'image')} ({summary.images_without_boxes:,} without boxes), "
        f"{counted(boxes, 'box', 'boxes')} in {counted(len(summary.class_counts), 'class', 'classes')}"
    )
    yield from _class_lines(summary.class_counts)
    for maps in summary.maps:
        yield from maps.lines()
    for group in summary.groups:
        yield ""
        yield from _group_lines(summary.table, group)
    yield ""
    yield from _last_lines(summary)


def _group_lines(table: Table, group: Findings) -> Iterator[str]:
    yield f"{group.severity} {group.kind} ({len(group):,}): {CHECK_KINDS[group.kind].meaning}"
    yield from (f"  {table.entry(group.where, row)}{group.describe(row)}" for row in group.rows[:_EXAMPLES].tolist())
    if len(group) > _EXAMPLES:
        yield f"  and {len(group) - _EXAMPLES:,} more"


def _class_lines(counts: dict[str, int]) -> Iterator[str]:
    names = {name: short_name(name) for name in list(counts)[:_MOST_CLASSES]}
    width = max(map(len, names.values()), default=0)
    yield from (f"  {short:<{width}}  {counts[name]:>9,}" for name, short in names.items())
    if len(counts) > len(names):
        yield f"  and {len(counts) - len(names):,} more classes"


def _last_lines(summary: CheckSummary) -> Iterator[str]:
    if summary.cleaned:
        yield str(summary.cleaned)
    if summary.report:
        yield f"every finding: {summary.report}"
    has_classes = bool((summary.table.image_categories >= 0).any())
    counts = f"{counted(summary.errors, 'error')}, {counted(summary.warnings, 'warning')}"
    if not summary.errors and "objects-none" in summary.kind_counts and not has_classes:
        yield f"{counts}: no object to train on"
    elif not summary.errors:
        left = f"; part {summary.part} of the images decoded" if summary.part else ""
        if summary.table.videos.files and not summary.opened:
            left = "; videos not opened" + ("" if summary.decoded else f" ({option('decode', python='True')})")
        elif not summary.decoded:
            left = f"; images not decoded ({option('decode', python='True')})"
        yield f"{counts}: ready for training{left}"
    elif isinstance(summary.cleaned, Cleaned):
        yield f"{counts} in {summary.annotations}; train with {summary.cleaned.path}"
    elif summary.cleaned or any(CHECK_KINDS[kind].clean == "cannot" for kind in summary.kind_counts):
        yield f"{counts}: training would stop or learn wrongly"
    else:
        yield f"{counts}: training would stop or learn wrongly; {option('clean', 'FILE')} writes the JSON without these"
