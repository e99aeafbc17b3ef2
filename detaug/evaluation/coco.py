"""`CocoEvaluator`: detections on batches, moved back to source pixels, scored by COCO's rule and by Pascal VOC's."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch import distributed as dist

from detaug.converters.coco.annotations import read_annotations
from detaug.converters.coco.table import load_coco
from detaug.converters.conversion.outputs import output_files
from detaug.converters.files.atomic import write_atomically
from detaug.evaluation import voc_ap
from detaug.evaluation.voc_ap import Floats, Ints
from detaug.loading.batch import Batch
from detaug.loading.devices import resolve_device
from detaug.sources.coco_reader import CocoReader

COCO_NAMES = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
"""In the order of pycocotools' stats."""


@dataclass(frozen=True)
class Metrics:
    """What a detector reaches, 0..1; -1 where there is no object to find, as in pycocotools.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> evaluator = da.CocoEvaluator(reader)
    >>> for batch in da.Loader(reader, da.presets.evaluation((300, 300)), batch_size=8, train=False):
    ...     evaluator.update(batch, [{**each, "scores": torch.ones(len(each["labels"]))} for each in batch.targets()])
    >>> metrics = evaluator.compute()
    >>> print(metrics.AP50, metrics.VOC_AP50_by_class["fish"], metrics.images)
    1.0 1.0 48
    """

    AP: float
    """Mean over the IoU thresholds 0.50, 0.55, ..., 0.95 and the classes."""
    AP50: float
    AP75: float
    APs: float
    """Of objects of less than 32 x 32 source pixels; m: up to 96 x 96; l: more."""
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
    """Images that were evaluated."""
    repeated: int
    """Images that came again and were not counted again."""

    def __str__(self) -> str:
        return "  ".join(f"{name} {getattr(self, name):.3f}" for name in (*COCO_NAMES, "VOC_AP50"))


class _Found(NamedTuple):
    """The detections in one image."""

    boxes: Floats
    """(K, 4) XYXY source pixels."""
    scores: Floats
    category_ids: Ints

    def rows(self, image_id: int) -> Iterator[dict[str, Any]]:
        """As COCO's results have them."""
        sizes = self.boxes[:, 2:] - self.boxes[:, :2]
        columns = (self.boxes[:, :2].tolist(), sizes.tolist(), self.scores.tolist(), self.category_ids.tolist())
        for start, size, score, category in zip(*columns, strict=True):
            yield {"image_id": image_id, "category_id": category, "bbox": [*start, *size], "score": score}


_NOTHING = _Found(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))


class _Truth(NamedTuple):
    """What there is to find: N images in the json's order, G objects grouped by image."""

    image_ids: list[int]
    categories: dict[int, str]
    rows: list[dict[str, Any]]
    """G, as pycocotools reads them."""
    first: Ints
    """(N + 1,): the objects of image i are first[i]:first[i + 1]."""
    boxes: Floats
    """(G, 4) XYXY."""
    category_ids: Ints
    aside: NDArray[np.bool_]
    """(G,): difficult, or a crowd."""


