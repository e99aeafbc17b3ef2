"""Score the detections of a model, or of a file, against a COCO JSON file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from detaug.arguments import SCORE
from detaug.boxes.polygons import hull
from detaug.drawing import save_picture
from detaug.errors import InputError
from detaug.evaluation.boxes import Metrics
from detaug.evaluation.coco import CocoEvaluator
from detaug.evaluation.errors import DetectionErrors
from detaug.evaluation.label_errors import LABEL_ERRORS, LEAST_SUSPICION, LabelError
from detaug.evaluation.pycoco import score_text
from detaug.evaluation.rotated import RotatedMetrics
from detaug.files.atomic import write_json
from detaug.files.paths import PathLike
from detaug.findings.finding import listed, short_name
from detaug.machine.parallel import Progress
from detaug.outputs.guards import output_files
from detaug.scoring.label_errors import write_label_errors
from detaug.scoring.reports import file_names, most_confused
from detaug.sheets import Detections, detections_sheet
from detaug.sheets.detections import LEAST
from detaug.sources.coco_reader import CocoReader
from detaug.tiles.reader import TileReader
from detaug.training.loaders import SAME_CLASSES
from detaug.training.model_table import READS
from detaug.training.predict import load_model
from detaug.training.predict_batches import predicted_batches
from detaug.training.tta import TTA

DRAWN = 8
"""Images in a sheet of detections."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The scores of a detector, and its errors."""

    detector: str
    """The file of the model, or of the detections."""
    reader: CocoReader
    metrics: Metrics
    more: dict[str, Any]
    """The metrics of what else the model finds, by the kind of `CocoEvaluator`: "segm", "keypoints" or "rotated"."""
    errors: DetectionErrors
    """Of boxes: of a model of rotated boxes, of these."""
    evaluator: CocoEvaluator[Any]
    """That of `errors`."""
    label_errors: tuple[LabelError, ...] | None = None
    """Annotations that are likely wrong or missing, the worst first; None if they were not asked for."""
    drawn: tuple[Detections, ...] = ()
    """Those in the images `draw` of `evaluate_model`, with their masks, keypoints or corners; in tiles, boxes."""

    @property
    def box_metrics(self) -> Metrics | RotatedMetrics:
        """Return the metrics of the boxes that `errors` are of."""
        metrics: Metrics | RotatedMetrics = self.more.get("rotated", self.metrics)
        return metrics

    @property
    def what(self) -> str:
        """Return what `errors` are of."""
        return "rotated boxes" if "rotated" in self.more else "detections"

    def worst(self, count: int) -> list[Detections]:
        """Return the detections in the images with the most errors, of at least `errors.min_score`, the worst first."""
        of_image = self.errors.errors_of_image
        ids = sorted(
            (image_id for image_id in of_image if of_image[image_id]), key=lambda image_id: -of_image[image_id]
        )[:count]
        return _of_images(self.reader, self.evaluator, ids, self.errors.min_score)

    def draw_sheet(self, path: PathLike) -> None:
        """Draw the detections `drawn` beside the annotations to an image file."""
        title = f"{Path(self.detector).name}, {Path(self.reader.annotations_file).name}"
        save_picture(detections_sheet(self.reader, self.drawn, title, min_score=self.errors.min_score), path)

    def rows(self) -> list[tuple[str, float, float, float, float, int]]:
        """Return, for each class, its name, AP, AP50, precision and recall of `errors`, and the number of objects."""
        errors, metrics = self.errors, self.box_metrics
        return [
            (
                name,
                metrics.AP_by_class[name],
                metrics.AP50_by_class[name],
                float(right / detections) if detections else -1.0,
                float(right / objects) if objects else -1.0,
                int(objects),
            )
            for name, objects, detections, right in zip(
                errors.class_names, errors.objects, errors.detections, errors.right, strict=True
            )
        ]

    def confused(self, count: int) -> list[tuple[str, str, int]]:
        """Return the pairs of classes that are confused most: of the object, of the detection, how often."""
        names, confusion = self.errors.class_names, self.errors.confusion[:-1, :-1]
        return [(names[a], names[b], int(confusion[a, b])) for a, b in most_confused(confusion, count)]

    def __str__(self) -> str:
        errors, curve = self.errors, self.errors.curve
        names = {name: short_name(name) for name in errors.class_names}
        width = max(map(len, ("class", *names.values())))
        lines = [str(self.metrics), *(f"{kind}: {metrics}" for kind, metrics in self.more.items()), ""]
        lines += ["each class, by rotated boxes:"] * ("rotated" in self.more)
        lines.append(f"{'class':{width}}     AP   AP50  precision  recall  objects")
        for name, ap, ap50, precision, recall, objects in self.rows():
            numbers = f"{_number(ap)}  {_number(ap50)}      {_number(precision)}   {_number(recall)}"
            lines.append(f"{names[name]:{width}}  {numbers}  {objects:>7,}")
        kinds = ", ".join(f"{kind} {counts.sum():,}" for kind, counts in errors.kinds.items())
        lines += ["", f"errors of {self.what} with a score of {errors.min_score:g} or more: {kinds}"]
        if pairs := self.confused(3):
            lines.append("confused: " + ", ".join(f"{names[a]} as {names[b]} {count:,}" for a, b, count in pairs))
        if len(curve.scores):
            best_point = curve.f1.argmax()
            best = f"precision {curve.precision[best_point]:.2f}, recall {curve.recall[best_point]:.2f}"
            lines.append(f"the score with the best balance: {errors.best_score_text} ({best})")
        if self.label_errors is not None:
            chosen = [error for error in self.label_errors if error.suspicion >= LEAST_SUSPICION]
            counts = Counter(error.kind for error in chosen)
            numbers = ", ".join(f"{kind} {counts[kind]:,}" for kind in LABEL_ERRORS)
            lines.append(f"label errors with a suspicion of {LEAST_SUSPICION:g} or more: {numbers}")
        return "\n".join(lines)

    def write_label_errors(self, path: PathLike) -> None:
        """Write the label errors as a COCO JSON file for a labeling tool."""
        write_label_errors(self.reader, self.label_errors or (), path)

    def save(self, path: PathLike) -> None:
        """Write the boxes in COCO's results format, of rotated ones with `corners`."""
        self.evaluator.save(path)

    def write_report(self, path: PathLike) -> None:
        """Write all numbers as JSON, whole or not at all."""
        (target,) = output_files({"report": path}, self.reader.annotations_file).values()
        errors, names = self.errors, file_names(self.reader)
        write_json(
            target,
            {
                "detector": self.detector,
                "metrics": {
                    "bbox": asdict(self.metrics),
                    **{kind: asdict(metrics) for kind, metrics in self.more.items()},
                },
                "min_score": errors.min_score,
                "best_score": errors.best_score,
                "class_names": list(errors.class_names),
                **{name: getattr(errors, name).tolist() for name in ("objects", "detections", "right")},
                "kinds": {kind: counts.tolist() for kind, counts in errors.kinds.items()},
                "confusion": errors.confusion.tolist(),
                "errors_of_image": {names[image_id]: count for image_id, count in errors.errors_of_image.items()},
            },
        )


