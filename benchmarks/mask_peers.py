"""Compare loading with masks: detaug and other libraries in a DataLoader, interleaved in one process.

    python benchmarks/mask_peers.py --device cuda --workers 16 --peers torchvision rfdetr rfdetr-affine

On generated JPEGs of 500 x 375, with polygons of 36 points. All give a mask for each object at whole resolution.

- detaug and torchvision's transforms (v2) run SSD's recipe to one size. torchvision's loader makes bitmaps with
  pycocotools, as its references for training do, and warps them.
- rfdetr: the dataset of RF-DETR's training, which makes, scales and crops bitmaps in the workers, with augmentations
  on the device by Kornia. Its default is a flip; rfdetr-affine is its strongest one, AUG_AGGRESSIVE. Needs `pip install
  rfdetr kornia`.

Prints images/s, medians and ranges of the turns, and the ratio of the medians to the first peer's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from compare_versions import write_data
from mask_costs import add_outlines
from pycocotools import mask as coco_masks
from settings import text
from torchvision import io, tv_tensors
from torchvision.transforms import v2

import detaug as da


class Masks(torch.utils.data.Dataset[Any]):
    """The images of a reader with boxes, labels and masks, after torchvision's transforms."""

    def __init__(self, reader: da.CocoReader, size: int) -> None:
        self._reader, outlines = reader, reader.shapes.mask_table.outlines
        rings = np.split(outlines.points, outlines.first_point[1:-1])
        self._rings = [rings[a:b] for a, b in zip(outlines.first_ring, outlines.first_ring[1:], strict=False)]
        torch.set_num_threads(1)
        self._transforms = v2.Compose(
            [
                v2.RandomPhotometricDistort(),
                v2.RandomZoomOut(fill={tv_tensors.Image: (123, 117, 104), "others": 0}),
                v2.RandomIoUCrop(),
                v2.RandomHorizontalFlip(),
                v2.Resize((size, size), antialias=True),
                v2.SanitizeBoundingBoxes(),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, row: int) -> Any:
        views, (height, width) = self._reader.views(np.array([row])), self._reader.sizes[row].tolist()
        image = tv_tensors.Image(io.decode_image(str(self._reader.path(row)), io.ImageReadMode.RGB))
        runs = [
            coco_masks.merge(coco_masks.frPyObjects([ring.ravel().tolist() for ring in self._rings[at]], height, width))
            for at in views.rows[0].tolist()
        ]
        masks = torch.from_numpy(coco_masks.decode(runs)).permute(2, 0, 1)
        boxes = torch.from_numpy(views.pixel_boxes()[0])
        target = {
            "boxes": tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(height, width)),
            "masks": tv_tensors.Mask(masks),
            "labels": torch.from_numpy(views.labels[0]),
        }
        return self._transforms(image, target)


def torchvision(folder: Path, size: int, options: argparse.Namespace) -> Iterator[int]:
    """Yield the number of images of each batch of torchvision's transforms, on the device."""
    reader = da.CocoReader(folder, folder / "train.json", masks=True)
    loader = torch.utils.data.DataLoader(
        Masks(reader, size),
        options.batch_size,
        shuffle=True,
        num_workers=options.workers,
        collate_fn=lambda batch: tuple(zip(*batch, strict=True)),
        persistent_workers=options.workers > 0,
    )
    while True:
        for images, targets in loader:
            torch.stack(images).to(options.device)
            for target in targets:
                target["masks"].to(options.device)
            yield len(images)


def rfdetr(folder: Path, size: int, options: argparse.Namespace, augmentations: str = "AUG_CONFIG") -> Iterator[int]:
    """Yield the number of images of each batch of RF-DETR's training data, augmented on the device.

    The steps on the device are those of rfdetr.training.module_data.RFDETRDataModule.on_after_batch_transfer.
    """
    from rfdetr.datasets import aug_configs, coco, kornia_transforms
    from rfdetr.utilities.tensors import make_collate_fn

    transforms = coco.make_coco_transforms_square_div_64("train", size, gpu_postprocess=True)
    loader = torch.utils.data.DataLoader(
        coco.CocoDetection(folder, folder / "train.json", transforms, include_masks=True),
        options.batch_size,
        shuffle=True,
        num_workers=options.workers,
        collate_fn=make_collate_fn(),
        persistent_workers=options.workers > 0,
    )
    device = torch.device(options.device)
    augment = kornia_transforms.build_kornia_pipeline(getattr(aug_configs, augmentations), size, with_masks=True)
    normalize = kornia_transforms.build_normalize().to(device)
    while True:
        for samples, targets in loader:
            images = samples.tensors.to(device)
            targets = [{name: value.to(device) for name, value in target.items()} for target in targets]
            boxes, valid = kornia_transforms.collate_boxes(targets, device)
            masks = kornia_transforms.collate_masks(targets, device, valid.shape[1], size, size)
            images, boxes, masks = augment.to(device)(images, boxes, masks)
            kornia_transforms.unpack_boxes(boxes, valid, targets, size, size, masks)
            normalize(images)
            yield len(images)


def detaug(folder: Path, size: int, options: argparse.Namespace) -> Iterator[int]:
    """Yield the number of images of each batch of the loader, after its masks are made."""
    reader = da.CocoReader(folder, folder / "train.json", masks=True)
    recipe = [
        da.RandomZoomOut(fill=(123, 117, 104)),
        da.RandomIoUCrop(),
        da.RandomHorizontalFlip(),
        da.Resize((size, size)),
        da.RandomPhotometricDistort(),
        da.Normalize(),
    ]
    with da.Loader(reader, recipe, options.batch_size, device=options.device) as loader:
        while True:
            for batch in loader:
                batch.masks()
                yield len(batch)


def rate(counts: Iterator[int], seconds: float, device: str) -> float:
    """Return images/s over some seconds, after a batch that does not count."""
    next(counts)
    images, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        images += next(counts)
    if device != "cpu":
        torch.cuda.synchronize()
    return images / (time.perf_counter() - start)


PEERS: dict[str, Callable[[Path, int, argparse.Namespace], Iterator[int]]] = {
    "torchvision": torchvision,
    "rfdetr": rfdetr,
    "rfdetr-affine": partial(rfdetr, augmentations="AUG_AGGRESSIVE"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--cases", nargs="*", default=["300:7", "640:7", "640:20"], metavar="SIZE:OBJECTS")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=["torchvision"])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--images", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder, options.images)
        for case in options.cases:
            size, objects = map(int, case.split(":"))
            add_outlines(folder / "train.json", objects)
            ways = {each: PEERS[each](folder, size, options) for each in options.peers}
            ways["detaug"] = detaug(folder, size, options)
            rates: dict[str, list[float]] = {each: [] for each in ways}
            for turn in range(options.turns):
                for each in list(ways)[:: 1 if turn % 2 == 0 else -1]:
                    rates[each].append(rate(ways[each], options.seconds, options.device))
            medians = {each: statistics.median(found) for each, found in rates.items()}
            for each, found in rates.items():
                ratio = medians[each] / medians[options.peers[0]]
                print(f"{size} px, {objects} objects, {each}: {text(found, '.0f')} images/s, {ratio:.1f}", flush=True)
            for each in ways.values():
                each.close()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
