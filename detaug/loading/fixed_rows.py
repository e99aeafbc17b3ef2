"""Targets of one number of rows, whatever an image shows: `Loader(max_boxes=N)` and `batch.as_detr(max_boxes=N)`.

RF-DETR's `pad_targets_to` (rfdetr/utilities/tensors.py, 1.11.2) does so too, and warns. It keeps the first boxes of an
image with more; here the largest stay, since the order in a JSON file says nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from detaug.arrays import Ints
from detaug.boxes.views import Views


@dataclass(eq=False)
class FixedRows:
    """The number of rows that each image of a loader has, and whether it has warned of boxes without one."""

    rows: int
    warned: bool = False

    def keep_largest(self, views: Views) -> tuple[Views, Ints]:
        """Return views, after all ops, with at most `rows` boxes each, and (N,) how many were left out.

        All frames of a clip keep the same objects, those that are largest in one of them.
        """
        if views.labels.shape[1] <= self.rows:
            return views, np.zeros(len(views), np.int64)
        real = views.labels >= 0
        clips = len(real) // views.frames, views.frames, real.shape[1]
        boxes = views.pixel_boxes().astype(
            np.float32
        )  # as the batch has them: equal ones differ in the last bits before
        sides = boxes[..., 2:] - boxes[..., :2]
        areas = np.where(real, sides.prod(2), -1).reshape(clips).max(1, initial=-1)
        more = (real.reshape(clips).any(1).sum(1) - self.rows).clip(0)
        keep = np.zeros(areas.shape, bool)
        largest = np.argsort(-areas, axis=1, kind="stable")[:, : self.rows]
        np.put_along_axis(keep, largest, True, 1)
        return views.keep(keep.repeat(views.frames, 0)), more.repeat(views.frames)

    def warn(self, left_out: Tensor, counts: Sequence[int], image_ids: Ints) -> None:
        """Warn of the first batch with boxes that were left out. `left_out`: (N,); the arguments are of its images."""
        if self.warned or not left_out.any():
            return
        self.warned = True
        image = int(left_out.argmax())
        shown = counts[image] + int(left_out[image])
        warnings.warn(
            f"max_boxes={self.rows} is less than the {shown} boxes that image_id {image_ids[image]} shows: the "
            "largest of each image stay, batch.boxes_left_out counts the others, and this is said once; give a larger "
            "max_boxes",
            stacklevel=7,
        )


def rows_of_largest(
    of_boxes: Mapping[str, Tensor], areas: Tensor, counts: Sequence[int], rows: int
) -> dict[str, Tensor]:
    """Return columns (N, M, ...) as (N, `rows`, ...), filled with zeros; of images with more boxes the largest.

    `areas`: (N, M), of boxes, 0 where padded; `counts`: the numbers of boxes, which come first. Warns of boxes that are
    left out.
    """
    images, room = areas.shape
    if max(counts, default=0) > rows:
        warnings.warn(
            f"max_boxes={rows} is less than the number of boxes of some images: the largest of them are targets, the "
            "others are not; give a larger max_boxes",
            stacklevel=4,
        )
        # padding has no area, and comes after all boxes
        places = areas.argsort(stable=True, dim=1, descending=True)[:, :rows].sort(1).values
        image = torch.arange(images, device=areas.device)[:, None]
        return {name: values[image, places] for name, values in of_boxes.items()}
    return {
        name: torch.cat([values, values.new_zeros((images, max(0, rows - room), *values.shape[2:]))], 1)[:, :rows]
        for name, values in of_boxes.items()
    }
