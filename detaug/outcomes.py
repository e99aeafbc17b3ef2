"""What batches say of their images, all that is known before any of them is read, as tensors where they have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.views import Ints, Views


@dataclass(eq=False)
class Copied:
    """A copy to the GPU that goes on in the background."""

    event: torch.cuda.Event
    done: bool = False
    """Known to be over, for the other batches of the copy: what is asked of the device for each batch adds up."""

    def wait(self) -> None:
        """Nothing that the current stream does from now on is done before the copy."""
        self.done = self.done or bool(self.event.query())  # type: ignore[no-untyped-call]
        if not self.done:
            torch.cuda.current_stream(self.event.device).wait_event(self.event)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Of one batch of N images; the fields are `Batch`'s. `size` and `matrix` are on the CPU."""

    boxes: Tensor
    labels: Tensor
    mask: Tensor
    counts: tuple[int, ...]
    size: Tensor
    matrix: Tensor
    copied: Copied | None
    """When `boxes`, `labels` and `mask` are on the GPU."""

    def __getitem__(self, rows: Ints) -> Outcome:
        """Some of the images, padded to the boxes of the fullest one among them."""
        counts = tuple(self.counts[row] for row in rows.tolist())
        at, most = torch.from_numpy(rows), max(counts, default=0)
        here = at.to(self.boxes.device)
        boxes, labels, mask = (each[here, :most] for each in (self.boxes, self.labels, self.mask))
        return Outcome(boxes, labels, mask, counts, self.size[at], self.matrix[at], self.copied)


def outcomes(views: Views, parts: list[slice], device: torch.device) -> list[Outcome]:
    """Of batches that were planned together, each a part of the views.

    What goes to the device goes there for all of them at once: a copy costs more than its bytes.
    """
    all_boxes, all_labels, counts = views.packed()
    most = [int(counts[part].max(initial=0)) for part in parts]
    cut = list(zip(parts, most, strict=True))
    boxes = _split([all_boxes[part, :width].astype(np.float32) for part, width in cut], device)
    labels = _split([all_labels[part, :width] for part, width in cut], device)
    masks = _split([all_labels[part, :width] >= 0 for part, width in cut], device)
    size, matrix = views.size.astype(np.int64), views.to_output().astype(np.float32)
    sizes, matrices = ([torch.from_numpy(each[part].copy()) for part in parts] for each in (size, matrix))
    copied = Copied(torch.cuda.current_stream(device).record_event()) if device.type == "cuda" else None
    return [
        Outcome(boxes[at], labels[at], masks[at], tuple(counts[part].tolist()), sizes[at], matrices[at], copied)
        for at, part in enumerate(parts)
    ]


def _split(arrays: list[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """The arrays as tensors on the device: on a GPU one behind the other in one piece of memory."""
    if device.type == "cpu":
        return [torch.from_numpy(each.copy()) for each in arrays]
    together = torch.from_numpy(np.concatenate([each.ravel() for each in arrays]))
    together = together.pin_memory().to(device, non_blocking=True)
    pieces = together.split_with_sizes([each.size for each in arrays])
    return [piece.view(each.shape) for piece, each in zip(pieces, arrays, strict=True)]
