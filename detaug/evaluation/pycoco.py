"""COCO's metrics, computed by pycocotools, or by a faster engine that gives the same bits (decision 19)."""

from __future__ import annotations

import importlib
import io
import logging
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from detaug.evaluation.ground_truth import GroundTruth

NAMES = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
"""In the order of pycocotools' stats."""

SLOW_SECONDS = 5.0
"""An evaluation by pycocotools that takes longer ends with a line about the faster engine."""


def coco_metrics(truth: GroundTruth, results: Iterable[dict[str, Any]], image_ids: Iterable[int]) -> dict[str, float]:
    """Return the metrics by name. `results`: in COCO's form; `image_ids`: the images to evaluate.

    ultrafast-pycocotools computes them if it is installed, else pycocotools: the same numbers, bit for bit.
    """
    fast = _module("ultrafast_pycocotools")
    coco = fast.COCO if fast else importlib.import_module("pycocotools.coco").COCO
    coco_eval = fast.COCOeval if fast else importlib.import_module("pycocotools.cocoeval").COCOeval
    detections = [
        {**row, "id": at, "area": row["bbox"][2] * row["bbox"][3], "iscrowd": 0} for at, row in enumerate(results, 1)
    ]
    start = time.perf_counter()
    with _silence():
        scoring = coco_eval(_data_set(coco(), truth, truth.rows), _data_set(coco(), truth, detections), "bbox")
        scoring.params.imgIds = sorted(image_ids)
        scoring.evaluate()
        scoring.accumulate()
        scoring.summarize()
    seconds = time.perf_counter() - start
    if seconds > SLOW_SECONDS and not fast:  # no warning: the time of a computer must not become an error
        logging.getLogger("detaug").warning(
            "COCO's metrics of %d detections took %.0f s; "
            "pip install 'detaug[fast-eval]' computes the same numbers faster",
            len(detections),
            seconds,
        )
    return dict(zip(NAMES, map(float, scoring.stats), strict=True))


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _data_set(coco: Any, truth: GroundTruth, rows: list[dict[str, Any]]) -> Any:
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
