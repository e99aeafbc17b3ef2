"""`CocoEvaluator`: score detections in source pixels by COCO's rule and by Pascal VOC's."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

from detaug.converters.conversion.arguments import output_files
from detaug.converters.files.atomic import write_atomically
from detaug.errors import InputError
from detaug.evaluation.ground_truth import read_ground_truth
from detaug.evaluation.predictions import NO_DETECTIONS, ImageDetections, read_predictions
from detaug.evaluation.pycoco import NAMES, coco_metrics
from detaug.evaluation.voc_ap import average_precisions
from detaug.loading.batch import Batch
from detaug.loading.devices import resolve_device
from detaug.sources.coco_reader import CocoReader
from detaug.sources.source import Source


@dataclass(frozen=True)
class Metrics:
    """The scores of a detector, 0..1; -1 where there is no object to find, as in pycocotools.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> evaluator = da.CocoEvaluator(reader)
    >>> for batch in da.Loader(reader, da.presets.evaluation((300, 300)), batch_size=8, train=False):
    ...     evaluator.update(batch, [{**each, "scores": torch.ones(len(each["labels"]))} for each in batch.targets()])
    >>> metrics = evaluator.compute()
    >>> print(metrics.AP50, metrics.VOC_AP50_by_class["fish"], metrics.images)
    1.0 1.0 48
    """

    AP: float
    """The mean over the IoU thresholds 0.50, 0.55, ..., 0.95 and the classes."""
    AP50: float
    AP75: float
    APs: float
    """For objects of less than 32 x 32 source pixels; m: up to 96 x 96; l: larger."""
    APm: float
    APl: float
    AR1: float
    """Recall with at most 1 detection for each image and class."""
    AR10: float
    AR100: float
    ARs: float
    ARm: float
    ARl: float
    VOC_AP50: float
    """Pascal VOC's mAP at IoU 0.5: the mean over the classes that have objects to find."""
    VOC_AP50_by_class: dict[str, float]
    images: int
    """The number of images evaluated."""
    repeated: int
    """The number of images that were updated again; they count once."""

    def __str__(self) -> str:
        return "  ".join(f"{name} {getattr(self, name):.3f}" for name in (*NAMES, "VOC_AP50"))


