"""Predict with a model that `detaug train` wrote."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor, nn

from detaug.boxes.views import invert
from detaug.errors import InputError
from detaug.loading.batch import move_boxes
from detaug.loading.devices import resolve_device
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.samples.samples import batch
from detaug.training.detectors import make_detector
from detaug.training.loaders import make_resize
from detaug.training.torch_files import read_torch_file
from detaug.training.weights import load_weights


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained detector with the preprocessing that it was evaluated with."""

    model: nn.Module
    """In evaluation mode; takes (N, 3, H, W) images after `ops`."""
    ops: tuple[Op, ...]
    class_names: tuple[str, ...]
    """Name of each label; index 0 is the background."""
    device: torch.device

    def predict(self, images: Iterable[str | os.PathLike[str] | NDArray[np.uint8]]) -> list[dict[str, Tensor]]:
        """Return the detections of each image, best first: boxes (K, 4) XYXY, scores (K,) and labels (K,), on the CPU.

        `images`: files, or arrays (H, W, 3) uint8 RGB. Boxes are in pixels of the image, as it is displayed.
        """
        return [self._predict(image if isinstance(image, np.ndarray) else _read(image)) for image in images]

    def _predict(self, image: NDArray[np.uint8]) -> dict[str, Tensor]:
        samples = batch([image], device=self.device).then(*self.ops)
        with torch.inference_mode():
            (found,) = self.model(torch.from_numpy(samples.images[0])[None].to(self.device))
        boxes, scores, labels = (found[name].cpu() for name in ("boxes", "scores", "labels"))
        boxes = move_boxes(boxes[None], torch.from_numpy(invert(samples.matrix)))[0]
        height, width, _ = image.shape
        inside = boxes.clamp(min=0).minimum(boxes.new_tensor([width, height] * 2))
        return {"boxes": inside, "scores": scores, "labels": labels}


def load_model(path: str | os.PathLike[str], device: torch.device | str | None = None) -> TrainedModel:
    """Load the model.pt of `detaug train`. `device`: as in `Loader`. Raises InputError for another file."""
    content = read_torch_file(Path(path))
    unknown = [name for name in ("name", "size", "class_names") if name not in content]
    if unknown:
        remedy = "to train from the weights of another program, give them to detaug train as --weights"
        raise InputError(
            f"{os.fspath(path)} is not a model.pt of detaug train: it lacks {', '.join(unknown)}; {remedy}"
        )
    class_names, chosen = tuple(content["class_names"]), resolve_device(device)
    detector, _ = load_weights(make_detector(content["name"], len(class_names)), Path(path))
    ops = (make_resize(_size(content["size"])), Normalize(detector.mean, detector.std))
    return TrainedModel(detector.model.to(chosen).eval(), ops, class_names, chosen)


def _size(size: Any) -> int | tuple[int, int]:
    return int(size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def _read(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """Return the pixels of a file, with its EXIF orientation applied."""
    with Image.open(path) as image:
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