def evaluate_model(
    model: PathLike,
    annotations: PathLike,
    images: PathLike,
    *,
    min_score: float = SCORE,
    batch_size: int = 8,
    device: str | None = None,
    progress: Progress | None = None,
    tile: int | None = None,
    overlap: float = 0.2,
    max_detections: int | None = None,
    draw: int = 0,
    tta: TTA | None = None,
    label_errors: bool = False,
) -> Evaluation:
    """Score a model.pt of `detaug train`. Raises InputError if its classes are not those of the JSON file.

    `tile`, `overlap`: detect in tiles of this many pixels per side, as those of `TileReader`, and merge.
    `max_detections`: see `CocoEvaluator`. `draw`: the number of images with objects, evenly spaced, whose detections
    are kept in `Evaluation.drawn`. `tta`: detect in several views of each image, or tile, and merge the detections.
    `label_errors`: also find annotations that are likely wrong, `Evaluation.label_errors`.
    """
    trained = load_model(model, device)
    if trained.finds == "semantic":
        raise InputError(
            f"{os.fspath(model)} finds the class of each pixel, which a map is compared with; give it: --map "
            "semantic=FOLDER, in Python evaluate_semantic"
        )
    reader = CocoReader(images, annotations, unused_parents=trained.unused_parents, **READS[trained.finds])
    if reader.class_names != trained.class_names:
        raise InputError(
            f"{os.fspath(model)} finds the classes {listed(trained.class_names[1:])}, and {os.fspath(annotations)} "
            f"has {listed(reader.class_names[1:])}; {SAME_CLASSES}"
        )
    own, others = trained.keypoints, reader.shapes.keypoints
    if own and others and own.count != others.count:
        raise InputError(
            f"{os.fspath(model)} finds {own.count} keypoints of each object, and {os.fspath(annotations)} has "
            f"{others.count}; evaluate with the keypoints of the training"
        )
    tiles = None if tile is None else TileReader(reader, tile, overlap)
    source = reader if tiles is None else tiles
    kinds: dict[Any, None] = dict.fromkeys(("bbox", trained.finds))
    options: dict[str, Any] = {"tiles": tiles, "max_detections": max_detections}
    evaluators: dict[str, CocoEvaluator[Any]] = {kind: CocoEvaluator(reader, kind, **options) for kind in kinds}
    ids, drawn = _spaced_ids(reader, draw), list[Detections]()
    with torch.inference_mode():
        done = 0
        for batch, predictions in predicted_batches(trained, source, batch_size, tta):
            for evaluator in evaluators.values():
                evaluator.update(batch, predictions)
            if tiles is None and {*ids}.intersection(batch.image_id.tolist()):
                detections = Detections.of(batch, predictions, min_score, LEAST)
                drawn += [one for one in detections if one.image_id in ids]
            done += len(batch)
            if progress:
                progress(done, len(source))
    evaluation = _evaluation(os.fspath(model), reader, evaluators, min_score, label_errors=label_errors)
    return replace(evaluation, drawn=tuple(drawn or _of_images(reader, evaluation.evaluator, ids, min_score, LEAST)))


