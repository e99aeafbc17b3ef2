"""End a conversion: stop at errors, or sum up what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from detaug.errors import ConversionError
from detaug.files.atomic import json_written_with
from detaug.findings.finding import (
    Finding,
    count_kinds,
    counted,
    listed,
    on_one_line,
    report_document,
    short_name,
)
from detaug.findings.kinds import KINDS
from detaug.named_options import option
from detaug.outputs.guards import OnError

if TYPE_CHECKING:
    from detaug.maps.kinds import ClassMap

_MOST_PROBLEMS_SHOWN = 100
_MOST_NAMES_SHOWN = 8


@dataclass(frozen=True)
class Summary:
    """The result of a conversion. str() is the text that the command prints.

    >>> from detaug.converters import voc_to_coco
    >>> summary = voc_to_coco("demo/VOC", "all.json")
    >>> print(summary.images, summary.boxes, summary.class_counts["car"], summary.image_folder)
    60 203 25 demo/VOC/JPEGImages
    """

    output: Path
    """The file or folder written."""
    image_folder: Path
    """The folder that the output's image names are relative to."""
    images: int
    images_without_boxes: int
    class_counts: dict[str, int]
    """Boxes of each class, in the order of the category ids."""
    findings: tuple[Finding, ...] = field(repr=False)
    report: Path | None = None
    next_step: str = field(default="", repr=False)
    """The last line of the text: what to do with the output."""
    image_class_counts: dict[str, int] = field(default_factory=dict)
    """Images of each class, where images themselves have classes."""
    crowds: int = 0
    """How many of the boxes are crowds (iscrowd 1), which are not trained on."""
    other_splits: tuple[str, ...] = ()
    """Splits of the dataset that were not converted."""
    map: ClassMap | None = field(default=None, repr=False)
    """The maps of the classes of the images, of datasets that have such."""

    @property
    def boxes(self) -> int:
        """Return the number of boxes of all classes."""
        return sum(self.class_counts.values())

    @property
    def kind_counts(self) -> dict[str, int]:
        """Count the findings of each kind that occurs."""
        return count_kinds(self.findings)

    def __str__(self) -> str:
        return "\n".join(map(on_one_line, _lines(self)))


def stop_on_errors(findings: Sequence[Finding], on_error: OnError, report: Path | None) -> None:
    """Write the report and raise ConversionError, if there are errors and on_error is "stop"."""
    errors = [finding for finding in findings if finding.effect == "error"]
    if errors and on_error == "stop":
        refuse(ConversionError("\n".join(_problem_lines(errors, report)), errors), findings, report)


def refuse_nothing_left(images: int, source: object, findings: Sequence[Finding], report: Path | None) -> None:
    """Write the report and raise ConversionError, if no image is left to write."""
    if not images:
        errors = [finding for finding in findings if finding.effect == "error"]
        reasons = errors or [finding for finding in findings if finding.effect == "dropped" and finding.note]
        more = f", and {len(reasons) - 1:,} more" if reasons[1:] else ""
        reason = f"; {reasons[0]}{more}" if reasons else ""
        message = f"{source}: no image is left to write; nothing was written{reason}"
        refuse(ConversionError(message, findings), findings, report)


def refuse_no_object_left(objects: int, source: object, findings: Sequence[Finding], report: Path | None) -> None:
    """Write the report and raise ConversionError, if the input had objects and none of them is left to write."""
    lost = [
        finding
        for finding in findings
        if KINDS[finding.kind].loses_objects or (finding.effect == "error" and finding.object_index is not None)
    ]
    if lost and not objects:
        counts = [_lost_of_kind(kind, lost) for kind in count_kinds(lost)]
        where = f"each of them is in {report}" if report else f"{option('report', 'FILE')} lists each of them"
        message = f"{source}: no object is left to write, of {', '.join(counts)}; nothing was written; {where}"
        refuse(ConversionError(message, findings), findings, report)


def refuse_other_numbers(fault: str, source: object, findings: Sequence[Finding], report: Path | None) -> None:
    """Write the report and raise ConversionError, if there is a fault in what the numbers of all boxes are."""
    if fault:
        refuse(ConversionError(f"{source}: {fault}", findings), findings, report)


def _lost_of_kind(kind: str, findings: Iterable[Finding]) -> str:
    """Return how many findings of a kind there are, such as "3 box-outside" or "2 lines"."""
    own = [finding for finding in findings if finding.kind == kind]
    return _shapes_by_kind(own) if kind == "shape-unused" else f"{count_kinds(own)[kind]:,} {kind}"


_POINTS, _LINES = ("keypoint without a box", "keypoints without a box"), ("line", "lines")
_SHAPE_NAMES = {
    **dict.fromkeys(("point", "points", "keypoint", "keypoints", "keypointlabels"), _POINTS),
    **dict.fromkeys(("line", "lines", "linestrip", "polyline", "vector", "vectorlabels"), _LINES),
}
"""What shapes without an area are, by the names that the tools have for them."""


def _shapes_by_kind(findings: Iterable[Finding]) -> str:
    """Return how many shapes of each kind have no place in the JSON file: "3 keypoints without a box, 2 lines"."""
    counts = Counter[tuple[str, str]]()
    for finding in findings:
        name = short_name(finding.before)
        counts[_SHAPE_NAMES.get(name, (name, f"{name}s"))] += finding.count
    return ", ".join(counted(number, *names) for names, number in sorted(counts.items()))


