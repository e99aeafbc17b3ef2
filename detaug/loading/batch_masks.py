"""The masks of a batch, rasterized when they are asked for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from detaug.arguments import check, is_whole
from detaug.arrays import Bools
from detaug.boxes.mask_table import MaskTable
from detaug.boxes.masks import (
    Grid,
    PlacedObjects,
    label_map,
    pixel_grid,
    placed_outlines,
    rasterise,
)
from detaug.boxes.units import FAR, ONE
from detaug.drawing.points import Marks
from detaug.errors import InputError
from detaug.gpu.grids import GridOnGpu, pixel_grid_on_gpu
from detaug.gpu.masks import ObjectsOnGpu
from detaug.gpu.streams import to_device
from detaug.loading.batch_shapes import ShapesOfBoxes, with_masks


class Polygons(NamedTuple):
    """The polygons of B boxes in output pixels, not clipped."""

    points: Tensor
    """(P, 2) float32 x, y of all rings, concatenated."""
    first_point: Tensor
    """(R + 1,) int64: ring r has the points first_point[r] to first_point[r + 1]."""
    first_ring: Tensor
    """(B + 1,) int64: box b has the rings first_ring[b] to first_ring[b + 1]."""


class MasksOfBoxes(ShapesOfBoxes):
    """The masks of the real boxes of a batch: which pixels of the output show their objects.

    Masks cover the visible part of objects alone, without what an op cut off, covered or erased, and without fill. They
    are made from polygons, moved once in double precision, never by resampling: a pixel is in a mask if its center is
    in a ring of the polygon (even-odd), in any of its rings, or in an RLE mask.
    """

    images: Tensor
    image_size: Tensor

    def masks(self, stride: int = 1, *, padded: bool = False) -> Tensor:
        """Return (B, H // stride, W // stride) bool on the batch's device: the masks of the B real boxes, in order.

        `stride`: sample at the centers of blocks of this many pixels. `padded`: (N, M, ...), False for padding, which
        takes much memory. Raises InputError for a source without masks.
        """
        check("stride", stride, is_whole(stride, 1), "a whole number of at least 1")
        if self.labels.is_cuda:
            group, objects = self._on_gpu()
            masks = group.masks(objects, self._grid_on_gpu(stride))
        else:
            masks = torch.from_numpy(rasterise(*self._objects(), pixel_grid(*self._size, stride)))
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
        real = self._is_real
        places, counts = np.nonzero(real)[1].astype(np.int32), real.sum(1).tolist()
        if self.labels.is_cuda:
            group, objects = self._on_gpu()
            labels = group.labels(objects, self._grid_on_gpu(stride), places, counts)
        else:
            labels = torch.from_numpy(label_map(self.masks(stride).numpy(), places, counts))
        return labels.reshape(*self.labels.shape[:-1], *labels.shape[1:])

    def semantic_map(self, stride: int = 1, *, ignore: int = 255) -> Tensor:
        """Return (N, H // stride, W // stride) int64: the label of what each pixel shows, 0 for the background.

        Small objects lie on large ones; `ignore` is the value of the padding right of and below images.
        """
        places = self.instance_map(stride).long()
        # the last column is for pixels without an object
        labels = torch.cat([self.labels, self.labels.new_zeros((*self.labels.shape[:-1], 1))], -1)
        places = torch.where(places < 0, labels.shape[-1] - 1, places)
        result = labels.gather(-1, places.flatten(-2)).reshape(places.shape)
        y, x = ((torch.arange(side, device="cpu") + 0.5) * stride for side in places.shape[-2:])
        size = self.image_size.reshape(*[len(self.image_size), *[1] * (places.ndim - 1)], 2)
        padding = (y[:, None] >= size[..., 0]) | (x[None, :] >= size[..., 1])
        return result.masked_fill(padding.to(result.device), ignore)

    def _order_by_area(self, stride: int = 1) -> Tensor:
        """Return (B,) int64: the real boxes image by image, in each those with larger masks first."""
        if self.labels.is_cuda:
            group, objects = self._on_gpu()
            areas = group.areas(objects, self._grid_on_gpu(stride))
        else:
            areas = self.masks(stride).sum((1, 2))
        image = to_device(np.nonzero(self._is_real)[0], areas.device)
        order = torch.argsort(areas, descending=True, stable=True)
        return order[torch.argsort(image[order], stable=True)]

    def roi_masks(self, boxes: Tensor, rows: Tensor, size: int = 28) -> Tensor:
        """Return (R, size, size) bool: masks within boxes, sampled at the centers of size x size cells of each.

        `boxes`: (R, 4) XYXY in output pixels. `rows`: (R,) whose mask it is, as a place among those of `masks()`.
        These are the targets of a mask head, without masks of whole images. Rows on the CPU must be among the masks;
        rows on a GPU are not checked, since that would wait for it: those beyond are the first or the last mask.
        """
        check("size", size, is_whole(size, 1), "a whole number of at least 1")
        count = int(self._is_real.sum())
        good = boxes.shape == (len(rows), 4) and (count > 0 or not len(rows))
        check("boxes and rows", (*boxes.shape, *rows.shape), good, f"(R, 4) and (R,), of {count} masks")
        if rows.device.type == "cpu" and len(rows):
            lowest, highest = int(rows.min()), int(rows.max())
            if lowest < 0 or highest >= count:
                raise InputError(f"rows must be places among {count} masks, from 0, got {lowest} to {highest}")
        rows = rows.to(self.labels.device).clamp(0, max(count - 1, 0))
        y, x = box_grid(boxes.to(self.labels.device), size)
        if self.labels.is_cuda:
            group, objects = self._on_gpu()
            return group.masks(objects[rows], GridOnGpu(y, x))
        table, objects_on_cpu = self._objects()
        return torch.from_numpy(rasterise(table, objects_on_cpu.part(rows.numpy()), Grid(y.numpy(), x.numpy())))

    @property
    def polygons(self) -> Polygons:
        """Return the polygons of the B real boxes in output pixels. Those of RLE go along the edges of pixels.

        They are not clipped: what is not seen of an object is part of its polygon.
        """
        table = self._group.shapes.mask_table
        assert self.moved is not None
        placement = self._group.placement.some(np.arange(self.moved.boxes.start, self.moved.boxes.stop))
        return Polygons(*(torch.from_numpy(array) for array in placed_outlines(table, placement)))

    def marks(self) -> list[Marks | None]:
        """Return what images show of the objects of each image or frame, beside boxes."""
        marks = super().marks()
        if not self.shapes.has_masks or self.rows is None:
            return marks
        table, objects = self._objects()
        ends = np.cumsum(self._is_real.sum(1)).tolist()
        return [
            with_masks(image_marks, table, objects.part(slice(start, end)), self._size)
            for image_marks, start, end in zip(marks, [0, *ends], ends, strict=False)
        ]

    @property
    def _is_real(self) -> Bools:
        """Return (N, M), of clips (N * F, M): which boxes are real, from the CPU."""
        assert self.rows is not None
        return np.asarray(self.rows.cpu().flatten(0, -2).numpy() >= 0)

    @property
    def _size(self) -> tuple[int, int]:
        height, width = self.images.shape[-2:]
        return height, width

    def _objects(self) -> tuple[MaskTable, PlacedObjects]:
        """Return the objects of the real boxes."""
        table, moved = self._group.shapes.mask_table, self.moved
        assert moved is not None
        return table, self._group.objects.part(moved.boxes)

    def _on_gpu(self) -> tuple[ObjectsOnGpu, Tensor]:
        """Return the objects of the group, and (B,) the numbers of those of the batch."""
        table, moved, device = self._group.shapes.mask_table, self.moved, self.labels.device
        assert moved is not None
        if device not in self._group.on_device:
            self._group.on_device[device] = ObjectsOnGpu(table, self._group.objects, device)
        group: ObjectsOnGpu = self._group.on_device[device]
        return group, group.all[moved.boxes]

    def _grid_on_gpu(self, stride: int) -> GridOnGpu:
        return pixel_grid_on_gpu(*self._size, stride, self.labels.device)


def box_grid(boxes: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the centers of `size` x `size` cells of boxes (R, 4) XYXY in units: y and x, (R, size) int32 each."""
    start, end = boxes.detach().double().reshape(-1, 1, 2, 2).unbind(2)
    shares = (torch.arange(size, dtype=torch.float64, device=boxes.device) + 0.5) / size
    units = ((start + (end - start) * shares[:, None]) * ONE + 0.5).floor().nan_to_num().clamp(-FAR, FAR)
    x, y = units.int().unbind(-1)
    return y.contiguous(), x.contiguous()
