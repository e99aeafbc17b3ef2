"""Samplers say how often each image comes in an epoch; `Loader(..., sampler=...)` takes them, or your own function."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from detaug.boxes.views import Floats
from detaug.ops.arguments import check
from detaug.sources.coco_reader import CocoReader


@dataclass(frozen=True)
class RepeatFactorSampler:
    """Images with a rare class come more often: sqrt(threshold / f) times, f being the share of images with it.

    An image with several classes goes by its rarest; none comes less than once. From LVIS (Gupta et al. 2019),
    Detectron2's RepeatFactorTrainingSampler, MMDetection's ClassBalancedDataset.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> factors = da.RepeatFactorSampler(0.4)(reader)
    >>> print(factors.min(), factors.max().round(2))
    1.0 1.55
    >>> loader = da.Loader(reader, da.presets.ssd300(), batch_size=8, sampler=da.RepeatFactorSampler(0.4))
    >>> len(loader)
    8
    """

    threshold: float = 0.001

    def __post_init__(self) -> None:
        check("threshold", self.threshold, 0 < self.threshold <= 1, "a share of the images, above 0 and at most 1")

    def __call__(self, reader: CocoReader) -> Floats:
        """(n,): how often each image comes in an epoch, on average."""
        rows, labels = reader.labels()
        share = np.bincount(labels, minlength=len(reader.class_names)) / len(reader)
        factors = np.ones(len(reader))
        np.maximum.at(factors, rows, np.sqrt(self.threshold / share[labels]))
        return factors


@dataclass(frozen=True)
class ClassBalancedSampler:
    """Each class as often as the others, as if a class were drawn first, and then one of the images with it.

    An epoch has as many images as the data set; images without objects never come. Shen et al. 2016 (class-aware
    sampling).

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> factors = da.ClassBalancedSampler()(reader)
    >>> print(factors.min(), factors.max().round(2), factors.sum().round())
    0.0 1.75 48.0
    """

    def __call__(self, reader: CocoReader) -> Floats:
        """(n,): how often each image comes in an epoch, on average."""
        rows, labels = reader.labels()
        images = np.bincount(labels, minlength=len(reader.class_names))
        share = 1 / images[labels] / np.count_nonzero(images)
        return np.asarray(np.bincount(rows, share, minlength=len(reader)) * len(reader), np.float64)