def left_out_classes(findings: Iterable[Finding]) -> list[str]:
    """Return the names of the classes whose objects were dropped, since a list of classes does not have them."""
    return sorted({str(finding.before) for finding in findings if finding.kind == "class-not-listed"})


def refuse_other_classes(
    class_counts: Mapping[str, int], source: object, findings: Sequence[Finding], report: Path | None
) -> None:
    """Write the report and raise ConversionError, if the list of classes leaves no box."""
    left_out = [finding for finding in findings if finding.kind == "class-not-listed"]
    if left_out and not any(class_counts.values()):
        unused = listed_names(finding for finding in findings if finding.kind == "class-unused")
        names = listed_names(left_out)
        message = f"{source}: no box is left to write; its boxes have the classes {names}, but classes lists {unused}"
        refuse(ConversionError(message, findings), findings, report)


def refuse(error: ConversionError, findings: Sequence[Finding], report: Path | None) -> NoReturn:
    """Write the report, if there is to be one, and raise the error."""
    with reported(findings, report):
        pass
    raise error


@contextmanager
def reported(findings: Sequence[Finding], report: Path | None) -> Iterator[None]:
    """Write the report, if there is to be one, together with what the block writes: both or none."""
    with json_written_with(report, report_document(findings)) if report else nullcontext():
        yield


def skip_remedy() -> str:
    """Return what a person does about errors."""
    return f"repair them, or leave these files out: {option('on_error', 'skip')}"


def _problem_lines(errors: Sequence[Finding], report: Path | None) -> Iterator[str]:
    yield from map(str, errors[:_MOST_PROBLEMS_SHOWN])
    if len(errors) > _MOST_PROBLEMS_SHOWN:
        where = f"all of them are in {report}" if report else f"{option('report', 'FILE')} lists all of them"
        yield f"... and {len(errors) - _MOST_PROBLEMS_SHOWN:,} more; {where}"
    yield f"{counted(len(errors), 'problem')}, nothing written; {skip_remedy()}"


def _lines(summary: Summary) -> Iterator[str]:
    images, boxes = counted(summary.images, "image"), counted(summary.boxes, "box", "boxes")
    classes = counted(len(summary.class_counts), "class", "classes")
    crowds = f", of which {counted(summary.crowds, 'is a crowd', 'are crowds')}," if summary.crowds else ""
    if summary.map is not None and not summary.boxes:
        yield f"{images} with maps of {classes}: {listed(summary.class_counts)}"
    else:
        yield f"{images} ({summary.images_without_boxes:,} without boxes), {boxes}{crowds} in {classes}"
    if summary.boxes or not (summary.image_class_counts or summary.map):
        yield from _counts(summary.class_counts)
    if summary.image_class_counts:
        yield f"{counted(sum(summary.image_class_counts.values()), 'image')} with a class"
        yield from _counts(summary.image_class_counts)
    for kind, count in summary.kind_counts.items():
        effect = KINDS[kind].effect.replace("error", "skipped")  # a summary with errors is one of --on-error skip
        yield f"{effect:>8} {count:>7,}  {kind}: {KINDS[kind].meaning}{_examples(summary, kind)}"
    if "coordinate-zero" in summary.kind_counts:
        again = "if so, run convert-voc or convert-mot --origin zero"
        yield f"Coordinates of 0 mean that the tool counted pixels from 0: {again}"
    if summary.findings and not summary.report:
        yield f"each of these, with its file: {option('report', 'FILE')}"
    if summary.other_splits:
        first = option("split", summary.other_splits[0])
        yield f"not converted: {', '.join(summary.other_splits)}; for one of these: {first}"
    yield f"written: {summary.output}" + (f", every finding: {summary.report}" if summary.report else "")
    yield summary.next_step


def _counts(counts: Mapping[str, int]) -> Iterator[str]:
    names = {name: short_name(name) for name in counts}
    width = max(map(len, names.values()), default=0)
    yield from (f"  {names[name]:<{width}}  {count:>9,}" for name, count in counts.items())


def _examples(summary: Summary, kind: str) -> str:
    """Return one of the members that are not read, the kinds of shapes, and names of classes, where typos show."""
    if kind == "member-unused":
        return "; the first is " + next(finding.file for finding in summary.findings if finding.kind == kind)
    if kind == "class-numbered":
        return "; " + next(finding.note.partition("; ")[2] for finding in summary.findings if finding.kind == kind)
    if kind == "splits-joined":
        return "; " + next(finding.note for finding in summary.findings if finding.kind == kind)
    if kind == "shape-unused":
        return ": " + _shapes_by_kind(finding for finding in summary.findings if finding.kind == kind)
    if kind in ("element-unused", "key-dropped"):
        values = (finding.before for finding in summary.findings if finding.kind == kind)
        names = [*dict.fromkeys(short_name(value[0] if isinstance(value, list) else value) for value in values)]
        return ": " + ", ".join(names[:_MOST_NAMES_SHOWN]) + ", ..." * (len(names) > _MOST_NAMES_SHOWN)
    if kind not in ("class-not-listed", "class-unused"):
        return ""
    return ": " + listed_names(finding for finding in summary.findings if finding.kind == kind)


def listed_names(findings: Iterable[Finding]) -> str:
    """Return the class names of findings, each once, with the name that a misspelt one may mean."""
    names = list(dict.fromkeys((short_name(finding.before), finding.after) for finding in findings))
    texts = [f"{name} (did you mean {similar}?)" if similar else name for name, similar in names[:_MOST_NAMES_SHOWN]]
    return ", ".join(texts) + ", ..." * (len(names) > _MOST_NAMES_SHOWN)
