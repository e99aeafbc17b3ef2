"""torchvision's transforms in a PyTorch DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import torch

from detaug.bench.jobs import Job, MadeBatch
from detaug.sources.coco_reader import CocoReader


def torchvision(job: Job) -> Iterator[MadeBatch]:
    """Run torchvision's transforms (v2) on its JPEG decoder, in a DataLoader with `workers` processes."""
    return data_loader(job, _torchvision_sample(job.preset))


Sample = Callable[[str, Any, Any], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
"""Takes a path, boxes (M, 4) XYXY pixels and labels (M,); returns an image (3, H, W) float32 in 0..1, boxes, labels."""


def data_loader(job: Job, sample: Sample) -> Iterator[MadeBatch]:
    """Run `sample` in a PyTorch DataLoader; images of different sizes are padded to the largest."""
    reader, device = CocoReader(job.images, job.annotations), torch.device(job.device)
    loader = torch.utils.data.DataLoader(
        FileDataset(reader, sample), job.batch_size, shuffle=True, num_workers=job.workers, collate_fn=collate,
        persistent_workers=job.workers > 0, pin_memory=device.type == "cuda",
    )  # fmt: skip
    for _ in count():
        for images, boxes, labels in loader:
            here = images.to(device, non_blocking=True)
            boxes, labels = ([each.to(device, non_blocking=True) for each in column] for column in (boxes, labels))
            yield MadeBatch(here, boxes, labels, len(images))


class FileDataset(torch.utils.data.Dataset[Any]):
    """The images of a reader, each read and augmented by `sample`."""

    def __init__(self, reader: CocoReader, sample: Sample) -> None:
        self.reader, self.sample = reader, sample

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, row: int) -> Any:
        views = self.reader.views(np.array([row]))
        return self.sample(str(self.reader.path(row)), views.pixel_boxes()[0], views.labels[0])


def collate(samples: list[Any]) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """Stack images, padded to the largest one and a multiple of 32 if they differ; list boxes and labels."""
    images, boxes, labels = (list(column) for column in zip(*samples, strict=True))
    if len({image.shape for image in images}) > 1:
        height, width = (-(-max(image.shape[axis] for image in images) // 32) * 32 for axis in (1, 2))
        pads = [(0, width - image.shape[2], 0, height - image.shape[1]) for image in images]
        images = [torch.nn.functional.pad(image, pad) for image, pad in zip(images, pads, strict=True)]
    return torch.stack(images), boxes, labels


def _torchvision_sample(preset: str) -> Sample:
    from torchvision import io, tv_tensors  # type: ignore[import-untyped, unused-ignore]
    from torchvision.transforms import v2  # type: ignore[import-untyped, unused-ignore]

    torch.set_num_threads(1)
    geometry = {
        "ssd300": [
            v2.RandomPhotometricDistort(),
            v2.RandomZoomOut(fill={tv_tensors.Image: (123, 117, 104), "others": 0}),
            v2.RandomIoUCrop(),
            v2.RandomHorizontalFlip(),
            v2.Resize((300, 300), antialias=True),
        ],
        "retinanet": [v2.RandomHorizontalFlip(), v2.Resize(800, max_size=1333, antialias=True)],
    }[preset]
    transform = v2.Compose([*geometry, v2.ToDtype(torch.float32, scale=True), v2.SanitizeBoundingBoxes()])

    def sample(path: str, boxes: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        image = tv_tensors.Image(io.decode_image(path, io.ImageReadMode.RGB))
        given = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=image.shape[1:])
        after = transform({"image": image, "boxes": given, "labels": torch.from_numpy(labels)})
        return after["image"].as_subclass(torch.Tensor), after["boxes"].as_subclass(torch.Tensor), after["labels"]

    return sample
