"""`Batch`: what the loader yields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NoReturn, TypeAlias, get_args

import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.arguments import check
from detaug.boxes.fields import Field
from detaug.boxes.layers import Drawing
from detaug.boxes.shape_group import PartOfGroup
from detaug.drawing.sheet import notebook_png
from detaug.loading.batch_maps import MapsOfBatch, MapsOfPixels
from detaug.loading.detr_targets import DetrTargets
from detaug.loading.other_view import InOtherView
from detaug.loading.trainer_formats import (
    center_and_size,
    padding_mask,
    real_rows,
    relative_to,
    split_by_image,
)

YoloTask = Literal["detect", "segment", "pose", "obb", "semantic", "depth"]
Columns: TypeAlias = Tensor | NDArray[Any]


class OldNames:
    """The names that fields of batches had before."""

    @property
    def mask(self) -> NoReturn:
        """Raise AttributeError: the name is for masks of objects."""
        raise AttributeError("batch.mask is called batch.valid now: (N, M), False where padded")

    @property
    def size(self) -> NoReturn:
        """Raise AttributeError."""
        raise AttributeError("batch.size is called batch.source_size now: (height, width) of the source images")


@dataclass(frozen=True, eq=False)
class Batch(OldNames, MapsOfPixels, DetrTargets, InOtherView):
    """N augmented images with their boxes, padded to M, the largest number of boxes in the batch, or `max_boxes`.

    images, boxes, labels, valid and classes are on the loader's device; the other tensors stay on the CPU. They share
    memory with those of the batches that were made together with this one: keeping one image keeps the memory of up to
    eight batches, and `torch.save` writes all of it. `clone` makes copies.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> batch = next(iter(da.Loader(reader, da.presets.ssd300(), batch_size=4)))
    >>> print(tuple(batch.images.shape), tuple(batch.boxes.shape), batch.counts)
    (4, 3, 300, 300) (4, 5, 4) (0, 0, 5, 5)
    >>> print([target["labels"].tolist() for target in batch.targets()])
    [[], [], [4, 2, 2, 1, 1], [3, 3, 3, 3, 3]]
    >>> print(batch.image_id[2], batch.to_source(batch.boxes)[2, 0].round())  # in pixels of the photograph
    tensor(3) tensor([ 41.,  59., 248., 254.])
    """

    images: Tensor
    """(N, 3, H, W): float32 after Normalize; without it in 0..255, uint8."""
    boxes: Tensor
    """(N, M, 4) float32 XYXY pixels of the output image; zeros where padded."""
    labels: Tensor
    """(N, M) int64, 1..K; -1 where padded."""
    valid: Tensor
    """(N, M) bool, False where padded."""
    image_id: Tensor
    """(N,) int64, the JSON file's."""
    source_size: Tensor
    """(N, 2) int64: (height, width) of the source image, as displayed."""
    image_size: Tensor
    """(N, 2) int64: (height, width) of the image within `images`; right of it and below is padding."""
    matrix: Tensor
    """(N, 2, 3) float32: source pixels -> output pixels, for points (x, y); (N, 3, 3) if the recipe has perspective."""
    counts: tuple[int, ...]
    """The number of boxes of each of the N images."""
    rows: Tensor | None = None
    """(N, M) int64: the row of each box in the columns of its source, `reader.columns`; -1 where padded."""
    image_id_of_box: Tensor | None = None
    """(N, M) int64: the image that each box is of, which ops such as `Mosaic` may have mixed in; -1 where padded."""
    columns: dict[str, Columns] = field(default_factory=dict)
    """What belongs to each box, by name, as the source has it: (N, M, ...) numbers, -1 where padded in whole numbers,
    NaN in others; or arrays of objects such as text, with None. See `CocoReader(columns=...)`."""
    moved: PartOfGroup | None = None
    """The shapes of the boxes, if the source has any: keypoints, corners and polygons."""
    drawing: Drawing | None = None
    """Where images lie in the output, if an op such as `Mosaic` mixed them, or `RandomErasing` covered parts."""
    layer_of_box: Tensor | None = None
    """(N, M) int64: the layer that each box is of; None: the first one."""
    params: tuple[dict[str, NDArray[Any]], ...] | None = None
    """For each op what it drew, by name: arrays whose first axis is N. None unless the loader has return_params."""
    epoch: int = 0
    """The epoch that the batch belongs to, from 0."""
    step: int = 0
    """The step of the epoch that the batch is, from 0."""
    classes: Tensor | None = None
    """(N,) int64, 0..K-1: the class of each image as a whole; None for a source without."""
    boxes_left_out: Tensor | None = None
    """(N,) int64: the boxes of each image that `Loader(max_boxes=)` left out; None without it."""
    extra: dict[str, Tensor] = field(default_factory=dict)
    """(N, ...): further outputs of a DALI pipeline, by name; see `DaliIterator`. A `Loader` has none."""
    distortion: Field | None = None
    """What an op such as `OpticalDistortion` bent the images by, once they were drawn; `matrix` is that before it."""
    maps_of_images: MapsOfBatch = field(default_factory=MapsOfBatch)
    """The maps of the images that it shows, as the source has them; `maps` are those of the output."""

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        images = f"{tuple(self.images.shape)} {str(self.images.dtype).removeprefix('torch.')} on {self.images.device}"
        return f"Batch(images {images}, {sum(self.counts)} boxes)"

    def __getitem__(self, _: object) -> NoReturn:  # also called to unpack it
        raise TypeError("a Batch is not a pair and has no items: use batch.images and batch.targets()")

    def _repr_png_(self) -> bytes:
        """Draw the batch for notebooks, padding hatched. `detaug.sheets.batch_sheet(ops=...)` undoes a Normalize."""
        boxes, labels = ([target[key].tolist() for target in self.targets()] for key in ("boxes", "labels"))
        return notebook_png(list(self.images), boxes, labels, self.image_size.tolist(), self.marks())

    def targets(self, *, masks: bool = False, rotated: bool = False) -> list[dict[str, Tensor]]:
        """Return N dicts for torchvision's detectors: boxes (M_i, 4), labels (M_i,), image_id. Views, not copies.

        With keypoints also `keypoints` (M_i, K, 3), as Keypoint R-CNN takes them: x, y in continuous pixels, and v.

        Args:
            masks: Also `masks` (M_i, H, W) uint8, as Mask R-CNN takes them.
            rotated: Also `rotated` (M_i, 5) float32, center x, y, width, height in pixels and the angle in radians, see
                `rotated_boxes` of "le90".
        """
        of_boxes = {"boxes": self.boxes, "labels": self.labels}
        of_boxes |= {"keypoints": self.keypoints} if self.has_keypoints else {}
        of_boxes |= {"rotated": self.rotated_boxes("cxcywhr", "le90")} if rotated else {}
        of_images = {} if self.image_id is None else {"image_id": self.image_id}  # None: of a DALI pipeline without it
        of_real_boxes = {"masks": self.masks().view(torch.uint8)} if masks else None
        return split_by_image(of_boxes, of_images, self.counts, of_real_boxes)

    def as_mask2former(self, *, map: str | None = None) -> dict[str, Any]:
        """Return the inputs of Mask2Former and OneFormer of transformers: `model(**batch.as_mask2former())`.

        `pixel_values` (N, 3, H, W); `pixel_mask` (N, H, W) int64, 0 where padded; `mask_labels`: N tensors (M_i, H, W)
        float32, 0 or 1; `class_labels`: N tensors (M_i,) int64, from 0.

        Raises InputError for a source without masks, or without this map.

        Args:
            map: The name of a map whose masks are taken instead. Of a `ClassMap`, one for each class that an image
                shows; of a `PanopticMap`, one for each box of which it shows a pixel, in their order, and then one for
                each class of stuff, and labels are positions in its `class_names`. Ignored pixels and void are in no
                mask.
        """
        if map is None:
            targets = self.targets(masks=True)
            masks, classes = [target["masks"] for target in targets], [target["labels"] - 1 for target in targets]
        else:
            masks, classes = self._masks_of_classes(map)
        return {
            "pixel_values": self.images,
            "pixel_mask": (~padding_mask(self.images, self.image_size)).long(),
            "mask_labels": [mask.float() for mask in masks],
            "class_labels": classes,
        }

    def as_yolo(self, task: YoloTask = "detect") -> dict[str, Any]:
        """Return the batch that Ultralytics' trainer and losses take: images, and a row for each of B boxes.

        `img`: the images; `cls` (B, 1) float32: labels from 0; `bboxes` (B, 4) float32 cxcywh, relative to the padded
        image; `batch_idx` (B,) float32: the position of the box's image. The trainer divides images by 255, so its
        recipe ends without `Normalize`, or with `Normalize(dtype="uint8")`. A model that is called directly takes 0..1.

        Args:
            task: "pose" also has `keypoints` (B, K, 3) float32, x and y relative to the padded image, and v, and
                `kpt_shape` (K, 3). For "obb" `bboxes` are (B, 5): center, width and height of rotated boxes, relative
                to the padded image, and the angle in radians, clockwise, in -pi/4..3pi/4, of the longer side, which is
                the width. For "segment" the rows of each image are sorted by the areas of their masks, the largest
                first. `masks` (N, H / 4, W / 4) int32 is i + 1 where the image's i-th object is seen, small objects on
                large ones, else 0; `sem_masks`, of the same shape, float32, is the class there, from 0, and 0
                elsewhere. For "semantic" and "depth" there are no rows, but the map of this name: `semantic_mask` (N,
                H, W) int32, 255 where it is to be ignored; or `depth` (N, H, W) float32, 0 where it is not known. See
                `maps`.
        """
        known = get_args(YoloTask)
        check("task", task, task in known, f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}")
        if task == "semantic":
            ignore, classes = self.maps_of_images.classes(task).ignore, self.maps[task].int()
            return {"img": self.images, "semantic_mask": classes.masked_fill(classes == ignore, 255)}
        if task == "depth":
            return {"img": self.images, "depth": self.map(task)}
        real = real_rows(self.counts, self.boxes.shape[1], self.boxes.device)
        size = torch.tensor([self.images.shape[-2:]], device="cpu")
        boxes = relative_to(center_and_size(self.boxes), size)
        if task == "obb":
            rotated = self.rotated_boxes("cxcywhr", "yolo")
            boxes = torch.cat([relative_to(rotated[..., :4], size), rotated[..., 4:]], -1)
        further: dict[str, Any] = {}
        if task == "segment":
            real = real[self._order_by_area(4)]
            further = self._overlap_maps(real)
        if task == "pose":
            points = self.keypoints.flatten(0, 1)[real]
            scale = points.new_tensor([*size[0].flip(0).tolist(), 1])
            further = {"keypoints": points / scale, "kpt_shape": torch.tensor(points.shape[1:], device="cpu")}
        return {
            "img": self.images,
            "cls": self.labels.flatten()[real][:, None].float() - 1,
            "bboxes": boxes.flatten(0, 1)[real],
            "batch_idx": real.div(max(1, self.boxes.shape[1]), rounding_mode="floor").float(),
            **further,
        }

    def _overlap_maps(self, real: Tensor) -> dict[str, Tensor]:
        """Return the maps of `as_yolo("segment")`. `real`: (B,) positions of boxes among N * M, sorted by image."""
        places, room = self.instance_map(4), self.boxes.shape[1]
        starts = torch.tensor([0, *self.counts[:-1]], device="cpu").cumsum(0).to(real.device)
        image = real // max(1, room)
        numbers = torch.zeros((len(self), room + 1), dtype=torch.int32, device=real.device)
        numbers[image, real % max(1, room) + 1] = (
            torch.arange(len(real), device=real.device) - starts[image] + 1
        ).int()
        # the first column is for pixels without an object
        classes = torch.cat([self.labels.new_zeros((len(self), 1)), self.labels.clamp(min=1) - 1], 1)
        index = (places + 1).long().flatten(1)
        of_places = {"masks": numbers, "sem_masks": classes.float()}
        return {name: values.gather(1, index).view(places.shape) for name, values in of_places.items()}

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch with every tensor on `device`."""
        changed: Batch = change_tensors(self, lambda tensor: tensor.to(device))
        return changed

    def clone(self) -> Batch:
        """Return the batch with tensors of its own, to keep or to save; `params` are shared."""
        changed: Batch = clone_batch(self)
        return changed


def change_tensors(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a batch with all its tensors changed, also those in dicts."""

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: changed(item) for name, item in value.items()}
        return change(value) if isinstance(value, Tensor) else value

    return replace(batch, **{member.name: changed(getattr(batch, member.name)) for member in fields(batch)})


def clone_batch(batch: Any) -> Any:
    """Return a batch, or one of clips, with tensors of its own, and without the shapes of the rest of the source."""
    changed = change_tensors(batch, Tensor.clone)
    return changed if changed.moved is None else replace(changed, moved=changed.moved.alone())


def as_tensors(columns: Mapping[str, NDArray[Any]]) -> dict[str, Columns]:
    """Return columns as tensors; those of objects stay arrays."""
    return {name: column if column.dtype == object else torch.from_numpy(column) for name, column in columns.items()}
