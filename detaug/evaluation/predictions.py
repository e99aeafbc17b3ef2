"""Check the predictions of a detector and collect them on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.arrays import Floats, Ints
from detaug.errors import InputError


class ImageDetections(NamedTuple):
    """The detections in one image."""

    shapes: NDArray[Any]
    """(D, ...) what the objects are compared with, in source pixels: boxes, keypoints, corners; of masks, RLE (D,)."""
    scores: Floats
    category_ids: Ints
    boxes: Floats | None = None
    """(D, 4) XYXY around the shapes, for detections in tiles, which are merged by them."""
    sides: Floats | None = None
    """(D, 2) width and height of boxes as they were read: x1 - x0 may differ in its last bit."""


class Columns(NamedTuple):
    """Shapes (D, ...), scores (D,) and labels (D,) of each of N images, on the CPU. Masks stay on their device."""

    shapes: list[Tensor]
    scores: list[Tensor]
    labels: list[Tensor]


class Key(NamedTuple):
    """The key of predictions that has the shapes of detections."""

    name: str
    shapes: tuple[tuple[int | str, ...], ...]
    """What one detection may have: (4,) of a box. Names are sides of any length, which are checked later."""
    is_large: bool = False
    """Whether they stay on their device, and their values are checked later."""

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether one detection may have this shape."""
        return any(
            len(form) == len(shape) and all(a == b or isinstance(a, str) for a, b in zip(form, shape, strict=True))
            for form in self.shapes
        )

    def text(self) -> str:
        """Return the name with its shapes: boxes (K, 4)."""
        return f"{self.name} " + " or ".join(f"(K, {', '.join(map(str, shape))})" for shape in self.shapes)


def read_predictions(predictions: Sequence[Mapping[str, Tensor]], images: int, classes: int, key: Key) -> Columns:
    """Check the predictions for a batch of `images` images and copy them to the CPU.

    Raises InputError for wrong shapes, values that are not finite, and labels outside 1..classes.
    """
    if len(predictions) != images:
        raise InputError(
            f"predictions must hold one dict for each of the batch's {images} images, got {len(predictions)}"
        )
    for index, prediction in enumerate(predictions):
        _check_shapes(index, prediction, key)
    scores, labels = (_on_cpu(predictions, name) for name in ("scores", "labels"))
    labels = labels if len(labels) else labels.long()
    counts = [len(prediction["scores"]) for prediction in predictions]
    if key.is_large:
        shapes, are_finite = [prediction[key.name].detach() for prediction in predictions], True
    else:
        together = _on_cpu(predictions, key.name)
        if not len(labels):
            together = together.reshape(-1, *(side for side in key.shapes[0] if isinstance(side, int)))
        shapes, are_finite = list(torch.split(together, counts)), bool(together.isfinite().all())
    if not (are_finite and scores.isfinite().all()):
        raise InputError(
            f"predictions must hold finite {key.name} and scores, got NaN or infinity; has the training diverged?"
        )
    if len(labels) and not (labels.min() >= 1 and labels.max() <= classes):
        raise InputError(
            f"labels of predictions must be 1..{classes}, the JSON file's classes, got {labels.min()}..{labels.max()}; "
            "add 1 to labels that start at 0, or leave out those of 0, the background, which RetinaNet and FCOS of "
            "torchvision find too"
        )
    return Columns(shapes, *(list(torch.split(column, counts)) for column in (scores, labels)))


def _on_cpu(predictions: Sequence[Mapping[str, Tensor]], name: str) -> Tensor:
    """Concatenate the tensors of all images: one copy from the device, not one for each image.

    Those without a row are left out, since `torch.tensor([])` would turn labels into floats.
    """
    tensors = [prediction[name].detach() for prediction in predictions]
    return torch.cat([tensor for tensor in tensors if len(tensor)] or tensors[:1]).cpu()


def _check_shapes(index: int, prediction: Mapping[str, Tensor], key: Key) -> None:
    names = (key.name, "scores", "labels")
    if any(name not in prediction for name in names):
        raise InputError(f"predictions[{index}] must have {key.name}, scores and labels, got {list(prediction)}")
    if other := next((name for name in names if not isinstance(prediction[name], Tensor)), None):
        kind = type(prediction[other]).__name__
        raise InputError(f"{other} of predictions[{index}] must be a tensor, got {kind}: give torch.as_tensor({other})")
    k = len(prediction["scores"])
    if k and (prediction["labels"].is_floating_point() or prediction["labels"].dtype == torch.bool):
        raise InputError(
            f"labels of predictions[{index}] must be whole numbers, got {prediction['labels'].dtype}: "
            "give labels.long()"
        )
    shapes = {name: tuple(prediction[name].shape) for name in names}
    if not k and all(shape[0] == 0 for shape in shapes.values()):  # a model that found nothing may return (0,)
        return
    fits = shapes[key.name][:1] == (k,) and key.fits(shapes[key.name][1:])
    if not fits or shapes["scores"] != (k,) or shapes["labels"] != (k,):
        raise InputError(f"predictions[{index}] must have {key.text()}, scores (K,) and labels (K,), got {shapes}")
