"""`Batch`: what the loader yields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.boxes.views import invert
from detaug.converters.findings.errors import InputError
from detaug.drawing.sheet import notebook_png

Boxes = TypeVar("Boxes", Tensor, list[Tensor])


@dataclass(frozen=True, eq=False)
class Batch:
    """N augmented images with their boxes, padded to M, the largest number of boxes in the batch.

    images, boxes, labels, mask and classes are on the loader's device; the other tensors stay on the CPU. They share
    memory with those of the batches that were made together with this one: keeping one image keeps the memory of up to
    eight batches, and `torch.save` writes all of it. `clone` makes copies.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> batch = next(iter(da.Loader(reader, da.presets.ssd300(), batch_size=4)))
    >>> print(tuple(batch.images.shape), tuple(batch.boxes.shape), batch.counts)
    (4, 3, 300, 300) (4, 5, 4) (0, 0, 3, 5)
    >>> print([target["labels"].tolist() for target in batch.targets()])
    [[], [], [2, 1, 1], [3, 3, 3, 3, 3]]
    >>> print(batch.image_id[2], batch.to_source(batch.boxes)[2, 0].round())  # in pixels of the photograph
    tensor(3) tensor([205., 247., 338., 323.])
    """

    images: Tensor
    """(N, 3, H, W): float32 after Normalize; without it in 0..255, uint8."""
    boxes: Tensor
    """(N, M, 4) float32 XYXY pixels of the output image; zeros where padded."""
    labels: Tensor
    """(N, M) int64, 1..K; -1 where padded."""
    mask: Tensor
    """(N, M) bool, False where padded."""
    image_id: Tensor
    """(N,) int64, the json's."""
    size: Tensor
    """(N, 2) int64: (height, width) of the source image, as displayed."""
    image_size: Tensor
    """(N, 2) int64: (height, width) of the image within `images`; right of it and below is padding."""
    matrix: Tensor
    """(N, 2, 3) float32: source pixels -> output pixels, for points (x, y); (N, 3, 3) if the recipe has perspective."""
    counts: tuple[int, ...]
    """The number of boxes of each of the N images."""
    params: tuple[dict[str, NDArray[Any]], ...] | None = None
    """For each op what it drew, by name: arrays whose first axis is N. None unless the loader has return_params."""
    classes: Tensor | None = None
    """(N,) int64, 0..K-1: the class of each image as a whole; None for a source without."""
    extra: dict[str, Tensor] = field(default_factory=dict)
    """Further outputs of a DALI pipeline, by name; see `DaliIterator`. A `Loader` has none."""

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        images = f"{tuple(self.images.shape)} {str(self.images.dtype).removeprefix('torch.')} on {self.images.device}"
        return f"Batch(images {images}, {sum(self.counts)} boxes)"

    def __getitem__(self, _: object) -> NoReturn:  # also called to unpack it
        raise TypeError("a Batch is no pair and has no items: use batch.images and batch.targets()")

    def _repr_png_(self) -> bytes:
        """Draw the batch for notebooks, padding hatched. `detaug.sheets.batch_sheet(ops=...)` undoes a Normalize."""
        boxes, labels = ([target[key].tolist() for target in self.targets()] for key in ("boxes", "labels"))
        return notebook_png(list(self.images), boxes, labels, self.image_size.tolist())

    def targets(self) -> list[dict[str, Tensor]]:
        """Return N dicts for torchvision's detectors: boxes (M_i, 4), labels (M_i,), image_id. Views, not copies."""
        rows = zip(self.boxes, self.labels, self.counts, strict=True)
        targets = [{"boxes": boxes[:count], "labels": labels[:count]} for boxes, labels, count in rows]
        if self.image_id is None:  # of a DALI pipeline without this output
            return targets
        return [{**target, "image_id": number} for target, number in zip(targets, self.image_id, strict=True)]

    def to_source(self, boxes: Boxes) -> Boxes:
        """Return boxes given in output pixels in source pixels, without clipping.

        `boxes`: (N, K, 4) XYXY, or a list of N tensors (K_i, 4), as detectors return them.
        """
        if self.matrix is None:
            raise InputError(
                "the batch has no matrix: give da.fn.augment return_matrix=True, return the matrix from the pipeline, "
                "and name it in output_map"
            )
        if len(boxes) != len(self):
            raise InputError(f"boxes must hold one entry for each of the {len(self)} images, got {len(boxes)}")
        if isinstance(boxes, Tensor):
            return move_boxes(boxes, self._to_source())
        return [move_boxes(box[None], matrix[None])[0] for box, matrix in zip(boxes, self._to_source(), strict=True)]

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch with every tensor on `device`."""
        return self._changed(lambda tensor: tensor.to(device))

    def clone(self) -> Batch:
        """Return the batch with tensors of its own, to keep or to save; `params` are shared."""
        return self._changed(Tensor.clone)

    def _changed(self, change: Callable[[Tensor], Tensor]) -> Batch:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        changed = {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
        extra = {name: change(value) for name, value in self.extra.items()}
        return Batch(**{**values, **changed, "extra": extra})

    def _to_source(self) -> Tensor:
        return torch.from_numpy(invert(self.matrix.cpu().double().numpy())).float()


def move_boxes(boxes: Tensor, matrix: Tensor) -> Tensor:
    """Return (N, K, 4) XYXY, float32 at least: the hulls of the corners after the maps, (N, 2, 3) or (N, 3, 3)."""
    if not boxes.is_floating_point() or boxes.element_size() < 4:
        boxes = boxes.float()
    matrix = matrix.to(boxes)
    x0, y0, x1, y1 = boxes.unbind(-1)
    points = torch.stack([torch.stack([x0, x1, x0, x1], -1), torch.stack([y0, y0, y1, y1], -1)], 1)  # (N, 2, K, 4)
    moved = torch.einsum("nij,njkc->nikc", matrix[:, :, :2], points) + matrix[:, :, 2, None, None]
    if matrix.shape[1] == 3:
        moved = moved[:, :2] / moved[:, 2:]
    return torch.cat([moved.amin(-1), moved.amax(-1)], 1).transpose(1, 2)
