"""The masks of a batch, rasterised when they are asked for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from detaug.arguments import check, is_whole
from detaug.arrays import Bools, Ints
from detaug.boxes.mask_table import MaskTable
from detaug.boxes.masks import Grid, Objects, box_grid, label_map, pixel_grid, placed_outlines, rasterise
from detaug.gpu.masks import MasksOnGpu
from detaug.gpu.streams import to_device
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
    image_size: Tensor

    def masks(self, stride: int = 1, *, padded: bool = False) -> Tensor:
        """Return (B, H // stride, W // stride) bool on the batch's device: the masks of the B real boxes, in order.

        `stride`: sample at the centres of blocks of this many pixels. `padded`: (N, M, ...), False for padding, which
        takes much memory. Raises InputError for a source without masks.
        """
        check("stride", stride, is_whole(stride, 1), "a whole number of at least 1")
        masks = self._rasterise(pixel_grid(*self._size, stride))
        if not padded:
            return masks
        result = masks.new_zeros(self.labels.numel(), *masks.shape[1:])
        result[to_device(np.flatnonzero(self._is_real), masks.device)] = masks
        return result.reshape(*self.labels.shape, *masks.shape[1:])

    def instance_map(self, stride: int = 1) -> Tensor:
        """Return (N, H // stride, W // stride) int32 on the batch's device: which box of its image each pixel shows.

        It is the place m of the box in `boxes[n, m]`, and -1 where there is none. Small objects lie on large ones. One
        plane for an image takes much less memory than a mask for each object. Of clips the first axes are N, F.
        """
        check("stride", stride, is_whole(stride, 1), "a whole number of at least 1")
        real, grid = self._is_real, pixel_grid(*self._size, stride)
        places, counts = np.nonzero(real)[1].astype(np.int32), real.sum(1).tolist()
        if self.labels.is_cuda:
            labels = self._on_gpu(grid).labels(places, counts)
        else:
            labels = torch.from_numpy(label_map(self._rasterise(grid).numpy(), places, counts))
        return labels.reshape(*self.labels.shape[:-1], *grid.shape)

    def semantic_map(self, stride: int = 1, *, ignore: int = 255) -> Tensor:
        """Return (N, H // stride, W // stride) int64: the label of what each pixel shows, 0 for the background.

        Small objects lie on large ones; `ignore` is the value of the padding right of and below images.
        """
        places = self.instance_map(stride).long()
        labels = torch.cat([self.labels, torch.zeros_like(self.labels[..., :1])], -1)
        places = torch.where(places < 0, labels.shape[-1] - 1, places)
        result = labels.gather(-1, places.flatten(-2)).reshape(places.shape)
        y, x = ((torch.arange(side, device="cpu") + 0.5) * stride for side in places.shape[-2:])
        size = self.image_size.reshape(*[len(self.image_size), *[1] * (places.ndim - 1)], 2)
        padding = (y[:, None] >= size[..., 0]) | (x[None, :] >= size[..., 1])
        return result.masked_fill(padding.to(result.device), ignore)

    def roi_masks(self, boxes: Tensor, rows: Tensor, size: int = 28) -> Tensor:
        """Return (R, size, size) bool: masks within boxes, sampled at the centres of size x size cells of each.

        `boxes`: (R, 4) XYXY in output pixels. `rows`: (R,) whose mask it is, as a place among those of `masks()`.
        These are the targets of a mask head, without masks of whole images. Waits for the device if `boxes` are there.
        """
        check("size", size, is_whole(size, 1), "a whole number of at least 1")
        places, count = rows.cpu().numpy(), int(self._is_real.sum())
        good = boxes.shape == (len(places), 4) and (not len(places) or 0 <= places.min() <= places.max() < count)
        check("boxes and rows", tuple(boxes.shape), good, f"(R, 4) and (R,), with rows from 0 to {count - 1}")
        return self._rasterise(box_grid(boxes.detach().cpu().double().numpy(), size), places)

    @property
    def polygons(self) -> Polygons:
        """Return the outlines of the B real boxes in output pixels. Those of run lengths go along the edges of pixels.

        They are not clipped: what is not seen of an object is part of its outline.
        """
        table = self._group.shapes.mask_table
        assert self.moved is not None
        placement = self._group.placement.some(np.arange(self.moved.boxes.start, self.moved.boxes.stop))
        return Polygons(*(torch.from_numpy(each) for each in placed_outlines(table, placement)))

    @property
    def _is_real(self) -> Bools:
        """Return (N, M), of clips (N * F, M): which boxes are real, from the CPU."""
        assert self.rows is not None
        return np.asarray(self.rows.cpu().flatten(0, -2).numpy() >= 0)

    @property
    def _size(self) -> tuple[int, int]:
        height, width = self.images.shape[-2:]
        return height, width

    def _objects(self, places: Ints | None) -> tuple[MaskTable, Objects]:
        """Return the objects of the real boxes, or of some of them."""
        table = self._group.shapes.mask_table
        assert self.moved is not None
        objects = self._group.objects.part(self.moved.boxes)
        return table, objects if places is None else objects.part(places)

    def _rasterise(self, grid: Grid, places: Ints | None = None) -> Tensor:
        """Return (B, R, C) bool: the masks of the real boxes, or of some of them, at the points of a grid."""
        if self.labels.is_cuda:
            return self._on_gpu(grid, places).masks()
        return torch.from_numpy(rasterise(*self._objects(places), grid)).to(self.labels.device)

    def _on_gpu(self, grid: Grid, places: Ints | None = None) -> MasksOnGpu:
        return MasksOnGpu(*self._objects(places), grid, self.labels.device)
