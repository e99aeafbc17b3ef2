"""What a detector of boxes does wrong: kinds of errors, a confusion matrix, precision and recall by score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from warnings import warn

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.evaluation.ground_truth import GroundTruth
from detaug.evaluation.predictions import ImageDetections
from detaug.evaluation.voc_ap import iou_of_boxes

FOUND, NEAR = 0.5, 0.1
"""The IoU from which a box finds an object, and from which it is taken for an attempt at one."""

KINDS = {
    "localization": f"the right class, but an IoU of {NEAR} to {FOUND}",
    "classification": f"another class, IoU of {FOUND} or more",
    "both": f"another class, and an IoU of {NEAR} to {FOUND}",
    "duplicate": "an object that a detection of higher score has found",
    "background": f"no object has an IoU of {NEAR} with it",
    "missed": "an object that no detection finds, not even with a localization or classification error",
}
"""The kinds of errors, those of TIDE (Bolya et al. 2020, https://arxiv.org/abs/2008.08115), which it also tests in
the order of `_Image.errors`. The last is of objects, the others of detections."""

OLD_KINDS = {"place": "localization", "class": "classification", "twice": "duplicate"}
"""Names of kinds of errors before detaug 0.3."""


class CountsByKind(dict[str, Ints]):
    """Counts of errors by their kind. Old names of kinds are read, too, and warned of."""

    def __missing__(self, kind: str) -> Ints:
        new = OLD_KINDS.get(kind)
        if new is None:
            raise KeyError(kind)
        warn(f"errors of the kind {kind} are called {new} now", FutureWarning, stacklevel=2)
        return self[new]


class PrecisionRecall(NamedTuple):
    """Precision and recall of the detections of at least a score, for each different score, from the highest on."""

    scores: Floats
    precision: Floats
    recall: Floats

    @property
    def f1(self) -> Floats:
        """Return the harmonic mean of precision and recall, for each score."""
        return 2 * self.precision * self.recall / np.maximum(self.precision + self.recall, 1e-12)


@dataclass(frozen=True, eq=False)
class DetectionErrors:
    """The errors of the detections of at least `min_score`. A detection is right with an IoU of 0.5 and the class.

    Detections are taken by score, as COCO does; each finds the object of its class with the highest IoU that is left.
    Crowds and difficult objects are neither found nor missed, and a detection of one is neither right nor wrong.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> evaluator = da.CocoEvaluator(reader)
    >>> for batch in da.Loader(reader, da.presets.evaluation((300, 300)), batch_size=8, train=False):
    ...     found = [{**each, "scores": torch.ones(len(each["labels"]))} for each in batch.targets()]  # your model's
    ...     evaluator.update(batch, found)
    >>> errors = evaluator.errors(min_score=0.5)  # DetectionErrors
    >>> print(errors.kinds["missed"], errors.right.sum() == errors.confusion.trace())
    [0 0 0 0 0 0] True
    """

    class_names: tuple[str, ...]
    """C names, in the order of their ids."""
    min_score: float
    objects: Ints
    """(C,): objects to find."""
    detections: Ints
    """(C,): detections of each class, without those of crowds and difficult objects."""
    right: Ints
    """(C,): detections that are right."""
    kinds: dict[str, Ints]
    """(C,): errors of each kind in `KINDS`, by the class of the detection; of "missed", by that of the object."""
    confusion: Ints
    """(C + 1, C + 1): rows are classes of objects, columns those of the detections that found them, the last of both
    nothing. What is right is on the diagonal; of the rest, pairs are formed by IoU, at least 0.5."""
    errors_of_image: dict[int, int]
    """The number of errors in each image, by its id."""
    curve: PrecisionRecall
    """Of all detections, whatever their score and class."""
    curves: dict[str, PrecisionRecall] = field(repr=False)
    """Of each class."""

    @property
    def best_score(self) -> float:
        """Return the confidence threshold with the largest F1; 0 without detections."""
        return float(self.curve.scores[self.curve.f1.argmax()]) if len(self.curve.scores) else 0.0

    @property
    def best_score_text(self) -> str:
        """Return `best_score` rounded down to 4 decimals: rounded up, it would leave out detections that have it."""
        return f"{np.floor(self.best_score * 1e4) / 1e4:g}"


def find_errors(
    truth: GroundTruth,
    by_image: Mapping[int, ImageDetections],
    min_score: float,
    iou: Callable[[Floats, Floats], Floats] = iou_of_boxes,
) -> DetectionErrors:
    """Return the errors in the images that `by_image` has.

    iou: of the shapes of `by_image` and of `truth`, boxes XYXY or the corners of rotated ones.
    """
    names = tuple(truth.categories.values())
    ids = {category_id: label for label, category_id in enumerate(truth.categories)}
    count = len(names)
    kinds, confusion = {kind: np.zeros(count, np.int64) for kind in KINDS}, np.zeros((count + 1, count + 1), np.int64)
    errors_of_image, objects = {}, np.zeros(count, np.int64)
    columns = [(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.bool_))]
    for index, image_id in enumerate(truth.image_ids):
        if image_id not in by_image:
            continue
        image = _Image.of(truth, index, by_image[image_id], ids, iou)
        columns.append((image.scores, image.labels, image.matched >= 0))
        objects += np.bincount(image.object_labels, minlength=count)
        shown = image.of_at_least(min_score)
        errors = [*shown.errors()]
        for kind, label in errors:
            kinds[kind][label] += 1
        np.add.at(confusion, shown.pairs_of_labels(nothing=count), 1)
        errors_of_image[image_id] = len(errors)
    scores, labels, right = (np.concatenate(column) for column in zip(*columns, strict=True))
    high = scores >= min_score
    return DetectionErrors(
        class_names=names,
        min_score=min_score,
        objects=objects,
        detections=np.bincount(labels[high], minlength=count),
        right=np.bincount(labels[high & right], minlength=count),
        kinds=CountsByKind(kinds),
        confusion=confusion,
        errors_of_image=errors_of_image,
        curve=_curve(scores, right, int(objects.sum())),
        curves={
            name: _curve(scores[labels == label], right[labels == label], int(objects[label]))
            for label, name in enumerate(names)
        },
    )


def _curve(scores: Floats, right: Bools, objects: int) -> PrecisionRecall:
    order = np.argsort(-scores, kind="stable")
    scores, hits = scores[order], np.cumsum(right[order])
    last = np.flatnonzero(np.append(np.diff(scores), -1.0)[: len(scores)])  # no threshold divides equal scores
    return PrecisionRecall(scores[last], hits[last] / (last + 1), hits[last] / max(objects, 1))


class _Image(NamedTuple):
    """The D detections in an image, from the highest score on, and the G objects to find."""

    scores: Floats
    labels: Ints
    object_labels: Ints
    overlaps: Floats
    """(D, G): their IoU."""
    matched: Ints
    """(D,): the object that each found; -1 for none."""

    @staticmethod
    def of(
        truth: GroundTruth,
        index: int,
        detections: ImageDetections,
        ids: Mapping[int, int],
        iou: Callable[[Floats, Floats], Floats],
    ) -> _Image:
        """Return image `index` of `truth`, without crowds, difficult objects and their detections. `ids`: labels."""
        objects = np.arange(truth.first[index], truth.first[index + 1])
        order = np.argsort(-detections.scores, kind="stable")
        boxes, scores = detections.shapes[order], detections.scores[order]
        labels = np.array([ids[category_id] for category_id in detections.category_ids[order].tolist()], np.int64)
        ignored = truth.ignored[objects]
        object_labels = np.array([ids[category_id] for category_id in truth.category_ids[objects].tolist()], np.int64)
        overlaps = iou(boxes, truth.shapes[objects])
        matched = _match(np.where(labels[:, None] == object_labels[~ignored], overlaps[:, ~ignored], 0))
        crowds = np.array([truth.rows[row]["iscrowd"] == 1 for row in objects[ignored].tolist()], np.bool_)
        of_ignored = overlaps[:, ignored]
        if iou is iou_of_boxes:  # with a crowd counts how much of a detection lies in it, as COCO has it
            of_ignored = np.where(crowds, share_inside(boxes, truth.shapes[objects[ignored]]), of_ignored)
        of_ignored = of_ignored * (labels[:, None] == object_labels[ignored])
        counts = (matched >= 0) | (of_ignored.max(1, initial=0) < FOUND)
        return _Image(
            scores[counts], labels[counts], object_labels[~ignored], overlaps[counts][:, ~ignored], matched[counts]
        )

    def of_at_least(self, score: float) -> _Image:
        """Return the image with the detections of at least this score."""
        high = int((self.scores >= score).sum())
        return self._replace(
            scores=self.scores[:high],
            labels=self.labels[:high],
            overlaps=self.overlaps[:high],
            matched=self.matched[:high],
        )

    def errors(self) -> Iterator[tuple[str, int]]:
        """Yield the kind of each error, and the label of its class."""
        explained = {*self.matched.tolist()}
        same = np.where(self.labels[:, None] == self.object_labels, self.overlaps, 0)
        other = self.overlaps - same
        for detection in np.flatnonzero(self.matched < 0).tolist():
            best, best_other = same[detection].max(initial=0), other[detection].max(initial=0)
            if NEAR <= best < FOUND:
                explained.add(int(same[detection].argmax()))
                kind = "localization"
            elif best_other >= FOUND:
                explained.add(int(other[detection].argmax()))
                kind = "classification"
            elif best >= FOUND:
                kind = "duplicate"
            else:
                kind = "both" if best_other >= NEAR else "background"
            yield kind, int(self.labels[detection])
        for number, label in enumerate(self.object_labels.tolist()):
            if number not in explained:
                yield "missed", label

    def pairs_of_labels(self, nothing: int) -> tuple[Ints, Ints]:
        """Return the labels of objects and of detections that form pairs; those without a partner pair with nothing."""
        partner = self.matched.copy()
        free = np.setdiff1d(np.arange(len(self.object_labels)), partner)
        left = np.where((partner < 0)[:, None] & np.isin(np.arange(len(self.object_labels)), free), self.overlaps, 0)
        while left.size and left.max() >= FOUND:
            detection, target = np.unravel_index(left.argmax(), left.shape)
            partner[detection] = target
            left[detection], left[:, target] = 0, 0
        free = np.setdiff1d(np.arange(len(self.object_labels)), partner)
        of_detections = np.append(self.object_labels, nothing)[partner]  # -1 is the last one
        rows = np.concatenate([of_detections, self.object_labels[free]])
        return rows, np.concatenate([self.labels, np.full(len(free), nothing)])


def _match(overlaps: Floats) -> Ints:
    """Return (D,): the object that each detection finds; -1 for none. `overlaps`: (D, G), 0 with other classes."""
    left, matched = overlaps.copy(), np.full(len(overlaps), -1)
    for detection in np.flatnonzero(overlaps.max(1, initial=0) >= FOUND).tolist():
        best = int(left[detection].argmax())
        if left[detection, best] >= FOUND:
            matched[detection] = best
            left[:, best] = 0
    return matched


def share_inside(boxes: Floats, others: Floats) -> Floats:
    """Return (D, G): the fraction of each box's area that is inside each of the others."""
    low, high = np.maximum(boxes[:, None, :2], others[:, :2]), np.minimum(boxes[:, None, 2:], others[:, 2:])
    area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    return np.asarray((high - low).clip(0).prod(2) / np.maximum(area, 1e-12)[:, None])
