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

from detaug.evaluation.ground_truth import Floats, GroundTruth

SLOW_SECONDS = 5.0
"""An evaluation by pycocotools that takes longer ends with a line about the faster engine."""


NAMES = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
"""The numbers of boxes and masks, in the order of pycocotools' stats."""


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
        return "  ".join(f"{name} {getattr(self, name):.3f}" for name in NAMES)


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
    sigmas: Floats | None = None,
) -> CocoScores:
    """Return the numbers of pycocotools' `summarize`, and the AP of each class.

    `detections`: COCO's results with the "bbox" and "area" that pycocotools' `loadRes` gives them; `image_ids`: the
    images to evaluate; `sigmas`: (K,) of key points.
    ultrafast-pycocotools computes them if it is installed, else pycocotools: the same numbers, bit for bit.
    """
    fast = _module("ultrafast_pycocotools")
    coco = fast.COCO if fast else importlib.import_module("pycocotools.coco").COCO
    coco_eval = fast.COCOeval if fast else importlib.import_module("pycocotools.cocoeval").COCOeval
    numbered = [{**row, "id": at, "iscrowd": 0} for at, row in enumerate(detections, 1)]
    start = time.perf_counter()
    with _silence():
        scoring = coco_eval(_data_set(coco(), truth, truth.rows), _data_set(coco(), truth, numbered), kind)
        scoring.params.imgIds = sorted(image_ids)
        if sigmas is not None:
            scoring.params.kpt_oks_sigmas = sigmas
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
    precision = scoring.eval["precision"][:, :, :, 0, -1]  # IoU thresholds, recalls, classes in the order of ids
    names = [truth.categories[each] for each in sorted(truth.categories)]
    by_class = [_means_by_class(names, each) for each in (precision, precision[:1])]
    return CocoScores([float(each) for each in scoring.stats], *by_class)


def _means_by_class(names: list[str], precision: NDArray[Any]) -> dict[str, float]:
    """Return the mean precision of each class; -1 for one without an object to find."""
    means = {}
    for name, of_class in zip(names, np.moveaxis(precision, 2, 0), strict=True):
        real = of_class[of_class > -1]
        means[name] = float(real.mean()) if real.size else -1.0
    return means


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _data_set(coco: Any, truth: GroundTruth, rows: list[dict[str, Any]]) -> Any:
    sizes = truth.sizes.tolist()
    coco.dataset = {
        "images": [{"id": at, "height": h, "width": w} for at, (h, w) in zip(truth.image_ids, sizes, strict=True)],
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
