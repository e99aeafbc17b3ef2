"""Score keypoints by COCO's rule, object keypoint similarity (OKS)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from detaug.arguments import check, is_numbers
from detaug.arrays import Floats
from detaug.boxes.views import mirrors
from detaug.coco.annotations import read_annotations
from detaug.errors import InputError
from detaug.evaluation.ground_truth import read_ground_truth
from detaug.evaluation.kind import DetectionKind
from detaug.evaluation.predictions import Columns, ImageDetections, Key
from detaug.evaluation.pycoco import coco_scores, metrics_text
from detaug.loading.batch import Batch
from detaug.sources.coco_shapes import key_points_of

NAMES = ("AP", "AP50", "AP75", "APm", "APl", "AR", "AR50", "AR75", "ARm", "ARl")
"""In the order of pycocotools' stats of keypoints."""

USUAL_SIGMA = 0.05
COCO_POINTS = 17
"""The number of points of COCO's people, whose sigmas pycocotools has."""


@dataclass(frozen=True)
class KeypointMetrics:
    """The scores of a detector of keypoints, 0..1, by OKS; -1 where there is no object to find, as in pycocotools.

    >>> reader = da.CocoReader("demo/people", "demo/people.json", keypoints=True)
    >>> evaluator = da.CocoEvaluator(reader, kind="keypoints")
    >>> for batch in da.Loader(reader, da.presets.evaluation((300, 300)), batch_size=8, train=False):
    ...     found = [{**each, "scores": torch.ones(len(each["labels"]))} for each in batch.targets()]  # your model's
    ...     evaluator.update(batch, found)
    >>> print(evaluator.compute())  # KeypointMetrics
    AP 1.000  AP50 1.000  AP75 1.000  APm 1.000  APl 1.000  AR 1.000  ...
    """

    AP: float
    """The mean over the OKS thresholds 0.50, 0.55, ..., 0.95 and the classes."""
    AP50: float
    AP75: float
    APm: float
    """For objects with an area from 32 x 32 up to 96 x 96 source pixels; l: larger."""
    APl: float
    AR: float
    """Recall with at most 20 detections for each image and class."""
    AR50: float
    AR75: float
    ARm: float
    ARl: float
    images: int
    """The number of images evaluated."""
    repeated: int
    """The number of images that were updated again; they count once."""

    def __str__(self) -> str:
        return metrics_text(self, NAMES)


class KeypointKind(DetectionKind[KeypointMetrics]):
    """Keypoints, (K, 2) x, y in continuous source pixels."""

    def __init__(self, path: Path, sigmas: Sequence[float] | None = None) -> None:
        data = read_annotations(path, columns=("keypoints",))
        self._count = key_points_of(data, np.ones(len(data.boxes), np.bool_), flip_pairs=()).count
        self._sigmas = self._read_sigmas(sigmas)
        self.key = Key("keypoints", ((self._count, 3), (self._count, 2)))
        self.truth = read_ground_truth(path, partial(_row_of, count=self._count))

    def in_source(self, batch: Batch, columns: Columns) -> Iterator[Floats]:
        """Yield the points of each image in source pixels. What a mirror swapped is swapped back."""
        moved = batch.points_to_source([points[..., :2].double() for points in columns.shapes])
        flipped = mirrors(batch.matrix.double().numpy()).tolist()
        for points, labels, is_flipped in zip(moved, columns.labels, flipped, strict=True):
            yield (self._swapped(batch, points, labels) if is_flipped and len(points) else points).numpy()

    def result(self, shape: list[Any]) -> dict[str, Any]:
        """Return x, y, 1 of each point; COCO counts pixels from 0 at their centers."""
        return {"keypoints": [number for x, y in shape for number in (x - 0.5, y - 0.5, 1)]}

    def shapes(self, rows: Sequence[Mapping[str, Any]]) -> Floats:
        """Return x, y of each point, in continuous pixels."""
        points = np.array([row["keypoints"] for row in rows], np.float64).reshape(len(rows), self._count, 3)
        return points[..., :2] + 0.5

    def metrics(
        self, by_image: Mapping[int, ImageDetections], *, voc2007: bool, repeated: int, max_detections: int | None
    ) -> KeypointMetrics:
        """Return pycocotools' metrics."""
        if voc2007:
            raise InputError("voc2007 is for boxes and rotated boxes, not for keypoints")
        detections = [row | _extent(row["keypoints"]) for row in self.rows(by_image)]
        stats = coco_scores(self.truth, detections, by_image, "keypoints", max_detections, self._sigmas).stats
        return KeypointMetrics(**dict(zip(NAMES, stats, strict=True)), images=len(by_image), repeated=repeated)

    def _read_sigmas(self, sigmas: Sequence[float] | None) -> Floats | None:
        """Return (K,), None for pycocotools' own."""
        if sigmas is None:
            return None if self._count == COCO_POINTS else np.full(self._count, USUAL_SIGMA)
        values = np.asarray(sigmas).tolist()
        fits = is_numbers(values, self._count) and min(values) > 0
        check("sigmas", sigmas, fits, f"{self._count} numbers above 0, one for each keypoint")
        return np.array(values, np.float64)

    def _swapped(self, batch: Batch, points: Tensor, labels: Tensor) -> Tensor:
        key_points = batch.shapes.keypoints
        if key_points is None:
            raise InputError(
                "the batch shows flipped images, and has no keypoints that tell which of them are swapped: make "
                "the loader's reader with CocoReader(..., keypoints=True), or leave flips out"
            )
        key_points.check_flips()
        swaps = torch.from_numpy(key_points.swapped)
        order = swaps[labels.long() - 1] if len(swaps) > 1 else swaps.expand(len(points), -1)
        return points.take_along_dim(order[..., None], 1)


def _row_of(entry: dict[str, Any], count: int) -> dict[str, Any]:
    """Return what pycocotools needs of an entry of the JSON file. Points that it lacks are not labeled."""
    points = entry.get("keypoints") or []
    labeled = sum(visible > 0 for visible in points[2::3])
    number = entry.get("num_keypoints")
    return {
        "keypoints": points + [0] * (3 * count - len(points)),
        "num_keypoints": number if isinstance(number, int) else labeled,
    }


def _extent(keypoints: list[float]) -> dict[str, Any]:
    """Return the box and the area that pycocotools' `loadRes` gives detected keypoints."""
    x, y = keypoints[0::3], keypoints[1::3]
    width, height = max(x) - min(x), max(y) - min(y)
    return {"bbox": [min(x), min(y), width, height], "area": width * height}
