"""Write an evaluation as one page for a browser: numbers, curves, kinds of errors, confusion, the worst images."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup
from PIL import Image

from detaug.evaluation.errors import KINDS, DetectionErrors
from detaug.evaluation.label_errors import LABEL_ERRORS, LEAST_SUSPICION, LabelError
from detaug.evaluation.pycoco import NAMES, score_text
from detaug.files.atomic import write_atomically
from detaug.files.paths import PathLike
from detaug.findings.finding import counted
from detaug.outputs.guards import PAGE, output_files
from detaug.pages.frame import render
from detaug.pages.line_chart import BLUE, GREEN, GREY, ORANGE, Line, line_chart
from detaug.scoring.evaluate import Evaluation
from detaug.scoring.label_errors import draw_label_errors
from detaug.scoring.reports import file_names
from detaug.scoring.semantic import SemanticEvaluation
from detaug.sheets import detections_sheet, maps_sheet
from detaug.training.semantic_models import MAP

MOST_CLASSES = 30
"""Classes in the confusion matrix; of more, the pairs that are confused most are listed."""
MOST_PAIRS, MOST_IMAGES, MOST_LETTERS, MOST_LABEL_ERRORS = 30, 8, 60, 24


def write_page(evaluation: Evaluation | SemanticEvaluation, path: PathLike) -> None:
    """Write the page, whole or not at all. Raises OSError for images that cannot be read."""
    (target,) = output_files({"html": path}, evaluation.reader.annotations_file, extensions=PAGE).values()
    page = _page_of_boxes(evaluation) if isinstance(evaluation, Evaluation) else _page_of_classes(evaluation)
    write_atomically(target, [page])


def _page_of_boxes(evaluation: Evaluation) -> str:
    errors, worst = evaluation.errors, evaluation.worst(MOST_IMAGES)
    names = file_names(evaluation.reader)
    has_matrix = len(errors.class_names) <= MOST_CLASSES
    return render(
        "scoring/evaluation.html",
        title=f"{evaluation.detector}: AP {score_text(evaluation.box_metrics.AP)}",
        command="evaluate",
        errors=errors,
        what=evaluation.what,
        annotations=str(evaluation.reader.annotations_file),
        metric_names=NAMES,
        metrics={
            kind: [score_text(getattr(metrics, name, None)) for name in NAMES]
            for kind, metrics in {"bbox": evaluation.metrics, **evaluation.more}.items()
        },
        **_curves(errors),
        kinds=KINDS,
        classes=_classes(evaluation),
        confusion=[*zip((*errors.class_names, "nothing"), errors.confusion.tolist(), strict=True)],
        pairs=None if has_matrix else evaluation.confused(MOST_PAIRS),
        sheet=detections_sheet(evaluation.reader, worst, min_score=errors.min_score) if worst else None,
        worst=[
            (names[detections.image_id], counted(errors.errors_of_image[detections.image_id], "error"))
            for detections in worst
        ],
        label_errors=None if evaluation.label_errors is None else _label_errors(evaluation, names),
        kinds_of_label_errors=LABEL_ERRORS,
        letters=MOST_LETTERS,
    )


def _label_errors(evaluation: Evaluation, names: dict[int, str]) -> list[tuple[LabelError, str, Image.Image]]:
    """Return the worst label errors with their file names and drawings."""
    worst = [error for error in evaluation.label_errors or () if error.suspicion >= LEAST_SUSPICION][:MOST_LABEL_ERRORS]
    drawings = draw_label_errors(evaluation.reader, evaluation.evaluator.truth, worst)
    return [(error, names[error.image_id], drawing) for error, drawing in zip(worst, drawings, strict=True)]


def _page_of_classes(evaluation: SemanticEvaluation) -> str:
    confusion, worst, names = evaluation.confusion, evaluation.worst, file_names(evaluation.reader)
    shares = confusion / confusion.sum(1, keepdims=True).clip(1)
    iou, rows = evaluation.metrics.iou, evaluation.rows()
    return render(
        "scoring/semantic.html",
        title=f"{evaluation.model}: mIoU {score_text(evaluation.metrics.mIoU)}",
        command="evaluate",
        metrics=evaluation.metrics,
        images=counted(len(evaluation.right), "image"),
        annotations=str(evaluation.reader.annotations_file),
        classes=[(name, max(own, 0.0), score_text(own), score_text(right), n) for name, own, right, n in rows],
        confusion=[*zip(iou, shares.tolist(), strict=True)] if len(iou) <= MOST_CLASSES else None,
        pairs=evaluation.confused(MOST_PAIRS),
        sheet=maps_sheet(evaluation.reader, MAP, worst) if worst else None,
        worst=[(names[image_id], f"{evaluation.right[image_id]:.1%}") for image_id in worst],
        letters=MOST_LETTERS,
    )


def _curves(errors: DetectionErrors) -> dict[str, Markup]:
    shown = [*errors.curves.values()][:MOST_CLASSES]
    by_class = [Line(of_class.recall, of_class.precision, GREY, 1) for of_class in shown]
    curve = errors.curve
    every = Line(curve.recall, curve.precision, BLUE)
    by_score = {"precision": (curve.precision, BLUE), "recall": (curve.recall, ORANGE), "F1": (curve.f1, GREEN)}
    return {
        "by_recall": line_chart("Each class in gray", "recall", "precision", {"all classes": every}, by_class),
        "by_score": line_chart(
            f"By score; F1 is best at {errors.best_score_text}", "score", "",
            {name: Line(curve.scores, values, color) for name, (values, color) in by_score.items()},
        ),
    }  # fmt: skip


def _classes(evaluation: Evaluation) -> Iterator[tuple[str, list[str]]]:
    """Yield each class with its numbers, and how many errors of each kind it has."""
    kinds = zip(*(counts.tolist() for counts in evaluation.errors.kinds.values()), strict=True)
    for (name, *shares, objects), counts in zip(evaluation.rows(), kinds, strict=True):
        yield name, [*map(score_text, shares), f"{objects:,}", *(f"{count:,}" for count in counts)]
