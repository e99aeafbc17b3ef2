"""What a detector's confident detections say about the annotations: which are missing, wrong, badly located, or extra.

Scores follow ObjectLab (Tkachenko et al. 2023, "ObjectLab: Automated Detection of Low-Quality Labels in Object
Detection", https://arxiv.org/abs/2309.00832): overlooked objects are confident detections without a similar annotation,
swapped classes are annotations that a confident detection of another class fits, and badly located ones have a
detection of their class that overlaps them too little. Here all are products of confidence and (lack of) overlap, in
0..1, the higher the worse. An annotation that a detection of its class fits is suspected less. An object explains a
detection whatever its class, so that a wrong class or a bad box is not an overlooked object, too. Annotations that
nothing confirms are a kind of their own, which ObjectLab has not. `benchmarks/label_errors.py` compares the order with
others on planted errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Floats, Ints
from detaug.evaluation.errors import FOUND, NEAR, share_inside
from detaug.evaluation.ground_truth import GroundTruth
from detaug.evaluation.predictions import ImageDetections
from detaug.evaluation.voc_ap import Overlaps, iou_of_boxes

LABEL_ERRORS = {
    "missing": "a detection without an annotation",
    "class": "a detection of another class fits the annotation",
    "location": "the detection of the class overlaps the annotation too little",
    "extra": "no detection confirms the annotation",
}
"""The kinds."""

LEAST_SUSPICION = 0.3
"""From which label errors are written; the script says how many of them are right."""


@dataclass(frozen=True)
class LabelError:
    """An annotation that is likely wrong, or one that is likely missing."""

    kind: str
    """Of `LABEL_ERRORS`."""
    suspicion: float
    """0..1, the higher the worse."""
    image_id: int
    annotation: int
    """The position among the objects of the ground truth; -1 of one that is missing."""
    category_id: int
    """Of the detection; of an extra one, its own."""
    shape: NDArray[Any] | None
    """(4,) box XYXY or (4, 2) corners of the detection, in pixels of the image; None of an extra one."""
    score: float
    """Of the detection; 0 of an extra one."""


def find_label_errors(
    truth: GroundTruth, by_image: Mapping[int, ImageDetections], iou: Overlaps = iou_of_boxes
) -> list[LabelError]:
    """Return the label errors of the images that `by_image` has, the worst first, one at most of each annotation.

    Args:
        truth: The annotations. Crowds and difficult objects are not suspected, nor what detections find of them.
        by_image: The detections of each image, of all scores. Of a model that was not trained on these annotations:
            one that was has learned their errors.
        iou: Of boxes, or of rotated ones.
    """
    images = []
    for index, image_id in enumerate(truth.image_ids):
        if image_id in by_image:
            images.append(_Compared.of(truth, index, by_image[image_id], iou))
    confirmed = [image.confirmed() for image in images]
    ids = np.concatenate([np.zeros(0, np.int64), *(image.category_ids for image in images)])
    scores = np.concatenate([np.zeros(0), *confirmed])
    # what the detector often misses says little about an annotation
    recall = {number: float((scores[ids == number] >= 0.5).mean()) for number in np.unique(ids).tolist()}
    errors = [
        error
        for image, own in zip(images, confirmed, strict=True)
        for error in (*image.annotations(own, recall), *image.missing())
    ]
    return sorted(errors, key=lambda error: -error.suspicion)


class _Compared(NamedTuple):
    """The D detections in an image, from the highest score on, and its G annotations without ignored ones."""

    image_id: int
    rows: Ints
    """(G,): their positions in the ground truth."""
    category_ids: Ints
    """(G,)"""
    detections: ImageDetections
    overlaps: Floats
    """(D, G): IoU."""
    of_ignored: Floats
    """(D,): the largest overlap with a crowd or a difficult object."""

    @staticmethod
    def of(truth: GroundTruth, index: int, detections: ImageDetections, iou: Overlaps) -> _Compared:
        objects = np.arange(truth.first[index], truth.first[index + 1])
        order = np.argsort(-detections.scores, kind="stable")
        ordered = ImageDetections(detections.shapes[order], detections.scores[order], detections.category_ids[order])
        overlaps, ignored = iou(ordered.shapes, truth.shapes[objects]), truth.ignored[objects]
        of_ignored = overlaps[:, ignored]
        if iou is iou_of_boxes:  # of a detection in a crowd, its part inside counts, as COCO has it
            crowds = np.array([truth.rows[row]["iscrowd"] == 1 for row in objects[ignored].tolist()], np.bool_)
            inside = share_inside(ordered.shapes, truth.shapes[objects[ignored]])
            of_ignored = np.where(crowds, inside, of_ignored)
        rows = objects[~ignored]
        return _Compared(
            truth.image_ids[index],
            rows,
            truth.category_ids[rows],
            ordered,
            overlaps[:, ~ignored],
            of_ignored.max(1, initial=0),
        )

    @property
    def same(self) -> Bools:
        """Return (D, G): whether a detection has the class of an annotation."""
        return np.asarray(self.detections.category_ids[:, None] == self.category_ids)

    def confirmed(self) -> Floats:
        """Return (G,): the highest score of a detection of any class near an annotation."""
        near = np.where(self.overlaps >= NEAR, self.detections.scores[:, None], 0)
        return np.asarray(near.max(0, initial=0))

    def annotations(self, confirmed: Floats, recall: Mapping[int, float]) -> Iterator[LabelError]:
        """Yield the worst label error of each annotation. recall: of the detector, by category id."""
        evidence = self.detections.scores[:, None] * self.overlaps
        of_same, of_other = np.where(self.same, evidence, 0), np.where(self.same, 0, evidence)
        for column in range(len(self.rows)):
            # squared: many right annotations have a detection of a low score alone
            extra = (1 - confirmed[column]) ** 2 * recall[int(self.category_ids[column])]
            choices, fits = [(extra, "extra", -1)], 0.0
            if len(evidence):
                best, other = int(of_same[:, column].argmax()), int(of_other[:, column].argmax())
                fits = of_same[best, column]
                if of_other[other, column] and self.overlaps[other, column] >= FOUND:
                    choices.append((self.detections.scores[other] * (1 - fits), "class", other))
                if fits and self._belongs_to(best, column):
                    shift = 1 - self.overlaps[best, column]
                    choices.append((self.detections.scores[best] * shift, "location", best))
            worst, kind, detection = max(choices)
            suspicion = worst * (1 - fits)
            if suspicion > 0:
                yield self._error(kind, float(suspicion), column, detection)

    def missing(self) -> Iterator[LabelError]:
        """Yield detections that no annotation, and no detection of a higher score, explains."""
        if not len(self.detections.scores):
            return
        taken = self._partners()
        best = self.overlaps.max(1, initial=0)
        explained = np.maximum(best, self.of_ignored)
        kept = np.zeros(len(best), np.bool_)
        between = iou_of_shapes(self.detections.shapes)
        for row in range(len(best)):
            kept[row] = explained[row] < FOUND and row not in taken and not (between[row, :row] >= FOUND).any()
        for row in np.flatnonzero(kept).tolist():
            yield self._error("missing", float(self.detections.scores[row] * (1 - explained[row] / FOUND)), -1, row)

    def _partners(self) -> set[int]:
        """Return the detections that are badly located annotations: the best of their class that overlaps one."""
        evidence = np.where(self.same, self.detections.scores[:, None] * self.overlaps, 0)
        best = evidence.argmax(0) if len(self.rows) else np.zeros(0, np.int64)
        return {row for column, row in enumerate(best.tolist()) if self._belongs_to(row, column)}

    def _belongs_to(self, row: int, column: int) -> bool:
        """Return whether a detection is of the annotation, and not of another one of its class."""
        own = np.where(self.same[row], self.overlaps[row], 0)
        return bool(self.overlaps[row, column] >= NEAR and own.argmax() == column)

    def _error(self, kind: str, suspicion: float, column: int, detection: int) -> LabelError:
        annotation = -1 if column < 0 else int(self.rows[column])
        if detection < 0:
            return LabelError(kind, suspicion, self.image_id, annotation, int(self.category_ids[column]), None, 0.0)
        shape, score = self.detections.shapes[detection], float(self.detections.scores[detection])
        category_id = int(self.detections.category_ids[detection])
        return LabelError(kind, suspicion, self.image_id, annotation, category_id, shape, score)


def iou_of_shapes(shapes: Floats) -> Floats:
    """Return (D, D): the IoU of the boxes around boxes (D, 4) or corners (D, 4, 2)."""
    boxes = shapes if shapes.ndim == 2 else np.concatenate([shapes.min(1), shapes.max(1)], 1)
    return iou_of_boxes(boxes, boxes)
