"""`DepthEvaluator`: score the depths of pixels, in the pixels of the maps, as they are in the files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import inf

import numpy as np
import torch
from torch import Tensor

from detaug.arguments import check, checks_names, is_number
from detaug.errors import InputError
from detaug.evaluation.map_predictions import at_points
from detaug.loading.batch import Batch


@dataclass(frozen=True)
class DepthMetrics:
    """What `DepthEvaluator` measured: the means over images; NaN without an image of known depth.

    >>> print(da.DepthMetrics(delta1=0.9, delta2=0.98, delta3=1.0, abs_rel=0.1, rmse=0.42, silog=12.5, images=8))
    delta1 0.900  delta2 0.980  delta3 1.000  abs_rel 0.100  rmse 0.420  silog 12.500
    """

    delta1: float
    """The fraction of pixels of which max(predicted / true, true / predicted) is below 1.25."""
    delta2: float
    """The same, below 1.25 ** 2."""
    delta3: float
    """The same, below 1.25 ** 3."""
    abs_rel: float
    """The mean of |predicted - true| / true."""
    rmse: float
    """The root of the mean of (predicted - true) ** 2, in meters."""
    silog: float
    """100 times the standard deviation of log(predicted) - log(true), as KITTI has it."""
    images: int
    """With at least one pixel of known depth."""

    def __str__(self) -> str:
        return "  ".join(f"{name} {value:.3f}" for name, value in asdict(self).items() if name != "images")


class DepthEvaluator:
    """Collects the errors of predicted depths batch by batch, and returns their means over all images.

    Args:
        map: The name of a `DepthMap`.
        min_depth, max_depth: Meters; pixels whose true depth is outside of them are not counted, and predictions are
            clipped to them. True depths are those of the files: predictions are interpolated at their pixels. Sources
            of the rules: Eigen et al., arXiv 1406.2283; the depth prediction benchmark of KITTI.

    >>> print(da.DepthEvaluator(max_depth=80))
    DepthEvaluator(map='depth', 0 images)
    """

    @checks_names
    def __init__(self, *, map: str = "depth", min_depth: float = 1e-3, max_depth: float | None = None) -> None:
        check("min_depth", min_depth, is_number(min_depth) and min_depth > 0, "a number above 0")
        good = max_depth is None or (is_number(max_depth) and max_depth > min_depth)
        check("max_depth", max_depth, good, "a number above min_depth, or None")
        self._map, self._errors = map, DepthErrors(min_depth, inf if max_depth is None else float(max_depth))

    def __repr__(self) -> str:
        return f"DepthEvaluator(map={self._map!r}, {len(self._errors)} images)"

    def update(self, batch: Batch, predictions: Tensor) -> None:
        """Count a batch of an evaluation recipe, which mixes no images.

        Args:
            predictions: (N, h, w) or (N, 1, h, w), meters, of the whole output, at its size or a smaller one.
        """
        batch.maps_of_images.depths(self._map)
        good = predictions.ndim == 3 or (predictions.ndim == 4 and predictions.shape[1] == 1)
        good = good and len(predictions) == len(batch)
        shape = f"({len(batch)}, h, w) or ({len(batch)}, 1, h, w)"
        check("predictions", tuple(predictions.shape), good, shape)
        for image, own in enumerate(predictions):
            true, points = batch.map_in_source(self._map, image)
            predicted = at_points(own.reshape(1, *own.shape[-2:]), points, batch.images.shape[-2:])[0].cpu()
            self._errors.add(true, predicted)

    def compute(self) -> DepthMetrics:
        """Return the metrics of all batches so far."""
        return self._errors.metrics()


class DepthErrors:
    """The errors of each image with known depths in `least`..`most`, meters."""

    def __init__(self, least: float, most: float) -> None:
        self._least, self._most = least, most
        self._rows: list[list[float]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def known(self, true: Tensor) -> Tensor:
        """Return which pixels are counted."""
        return (true > 0) & (true >= self._least) & (true <= self._most)

    def add(self, true: Tensor, predicted: Tensor) -> None:
        """Count an image: its depths (H, W), float64 if predicted. Raises InputError for some that are not finite."""
        known = self.known(true)
        if not known.any():
            return
        predicted = predicted[known]
        if not predicted.isfinite().all():
            raise InputError("predictions must be finite, got NaN or infinity")
        self._rows.append(_errors(predicted.clamp(self._least, self._most), true[known].double()))

    def metrics(self) -> DepthMetrics:
        """Return the means over images."""
        if not self._rows:
            raise InputError("nothing to score: call update(batch, predictions) first, with a map of known depths")
        means = np.mean(self._rows, axis=0).tolist()
        names = "delta1", "delta2", "delta3", "abs_rel", "rmse", "silog"
        return DepthMetrics(**dict(zip(names, means, strict=True)), images=len(self._rows))


def _errors(predicted: Tensor, true: Tensor) -> list[float]:
    """Return delta1, delta2, delta3, abs_rel, rmse and silog of pixels (P,)."""
    ratio, logs = torch.maximum(predicted / true, true / predicted), predicted.log() - true.log()
    deltas = [(ratio < 1.25**power).double().mean() for power in (1, 2, 3)]
    rest = (predicted - true).abs().div(true).mean(), (predicted - true).square().mean().sqrt()
    return [error.item() for error in (*deltas, *rest, 100 * logs.var(correction=0).sqrt())]
