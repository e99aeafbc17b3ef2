"""Score boxes by COCO's rule and by Pascal VOC's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from detaug.arrays import Floats
from detaug.evaluation.ground_truth import read_ground_truth
from detaug.evaluation.kind import DetectionKind
from detaug.evaluation.predictions import Columns, ImageDetections, Key
from detaug.evaluation.pycoco import NAMES, CocoMetrics, coco_scores, score_text
from detaug.evaluation.voc_ap import average_precisions, iou_of_boxes, match, mean_of_classes
from detaug.loading.batch import Batch


@dataclass(frozen=True)
class Metrics(CocoMetrics):
    """The scores of a detector, 0..1; -1 where there is no object to find, as in pycocotools.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> evaluator = da.CocoEvaluator(reader)
    >>> for batch in da.Loader(reader, da.presets.evaluation((300, 300)), batch_size=8, train=False):
    ...     evaluator.update(batch, [{**each, "scores": torch.ones(len(each["labels"]))} for each in batch.targets()])
    >>> metrics = evaluator.compute()
    >>> print(metrics.AP50, metrics.VOC_AP50_by_class["fish"], metrics.images)
    1.0 1.0 48
    """

    VOC_AP50: float
    """Pascal VOC's mAP at IoU 0.5: the mean over the classes that have objects to find."""
    VOC_AP50_by_class: dict[str, float]
    AP_by_class: dict[str, float]
    """COCO's mean over the IoU thresholds, of each class."""
    AP50_by_class: dict[str, float]
    images: int
    """The number of images evaluated."""
    repeated: int
    """The number of images that were updated again; they count once."""

    def __str__(self) -> str:
        return f"{super().__str__()}  VOC_AP50 {score_text(self.VOC_AP50)}"


class BoxKind(DetectionKind[Metrics]):
    """Boxes, (4,) XYXY."""

    key = Key("boxes", ((4,),))

    def __init__(self, path: Path) -> None:
        self.truth = read_ground_truth(path)

    def in_source(self, batch: Batch, columns: Columns) -> Iterator[Floats]:
        """Yield the boxes of each image in source pixels, cut at its edges."""
        for (height, width), boxes in zip(batch.source_size.tolist(), batch.to_source(columns.shapes), strict=True):
            limit = torch.tensor([width, height] * 2, dtype=torch.float64, device="cpu")
            yield boxes.double().clamp(min=0).minimum(limit).numpy()

    def result(self, shape: list[Any]) -> dict[str, Any]:
        """Return the box, XYWH."""
        x0, y0, x1, y1 = shape
        return {"bbox": [x0, y0, x1 - x0, y1 - y0]}

    def shapes(self, rows: Sequence[Mapping[str, Any]]) -> Floats:
        """Return the boxes, XYXY."""
        boxes = np.array([row["bbox"] for row in rows], np.float64)
        if rows and boxes.shape != (len(rows), 4):
            raise ValueError("a bbox must be four numbers")
        boxes = boxes.reshape(len(rows), 4)
        return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)

    def metrics(
        self, by_image: Mapping[int, ImageDetections], *, voc2007: bool, repeated: int, max_detections: int | None
    ) -> Metrics:
        """Return COCO's metrics and VOC's."""
        matches = match(self.truth, [by_image.get(image_id) for image_id in self.truth.image_ids], iou_of_boxes)
        by_class = average_precisions(self.truth, matches, eleven_points=voc2007)
        detections = [{**row, "area": row["bbox"][2] * row["bbox"][3]} for row in self.rows(by_image)]
        scores = coco_scores(self.truth, detections, by_image, "bbox", max_detections)
        return Metrics(
            **dict(zip(NAMES, scores.stats, strict=True)),
            AP_by_class=scores.AP_by_class,
            AP50_by_class=scores.AP50_by_class,
            VOC_AP50=mean_of_classes(by_class),
            VOC_AP50_by_class=by_class,
            images=len(by_image),
            repeated=repeated,
        )
