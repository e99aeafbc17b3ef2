"""Compare loading with masks: detaug, and torchvision's transforms (v2) in a DataLoader, interleaved in one process.

    python benchmarks/mask_peers.py --device cuda --workers 16

On generated JPEGs of 500 x 375, with outlines of 36 points. Both run SSD's recipe to one size, and give a mask for each
object at whole resolution. torchvision's loader makes bitmaps with pycocotools, as its references for training do, and
warps them. Prints images/s, medians and ranges of the turns, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--cases", nargs="*", default=["300:7", "640:7", "640:20"], metavar="SIZE:OBJECTS")
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
            ways = {"torchvision v2": torchvision(folder, size, options), "detaug": detaug(folder, size, options)}
            rates: dict[str, list[float]] = {each: [] for each in ways}
            for turn in range(options.turns):
                for each in list(ways)[:: 1 if turn % 2 == 0 else -1]:
                    rates[each].append(rate(ways[each], options.seconds, options.device))
            medians = {each: statistics.median(found) for each, found in rates.items()}
            for each, found in rates.items():
                ratio = medians[each] / medians["torchvision v2"]
                print(f"{size} px, {objects} objects, {each}: {text(found, '.0f')} images/s, {ratio:.1f}", flush=True)
            for each in ways.values():
                each.close()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
