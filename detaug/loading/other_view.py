"""Two views of the same images: the pairs of their boxes, and boxes, points and masks of one in pixels of the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from detaug.boxes.views import inverse, square_maps
from detaug.errors import InputError
from detaug.loading.source_pixels import (
    Boxes,
    InSourcePixels,
    as_masks,
    centers_of,
    move_boxes,
    move_points,
    sample_masks,
)

View = TypeVar("View", bound="InOtherView")


class InOtherView(InSourcePixels):
    """What a batch of N images shows, in pixels of another batch of the same images: of another view of a `Loader`.

    Of clips, `clips.as_images()` has these methods.
    """

    image_id: Tensor
    rows: Tensor | None

    def match(self: View, other: View) -> Tensor:
        """Return the pairs of boxes of this batch and of another view that are of one annotation: (P, 3) int64.

        A pair is the image, 0..N - 1, the box of this batch and the box of `other`, in 0..M - 1: they index `boxes`,
        `labels`, `keypoints`, `columns` and all else that belongs to boxes. The pairs are sorted, on the CPU. An
        annotation that one view does not show is in no pair; one that a mixing op shows twice is in two.
        Raises InputError for batches of other images.

        >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
        >>> recipes = {"weak": [da.Resize((300, 300))], "strong": [da.RandomResizedCrop((300, 300))]}
        >>> views = next(iter(da.Loader(reader, recipes, batch_size=4)))
        >>> image, first, second = views["weak"].match(views["strong"]).unbind(1)
        >>> bool((views["weak"].labels[image, first] == views["strong"].labels[image, second]).all())
        True
        """
        self._check_same_images(other)
        if self.rows is None or other.rows is None:
            raise InputError("match needs the rows of the boxes, which batches of a da.Loader have")
        ours, theirs = self.rows.cpu()[:, :, None], other.rows.cpu()[:, None]
        return torch.nonzero((ours == theirs) & (ours >= 0))

    def map_boxes(self: View, boxes: Boxes, other: View) -> Boxes:
        """Return boxes given in pixels of this batch in pixels of another view of the same images, without clipping.

        They go to the source image and from there into the other view, so of a rotated view they are the hulls of the
        corners. Give float64 for results of double precision: float32 has steps of 3e-5 pixels at 500.

        Args:
            boxes: (N, K, 4) XYXY, or a list of N tensors (K_i, 4), as detectors return them.
            other: The batch of the other view, of the same N images.

        Returns:
            Boxes of the same form, float32 at least. They may lie beside the other image, which shows a part:
            `torchvision.ops.clip_boxes_to_image` clips them.

        Raises:
            InputError: For batches of other images, and where either is mixed of several images.

        >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
        >>> recipes = {"weak": [da.Resize((300, 300))], "strong": [da.RandomHorizontalFlip(1.0), da.Resize((600, 600))]}
        >>> views = next(iter(da.Loader(reader, recipes, batch_size=1)))
        >>> print(views["weak"].map_boxes(torch.tensor([[[10.0, 20, 110, 120]]]), views["strong"]))
        tensor([[[380.,  40., 580., 240.]]])
        """
        self._check_maps("boxes", boxes, other)
        return self._each_moved(boxes, move_boxes, self._to_other(other), other._fields())

    def map_points(self: View, points: Boxes, other: View) -> Boxes:
        """Return points given in pixels of this batch in pixels of another view, as `map_boxes` does.

        A keypoint keeps its place in the list: where one of the views flips the image, left and right change sides, and
        the names are those of this view.

        Args:
            points: (N, ..., 2) x, y, or a list of N tensors (..., 2).
            other: The batch of the other view, of the same N images.
        """
        self._check_maps("points", points, other)
        return self._each_moved(points, move_points, self._to_other(other), other._fields())

    def map_masks(self: View, masks: Sequence[Tensor], other: View) -> list[Tensor]:
        """Return masks given in pixels of this batch in pixels of another view: N tensors (K_i, H, W) bool.

        A pixel of the other view is in a mask if, where its center lies in this view, the mask is above 0.5,
        interpolated between four pixels: one resample. It is False where the other view shows padding, or what lies
        beside the source image, and where it shows what this view does not.

        Args:
            masks: N tensors (K_i, H, W) or (K_i, 1, H, W), as `masks_to_source` takes them.
            other: The batch of the other view, of the same N images.

        Returns:
            N tensors of the height and width of `other.images`, on the device of the masks.

        Raises:
            InputError: As `map_boxes`, for masks of another size, and for floats outside 0..1.
        """
        self._check_maps("masks", masks, other)
        padded, own_sizes = self.images.shape[-2:], self.image_size.tolist()
        checked = [as_masks(index, own, padded, own_sizes[index]) for index, own in enumerate(masks)]
        return [self._map_masks_of(index, of_image, other) for index, of_image in enumerate(checked)]

    def _map_masks_of(self, index: int, masks: Tensor, other: InOtherView) -> Tensor:
        (height, width), (own_height, own_width) = other.image_size[index].tolist(), self.image_size[index].tolist()
        field, onto = other._fields()[index], self._fields()[index]
        in_source = move_points(centers_of(height, width, masks.device), other._to_source()[index][None], field)
        inside = (in_source > 0) & (in_source < in_source.new_tensor(self.source_size[index].flip(0).tolist()))
        points = move_points(in_source, self.matrix[index][None], onto=onto)
        moved = masks.new_zeros((len(masks), *other.images.shape[-2:]), dtype=torch.bool)
        parts = [*sample_masks(masks[:, :own_height, :own_width], points)]
        moved[:, :height, :width] = torch.cat(parts) & inside[0].all(-1) if parts else False
        return moved

    def _to_other(self, other: InOtherView) -> Tensor:
        """Return (N, 3, 3): pixels of this batch, as they were before a field, to those of the other one."""
        to_other, to_own = (square_maps(batch.matrix.cpu().double().numpy()) for batch in (other, self))
        return torch.from_numpy(to_other @ inverse(to_own))

    def _check_maps(self, name: str, values: Sequence[Tensor] | Tensor, other: InOtherView) -> None:
        """Raise InputError if values of N images cannot be moved to those of the other batch."""
        self._check_same_images(other)
        for batch in (self, other):
            batch._check_not_mixed(
                f"{name} cannot be moved between the views: leave Mosaic, MixUp, CutMix and CopyPaste out of the "
                "recipes of both; match returns the pairs of the batches' own boxes in any case"
            )
        self._check_count(name, values)

    def _check_same_images(self, other: InOtherView) -> None:
        if not isinstance(other, InOtherView):
            raise TypeError(f"other must be a Batch, another view of the same images, got {type(other).__name__}")
        ids = [None if batch.image_id is None else batch.image_id.tolist() for batch in (self, other)]
        if ids[0] is None or ids[0] != ids[1]:
            raise InputError(
                "other must be a view of the same images in the same order, got other image_id: take both from one "
                'item of a loader of views, da.Loader(reader, {"weak": [...], "strong": [...]}, ...)'
            )