class CocoEvaluator:
    """Collects detections batch by batch and scores them against a COCO json.

    `annotations`: the json, or a `CocoReader` with that json. Raises InputError for mistakes in it.

    COCO's rules are pycocotools' own: a crowd region is ignored, `difficult` has no effect. VOC's are the devkit's:
    a difficult object or a crowd is not counted, and a detection of it is neither right nor wrong.
    Detections in images without objects are wrong by both rules.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> evaluator = da.CocoEvaluator(reader)
    >>> for batch in da.Loader(reader, da.presets.evaluation((300, 300)), batch_size=8, train=False):
    ...     found = [{**each, "scores": torch.ones(len(each["labels"]))} for each in batch.targets()]  # your model's
    ...     evaluator.update(batch, found)
    >>> print(evaluator.compute())
    AP 1.000  AP50 1.000  AP75 1.000  ... VOC_AP50 1.000
    """

    def __init__(self, annotations: str | os.PathLike[str] | CocoReader) -> None:
        if isinstance(annotations, Source) and not isinstance(annotations, CocoReader):
            raise InputError(f"annotations must be a json or a da.CocoReader, got a {type(annotations).__name__}")
        path = annotations.annotations_file if isinstance(annotations, CocoReader) else annotations
        self.annotations = Path(path).absolute()  # a later change of the working folder changes nothing
        self._truth = read_ground_truth(self.annotations)
        self._known = set(self._truth.image_ids)
        self._category_ids = np.array(list(self._truth.categories), np.int64)
        self._own: dict[int, ImageDetections] = {}
        self._own_repeated = 0
        self._found, self._repeated = self._own, 0

    def update(self, batch: Batch, predictions: Sequence[Mapping[str, Tensor]]) -> None:
        """Add the detections in a batch.

        `predictions`: N dicts, as torchvision's detectors return them: boxes (K, 4) XYXY in pixels of `batch.images`,
        scores (K,), labels (K,) in 1..the number of classes.

        Boxes are moved to the source image and cut at its edges: a detector cuts them at the edges of its input,
        padding and letterbox included, and a box that reaches into those would lose IoU. A box that lies wholly in
        them stays, without area, a wrong detection. An image counts once: if it is updated again, as by samplers that
        fill up shards, the first detections stay and `Metrics.repeated` counts it.
        """
        if batch.image_id is None or batch.source_size is None:  # of a DALI pipeline
            raise InputError(
                "the batch has no image_id or no source_size: return both from the pipeline, named in output_map"
            )
        for image_id, found in zip(batch.image_id.tolist(), self._in_source(batch, predictions), strict=True):
            if image_id not in self._known:
                raise InputError(f"image_id {image_id} is not in {self.annotations}; evaluate with the loader's json")
            self._own_repeated += image_id in self._own
            self._own.setdefault(image_id, found)
        self._found, self._repeated = self._own, self._own_repeated

    def gather(self) -> CocoEvaluator:
        """Gather the detections of all ranks of torch.distributed; every rank must call it. Returns the evaluator.

        Does nothing without an initialised process group. For an image on several ranks, the
        detections of the lowest rank count. May be called again after more updates.
        """
        if not (dist.is_available() and dist.is_initialized()):
            return self
        parts: list[Any] = [None] * dist.get_world_size()
        with torch.cuda.device(resolve_device("cuda")) if dist.get_backend() == "nccl" else nullcontext():
            dist.all_gather_object(parts, (self._own, self._own_repeated))
        self._found = {image_id: each for own, _ in reversed(parts) for image_id, each in own.items()}
        self._repeated = sum(len(own) + repeated for own, repeated in parts) - len(self._found)
        return self

    def compute(self, *, partial: bool = False, voc2007: bool = False) -> Metrics:
        """Compute the metrics of all images of the json.

        `partial`: of the updated images only; otherwise a missing image is an error. `voc2007`: VOC's AP
        is the mean of precision at 11 recalls, as in VOC2007, not the area under the curve, as from VOC2010 on.
        """
        self._check_complete(partial)
        found = [self._found.get(image_id) for image_id in self._truth.image_ids]
        by_class = average_precisions(self._truth, found, eleven_points=voc2007)
        real = [value for value in by_class.values() if value >= 0]
        return Metrics(
            **coco_metrics(self._truth, self._rows(), self._found),
            VOC_AP50=float(np.mean(real)) if real else -1.0,
            VOC_AP50_by_class=by_class,
            images=len(self._found),
            repeated=self._repeated,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the detections as COCO results, the json that pycocotools' `loadRes` and test servers take."""
        (target,) = output_files({"path": path}, self.annotations).values()
        lines = (json.dumps(row, separators=(",", ":"), allow_nan=False) for row in self._rows())
        write_atomically(target, ("[" + next(lines, ""), *(",\n" + line for line in lines), "]\n"))

    # ---------------------------------------------------------------------------------------- detections

    def _in_source(self, batch: Batch, predictions: Sequence[Mapping[str, Tensor]]) -> Iterator[ImageDetections]:
        columns = read_predictions(predictions, len(batch), len(self._category_ids))
        moved = batch.to_source(columns.boxes)
        each = zip(batch.source_size.tolist(), moved, columns.scores, columns.labels, strict=True)
        for (height, width), box, score, label in each:
            limit = torch.tensor([width, height] * 2, dtype=torch.float64, device="cpu")
            inside = box.double().clamp(min=0).minimum(limit)
            yield ImageDetections(inside.numpy(), score.double().numpy(), self._category_ids[label.numpy() - 1])

    def _rows(self) -> Iterator[dict[str, Any]]:
        for image_id in self._truth.image_ids:
            yield from self._found.get(image_id, NO_DETECTIONS).rows(image_id)

    def _check_complete(self, partial: bool) -> None:
        missing = [image_id for image_id in self._truth.image_ids if image_id not in self._found]
        if not self._found:
            raise InputError("there is nothing to compute: call update(batch, predictions) first")
        if missing and not partial:
            raise InputError(
                f"{len(missing)} of {len(self._truth.image_ids)} images of {self.annotations} were never updated, the "
                f"first has image_id {missing[0]}; update with all, gather() over the ranks, or compute(partial=True)"
            )
