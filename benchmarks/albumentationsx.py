"""`detaug bench` with AlbumentationsX as one more row.

    python benchmarks/albumentationsx.py train.json JPEGImages --workers 4 [--json OUT.json] [--chart OUT.png]

AlbumentationsX is AGPL: install it into a virtual environment that is for this comparison only. It has no zoom-out
and no IoU crop of SSD's kind; CropAndPad and RandomSizedBBoxSafeCrop are the nearest it has.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from detaug.bench import bench, draw_chart, format_table
from detaug.bench.loaders import data_loader
from detaug.bench.measure import BenchJob, MadeBatch


def albumentationsx(job: BenchJob) -> Iterator[MadeBatch]:
    import albumentations as A
    import cv2

    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    ops = [
        A.CropAndPad(percent=(0.0, 1.5), keep_size=False, fill=(123, 117, 104), p=0.5),
        A.RandomSizedBBoxSafeCrop(300, 300, erosion_rate=0.2, p=0.86),
        A.HorizontalFlip(p=0.5),
        A.Resize(300, 300),
        A.ColorJitter((0.875, 1.125), (0.5, 1.5), (0.5, 1.5), (-0.05, 0.05), p=0.5),
        A.Normalize(mean=(0, 0, 0), std=(1, 1, 1)),
        A.ToTensorV2(),
    ]
    transform = A.Compose(ops, bbox_params=A.BboxParams(coord_format="pascal_voc", label_fields=["labels"]))

    def sample(path: str, boxes: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
        after = transform(image=image, bboxes=boxes, labels=labels)
        pixels = torch.from_numpy(np.asarray(after["bboxes"], np.float32).reshape(-1, 4))
        return after["image"], pixels, torch.as_tensor(np.asarray(after["labels"])).long()

    return data_loader(job, sample)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations")
    parser.add_argument("images")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--device")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[])
    parser.add_argument("--only", nargs="+", default=[], help="rows to measure")
    parser.add_argument("--json")
    parser.add_argument("--chart")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    others = {"AlbumentationsX": "albumentationsx:albumentationsx"}
    names = ("batch_size", "device", "seconds", "turns")
    settings = {name: getattr(options, name) for name in names}
    rows = {"workers": tuple(options.workers), "only": tuple(options.only)}
    result = bench(options.annotations, options.images, **settings, **rows, others=others, say=print)
    print(format_table(result))
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1))
    if options.chart:
        draw_chart(result, options.chart)


if __name__ == "__main__":
    main()
