"""Samplers for `Loader(..., sampler=...)`: functions that return how often each image comes in an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from detaug.arguments import check, is_number
from detaug.arrays import Floats
from detaug.sources.concat import ConcatReader
from detaug.sources.source import Source


@dataclass(frozen=True)
class RepeatFactorSampler:
    """Repeat images with a rare class sqrt(threshold / f) times, f being the share of images with that class.

    The rarest class of an image counts; no image comes less than once. From LVIS (Gupta et al. 2019),
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
        valid = is_number(self.threshold) and 0 < self.threshold <= 1
        check("threshold", self.threshold, valid, "a share of the images, above 0 and at most 1")

    def __call__(self, reader: Source) -> Floats:
        """Return (n,): how often each image comes in an epoch, on average."""
        indices, labels = reader.labels()
        share = np.bincount(labels, minlength=len(reader.class_names)) / len(reader)
        factors = np.ones(len(reader))
        np.maximum.at(factors, indices, np.sqrt(self.threshold / share[labels]))
        return factors


@dataclass(frozen=True)
class ClassBalancedSampler:
    """Sample all classes equally, as if a class were drawn first, and then one of the images with it.

    An epoch has as many images as the data set; images without objects never come. Shen et al. 2016 (class-aware
    sampling).

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> factors = da.ClassBalancedSampler()(reader)
    >>> print(factors.min(), factors.max().round(2), factors.sum().round())
    0.0 1.65 48.0
    """

    def __call__(self, reader: Source) -> Floats:
        """Return (n,): how often each image comes in an epoch, on average."""
        indices, labels = reader.labels()
        images = np.bincount(labels, minlength=len(reader.class_names))
        share = 1 / images[labels] / np.count_nonzero(images)
        return np.asarray(np.bincount(indices, share, minlength=len(reader)) * len(reader), np.float64)


@dataclass(frozen=True)
class SourceWeightSampler:
    """Sample the sources of a `ConcatReader` in the shares of their weights, whatever their sizes.

    `weights`: one for each source, in their order. An epoch has as many images as the data set.

    >>> demo = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> factors = da.SourceWeightSampler([3, 1])(da.ConcatReader([demo, demo]))
    >>> print(factors[[0, 50]])
    [1.5 0.5]
    """

    weights: Sequence[float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(self.weights))
        valid = bool(self.weights) and all(is_number(each, 0) for each in self.weights) and sum(self.weights) > 0
        check("weights", self.weights, valid, "numbers of at least 0, one above 0")

    def __call__(self, reader: Source) -> Floats:
        """Return (n,): how often each image comes in an epoch, on average. Raises InputError for other sources."""
        lengths = [len(source) for source in reader.sources] if isinstance(reader, ConcatReader) else []
        rule = f"one for each of the {len(lengths)} sources of a da.ConcatReader"
        check("weights", self.weights, len(lengths) == len(self.weights), rule)
        share = np.array(self.weights, np.float64) / sum(self.weights)
        return np.repeat(share * len(reader) / lengths, lengths)
