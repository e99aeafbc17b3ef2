"""Write an evaluation as one page for a browser: numbers, curves, kinds of errors, confusion, the worst images."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from detaug.evaluation.errors import KINDS
from detaug.evaluation.pycoco import NAMES
from detaug.files.atomic import write_atomically
from detaug.findings.finding import counted
from detaug.outputs.guards import PAGE, output_files
from detaug.pages.frame import END, data_uri, head, shorten
from detaug.pages.line_chart import BLUE, GREEN, GREY, ORANGE, Line, line_chart
from detaug.scoring.evaluate import Evaluation, PathLike
from detaug.sheets import detections_sheet

MOST_CLASSES = 30
"""Classes in the confusion matrix; of more, the pairs that are confused most are listed."""
MOST_PAIRS, MOST_IMAGES, MOST_LETTERS = 30, 8, 60


def write_page(evaluation: Evaluation, path: PathLike) -> None:
    """Write the page, whole or not at all. Raises OSError for images that cannot be read."""
    (target,) = output_files({"html": path}, evaluation.reader.annotations_file, extensions=PAGE).values()
    write_atomically(target, ["\n".join(page(evaluation))])


def page(evaluation: Evaluation) -> Iterator[str]:
    """Yield the page in pieces."""
    errors = evaluation.errors
    yield head(f"{evaluation.detector}: AP {evaluation.metrics.AP:.3f}", "evaluate")
    objects, detections = int(errors.objects.sum()), int(errors.detections.sum())
    yield f"<p>{len(errors.errors_of_image):,} images of <bdi>{escape(str(evaluation.reader.annotations_file))}</bdi>, "
    yield f"{objects:,} objects to find; {detections:,} detections with a score of {errors.min_score:g} or more.</p>"
    yield from _metrics(evaluation)
    yield from _curves(evaluation)
    yield from _kinds(evaluation)
    yield from _classes(evaluation)
    yield from _confusion(evaluation)
    yield from _worst(evaluation)
    yield END


def _metrics(evaluation: Evaluation) -> Iterator[str]:
    yield "<h2>COCO's numbers</h2><table><tr><td></td>" + "".join(f"<td>{name}</td>" for name in NAMES) + "</tr>"
    for kind, metrics in {"bbox": evaluation.metrics, **evaluation.more}.items():
        values = (getattr(metrics, name, None) for name in NAMES)
        cells = "".join(f"<td>{_number(value)}</td>" for value in values)
        yield f"<tr><td>{kind}</td>{cells}</tr>"
    yield "</table>"


def _curves(evaluation: Evaluation) -> Iterator[str]:
    errors = evaluation.errors
    yield '<h2>Precision and recall, IoU 0.5</h2><div class="row">'
    each = [Line(of_class.recall, of_class.precision, GREY, 1) for of_class in errors.curves.values()][:MOST_CLASSES]
    every = Line(errors.curve.recall, errors.curve.precision, BLUE)
    yield line_chart("Each class in grey", "recall", "precision", {"all classes": every}, each)
    curve = errors.curve
    by_score = {"precision": (curve.precision, BLUE), "recall": (curve.recall, ORANGE), "F1": (curve.f1, GREEN)}
    yield line_chart(
        f"By score; F1 is best at {errors.best_score_text}", "score", "",
        {name: Line(curve.scores, values, color) for name, (values, color) in by_score.items()},
    )  # fmt: skip
    yield "</div>"


def _kinds(evaluation: Evaluation) -> Iterator[str]:
    yield "<h2>Kinds of errors</h2><table>"
    for kind, counts in evaluation.errors.kinds.items():
        yield f"<tr><td><b>{kind}</b></td><td>{escape(KINDS[kind])}</td><td>{counts.sum():,}</td></tr>"
    yield "</table>"


def _classes(evaluation: Evaluation) -> Iterator[str]:
    names = ("class", "AP", "AP50", "precision", "recall", "objects", *evaluation.errors.kinds)
    yield "<h2>Classes</h2><table><tr>" + "".join(f"<td>{name}</td>" for name in names) + "</tr>"
    kinds = zip(*(counts.tolist() for counts in evaluation.errors.kinds.values()), strict=True)
    for (name, *shares, objects), counts in zip(evaluation.rows(), kinds, strict=True):
        cells = [*map(_number, shares), f"{objects:,}", *(f"{count:,}" for count in counts)]
        yield f"<tr>{_name(name)}" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    yield "</table>"


def _confusion(evaluation: Evaluation) -> Iterator[str]:
    """Yield the matrix of few classes, or the pairs of many."""
    errors = evaluation.errors
    yield "<h2>Confusion</h2>"
    if len(errors.class_names) > MOST_CLASSES:
        yield "<table><tr><td>object</td><td>found as</td><td>times</td></tr>"
        for one, other, count in evaluation.confused(MOST_PAIRS):
            yield f"<tr>{_name(one)}{_name(other)}<td>{count:,}</td></tr>"
        yield "</table>"
        return
    names = (*errors.class_names, "nothing")
    yield "<p>Rows: what an object is. Columns: what it was found as.</p><table class='matrix'><tr><td></td>"
    yield "".join(map(_name, names)) + "</tr>"
    for name, row in zip(names, errors.confusion.tolist(), strict=True):
        cells = "".join(f'<td style="{_shade(count, sum(row))}">{count or ""}</td>' for count in row)
        yield f"<tr>{_name(name)}{cells}</tr>"
    yield "</table>"


def _worst(evaluation: Evaluation) -> Iterator[str]:
    detections = evaluation.worst(MOST_IMAGES)
    if not detections:
        return
    yield "<h2>Images with the most errors</h2>"
    sheet = detections_sheet(evaluation.reader, detections, min_score=evaluation.errors.min_score)
    yield f'<img width="{sheet.width}" height="{sheet.height}" alt="" src="{data_uri(sheet, "JPEG", quality=85)}"><ol>'
    names = evaluation.file_names()
    for each in detections:
        errors = counted(evaluation.errors.errors_of_image[each.image_id], "error")
        yield f"<li><bdi>{escape(shorten(names[each.image_id], MOST_LETTERS))}</bdi>: {errors}</li>"
    yield "</ol>"


def _name(name: str) -> str:
    return f"<td><bdi>{escape(shorten(name, MOST_LETTERS))}</bdi></td>"


def _number(value: float | None) -> str:
    return "-" if value is None or value < 0 else f"{value:.3f}"


def _shade(count: int, total: int) -> str:
    """Return a background as dark as the share of the row."""
    return f"background: rgba(0, 114, 178, {count / max(total, 1):.2f}); text-align: right"
