"""The masks of a batch, rasterised when they are asked for."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from detaug.arguments import check, is_whole
from detaug.boxes.masks import Grid, pixel_grid, rasterise
from detaug.gpu.masks import rasterise_on_gpu
from detaug.loading.batch_shapes import ShapesOfBoxes


class Polygons(NamedTuple):
    """The outlines of B boxes in output pixels, not clipped."""

    points: Tensor
    """(P, 2) float32 x, y of all rings, concatenated."""
    first_point: Tensor
    """(R + 1,) int64: ring r has the points first_point[r] to first_point[r + 1]."""
    first_ring: Tensor
    """(B + 1,) int64: box b has the rings first_ring[b] to first_ring[b + 1]."""


class MasksOfBoxes(ShapesOfBoxes):
    """The masks of the real boxes of a batch: which pixels of the output show their objects.

    What is masked is what is seen: what an op cut off, covered or erased is not in a mask, nor is fill. They are made
    from outlines, moved once in double precision, never by resampling: a pixel is in a mask if its centre is in a ring
    of the outline (even-odd), in any of its rings, or in a mask of run lengths.
    """

    images: Tensor

    def masks(self, stride: int = 1, *, padded: bool = False) -> Tensor:
        """Return (B, H // stride, W // stride) bool on the batch's device: the masks of the B real boxes, in order.

        `stride`: sample at the centres of blocks of this many pixels. `padded`: (N, M, ...), False for padding, which
        takes much memory. Raises InputError for a source without masks.
        """
        check("stride", stride, is_whole(stride, 1), "a whole number of at least 1")
        masks = self._rasterise(pixel_grid(*self._size, stride))
        if not padded:
            return masks
        real = (self.labels >= 0).to(masks.device)
        result = masks.new_zeros(*real.shape, *masks.shape[1:])
        result[real] = masks
        return result

    @property
    def _size(self) -> tuple[int, int]:
        height, width = self.images.shape[-2:]
        return height, width

    def _rasterise(self, grid: Grid, boxes: slice | None = None) -> Tensor:
        table = self._group.shapes.mask_table
        assert self.moved is not None
        device = self.labels.device
        objects = self._group.objects.part(self.moved.boxes)
        if device.type == "cuda":
            return rasterise_on_gpu(table, objects, grid, device)
        return torch.from_numpy(rasterise(table, objects, grid)).to(device)
