"""The parts of a batch in the forms of DETR's, Hugging Face's and Ultralytics' trainers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(eq=False)
class NestedTensor:
    """Images and their padding mask: a pair with the attributes of DETR's `NestedTensor`, which its models take.

    DETR's own is in `util/misc.py` (https://github.com/facebookresearch/detr); RF-DETR and others have a copy of it.
    """

    tensors: Tensor
    """(N, 3, H, W)."""
    mask: Tensor
    """(N, H, W) bool, True where padded."""

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.tensors, self.mask))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> NestedTensor:
        """Return both on `device`."""
        return NestedTensor(*(tensor.to(device, non_blocking=non_blocking) for tensor in self))

    def decompose(self) -> tuple[Tensor, Tensor]:
        """Return images and mask."""
        return self.tensors, self.mask


def padding_mask(images: Tensor, size: Tensor) -> Tensor:
    """Return (N, H, W) bool on the device of the images, True right of and below `size`, (N, 2) (height, width)."""
    height, width = size.to(images.device)[..., None].unbind(1)
    below = torch.arange(images.shape[2], device=images.device) >= height
    right = torch.arange(images.shape[3], device=images.device) >= width
    return below[:, :, None] | right[:, None]


def center_and_size(boxes: Tensor) -> Tensor:
    """Convert XYXY to center x, y, width, height."""
    start, end = boxes.chunk(2, -1)
    return torch.cat([(start + end) / 2, end - start], -1)


def relative_to(boxes: Tensor, size: Tensor) -> Tensor:
    """Divide boxes (N, M, 4), XYXY or center and size, in pixels by `size`, (N, 2) (height, width)."""
    return boxes / size.to(boxes).flip(1).repeat(1, 2)[:, None]


def real_rows(counts: Sequence[int], room: int, device: torch.device) -> Tensor:
    """Return the positions of real boxes among the N * `room` rows of a batch with these counts of boxes.

    They are computed on the CPU: asking the device would wait for it.
    """
    rows = torch.arange(room, device="cpu") < torch.tensor(counts, device="cpu")[:, None]
    return rows.flatten().nonzero()[:, 0].to(device)


def split_by_image(
    of_boxes: dict[str, Tensor],
    of_images: dict[str, Tensor],
    counts: Sequence[int],
    of_real_boxes: dict[str, Tensor] | None = None,
) -> list[dict[str, Tensor]]:
    """Return a dict for each of N images, of views.

    `of_boxes`: (N, M, ...), padded; `of_images`: (N, ...); `of_real_boxes`: (B, ...), concatenated.
    """
    room = max((tensor.shape[1] for tensor in of_boxes.values()), default=0)
    with_padding = [length for count in counts for length in (count, room - count)]  # one call for all views
    columns = {
        name: torch.unsafe_split_with_sizes(tensor.flatten(0, 1), with_padding)[::2]
        for name, tensor in of_boxes.items()
    }
    columns |= {name: tensor.unbind() for name, tensor in of_images.items()}
    columns |= {
        name: torch.unsafe_split_with_sizes(tensor, list(counts)) for name, tensor in (of_real_boxes or {}).items()
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
