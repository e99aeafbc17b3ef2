"""The targets of a batch in the form of DETR, its descendants, and the detectors of Hugging Face's transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from detaug.arguments import check, is_whole
from detaug.loading.batch_masks import MasksOfBoxes
from detaug.loading.fixed_rows import rows_of_largest
from detaug.loading.trainer_formats import NestedTensor, center_and_size, padding_mask, relative_to, split_by_image


class DetrTargets(MasksOfBoxes):
    """The forms of a `Batch` whose targets are a dict for each image, with boxes as center and size."""

    boxes: Tensor
    valid: Tensor
    image_id: Tensor
    source_size: Tensor
    counts: tuple[int, ...]
    columns: dict[str, Any]

    def as_detr(
        self, *, first_label: int = 1, masks: bool = False, max_boxes: int | None = None
    ) -> tuple[NestedTensor, list[dict[str, Tensor]]]:
        """Return images with their padding mask, and N targets, as the loaders of DETR and RF-DETR do.

        The first is a pair: images (N, 3, H, W), and the mask (N, H, W) bool, True where padded. DETR's models take it
        as it is. The targets have, on the batch's device: `boxes` (M_i, 4) float32 cxcywh, relative to the image
        without padding; `area` (M_i,) float32, of the box in output pixels; `labels` (M_i,) int64 from `first_label`: 1
        for DETR, 0 for RF-DETR since 1.5; `iscrowd` (M_i,) int64; `image_id` (1,); `size` and `orig_size` (2,):
        (height, width) of the image without padding, and of its source. With keypoints, `keypoints` (M_i, K, 3)
        float32: x and y relative to the image without padding, and v; pixels are continuous, where RF-DETR's own loader
        counts them from 0 as COCO does, half a pixel less. `masks`: also `masks` (M_i, H, W) bool, padded as the images
        are, and `area` is that of the masks. RT-DETR, D-FINE and DEIM take the images alone, labels from 0, and
        `orig_size` as (width, height). `max_boxes`: as many rows for each image, M_i = max_boxes, with zeros behind its
        boxes, and `valid` (max_boxes,) bool, True for boxes, as RF-DETR's `pad_targets_to` gives them: static shapes
        for XLA, CUDA graphs and torch.compile. Of an image with more boxes the largest stay, with a warning. Source:
        datasets/coco.py and util/misc.py of https://github.com/facebookresearch/detr.

        >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
        >>> loader = da.Loader(reader, [da.Resize(240), da.Normalize()], batch_size=2, train=False)
        >>> (images, mask), targets = next(iter(loader)).as_detr()
        >>> print(tuple(images.shape), mask[:, 0].sum(1), targets[0]["size"])  # padded columns of each image
        (2, 3, 256, 384) tensor([64, 24]) tensor([240, 320])
        """
        mask = padding_mask(self.images, self.image_size)
        check(
            "max_boxes", max_boxes, max_boxes is None or is_whole(max_boxes, 1), "None or a whole number of at least 1"
        )
        targets = self._coco_targets("labels", first_label, self.image_size, masks, max_boxes)
        return NestedTensor(self.images, mask), targets

    def as_hf(self, *, masks: bool = False) -> dict[str, Any]:
        """Return the inputs of detectors of Hugging Face's transformers: `model(**batch.as_hf())`.

        `pixel_values` (N, 3, H, W); `pixel_mask` (N, H, W) int64, 0 where padded; `labels`: N targets as those of
        `as_detr`, with `class_labels` from 0 instead of `labels`. Their `boxes` and `size` are relative to the padded
        image, as those of transformers' image processors are since 4.37 (huggingface/transformers#28363). So the boxes
        that a model predicts, times `size`, are in output pixels, which `to_source` takes.

        No detector of transformers 5.24 is trained with keypoints or rotated boxes, so the targets have none; ViTPose
        finds keypoints in crops of single people. `keypoints` and `rotated_boxes` of the batch have them.
        """
        padded_size = torch.tensor([self.images.shape[-2:]] * len(self.images), device="cpu")
        return {
            "pixel_values": self.images,
            "pixel_mask": (~padding_mask(self.images, self.image_size)).long(),
            "labels": self._coco_targets("class_labels", 0, padded_size, masks),
        }

    def _crowds(self) -> Tensor:
        """Return (N, M) int64: 1 for the regions that `CocoReader(crowds="keep")` reads."""
        column = self.columns.get("iscrowd")
        crowds = torch.zeros_like(self.labels)
        return crowds if not isinstance(column, Tensor) else crowds + (column == 1).to(crowds.device)

    def _coco_targets(
        self, labels: str, first_label: int, size: Tensor, masks: bool, max_boxes: int | None = None
    ) -> list[dict[str, Tensor]]:
        """Return the targets of `as_detr`, relative to `size` (N, 2). `labels`: the name of the labels in them."""
        boxes = center_and_size(self.boxes)
        of_boxes = {
            "boxes": relative_to(boxes, size),
            labels: self.labels - 1 + first_label,
            "area": boxes[..., 2:].prod(-1),
            "iscrowd": self._crowds(),
        }
        if self.has_keypoints and labels == "labels":
            points = self.keypoints
            scale = torch.cat([size.flip(1), torch.ones_like(size[:, :1])], 1).to(points)
            of_boxes["keypoints"] = points / scale[:, None, None]
        ids = None if self.image_id is None else self.image_id[:, None]
        of_images = {
            "image_id": ids,
            "orig_size": self.source_size,
            "size": size,
        }  # None: a DALI pipeline without this output
        on_device = {name: values.to(self.boxes.device) for name, values in of_images.items() if values is not None}
        if max_boxes is not None:
            of_boxes |= {"valid": self.valid, labels: of_boxes[labels].where(self.valid, 0)}
            areas = of_boxes["area"]
            if masks:
                of_boxes["masks"] = self.masks(padded=True)
                of_boxes["area"] = of_boxes["masks"].sum((2, 3), dtype=torch.float32)
            of_boxes = rows_of_largest(of_boxes, areas, self.counts, max_boxes)
            return split_by_image(of_boxes, on_device, [max_boxes] * len(self.images))
        if not masks:
            return split_by_image(of_boxes, on_device, self.counts)
        of_objects = self.masks()
        areas = of_objects.sum((1, 2), dtype=torch.float32)
        del of_boxes["area"]
        return split_by_image(of_boxes, on_device, self.counts, {"masks": of_objects, "area": areas})
