"""Compare an exported ONNX file with the model that it was made of, on images with annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from detaug.errors import InputError
from detaug.evaluation.coco import CocoEvaluator
from detaug.export.onnx_file import require_onnx
from detaug.files.paths import PathLike
from detaug.findings.finding import counted, listed
from detaug.loading.loader import Loader
from detaug.machine.parallel import Progress
from detaug.ops.normalize import Normalize
from detaug.sources.coco_reader import CocoReader
from detaug.training.detr_models import DetrDetector
from detaug.training.loaders import SAME_CLASSES
from detaug.training.model_table import READS
from detaug.training.predict import TrainedModel

TOLERANCE = 0.001
"""The largest difference of AP."""

SURE = 0.05
"""Detections of at least this score must have a partner."""


@dataclass(frozen=True)
class Verified:
    """Scores of a model and of its ONNX file on the same images, and how their detections differ."""

    images: int
    torch_ap: float
    onnx_ap: float
    detections: int
    """Those of the model of at least `SURE`."""
    unmatched: int
    """Those of them without one of the file, of the same class and with an IoU of at least 0.9; and the other way."""
    largest_difference: float
    """Pixels between the sides of matched boxes."""
    tied: int
    """Those of the model whose score another one in the image has, too: which of them is left, is chance."""
    shapes: tuple[str, float, float] | None = None
    """"masks" or "keypoints", and their AP, of the model and of the file; of a model that finds them."""

    @property
    def agrees(self) -> bool:
        """Return whether each AP is equal within `TOLERANCE`."""
        return all(abs(of_torch - of_onnx) <= TOLERANCE for _, of_torch, of_onnx in self._scores())

    def _scores(self) -> list[tuple[str, float, float]]:
        return [("", self.torch_ap, self.onnx_ap), *([self.shapes] if self.shapes else [])]

    def __str__(self) -> str:
        same = "equal" if self.agrees else "NOT equal"
        of_torch, of_onnx = (
            " and ".join(f"{scores[number]:.4f}{scores[0] and f' ({scores[0]})'}" for scores in self._scores())
            for number in (1, 2)
        )
        lines = [
            f"verified on {counted(self.images, 'image')}: AP {of_torch} of the model, {of_onnx} of the ONNX file, "
            f"{same} within {TOLERANCE:g}",
            f"{self.unmatched:,} of {counted(self.detections, 'detection')} with a score of {SURE:g} or more without a "
            f"partner; matched boxes differ by at most {self.largest_difference:.2g} pixels",
        ]
        if self.tied:
            lines.append(f"{self.tied:,} scores are tied, so which detections are left is chance: train longer")
        return "\n".join(lines)


def verify_onnx(
    trained: TrainedModel,
    file: PathLike,
    annotations: PathLike,
    images: PathLike,
    *,
    batch_size: int = 4,
    progress: Progress | None = None,
) -> Verified:
    """Score a model and its ONNX file, run by onnxruntime on the CPU, on the same images.

    Args:
        trained: What `export_onnx` returned.
        file: The ONNX file.
        annotations, images: COCO JSON and its image folder, with the classes of the model.
        batch_size: Images at once, if the file takes any number; else the file's own.
        progress: Called with (images done, images in all).

    Raises:
        InputError: if the classes differ, and without onnxruntime; `pip install 'detaug[export]'` brings it.
    """
    onnxruntime = require_onnx("onnxruntime")
    session = onnxruntime.InferenceSession(str(Path(file)), providers=["CPUExecutionProvider"])
    count = session.get_inputs()[0].shape[0]
    batch_size = count if isinstance(count, int) else batch_size
    reader = CocoReader(images, annotations, unused_parents=trained.unused_parents, **READS[trained.finds])
    if reader.class_names != trained.class_names:
        ours, theirs = listed(trained.class_names[1:]), listed(reader.class_names[1:])
        raise InputError(f"the model finds the classes {ours}, and {annotations} has {theirs}; {SAME_CLASSES}")
    resize, normalize = trained.ops
    assert isinstance(normalize, Normalize)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (normalize.mean, normalize.std))
    kinds: list[Any] = list(dict.fromkeys(("bbox", trained.finds)))
    evaluators: list[list[CocoEvaluator[Any]]] = [[CocoEvaluator(reader, kind) for kind in kinds] for _ in range(2)]
    counts, largest, done = np.zeros(3, np.int64), 0.0, 0
    plain = Normalize(mean=(0, 0, 0), std=(1, 1, 1))
    for batch in Loader(reader, [resize, plain], batch_size, device="cpu", train=False, shard=(0, 1)):
        with torch.inference_mode():
            wanted = trained.model((batch.images - mean) / std)
        exported = _run(session, batch.images, batch_size, trained.model)
        for of_one, detections in zip(evaluators, (wanted, exported), strict=True):
            for evaluator in of_one:
                evaluator.update(batch, detections)
        for one, other in zip(wanted, exported, strict=True):
            numbers, difference = _compare(one, other)
            counts, largest = counts + numbers, max(largest, difference)
        done += len(batch)
        if progress:
            progress(done, len(reader))
    (of_torch, *shapes), (of_onnx, *shapes_of_onnx) = [
        [evaluator.compute().AP for evaluator in of_one] for of_one in evaluators
    ]
    named = ({"segm": "masks"}.get(trained.finds, trained.finds), shapes[0], shapes_of_onnx[0]) if shapes else None
    number, unmatched, tied = counts.tolist()
    return Verified(done, of_torch, of_onnx, number, unmatched, largest, tied, named)


def _run(session: Any, images: Tensor, batch_size: int, model: nn.Module) -> list[dict[str, Tensor]]:
    """Return the detections in pixels of the input, as torchvision's detectors return them."""
    pixels = images.numpy()
    missing = batch_size - len(pixels)  # the last batch of a file of a fixed batch size
    padded = np.concatenate([pixels, np.zeros((missing, *pixels.shape[1:]), np.float32)]) if missing else pixels
    sizes = np.tile(np.array(pixels.shape[2:], np.int64), (len(padded), 1))
    numbers, *outputs = session.run(None, {"images": padded, "source_size": sizes})
    names = [output.name for output in session.get_outputs()][1:]
    detections = []
    for image in range(len(pixels)):
        values = [torch.from_numpy(output[image, : numbers[image]]) for output in outputs]
        arrays = dict(zip(names, values, strict=True))
        if "masks" in arrays:
            arrays["masks"] = _pasted(arrays["masks"], arrays.pop("mask_boxes"), images.shape[2:], model)
        detections.append(arrays)
    return detections


