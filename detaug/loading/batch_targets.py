"""Build target tensors before decoding: boxes, labels and sizes of whole blocks of batches at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.boxes.views import Floats, Ints, Views, start_offsets
from detaug.gpu.streams import StreamGuard, to_device


@dataclass(frozen=True, eq=False)
class BatchTargets:
    """The targets of one batch of N images. The fields are those of `Batch`; `size` and `matrix` are on the CPU."""

    boxes: Tensor
    labels: Tensor
    mask: Tensor
    counts: tuple[int, ...]
    size: Tensor
    matrix: Tensor
    classes: Tensor | None
    guard: StreamGuard
    """Guards what is on the device: `boxes`, `labels`, `mask` and `classes`."""

    def wait(self) -> None:
        """Let the current stream wait for what is on the device."""
        each = (self.boxes, self.labels, self.mask, self.classes)
        self.guard.wait(*(tensor for tensor in each if tensor is not None))

    def __getitem__(self, images: Ints) -> BatchTargets:
        """Select some of the images, padded to their own largest number of boxes."""
        counts = tuple(self.counts[image] for image in images.tolist())
        on_cpu, most = torch.from_numpy(images), max(counts, default=0)
        on_device = on_cpu.to(self.boxes.device)
        boxes, labels, mask = (each[on_device, :most] for each in (self.boxes, self.labels, self.mask))
        classes = None if self.classes is None else self.classes[on_device]
        return BatchTargets(boxes, labels, mask, counts, self.size[on_cpu], self.matrix[on_cpu], classes, self.guard)


def build_targets(views: Views, batches: list[slice], device: torch.device, classes: Ints | None) -> list[BatchTargets]:
    """Return the targets of batches that were planned together, each a slice of the views and of `classes` (n,).

    All boxes go to the device in one copy: a copy costs more than its bytes.
    """
    boxes, labels, counts = views.unpadded()
    lengths = [batch.stop - batch.start for batch in batches]
    most = np.maximum.reduceat(counts, [batch.start for batch in batches])
    padded_boxes, padded_labels = pad_boxes(boxes, labels, counts, np.repeat(most, lengths))
    on_device = to_device(padded_boxes, device), to_device(padded_labels, device)
    shapes = list(zip(lengths, most.tolist(), strict=True))
    split_boxes = _split(on_device[0], [(*shape, 4) for shape in shapes])
    split_labels, split_mask = _split(on_device[1], shapes), _split(on_device[1] >= 0, shapes)
    split_classes = [None] * len(batches) if classes is None else _split(to_device(classes, device), [*zip(lengths)])
    size = np.ascontiguousarray(views.size, np.int64)
    matrix = np.ascontiguousarray(views.to_output(), np.float32)
    guard = StreamGuard(device)
    return [
        BatchTargets(
            boxes=split_boxes[at],
            labels=split_labels[at],
            mask=split_mask[at],
            counts=tuple(counts[batch].tolist()),
            size=torch.from_numpy(size[batch]),
            matrix=torch.from_numpy(matrix[batch]),
            classes=split_classes[at],
            guard=guard,
        )
        for at, batch in enumerate(batches)
    ]


def pad_boxes(boxes: Floats, labels: Ints, counts: Ints, room: Ints) -> tuple[NDArray[np.float32], Ints]:
    """Return boxes (R, 4) float32 and labels (R,), concatenated, with `room` (N,) rows for each image.

    `boxes` (B, 4) and `labels` (B,) hold `counts` (N,) rows of each image. Padding is 0 in boxes, -1 in labels.
    """
    padding_before = start_offsets(room - counts)
    rows = np.arange(counts.sum()) + np.repeat(padding_before, counts)
    padded_boxes, padded_labels = np.zeros((room.sum(), 4), np.float32), np.full(room.sum(), -1)
    padded_boxes[rows], padded_labels[rows] = boxes, labels
    return padded_boxes, padded_labels


def _split(joined: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Split a tensor into consecutive tensors of these shapes.

    `data`: autograd treats each as a tensor of its own, so one can be changed in place without invalidating the others.
    """
    pieces = joined.view(-1).split_with_sizes([prod(shape) for shape in shapes])
    return [piece.view(shape).data for piece, shape in zip(pieces, shapes, strict=True)]
