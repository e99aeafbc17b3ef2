"""Move boxes, points and masks from the pixels of a batch to those of its source images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from detaug.boxes.fields import Field
from detaug.boxes.layers import Drawing
from detaug.boxes.views import invert
from detaug.errors import InputError

Boxes = TypeVar("Boxes", Tensor, list[Tensor])
_ONE = {"boxes": "box", "points": "point", "masks": "mask"}

SIDE_PIECES = 32
"""Pieces of each side of a box whose ends are moved to the source, where a field bent the output."""

PIXELS_AT_ONCE = 1 << 24
"""Pixels of masks that are moved to the source at once: about 64 MB for each of a few arrays."""


class InSourcePixels:
    """What a batch of N images shows, in pixels of their sources."""

    images: Tensor
    boxes: Tensor
    valid: Tensor
    source_size: Tensor
    image_size: Tensor
    matrix: Tensor
    drawing: Drawing | None
    layer_of_box: Tensor | None
    distortion: Field | None

    def to_source(self, boxes: Boxes) -> Boxes:
        """Return boxes given in output pixels in source pixels, without clipping.

        `boxes`: (N, K, 4) XYXY, or a list of N tensors (K_i, 4), as detectors return them. Raises InputError for a
        batch of mixed images, in which a box may lie on any of several images; `boxes_in_source` knows for the batch's.
        """
        return self._each_to_source("boxes", boxes, move_boxes)

    def points_to_source(self, points: Boxes) -> Boxes:
        """Return points given in output pixels in source pixels: keypoints, or corners of rotated boxes.

        `points`: (N, ..., 2) x, y, or a list of N tensors (..., 2). Raises InputError for a batch of mixed images, as
        `to_source` does.

        >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
        >>> batch = next(iter(da.Loader(reader, da.presets.evaluation((300, 300)), batch_size=2, train=False)))
        >>> print(batch.source_size[0], batch.points_to_source(torch.tensor([[[300.0, 150.0]]] * 2))[0, 0])
        tensor([375, 500]) tensor([500.0000, 187.5000])
        """
        return self._each_to_source("points", points, move_points)

    def masks_to_source(self, masks: Sequence[Tensor]) -> list[Tensor]:
        """Return masks given in output pixels in source pixels: N tensors (K_i, height, width) bool, on their device.

        `masks`: N tensors (K_i, H, W) or (K_i, 1, H, W), of the size of `images`, or of the image without its padding:
        bool or whole numbers, or probabilities, as Mask R-CNN returns them. A source pixel is in a mask if, where its
        center lies in the output, the mask is above 0.5, interpolated between four pixels. What the output does not
        show is False. Raises InputError for a batch of mixed images, as `to_source` does, for masks of another size,
        and for floats outside 0..1.

        >>> reader = da.CocoReader("demo/ships", "demo/ships.json", masks=True)
        >>> batch = next(iter(da.Loader(reader, da.presets.evaluation((300, 300)), batch_size=2, train=False)))
        >>> (first, _) = batch.masks_to_source([each["masks"] for each in batch.targets(masks=True)])
        >>> print(batch.source_size[0].tolist(), tuple(first.shape[1:]))
        [375, 500] (375, 500)
        """
        return [torch.cat([*parts]) for parts in self.masks_to_source_in_parts(masks)]

    def masks_to_source_in_parts(self, masks: Sequence[Tensor]) -> Iterator[Iterator[Tensor]]:
        """Yield for each image what `masks_to_source` returns, as parts (K', height, width) that take less memory."""
        self._check_each_to_source("masks", masks)
        padded, own_sizes = self.images.shape[-2:], self.image_size.tolist()
        checked = [as_masks(index, own, padded, own_sizes[index]) for index, own in enumerate(masks)]
        sizes, fields = self.source_size.tolist(), self._fields()
        for of_image, to_output, (height, width), own in zip(checked, self.matrix, sizes, fields, strict=True):
            yield move_masks(of_image, to_output, height, width, own)

    def _each_to_source(self, name: str, values: Boxes, move: Callable[..., Tensor]) -> Boxes:
        self._check_each_to_source(name, values)
        return self._each_moved(values, move, self._to_source())

    def _each_moved(
        self, values: Boxes, move: Callable[..., Tensor], matrix: Tensor, onto: Sequence[Field | None] = ()
    ) -> Boxes:
        """Return values of N images after the maps, (N, 2, 3) or (N, 3, 3). `onto`: what bends where they lead to."""
        if isinstance(values, Tensor) and self.distortion is None and not any(onto):
            return move(values, matrix)
        per_image = zip(values, matrix, self._fields(), onto or [None] * len(matrix), strict=True)
        moved = [move(value[None], own[None], field, target)[0] for value, own, field, target in per_image]
        return torch.stack(moved) if isinstance(values, Tensor) else moved

    def _check_each_to_source(self, name: str, values: Sequence[Tensor] | Tensor) -> None:
        """Raise InputError if values of N images cannot be moved to their sources."""
        self._check_not_mixed(
            f"where a {_ONE[name]} lies in its source is not known: evaluate without Mosaic, MixUp, CutMix and "
            "CopyPaste; batch.boxes_in_source() returns the batch's own boxes"
        )
        self._check_count(name, values)

    def _check_not_mixed(self, consequence: str) -> None:
        """Raise InputError for a batch in which an image is of several. `consequence`: what follows, and a remedy."""
        if self.matrix is None:
            raise InputError(
                "the batch has no matrix: give da.fn.augment return_matrix=True, return the matrix from the pipeline, "
                "and name it in output_map"
            )
        if self.drawing is not None and (mixed := self.drawing.layers.mixed).any():
            raise InputError(f"{mixed.sum()} images of this batch are mixed of several, so {consequence}")

    def _check_count(self, name: str, values: Sequence[Tensor] | Tensor) -> None:
        if len(values) != len(self.images):
            raise InputError(f"{name} must hold one entry for each of the {len(self.images)} images, got {len(values)}")

    def boxes_in_source(self) -> Tensor:
        """Return the batch's boxes in pixels of the images that they are of, (N, M, 4) XYXY; zeros where padded.

        `image_id_of_box` has the ids of these images. They are not clipped; a box that an op clipped in the output
        stays so.

        >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
        >>> batch = next(iter(da.Loader(reader, [da.Resize((300, 300)), da.Mosaic()], batch_size=8)))
        >>> print(batch.image_id_of_box[1, 0], batch.boxes_in_source()[1, 0].round())
        tensor(44) tensor([ 14.,   0., 174.,  87.])
        """
        if self.drawing is None or self.layer_of_box is None:
            return self.to_source(self.boxes).where(self.valid[..., None], 0)
        images = np.arange(len(self.images))[:, None]
        to_source = torch.from_numpy(
            self.drawing.layers.to_source[images, self.layer_of_box.cpu().numpy()]
        )  # (N, M, 3, 3)
        field, rooms = self.distortion, to_source.shape[1]
        of_boxes = None if field is None else field[np.repeat(np.arange(len(self.images)), rooms)]
        moved = move_boxes(self.boxes.reshape(-1, 1, 4), to_source.reshape(-1, 3, 3), of_boxes).reshape(
            self.boxes.shape
        )
        return moved.where(self.valid[..., None], 0)

    def _fields(self) -> list[Field | None]:
        """Return what bends each image, by itself."""
        field = self.distortion
        return [None if field is None else field[index : index + 1] for index in range(len(self.images))]

    def _to_source(self) -> Tensor:
        return torch.from_numpy(invert(self.matrix.cpu().double().numpy()))


def move_boxes(boxes: Tensor, matrix: Tensor, field: Field | None = None, onto: Field | None = None) -> Tensor:
    """Return (N, K, 4) XYXY, float32 at least: the hulls of the boxes after the maps, (N, 2, 3) or (N, 3, 3).

    `field`: what bent the N images; their boxes are first moved to those before it, at points along their sides.
    `onto`: what bends the N images that the maps lead to.
    """
    x0, y0, x1, y1 = boxes.double().unbind(-1)  # autocast does not stack float16
    points = torch.stack([torch.stack([x0, x1, x0, x1], -1), torch.stack([y0, y0, y1, y1], -1)], -1)  # (N, K, 4, 2)
    if field is not None or onto is not None:
        points = points[..., :1, :] + (points[..., 3:, :] - points[..., :1, :]) * _BORDER.to(boxes.device)
    moved = move_points(points, matrix, field, onto)
    return torch.cat([moved.amin(-2), moved.amax(-2)], -1).to(torch.promote_types(boxes.dtype, torch.float32))


_STEPS = np.linspace(0, 1, SIDE_PIECES + 1)
_POINTS = [[share, end] for share in _STEPS for end in (0, 1)] + [[end, share] for share in _STEPS for end in (0, 1)]
_BORDER = torch.from_numpy(np.array(_POINTS, np.float32))  # whatever torch's default device and type are
"""(V, 2) points along the sides of the unit square."""


def move_points(points: Tensor, matrix: Tensor, field: Field | None = None, onto: Field | None = None) -> Tensor:
    """Return (N, ..., 2), float32 at least: points x, y after the maps, (N, 2, 3) or (N, 3, 3).

    `field`: what bent the N images of the points; they are moved to those before it first. `onto`: what bends the N
    images that the maps lead to.
    It adds and multiplies element by element in double precision: autocast and TF32 round products of matrices, by
    several pixels.
    """
    matrix = matrix.to(points.device, torch.float64)
    x, y = points.double().unbind(-1)  # (N, ...)
    if field is not None:
        x, y = field.undistorted(np.arange(len(points)).reshape(-1, *[1] * (x.ndim - 1)), x, y)
    rows = [[entry.reshape(-1, *[1] * (x.ndim - 1)) for entry in row.unbind(1)] for row in matrix.unbind(1)]
    moved = [a * x + b * y + c for a, b, c in rows]
    if len(moved) == 3:
        moved = [coordinate / moved[2] for coordinate in moved[:2]]
    together = torch.stack(moved, -1)
    if onto is not None:
        placed = onto.place(np.arange(len(points)), together.cpu().numpy())
        together = torch.from_numpy(placed).to(points.device)
    return together.to(torch.promote_types(points.dtype, torch.float32)) + 0.0  # -0.0 + 0.0 is 0.0


def as_masks(index: int, masks: Tensor, padded: Sequence[int], size: Sequence[int]) -> Tensor:
    """Return (K, H, W) bool or floats of the masks of image `index`. Raises InputError for what is none.

    `padded`, `size`: (height, width) of the batch's images, and of this one without its padding; masks have either.
    """
    if not len(masks):  # a model that found nothing may return (0,)
        return masks.new_zeros(0, *padded)
    forms = dict.fromkeys((*between, *sides) for sides in (padded, size) for between in ((), (1,)))
    if masks.shape[1:] not in forms:
        text = " or ".join(f"(K, {', '.join(map(str, form))})" for form in forms)
        raise InputError(f"masks[{index}] must be {text}, in pixels of batch.images, got {tuple(masks.shape)}")
    masks = masks.detach().reshape(-1, *masks.shape[-2:])
    if masks.dtype == torch.bool:
        return masks
    if not masks.is_floating_point():
        if not ((masks == 0) | (masks == masks.max())).all() or masks.min() < 0:
            raise InputError(
                f"masks[{index}] must be bool, or 0 and one value above it, got several in "
                f"{masks.min()}..{masks.max()}; give probabilities as numbers in 0..1, such as masks / 255"
            )
        return masks != 0
    lowest, highest = (float(limit) for limit in masks.aminmax())
    if not (lowest >= 0 and highest <= 1):  # nor NaN
        raise InputError(
            f"masks[{index}] must be bool or probabilities in 0..1, got {lowest:g}..{highest:g}; give logits as "
            "logits.sigmoid()"
        )
    return masks


def move_masks(
    masks: Tensor, to_output: Tensor, height: int, width: int, field: Field | None = None
) -> Iterator[Tensor]:
    """Yield the masks (K, H, W) of an image in parts, in pixels of its source: (K', height, width) bool.

    `to_output`: the map of the image, (2, 3) or (3, 3), and `field` what bent it afterwards.
    """
    yield from sample_masks(masks, move_points(centers_of(height, width, masks.device), to_output[None], onto=field))


def centers_of(height: int, width: int, device: torch.device) -> Tensor:
    """Return (1, height, width, 2): x, y of the centers of an image's pixels, in double precision."""
    axes = [torch.arange(side, dtype=torch.float64, device=device) + 0.5 for side in (height, width)]
    return torch.stack([*torch.meshgrid(*axes, indexing="ij")][::-1], -1)[None]


def sample_masks(masks: Tensor, points: Tensor) -> Iterator[Tensor]:
    """Yield the masks (K, H, W) of an image where other pixels see them, in parts: (K', height, width) bool.

    `points`: (1, height, width, 2), where in the masks each of these pixels looks; outside of them it is False.
    """
    size = points.new_tensor([masks.shape[2], masks.shape[1]])
    relative = points / size * 2 - 1  # of the masks: -1 to 1
    seen = (relative.abs() < 1).all(-1)
    most = max(points[0, ..., 0].numel(), masks.shape[1] * masks.shape[2])
    for part in torch.split(masks, max(1, PIXELS_AT_ONCE // most)):
        sampled = grid_sample(part[None].float(), relative.float(), padding_mode="border", align_corners=False)
        yield (sampled[0] > 0.5) & seen
