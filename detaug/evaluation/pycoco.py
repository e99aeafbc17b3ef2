"""COCO's metrics, computed by pycocotools, or by a faster engine that gives the same bits (decision 19)."""

from __future__ import annotations

import importlib
import io
import logging
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Floats
from detaug.evaluation.ground_truth import GroundTruth
from detaug.packages import install

SLOW_SECONDS = 5.0
"""An evaluation by pycocotools that takes longer ends with a line about the faster engine."""


NAMES = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
"""The numbers of boxes and masks, in the order of pycocotools' stats."""


def score_text(value: float | None) -> str:
    """Return a score such as 0.500; "-" for None, -1 and NaN, where there is nothing to find."""
    return f"{value:.3f}" if value is not None and value >= 0 else "-"


def metrics_text(metrics: object, names: Iterable[str]) -> str:
    """Return the names and values of metrics on one line."""
    return "  ".join(f"{name} {score_text(getattr(metrics, name))}" for name in names)


@dataclass(frozen=True)
class CocoMetrics:
    """COCO's numbers of a detector of boxes or masks, 0..1; -1 where there is no object to find."""

    AP: float
    """The mean over the IoU thresholds 0.50, 0.55, ..., 0.95 and the classes."""
    AP50: float
    AP75: float
    APs: float
    """For objects whose `area` is less than 32 x 32 source pixels; m: up to 96 x 96; l: larger."""
    APm: float
    APl: float
    AR1: float
    """Recall with at most 1 detection for each image and class."""
    AR10: float
    AR100: float
    ARs: float
    ARm: float
    ARl: float

    def __str__(self) -> str:
        return metrics_text(self, NAMES)


class CocoScores(NamedTuple):
    """What pycocotools computes."""

    stats: list[float]
    """The numbers of its `summarize`."""
    AP_by_class: dict[str, float]
    """The mean of the precisions of each class, which `stats` has the means of."""
    AP50_by_class: dict[str, float]


def coco_scores(
    truth: GroundTruth,
    detections: list[dict[str, Any]],
    image_ids: Iterable[int],
    kind: Literal["bbox", "segm", "keypoints"],
    max_detections: int | None = None,
    sigmas: Floats | None = None,
) -> CocoScores:
    """Return the numbers of pycocotools' `summarize`, and the AP of each class.

    `detections`: COCO's results with the "bbox" and "area" that pycocotools' `loadRes` gives them; `image_ids`: the
    images to evaluate; `sigmas`: (K,) of keypoints. `max_detections`: of an image and class, by default COCO's 100, of
    keypoints 20. Then AR100 still is that of 100 detections.
    ultrafast-pycocotools computes them if it is installed, else pycocotools: the same numbers, bit for bit.
    """
    fast = _module("ultrafast_pycocotools")
    coco = fast.COCO if fast else importlib.import_module("pycocotools.coco").COCO
    coco_eval = fast.COCOeval if fast else importlib.import_module("pycocotools.cocoeval").COCOeval
    numbered = [{**row, "id": number, "iscrowd": 0} for number, row in enumerate(detections, 1)]
    start = time.perf_counter()
    with _silence():
        scoring = coco_eval(_data_set(coco(), truth, truth.rows), _data_set(coco(), truth, numbered), kind)
        scoring.params.imgIds = sorted(image_ids)
        if sigmas is not None:
            scoring.params.kpt_oks_sigmas = sigmas
        if max_detections is not None:
            scoring.params.maxDets = [max_detections] if kind == "keypoints" else [1, 10, 100, max_detections]
        scoring.evaluate()
        scoring.accumulate()
        if max_detections is None:
            scoring.summarize()
    seconds = time.perf_counter() - start
    if seconds > SLOW_SECONDS and not fast:  # no warning: the time of a computer must not become an error
        logging.getLogger("detaug").warning(
            "COCO's metrics of %d detections took %.0f s; %s computes the same numbers faster",
            len(detections),
            seconds,
            install("ultrafast_pycocotools"),
        )
    precision = scoring.eval["precision"][:, :, :, 0, -1]  # IoU thresholds, recalls, classes in the order of ids
    names = [truth.categories[category_id] for category_id in sorted(truth.categories)]
    by_class = [_means_by_class(names, values) for values in (precision, precision[:1])]
    stats = scoring.stats if max_detections is None else _stats(scoring.eval, kind)
    return CocoScores([float(number) for number in stats], *by_class)


def _stats(scores: dict[str, Any], kind: str) -> list[float]:
    """Return the numbers of `summarize`, which has none for other limits than COCO's, for the last limit."""
    precision, recall = scores["precision"], scores["recall"]  # (IoU, recall, class, area, limit), without recall
    areas = (1, 2) if kind == "keypoints" else (1, 2, 3)
    of_all = [precision[..., 0, -1], precision[0, ..., 0, -1], precision[5, ..., 0, -1]]
    of_limits = [recall[..., 0, limit] for limit in range(3)] if kind != "keypoints" else []
    recalls = [recall[..., 0, -1], recall[0, ..., 0, -1], recall[5, ..., 0, -1]] if kind == "keypoints" else of_limits
    by_area = [[table[..., area, -1] for area in areas] for table in (precision, recall)]
    return [_mean(table) for table in (*of_all, *by_area[0], *recalls, *by_area[1])]


def _mean(values: NDArray[Any]) -> float:
    real = values[values > -1]
    return float(real.mean()) if real.size else -1.0


def _means_by_class(names: list[str], precision: NDArray[Any]) -> dict[str, float]:
    """Return the mean precision of each class; -1 for one without an object to find."""
    means = {}
    for name, of_class in zip(names, np.moveaxis(precision, 2, 0), strict=True):
        means[name] = _mean(of_class)
    return means


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _data_set(coco: Any, truth: GroundTruth, rows: list[dict[str, Any]]) -> Any:
    sizes = truth.sizes.tolist()
    coco.dataset = {
        "images": [
            {"id": image_id, "height": h, "width": w} for image_id, (h, w) in zip(truth.image_ids, sizes, strict=True)
        ],
        "annotations": rows,
        "categories": [{"id": category_id, "name": name} for category_id, name in truth.categories.items()],
    }
    coco.createIndex()
    return coco


@contextmanager
def _silence() -> Iterator[None]:
    """Hide pycocotools' progress, and its warnings about its own use of NumPy."""
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