def _spaced_ids(reader: CocoReader, count: int) -> list[int]:
    """Return the ids of images with objects, evenly spaced."""
    rows = np.flatnonzero(reader.objects()[1])
    chosen = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)]
    ids: list[int] = reader.image_ids[chosen].tolist()
    return ids


def _of_images(
    reader: CocoReader, evaluator: CocoEvaluator[Any], ids: Sequence[int], min_score: float, least: int = 0
) -> list[Detections]:
    """Return the boxes of at least `min_score` in the images of these ids, and of each the `least` highest."""
    labels = {category: label for label, category in enumerate(reader.category_ids)}
    detections = []
    for image_id in ids:
        of_image = evaluator.detections[image_id]
        high = of_image.scores >= min_score
        high[np.argsort(-of_image.scores, kind="stable")[:least]] = True
        classes = [labels[category] for category in of_image.category_ids[high].tolist()]
        shapes, scores = of_image.shapes[high], of_image.scores[high].tolist()
        if shapes.ndim == 3:
            detections.append(Detections(image_id, hull(shapes), classes, scores, corners=shapes))
        else:
            detections.append(Detections(image_id, shapes, classes, scores))
    return detections


def evaluate_results(
    detections: PathLike,
    annotations: PathLike,
    images: PathLike,
    *,
    min_score: float = SCORE,
    max_detections: int | None = None,
    draw: int = 0,
    label_errors: bool = False,
) -> Evaluation:
    """Score the boxes of a file in COCO's results format, of any detector.

    `max_detections`: see `CocoEvaluator`. `draw`, `label_errors`: see `evaluate_model`.
    """
    reader = CocoReader(images, annotations)
    evaluator = CocoEvaluator(reader, max_detections=max_detections).load(detections)
    evaluation = _evaluation(os.fspath(detections), reader, {"bbox": evaluator}, min_score, label_errors=label_errors)
    drawn = _of_images(reader, evaluator, _spaced_ids(reader, draw), min_score, LEAST)
    return replace(evaluation, drawn=tuple(drawn))


def _evaluation(
    detector: str,
    reader: CocoReader,
    evaluators: dict[str, CocoEvaluator[Any]],
    min_score: float,
    *,
    label_errors: bool,
) -> Evaluation:
    metrics = {kind: evaluator.compute() for kind, evaluator in evaluators.items()}
    of_boxes = evaluators.get("rotated", evaluators["bbox"])
    errors = of_boxes.errors(min_score=min_score)
    suspected = tuple(of_boxes.label_errors()) if label_errors else None
    return Evaluation(detector, reader, metrics.pop("bbox"), metrics, errors, of_boxes, suspected)


def _number(value: float) -> str:
    return f"{score_text(value):>5}"
