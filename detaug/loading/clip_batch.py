"""`ClipBatch`: what the loader yields of clips."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.boxes.fields import Field
from detaug.boxes.shape_group import PartOfGroup
from detaug.drawing.sheet import notebook_png
from detaug.loading.batch import Batch, Columns, OldNames, change_tensors, clone_batch
from detaug.loading.batch_masks import MasksOfBoxes


@dataclass(frozen=True, eq=False)
class ClipBatch(OldNames, MasksOfBoxes):
    """N augmented clips of F frames with their boxes, padded to M, the largest number of objects in a clip.

    An object is in the same row m in all frames of its clip; where it is not seen, `valid` is False. What the ops drew
    is the same in all frames, but for noise.

    images, boxes, labels, valid, track_id, classes and flow are on the loader's device, the other tensors on the CPU.

    >>> reader = da.ClipReader("demo/MOT", "demo/clips.json", frames=3, stride=4)
    >>> batch = next(iter(da.Loader(reader, [da.Resize((120, 160))], batch_size=1, train=False)))
    >>> print(type(batch).__name__, batch.track_id[0, 0], batch.time)
    ClipBatch tensor([1, 2, 3, 4]) tensor([[0.0000, 0.1600, 0.3200]], dtype=torch.float64)
    """

    images: Tensor
    """(N, F, 3, H, W): float32 after Normalize; without it in 0..255, uint8."""
    boxes: Tensor
    """(N, F, M, 4) float32 XYXY pixels of the output image; zeros where padded or not seen."""
    labels: Tensor
    """(N, F, M) int64, 1..K; -1 where padded or not seen."""
    valid: Tensor
    """(N, F, M) bool, False where padded or not seen."""
    track_id: Tensor
    """(N, F, M) int64, the JSON file's; -1 where padded or not seen, and everywhere for a JSON file without."""
    video_id: Tensor
    """(N,) int64, the JSON file's."""
    frame: Tensor
    """(N, F) int64: the frames' numbers in their video."""
    time: Tensor
    """(N, F) float64: seconds from frame 0 of the video; nan where its frames per second are not known."""
    image_id: Tensor
    """(N, F) int64, the JSON file's."""
    source_size: Tensor
    """(N, 2) int64: (height, width) of the source frames, as displayed."""
    image_size: Tensor
    """(N, 2) int64: (height, width) of the frames within `images`; right of it and below is padding."""
    matrix: Tensor
    """(N, 2, 3) float32: source pixels -> output pixels, for points (x, y); (N, 3, 3) if the recipe has perspective."""
    rows: Tensor | None = None
    """(N, F, M) int64: the row of each box in the columns of its source; -1 where padded or not seen."""
    moved: PartOfGroup | None = None
    """The shapes of the boxes of the N * F frames, if the source has any."""
    columns: dict[str, Columns] = field(default_factory=dict)
    """(N, F, M, ...) what belongs to each box, by name: see `Batch.columns`."""
    params: tuple[dict[str, NDArray[Any]], ...] | None = None
    """For each op what it drew, by name: arrays (N * F, ...). None unless the loader has return_params."""
    epoch: int = 0
    """The epoch that the batch belongs to, from 0."""
    step: int = 0
    """The step of the epoch that the batch is, from 0."""
    classes: Tensor | None = None
    """(N,) int64, 0..K-1: the class of each clip's first frame as a whole; None for a source without."""
    flow: Tensor | None = None
    """(N, F - 1, 2, H / grid, W / grid) float32, rounded up: (x, y) pixels by which what is there in a frame is farther
    right and lower in the next one. None unless the recipe has `OpticalFlow`."""
    distortion: Field | None = None
    """What an op such as `OpticalDistortion` bent the N * F frames by; `matrix` is that before it."""

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        images = f"{tuple(self.images.shape)} {str(self.images.dtype).removeprefix('torch.')} on {self.images.device}"
        return f"ClipBatch(images {images}, {int(self.valid.sum())} boxes)"

    def __getitem__(self, _: object) -> NoReturn:  # also called to unpack it
        raise TypeError("a ClipBatch is not a pair and has no items: use batch.images, or batch.as_images().targets()")

    def _repr_png_(self) -> bytes:
        """Draw the first frames for notebooks, with the numbers and colors of their tracks."""
        numbers = torch.where(self.track_id < 0, self.labels, self.track_id)
        seen = list(self.valid.flatten(0, 1))
        boxes = [frame_boxes[mask].tolist() for frame_boxes, mask in zip(self.boxes.flatten(0, 1), seen, strict=True)]
        shown = [frame_numbers[mask].tolist() for frame_numbers, mask in zip(numbers.flatten(0, 1), seen, strict=True)]
        sizes = self.image_size.repeat_interleave(self.frame.shape[1], 0).tolist()
        return notebook_png(list(self.images.flatten(0, 1)), boxes, shown, sizes)

    def as_images(self) -> Batch:
        """Return the N * F frames as a `Batch`, clip by clip: for detectors, evaluators and images of single images.

        Boxes that are not seen are left out, so an object may be in another row in each frame.
        """
        frames = self.valid.shape[1]
        order = torch.sort(self.valid.flatten(0, 1).int(), dim=1, descending=True, stable=True).indices
        counts = self.valid.flatten(0, 1).sum(1).tolist()
        order = order[:, : max(counts, default=0)]
        boxes, labels, valid = (values.flatten(0, 1) for values in (self.boxes, self.labels, self.valid))
        return Batch(
            images=self.images.flatten(0, 1),
            boxes=boxes.gather(1, order[..., None].expand(-1, -1, 4)),
            labels=labels.gather(1, order),
            valid=valid.gather(1, order),
            image_id=self.image_id.flatten(),
            source_size=self.source_size.repeat_interleave(frames, 0),
            image_size=self.image_size.repeat_interleave(frames, 0),
            matrix=self.matrix.repeat_interleave(frames, 0),
            counts=tuple(counts),
            rows=None if self.rows is None else self.rows.flatten(0, 1).gather(1, order.cpu()),
            image_id_of_box=torch.where(valid.gather(1, order).cpu(), self.image_id.flatten().cpu()[:, None], -1),
            moved=self.moved,
            columns={name: _in_order(column, order.cpu()) for name, column in self.columns.items()},
            params=self.params,
            epoch=self.epoch,
            step=self.step,
            classes=None if self.classes is None else self.classes.repeat_interleave(frames),
            distortion=self.distortion,
        )

    def to(self, device: torch.device | str) -> ClipBatch:
        """Return the batch with every tensor on `device`."""
        changed: ClipBatch = change_tensors(self, lambda tensor: tensor.to(device))
        return changed

    def clone(self) -> ClipBatch:
        """Return the batch with tensors of its own, to keep or to save; `params` are shared."""
        changed: ClipBatch = clone_batch(self)
        return changed


def _in_order(column: Columns, order: Tensor) -> Columns:
    """Return a column of clips (N, F, M, ...) as one of their frames, (N * F, K, ...). `order`: (N * F, K)."""
    frames = torch.arange(len(order))[:, None]
    if isinstance(column, Tensor):
        return column.flatten(0, 1)[frames.to(column.device), order.to(column.device)]
    return np.asarray(column.reshape(len(order), *column.shape[2:])[frames.numpy(), order.numpy()])
