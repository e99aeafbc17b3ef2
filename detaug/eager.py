"""Eager mode: the same ops at once on arrays, for notebooks, previews and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from nvidia.dali import Pipeline, fn
from nvidia.dali import math as dali_math

from detaug.batches import invert
from detaug.geometry import render, view_matrix
from detaug.pipeline import Lane, OpLike, boxes_in_pixels, resolve_device, run_recipe
from detaug.sample import Node, Random, Sample

Array = NDArray[Any]


def batch(
    images: Sequence[Array] | Array,
    boxes: Sequence[ArrayLike] | None = None,
    labels: Sequence[ArrayLike] | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Samples:
    """Samples on which ops run at once: `da.RandomHorizontalFlip(p=1)(da.batch(images, boxes, labels))`.

    `images`: N arrays (H, W, 3) uint8 RGB. `boxes`: N arrays (M, 4) XYXY pixels, inside their images; None is
    no boxes. `labels`: N arrays (M,) of whole numbers from 1; None is 1 for each box. The same `seed` and the
    same ops draw the same numbers, as the ops of a recipe draw them one after the other.
    """
    images = [_image(image) for image in images]
    boxes = [np.zeros((0, 4))] * len(images) if boxes is None else boxes
    pixels = [np.asarray(each, np.float32).reshape(-1, 4) for each in boxes]
    labels = [np.ones(len(each)) for each in pixels] if labels is None else labels
    numbers = [np.asarray(each, np.int32).reshape(-1) for each in labels]
    _check_lengths(images, pixels, numbers)
    return Samples(tuple(images), tuple(pixels), tuple(numbers), (), seed, resolve_device(device))


@dataclass(frozen=True)
class Samples:
    """N samples on arrays, and the ops run on them so far. Made by `da.batch`; ops return new ones."""

    source_images: tuple[Array, ...]
    source_boxes: tuple[Array, ...]
    source_labels: tuple[Array, ...]
    ops: tuple[OpLike, ...]
    seed: int
    device: torch.device

    def then(self, op: OpLike) -> Samples:
        """These samples after one more op."""
        after = replace(self, ops=(*self.ops, op))
        with Pipeline(1, 1, None):
            after._graph(Random())  # built, not run: what is wrong with a recipe shows where the op is called
        return after

    def __len__(self) -> int:
        return len(self.source_images)

    def __repr__(self) -> str:
        return f"<{len(self)} samples after {list(self.ops)}>"

    @property
    def images(self) -> list[Array]:
        """N arrays (H, W, 3) in 0..255; (3, H, W) after Normalize. Without Resize, at the view's own size."""
        return self._outputs[0]

    @property
    def boxes(self) -> list[Array]:
        """N arrays (M, 4) float32 XYXY, in pixels of `images`."""
        return self._outputs[1]

    @property
    def labels(self) -> list[Array]:
        """N arrays (M,) int32."""
        return self._outputs[2]

    @property
    def matrix(self) -> Array:
        """(N, 2, 3) float64: source pixels -> pixels of `images`."""
        matrix, size = np.stack(self._outputs[3]), np.stack(self._outputs[4])
        moved: Array = invert(matrix) * size[:, ::-1, None]
        return moved

    @cached_property
    def _outputs(self) -> list[list[Array]]:
        lane = Lane(self._graph, len(self), 1, self.device)
        lane.start(self._inputs(), np.random.default_rng(self.seed), len(self))
        return [_arrays(output) for output in lane.finish()]

    def _inputs(self) -> dict[str, Any]:
        size = np.array([image.shape[:2] for image in self.source_images], np.float32)
        relative = [
            boxes / np.array([width, height, width, height], np.float32)
            for boxes, (height, width) in zip(self.source_boxes, size, strict=True)
        ]
        source = view_matrix(np.zeros_like(size), size[:, ::-1])
        named = {"image": self.source_images, "boxes": relative, "labels": self.source_labels}
        return {**{name: list(arrays) for name, arrays in named.items()}, "size": size, "source": source}

    def _graph(self, random: Random) -> list[Node]:
        image, boxes, labels, size, source = (
            fn.external_source(name=name, layout="HWC" if name == "image" else None)
            for name in ("image", "boxes", "labels", "size", "source")
        )
        image = image.gpu() if self.device.type == "cuda" else image
        sample = run_recipe(Sample(image, boxes, labels, source, size, source, random), self.ops)
        if not sample.rendered:
            sample = render(sample, dali_math.max(dali_math.floor(sample.size + 0.5), 1.0))
        return [sample.image, boxes_in_pixels(sample), sample.labels, sample.matrix, sample.size, size]


def _arrays(output: Any) -> list[Array]:
    on_cpu = output.as_cpu()
    return [np.array(on_cpu.at(at)) for at in range(len(on_cpu))]


def _image(image: Any) -> Array:
    array = np.ascontiguousarray(image)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8:
        raise ValueError(f"an image must be (H, W, 3) uint8 RGB, got {array.shape} {array.dtype}")
    return array


def _check_lengths(images: list[Array], boxes: list[Array], labels: list[Array]) -> None:
    if not len(images) == len(boxes) == len(labels) or not images:
        raise ValueError(f"images, boxes and labels must be as many, got {len(images)}, {len(boxes)}, {len(labels)}")
    for at, (image, each, numbers) in enumerate(zip(images, boxes, labels, strict=True)):
        if len(each) != len(numbers):
            raise ValueError(f"labels[{at}] must hold one label for each of {len(each)} boxes, got {len(numbers)}")
        height, width = image.shape[:2]
        inside = (each[:, :2] >= 0).all() and (each[:, 2:] <= (width, height)).all()
        if not (inside and (each[:, :2] <= each[:, 2:]).all() and (numbers >= 1).all()):
            raise ValueError(
                f"boxes[{at}] must be XYXY pixels inside the image of {width} x {height}, x0 <= x1 and y0 <= y1, "
                f"with labels from 1, got {each.tolist()}, {numbers.tolist()}"
            )
