"""Check the predictions of a detector and collect them on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from detaug.errors import InputError
from detaug.evaluation.ground_truth import Floats, Ints


class ImageDetections(NamedTuple):
    """The detections in one image."""

    boxes: Floats
    """(K, 4) XYXY source pixels."""
    scores: Floats
    category_ids: Ints

    def rows(self, image_id: int) -> Iterator[dict[str, Any]]:
        """Yield the detections in the form of COCO's results."""
        sizes = self.boxes[:, 2:] - self.boxes[:, :2]
        columns = (self.boxes[:, :2].tolist(), sizes.tolist(), self.scores.tolist(), self.category_ids.tolist())
        for start, size, score, category in zip(*columns, strict=True):
            yield {"image_id": image_id, "category_id": category, "bbox": [*start, *size], "score": score}


NO_DETECTIONS = ImageDetections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))


class Columns(NamedTuple):
    """Boxes (K, 4), scores (K,) and labels (K,) of each of N images, on the CPU."""

    boxes: list[Tensor]
    scores: list[Tensor]
    labels: list[Tensor]


def read_predictions(predictions: Sequence[Mapping[str, Tensor]], images: int, classes: int) -> Columns:
    """Check the predictions for a batch of `images` images and copy them to the CPU.

    Raises InputError for wrong shapes, values that are not finite, and labels outside 1..classes.
    """
    if len(predictions) != images:
        raise InputError(
            f"predictions must hold one dict for each of the batch's {images} images, got {len(predictions)}"
        )
    for at, each in enumerate(predictions):
        _check_shapes(at, each)
    boxes, scores, labels = (_on_cpu(predictions, name) for name in ("boxes", "scores", "labels"))
    boxes, labels = boxes.reshape(-1, 4), labels if len(labels) else labels.long()
    if not (boxes.isfinite().all() and scores.isfinite().all()):
        raise InputError(
            "predictions must hold finite boxes and scores, got NaN or infinity; has the training diverged?"
        )
    if len(labels) and not (labels.min() >= 1 and labels.max() <= classes):
        raise InputError(
            f"labels of predictions must be 1..{classes}, the json's classes, got {labels.min()}..{labels.max()}; "
            "0 is the background"
        )
    counts = [len(each["scores"]) for each in predictions]
    return Columns(*(list(torch.split(column, counts)) for column in (boxes, scores, labels)))


def _on_cpu(predictions: Sequence[Mapping[str, Tensor]], name: str) -> Tensor:
    """Concatenate the tensors of all images: one copy from the device, not one for each image.

    Those without a row are left out, since `torch.tensor([])` would turn labels into floats.
    """
    tensors = [each[name].detach() for each in predictions]
    return torch.cat([each for each in tensors if len(each)] or tensors).cpu()


def _check_shapes(at: int, prediction: Mapping[str, Tensor]) -> None:
    missing = [name for name in ("boxes", "scores", "labels") if name not in prediction]
    if missing:
        raise InputError(f"predictions[{at}] must have boxes, scores and labels, got {list(prediction)}")
    k = len(prediction["scores"])
    expected = {"boxes": (k, 4), "scores": (k,), "labels": (k,)}
    shapes = {name: tuple(prediction[name].shape) for name in expected}
    if shapes == {"boxes": (0,), "scores": (0,), "labels": (0,)}:  # torch.tensor([]), of a model that found nothing
        return
    if shapes != expected:
        raise InputError(f"predictions[{at}] must have boxes (K, 4), scores (K,) and labels (K,), got {shapes}")
