"""Samplers for `Loader(..., sampler=...)`: functions that return how often each image comes in an epoch.

With tiles of several grids, each epoch has the tiles of one grid; a factor says how often a tile comes in such epochs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from detaug.arguments import check, check_names, is_number
from detaug.arrays import Floats
from detaug.errors import InputError
from detaug.files.text import read_json
from detaug.sources.concat import ConcatReader
from detaug.sources.source import Source


class _Sampler:
    def __new__(cls, *positional: Any, **named: Any) -> _Sampler:
        """Raise TypeError for the name of an argument that the sampler does not have."""
        check_names(cls.__name__, named, [field.name for field in fields(cls)])  # type: ignore[arg-type]
        return super().__new__(cls)


@dataclass(frozen=True)
class RepeatFactorSampler(_Sampler):
    """Repeat images with a rare class sqrt(threshold / f) times, f being the fraction of images with that class.

    The rarest class of an image counts; no image comes less than once. From LVIS (Gupta et al. 2019), Detectron2's
    RepeatFactorTrainingSampler, MMDetection's ClassBalancedDataset.

    Args:
        threshold: Images whose rarest class is on a larger fraction of the images come once.

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
        check("threshold", self.threshold, valid, "a fraction of the images, above 0 and at most 1")

    def __call__(self, reader: Source) -> Floats:
        """Return (n,): how often each image comes in an epoch, on average."""
        indices, labels = reader.labels()
        presence = _presence(reader)
        share = np.bincount(labels, presence[indices], len(reader.class_names)) / presence.sum()
        factors = np.ones(len(reader))
        np.maximum.at(factors, indices, np.sqrt(self.threshold / share[labels]))
        return factors


@dataclass(frozen=True)
class ClassBalancedSampler(_Sampler):
    """Sample all classes equally, as if a class were drawn first, and then one of the images with it.

    An epoch has as many images as the dataset; images without objects never come. Shen et al. 2016 (class-aware
    sampling).

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> factors = da.ClassBalancedSampler()(reader)
    >>> print(factors.min(), factors.max().round(2), factors.sum().round())
    0.0 1.65 48.0
    """

    def __call__(self, reader: Source) -> Floats:
        """Return (n,): how often each image comes in an epoch, on average."""
        indices, labels = reader.labels()
        presence = _presence(reader)
        images = np.bincount(labels, presence[indices], len(reader.class_names))
        share = 1 / images[labels] / np.count_nonzero(images)
        return np.asarray(np.bincount(indices, share, minlength=len(reader)) * presence.sum(), np.float64)


@dataclass(frozen=True)
class EmptyImageSampler(_Sampler):
    """Let images without objects be a fraction of each epoch, whatever their fraction of the dataset.

    Args:
        share: Of the images of an epoch, 0..1. An epoch has as many images as the dataset. Images without objects teach
            a detector what is none; Ultralytics advises up to 0.1 of them.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> factors = da.EmptyImageSampler(0.1)(reader)
    >>> print(factors.sum().round(), factors.min().round(2), factors.max().round(2))
    48.0 0.98 1.2
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        check("share", self.share, is_number(self.share, 0, 1), "a fraction of the images, in 0..1")

    def __call__(self, reader: Source) -> Floats:
        """Return (n,): how often each image comes in an epoch, on average. Raises InputError if it cannot be kept."""
        indices, _ = reader.labels()
        empty, presence = np.bincount(indices, minlength=len(reader)) == 0, _presence(reader)
        shares = ((empty, self.share, "without objects"), (~empty, 1 - self.share, "with objects"))
        factors = np.zeros(len(reader))
        for images, share, kind in shares:
            if share and not images.any():
                raise InputError(f"share must fit the images, got {self.share} where there is none {kind}")
            factors[images] = share * presence.sum() / max(presence[images].sum(), np.finfo(float).tiny)
        return factors


@dataclass(frozen=True)
class HardImageSampler(_Sampler):
    """Repeat images in which a detector makes many errors: those that `detaug evaluate --report` counted.

    Args:
        report: Its JSON file. An image with e errors comes 1 + e / m times, m being the mean of all images, but no more
            than `most` times. Evaluate the training images for it, not those of the validation.
        most: The most times that an image comes per epoch.

    >>> import json, pathlib
    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> errors = {name: 3 * (at == 0) for at, name in enumerate(reader.file_names)}  # what detaug evaluate finds
    >>> _ = pathlib.Path("report.json").write_text(json.dumps({"errors_of_image": errors}))
    >>> print(da.HardImageSampler("report.json")(reader)[:3])
    [4. 1. 1.]
    """

    report: str | os.PathLike[str]
    most: float = 4.0

    def __post_init__(self) -> None:
        check("most", self.most, is_number(self.most, 1), "a number of at least 1")

    def __call__(self, reader: Source) -> Floats:
        """Return (n,): how often each image comes in an epoch, on average. Raises OSError and InputError."""
        errors = _errors_of_images(Path(self.report))
        names = getattr(reader, "file_names", None)
        if names is None:
            raise InputError(f"HardImageSampler needs a da.CocoReader, got a {type(reader).__name__}")
        missing = [name for name in names if name not in errors]
        if missing:
            raise InputError(
                f"{os.fspath(self.report)} has no errors of {len(missing)} images, the first is {missing[0]!r}; "
                "evaluate with the JSON file of the training"
            )
        counts = np.array([errors[name] for name in names], np.float64)
        return np.asarray((1 + counts / max(counts.mean(), 1e-12)).clip(max=self.most))


def _errors_of_images(path: Path) -> dict[str, int]:
    try:
        errors = read_json(path)["errors_of_image"]
        return {str(name): int(count) for name, count in errors.items()}
    except (InputError, KeyError, TypeError, AttributeError, ValueError):
        raise InputError(f"{path} is not a report; detaug evaluate ... --report FILE.json writes one") from None


@dataclass(frozen=True)
class SourceWeightSampler(_Sampler):
    """Sample the sources of a `ConcatReader` in the fractions of their weights, whatever their sizes.

    Args:
        weights: One for each source, in their order. An epoch has as many images as the dataset.

    >>> demo = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> factors = da.SourceWeightSampler([3, 1])(da.ConcatReader([demo, demo]))
    >>> print(factors[[0, 50]])
    [1.5 0.5]
    """

    weights: Sequence[float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(self.weights))
        valid = bool(self.weights) and all(is_number(weight, 0) for weight in self.weights) and sum(self.weights) > 0
        check("weights", self.weights, valid, "numbers of at least 0, one above 0")

    def __call__(self, reader: Source) -> Floats:
        """Return (n,): how often each image comes in an epoch, on average. Raises InputError for other sources."""
        lengths = [len(source) for source in reader.sources] if isinstance(reader, ConcatReader) else []
        rule = f"one for each of the {len(lengths)} sources of a da.ConcatReader"
        check("weights", self.weights, len(lengths) == len(self.weights), rule)
        share, presence = np.array(self.weights, np.float64) / sum(self.weights), _presence(reader)
        of_sources = np.bincount(np.repeat(np.arange(len(lengths)), lengths), presence)
        return np.repeat(share * presence.sum() / of_sources, lengths)


def _presence(reader: Source) -> Floats:
    """Return (n,): the fraction of the epochs of training that have each image, below 1 for tiles of several grids."""
    return np.ones(len(reader)) if reader.rounds is None else np.asarray(reader.rounds.mean(0), np.float64)
