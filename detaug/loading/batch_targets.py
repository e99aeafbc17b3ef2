"""What batches say of their images, all that is known before any of them is read, as tensors where they have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor

from detaug.boxes.views import Ints, Views, start_offsets
from detaug.gpu.streams import MadeOn, on_device


@dataclass(frozen=True, eq=False)
class Outcome:
    """Of one batch of N images; the fields are `Batch`'s. `size` and `matrix` are on the CPU."""

    boxes: Tensor
    labels: Tensor
    mask: Tensor
    counts: tuple[int, ...]
    size: Tensor
    matrix: Tensor
    made_on: MadeOn
    """The stream of `boxes`, `labels` and `mask`."""

    def __getitem__(self, rows: Ints) -> Outcome:
        """Some of the images, padded to the boxes of the fullest one among them."""
        counts = tuple(self.counts[row] for row in rows.tolist())
        at, most = torch.from_numpy(rows), max(counts, default=0)
        here = at.to(self.boxes.device)
        boxes, labels, mask = (each[here, :most] for each in (self.boxes, self.labels, self.mask))
        return Outcome(boxes, labels, mask, counts, self.size[at], self.matrix[at], self.made_on)


def outcomes(views: Views, parts: list[slice], device: torch.device) -> list[Outcome]:
    """Of batches that were planned together, each a part of the views.

    What goes to the device goes there for all of them at once: a copy costs more than its bytes.
    """
    real_boxes, real_labels, counts = views.unpadded()
    lengths = [part.stop - part.start for part in parts]
    most = np.maximum.reduceat(counts, [part.start for part in parts])
    at, rows = _places(counts, np.repeat(most, lengths))
    all_boxes, all_labels = np.zeros((rows, 4), np.float32), np.full(rows, -1)
    all_boxes[at], all_labels[at] = real_boxes, real_labels
    boxes, labels = on_device(all_boxes, device), on_device(all_labels, device)  # of one batch behind the other
    size, matrix = np.ascontiguousarray(views.size, np.int64), np.ascontiguousarray(views.to_output(), np.float32)
    shapes = list(zip(lengths, most.tolist(), strict=True))  # of each batch, padded
    of_each_batch = zip(
        parts,
        _split(boxes, [(*shape, 4) for shape in shapes]),
        _split(labels, shapes),
        _split(labels >= 0, shapes),
        strict=True,
    )
    made_on = MadeOn(device)
    return [
        Outcome(
            boxes,
            labels,
            mask,
            tuple(counts[part].tolist()),
            torch.from_numpy(size[part]),
            torch.from_numpy(matrix[part]),
            made_on,
        )
        for part, boxes, labels, mask in of_each_batch
    ]


def _places(counts: Ints, room: Ints) -> tuple[Ints, int]:
    """The rows of boxes that lie one behind the other, `counts` (N,) of each image, in as much `room` (N,) for each.

    And how many rows there are.
    """
    padding_before = start_offsets(room - counts)
    return np.arange(counts.sum()) + np.repeat(padding_before, counts), int(room.sum())


def _split(together: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Tensors of these shapes, one behind the other in one piece of memory.

    `data`: autograd takes them for tensors on their own; if one is changed in place, the others stay usable to it.
    """
    pieces = together.view(-1).split_with_sizes([prod(shape) for shape in shapes])
    return [piece.view(shape).data for piece, shape in zip(pieces, shapes, strict=True)]
