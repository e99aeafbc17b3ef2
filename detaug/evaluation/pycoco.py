"""COCO's metrics, computed by ultrafast-pycocotools: in every bit those of pycocotools, and many times faster."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from detaug.evaluation.ground_truth import GroundTruth

NAMES = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
"""In the order of pycocotools' stats."""


def coco_metrics(truth: GroundTruth, results: Iterable[dict[str, Any]], image_ids: Iterable[int]) -> dict[str, float]:
    """Return the metrics by name. `results`: in COCO's form; `image_ids`: the images to evaluate."""
    from ultrafast_pycocotools import COCOeval

    detections = [
        {**row, "id": at, "area": row["bbox"][2] * row["bbox"][3], "iscrowd": 0} for at, row in enumerate(results, 1)
    ]
    with _silence():
        scoring = COCOeval(_data_set(truth, truth.rows), _data_set(truth, detections), "bbox")
        scoring.params.imgIds = sorted(image_ids)
        scoring.evaluate()
        scoring.accumulate()
        scoring.summarize()
    return dict(zip(NAMES, map(float, scoring.stats), strict=True))


def _data_set(truth: GroundTruth, rows: list[dict[str, Any]]) -> Any:
    from ultrafast_pycocotools import COCO

    coco = COCO()
    coco.dataset = {
        "images": [{"id": image_id} for image_id in truth.image_ids],
        "annotations": rows,
        "categories": [{"id": at, "name": name} for at, name in truth.categories.items()],
    }
    coco.createIndex()
    return coco


@contextmanager
def _silence() -> Iterator[None]:
    """Hide pycocotools' progress, and its warnings about its own use of NumPy."""
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