class CocoEvaluator:
    """Collects detections batch by batch and scores them against a COCO json.

    `annotations`: the json, or a `CocoReader`, whose json is taken. Its mistakes are errors here.

    COCO's rules are pycocotools' own: a crowd region is ignored, `difficult` means nothing. VOC's are the devkit's:
    an object that is difficult is not counted, and a detection of it is neither right nor wrong; a crowd likewise.
    Detections in images without objects are wrong by both.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> evaluator = da.CocoEvaluator(reader)
    >>> for batch in da.Loader(reader, da.presets.evaluation((300, 300)), batch_size=8, train=False):
    ...     found = [{**each, "scores": torch.ones(len(each["labels"]))} for each in batch.targets()]  # your model's
    ...     evaluator.update(batch, found)
    >>> print(evaluator.compute())
    AP 1.000  AP50 1.000  AP75 1.000  ... VOC_AP50 1.000
    """

    def __init__(self, annotations: str | os.PathLike[str] | CocoReader) -> None:
        self.annotations = Path(annotations.annotations if isinstance(annotations, CocoReader) else annotations)
        self._truth = _read_truth(self.annotations)
        self._known = set(self._truth.image_ids)
        self._category_ids = np.array(list(self._truth.categories), np.int64)
        self._own: dict[int, _Found] = {}
        self._own_repeated = 0
        self._found, self._repeated = self._own, 0

    def update(self, batch: Batch, predictions: Sequence[Mapping[str, Tensor]]) -> None:
        """Take the detections in a batch.

        `predictions`: N dicts, as torchvision's detectors return them: boxes (K, 4) XYXY in pixels of `batch.images`,
        scores (K,), labels (K,) in 1..the number of classes.

        Boxes are moved to the source image and cut at its edges: a detector cuts them at the edges of what it was
        shown, padding and letterbox included, and what reaches into those would cost IoU. A box that is only there
        stays, without area, a wrong detection. An image counts once; when it comes again, as samplers that fill up
        shards make it do, the first detections stay and `Metrics.repeated` counts it.
        """
        for image_id, found in zip(batch.image_id.tolist(), self._in_source(batch, predictions), strict=True):
            if image_id not in self._known:
                raise ValueError(f"image_id {image_id} is not in {self.annotations}; evaluate with the loader's json")
            self._own_repeated += image_id in self._own
            self._own.setdefault(image_id, found)
        self._found, self._repeated = self._own, self._own_repeated

    def gather(self) -> CocoEvaluator:
        """Bring together what the ranks of torch.distributed have; every rank must call it. Returns the evaluator.

        Without an initialised process group there is nothing to do. Of an image that came on several ranks, the
        detections of the lowest one stay. May be called again after more updates.
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
        """The metrics of all images of the json.

        `partial`: of those alone that were updated; without it, one that is missing is an error. `voc2007`: VOC's AP
        is the mean of precision at 11 recalls, as in VOC2007, not the area under the curve, as from VOC2010 on.
        """
        self._check_complete(partial)
        by_class = self._voc(voc2007)
        real = [value for value in by_class.values() if value >= 0]
        return Metrics(
            **dict(zip(COCO_NAMES, self._coco(), strict=True)),
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

    def _in_source(self, batch: Batch, predictions: Sequence[Mapping[str, Tensor]]) -> Iterator[_Found]:
        boxes, scores, labels = _columns(predictions, len(batch), len(self._category_ids))
        moved = batch.to_source(boxes)
        for (height, width), box, score, label in zip(batch.size.tolist(), moved, scores, labels, strict=True):
            inside = box.double().clamp(min=0).minimum(torch.tensor([width, height, width, height]))
            yield _Found(inside.numpy(), score.double().numpy(), self._category_ids[label.numpy() - 1])

    def _rows(self) -> Iterator[dict[str, Any]]:
        for image_id in self._truth.image_ids:
            yield from self._found.get(image_id, _NOTHING).rows(image_id)

    def _check_complete(self, partial: bool) -> None:
        missing = [image_id for image_id in self._truth.image_ids if image_id not in self._found]
        if not self._found:
            raise ValueError("there is nothing to compute: call update(batch, predictions) first")
        if missing and not partial:
            raise ValueError(
                f"{len(missing)} of {len(self._truth.image_ids)} images of {self.annotations} were never updated, the "
                f"first has image_id {missing[0]}; update with all, gather() over the ranks, or compute(partial=True)"
            )

    # ------------------------------------------------------------------------------------------- metrics

    def _coco(self) -> list[float]:
        from pycocotools.cocoeval import COCOeval

        detections = [
            {**row, "id": at, "area": row["bbox"][2] * row["bbox"][3], "iscrowd": 0}
            for at, row in enumerate(self._rows(), 1)
        ]
        with _silence():
            scoring = COCOeval(self._coco_of(self._truth.rows), self._coco_of(detections), "bbox")
            scoring.params.imgIds = sorted(self._found)
            scoring.evaluate()
            scoring.accumulate()
            scoring.summarize()
        return [float(value) for value in scoring.stats]

    def _coco_of(self, rows: list[dict[str, Any]]) -> Any:
        from pycocotools.coco import COCO

        coco = COCO()
        coco.dataset = {
            "images": [{"id": image_id} for image_id in self._truth.image_ids],
            "annotations": rows,
            "categories": [{"id": at, "name": name} for at, name in self._truth.categories.items()],
        }
        coco.createIndex()
        return coco

    def _voc(self, eleven_points: bool) -> dict[str, float]:
        truth = self._truth
        found = [self._found.get(image_id, _NOTHING) for image_id in truth.image_ids]
        seen = np.repeat([image_id in self._found for image_id in truth.image_ids], np.diff(truth.first))
        scores, category_ids = (np.concatenate(column) for column in list(zip(*found, strict=True))[1:])
        best = np.concatenate([self._voc_matches(at, each) for at, each in enumerate(found)])
        result = {}
        for category, name in truth.categories.items():
            mine = category_ids == category
            positives = int((seen & ~truth.aside & (truth.category_ids == category)).sum())
            result[name] = voc_ap.average_precision(
                scores[mine], best[mine], truth.aside, positives, eleven_points=eleven_points
            )
        return result

    def _voc_matches(self, at: int, found: _Found) -> Ints:
        """(K,): the object that each detection of the image at this position meets, -1 for none."""
        first, end = self._truth.first[at : at + 2]
        objects, categories = self._truth.boxes[first:end], self._truth.category_ids[first:end]
        best = voc_ap.best_objects(found.boxes, found.category_ids, objects, categories)
        return np.where(best >= 0, best + first, -1)


def _read_truth(path: Path) -> _Truth:
    """Objects with the json's own boxes and areas, as pycocotools would read them, and ids from 1.

    pycocotools takes annotation id 0 for "no match", and needs an area, which not every json has.
    """
    checked = read_annotations(path)
    position = {image_id: at for at, image_id in enumerate(checked.image_ids.tolist())}
    entries = sorted(load_coco(path).document["annotations"], key=lambda entry: position[entry["image_id"]])
    rows = [_row(at, entry) for at, entry in enumerate(entries, 1)]
    boxes = np.array([row["bbox"] for row in rows], np.float64).reshape(-1, 4)
    return _Truth(
        image_ids=list(position),
        categories=checked.categories,
        rows=rows,
        first=checked.first,
        boxes=np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1),
        category_ids=np.array([row["category_id"] for row in rows], np.int64),
        aside=np.array([entry.get("iscrowd") == 1 or entry.get("difficult") == 1 for entry in entries], np.bool_),
    )


def _row(at: int, entry: dict[str, Any]) -> dict[str, Any]:
    box, area = entry["bbox"], entry.get("area")
    return {
        "id": at,
        "image_id": entry["image_id"],
        "category_id": entry["category_id"],
        "bbox": box,
        "area": area if isinstance(area, int | float) else box[2] * box[3],
        "iscrowd": int(entry.get("iscrowd") == 1),
    }


def _columns(predictions: Sequence[Mapping[str, Tensor]], images: int, classes: int) -> list[list[Tensor]]:
    """Boxes, scores and labels of each image, on the CPU: one copy for each of the three, not for each image."""
    if len(predictions) != images:
        raise ValueError(
            f"predictions must hold one dict for each of the batch's {images} images, got {len(predictions)}"
        )
    for at, each in enumerate(predictions):
        _check_shapes(at, each)
    counts = [len(each["scores"]) for each in predictions]
    boxes, scores, labels = (
        torch.cat([each[name].detach() for each in predictions]).cpu() for name in ("boxes", "scores", "labels")
    )
    if not (boxes.isfinite().all() and scores.isfinite().all()):
        raise ValueError(
            "predictions must hold finite boxes and scores, got NaN or infinity; has the training diverged?"
        )
    if len(labels) and not (labels.min() >= 1 and labels.max() <= classes):
        raise ValueError(
            f"labels of predictions must be 1..{classes}, the json's classes, got {labels.min()}..{labels.max()}; "
            "0 is the background"
        )
    return [list(torch.split(column, counts)) for column in (boxes, scores, labels)]


def _check_shapes(at: int, prediction: Mapping[str, Tensor]) -> None:
    missing = [name for name in ("boxes", "scores", "labels") if name not in prediction]
    if missing:
        raise ValueError(f"predictions[{at}] must have boxes, scores and labels, got {list(prediction)}")
    k = len(prediction["scores"])
    expected = {"boxes": (k, 4), "scores": (k,), "labels": (k,)}
    shapes = {name: tuple(prediction[name].shape) for name in expected}
    if shapes != expected:
        raise ValueError(f"predictions[{at}] must have boxes (K, 4), scores (K,) and labels (K,), got {shapes}")


@contextmanager
def _silence() -> Iterator[None]:
    """pycocotools prints its progress, and warns of what it does with NumPy itself."""
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
