"""`SemanticEvaluator`: score the classes of pixels, in the pixels of the maps, as they are in the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import distributed as dist

from detaug.arguments import check, checks_names, is_whole
from detaug.arrays import Ints
from detaug.errors import InputError
from detaug.evaluation.map_predictions import at_points, classes_at
from detaug.evaluation.ranks import of_all_ranks
from detaug.loading.batch import Batch


@dataclass(frozen=True)
class SemanticMetrics:
    """What `SemanticEvaluator` measured. NaN where no pixel is of a known class.

    >>> print(da.SemanticMetrics(mIoU=0.5, accuracy=0.75, mean_accuracy=0.7, iou={"cat": 0.5}, pixels=4))
    mIoU 0.500  accuracy 0.750  mean accuracy 0.700
    """

    mIoU: float
    """The mean of `iou` over the classes that occur, in the maps or in what was predicted."""
    accuracy: float
    """The fraction of pixels of known classes that are right: pixel accuracy, aAcc."""
    mean_accuracy: float
    """The mean over the classes that occur in the maps of the fraction of their pixels that is right, mAcc."""
    iou: dict[str, float]
    """Of each class by its name, or its number: pixels that are right / those that are, or were predicted, of it."""
    pixels: int
    """Of known classes."""

    def __str__(self) -> str:
        return f"mIoU {self.mIoU:.3f}  accuracy {self.accuracy:.3f}  mean accuracy {self.mean_accuracy:.3f}"


class SemanticCounts:
    """Counts of pixels by true and predicted class. Source of the rules: the confusion matrix of
    https://github.com/pytorch/vision/blob/main/references/segmentation/utils.py; for predictions of `ignore`, and of
    other numbers that are not classes, `intersect_and_union` in mmseg/evaluation/metrics/iou_metric.py of
    https://github.com/open-mmlab/mmsegmentation: they are in the union of the true class, and in no other.
    """

    def __init__(self, classes: int, names: Sequence[str] | None, device: torch.device | str = "cpu") -> None:
        self.names = tuple(names) if names else tuple(map(str, range(classes)))
        self._counts = torch.zeros((classes, classes + 1), dtype=torch.int64, device=device)

    def add(self, truth: Tensor, predicted: Tensor, ignore: int, name: str) -> Tensor:
        """Count an image: the classes of its pixels, (H, W). Raises InputError for a true one that is not known.

        Returns its counts (C, C + 1), for `add_counts` of another process.
        """
        classes, known = len(self._counts), (truth != ignore).to(predicted.device)
        truth, predicted = truth.to(predicted.device)[known].long(), predicted[known]
        if len(truth) and int(truth.max()) >= classes:
            raise InputError(f"the map {name!r} has the class {int(truth.max())}, num_classes is {classes}")
        is_class = (predicted >= 0) & (predicted < classes) & (predicted != ignore)
        predicted = predicted.where(is_class, classes)  # of no class: wrong
        pairs = truth * (classes + 1) + predicted
        counts = torch.bincount(pairs, minlength=self._counts.numel()).view_as(self._counts)
        self.add_counts(counts)
        return counts

    def add_counts(self, counts: Tensor) -> None:
        """Add those of an image, (C, C + 1)."""
        self._counts += counts

    @property
    def confusion(self) -> Ints:
        """Return (C, C) the pixels of each class by the class that was predicted."""
        return self._counts[:, :-1].cpu().numpy()

    @property
    def no_class(self) -> int:
        """Return how many pixels of known classes were predicted as no class."""
        return int(self._counts[:, -1].sum())

    def metrics(self) -> SemanticMetrics:
        """Return the metrics of all images so far."""
        counts = self._counts.double().cpu()
        right, is_of, predicted = counts.diagonal(), counts.sum(1), counts[:, :-1].sum(0)
        iou = right / (is_of + predicted - right)
        return SemanticMetrics(
            mIoU=iou.nanmean().item(),
            accuracy=(right.sum() / is_of.sum()).item(),
            mean_accuracy=(right / is_of).nanmean().item(),
            iou=dict(zip(self.names, iou.tolist(), strict=True)),
            pixels=int(is_of.sum()),
        )


class SemanticEvaluator:
    """Counts predicted and true classes of pixels batch by batch, and returns mIoU and accuracies of all.

    Args:
        num_classes: Of the model; None: the number of names of the map, `ClassMap(classes=)`.
        map: Its name. True classes are those of the files, so predictions are moved to their pixels: scores are
            interpolated linearly, then the largest is taken. Pixels with `ignore` are not counted; a prediction of
            `ignore`, or of another number without a class, is wrong. Sources of the rules: the confusion matrix of
            https://github.com/pytorch/vision/blob/main/references/segmentation/utils.py, and `intersect_and_union` of
            https://github.com/open-mmlab/mmsegmentation/blob/main/mmseg/evaluation/metrics/iou_metric.py.

    >>> reader = da.MapReader("demo/VOC/JPEGImages", "demo/VOC/SegmentationClass")
    >>> evaluator = da.SemanticEvaluator(num_classes=7)
    >>> for batch in da.Loader(reader, da.presets.evaluation((240, 240)), batch_size=8, train=False):
    ...     evaluator.update(batch, batch.maps["semantic"])  # your model's scores or classes
    >>> print(evaluator.compute().accuracy > 0.97)
    True
    """

    @checks_names
    def __init__(self, num_classes: int | None = None, *, map: str = "semantic") -> None:
        check("num_classes", num_classes, num_classes is None or is_whole(num_classes, 1), "a whole number, or None")
        self._classes, self._map = num_classes, map
        self._counts: SemanticCounts | None = None
        self._of_images: dict[int, Tensor] = {}  # sparse, on the CPU: what other processes may have counted, too

    def update(self, batch: Batch, predictions: Tensor) -> None:
        """Count a batch of an evaluation recipe, which mixes no images.

        Args:
            predictions: (N, C, h, w) scores of C classes, or (N, h, w) classes, of the whole output, at its size or a
                smaller one.
        """
        kind = batch.maps_of_images.classes(self._map)
        classes = self._classes or len(kind.classes or ())
        if not classes:
            raise InputError(f"num_classes must be given, since the map {self._map!r} has no names of classes")
        good = predictions.ndim in (3, 4) and len(predictions) == len(batch)
        good = good and (predictions.ndim == 3 or predictions.shape[1] == classes)
        shape = f"({len(batch)}, {classes}, h, w) scores, or ({len(batch)}, h, w) classes"
        check("predictions", tuple(predictions.shape), good, shape)
        if self._counts is None:
            self._counts = SemanticCounts(classes, kind.classes, predictions.device)
        for image, own in enumerate(predictions):
            truth, points = batch.map_in_source(self._map, image)
            size = batch.images.shape[-2:]
            if own.ndim == 3:
                predicted = classes_at(own, points, size)
            else:
                predicted = at_points(own[None], points, size, nearest=True)[0].long()
            counts = self._counts.add(truth, predicted, kind.ignore, self._map)
            if dist.is_available() and dist.is_initialized():
                self._of_images[int(batch.image_id[image])] = counts.cpu().to_sparse()

    def gather(self) -> SemanticEvaluator:
        """Gather the counts of all ranks of torch.distributed; every rank must call it. Returns the evaluator.

        Does nothing without an initialized process group. For an image on several ranks, the counts of the lowest rank
        count.
        """
        parts = of_all_ranks((self._of_images, self._counts and self._counts.names))
        if parts is None:
            return self
        names = next((names for _, names in parts if names), None)
        if names is not None:
            self._counts = SemanticCounts(len(names), names)
            self._of_images = {image: counts for own, _ in reversed(parts) for image, counts in own.items()}
            for counts in self._of_images.values():
                self._counts.add_counts(counts.to_dense())
        return self

    def compute(self) -> SemanticMetrics:
        """Return the metrics of all batches so far."""
        if self._counts is None:
            raise InputError("nothing to score: call update(batch, predictions) first")
        return self._counts.metrics()