def _pasted(masks: Tensor, boxes: Tensor, size: Sequence[int], model: nn.Module) -> Tensor:
    """Return masks (K, 1, H, W) as the model pastes its own: a DETR's logits are of the whole input."""
    if isinstance(model, DetrDetector):
        return interpolate(masks[:, None].logit(1e-6), tuple(size), mode="bilinear").sigmoid()
    from torchvision.models.detection.roi_heads import paste_masks_in_image

    pasted: Tensor = paste_masks_in_image(masks[:, None], boxes, tuple(size))
    return pasted


def _compare(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> tuple[list[int], float]:
    """Return how many detections one has, how many of both lack a partner, how many are tied; and the difference."""
    from torchvision.ops import box_iou

    (boxes, scores, labels), (boxes_b, scores_b, labels_b) = (
        [detections[name][_has_area(detections["boxes"])] for name in ("boxes", "scores", "labels")]
        for detections in (one, other)
    )
    sure, sure_b = scores >= SURE, scores_b >= SURE
    tied = int((scores[sure][:, None] == scores[sure]).sum() - sure.sum())
    if not len(boxes) or not len(boxes_b):
        return [int(sure.sum()), int(sure.sum() + sure_b.sum()), tied], 0.0
    overlap = box_iou(boxes, boxes_b) * (labels[:, None] == labels_b)
    lonely = int((overlap.amax(1)[sure] < 0.9).sum() + (overlap.amax(0)[sure_b] < 0.9).sum())
    matched = sure & (overlap.amax(1) >= 0.9)
    partner = overlap.argmax(1)
    differences = (boxes - boxes_b[partner]).abs()[matched]
    return [int(sure.sum()), lonely, tied], float(differences.max()) if len(differences) else 0.0


def _has_area(boxes: Tensor) -> Tensor:
    """Return (K,): a box that was clipped to a line shows nothing, and a file with a letterbox leaves it out."""
    return (boxes[:, 2:] > boxes[:, :2]).all(1)
