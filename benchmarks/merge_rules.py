"""AP of rules that merge the detections in tiles, for detectors that err.

    python benchmarks/merge_rules.py [--pictures 12] [--detections JSON --tiles JSON --truth JSON]

Draws the boxes of images of 4000 x 3000 pixels: 150 objects of 20 to 200 pixels in three classes, half of them in
rows of neighbors that touch or overlap; or 30 of 150 to 700 pixels, most of them larger than the overlap. Cuts tiles
of 1024 x 1024 with an overlap of 0.2, 205 pixels, and makes what a detector finds in each: the part of an object that
the tile shows, its edges moved by 4 % of its sides, a score that falls with the hidden part, and 10 % missed. A good
detector finds nothing else; a weak one misses 25 %, moves edges by 8 %, adds a box near each fifth object, and ten
false ones a tile. Prints COCO's AP and AP50 on the images for each rule, means of three seeds: none; NMS with an IoU
of 0.5; SAHI's NMS, and GREEDYNMM, its default, both with an intersection over the smaller box of 0.5; and
`da.merge_tiles`.

With `--detections`, rows of a model in tiles (image ids are those of the tiles' JSON), the rules merge those instead.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

import detaug as da

Array: TypeAlias = NDArray[np.float64]
Found: TypeAlias = tuple[Array, Array, Array]
"""Boxes (D, 4) XYXY, scores and labels."""

HEIGHT, WIDTH, SIZE, OVERLAP = 3000, 4000, 1024, 0.2


def draw_boxes(rng: np.random.Generator, large: bool) -> tuple[Array, Array]:
    """Return boxes (K, 4) and labels of an image."""
    boxes, labels = [], []
    low, high, count = (150, 700, 30) if large else (20, 200, 150)
    for at in range(count):
        sides = np.exp(rng.uniform(np.log(low), np.log(high), 2))
        corner = rng.uniform(0, (WIDTH, HEIGHT) - sides)
        label = int(rng.integers(1, 4))
        if at and rng.random() < 0.5:  # a neighbor to the right of the last one, as parked cars are
            last = boxes[-1]
            sides, label = last[2:] - last[:2], labels[-1]
            corner = last[:2] + np.array([sides[0] * rng.uniform(0.7, 1.1), rng.normal(0, 3)])
        box = np.concatenate([corner, corner + sides])
        if (box[:2] >= 0).all() and (box[2:] <= (WIDTH, HEIGHT)).all():
            boxes.append(box)
            labels.append(label)
    return np.array(boxes), np.array(labels, np.float64)


def detect(boxes: Array, labels: Array, window: Array, rng: np.random.Generator, weak: bool) -> Found:
    """Return what a detector finds in a tile, in its pixels."""
    low, high = np.tile(window[:2], 2), np.tile(window[:2] + window[2:], 2)
    cut = boxes.clip(low, high)
    shown = (cut[:, 2:] - cut[:, :2]).prod(1) / (boxes[:, 2:] - boxes[:, :2]).prod(1)
    missed = rng.random(len(boxes)) < (0.25 if weak else 0.1)
    seen = (shown > 0.1) & ((cut[:, 2:] - cut[:, :2]).min(1) > 4) & ~missed
    again = seen & (rng.random(len(boxes)) < 0.2) if weak else np.zeros(len(boxes), bool)
    rows = np.concatenate([np.flatnonzero(seen), np.flatnonzero(again)])
    sides = np.tile(cut[rows, 2:] - cut[rows, :2], 2)
    moved = (cut[rows] + sides * rng.normal(0, 0.08 if weak else 0.04, (len(rows), 4))).clip(low, high) - low
    scores = (0.35 + 0.6 * np.sqrt(shown[rows]) - np.abs(rng.normal(0, 0.15, len(rows)))).clip(0.05, 1)
    scores[seen.sum() :] *= 0.6
    found, kinds = moved, labels[rows]
    if weak:
        corner, extent = rng.uniform(0, 900, (10, 2)), np.exp(rng.uniform(3, 5.5, (10, 2)))
        found = np.concatenate([found, np.concatenate([corner, (corner + extent).clip(max=SIZE)], axis=1)])
        scores = np.concatenate([scores, rng.uniform(0.05, 0.5, 10)])
        kinds = np.concatenate([kinds, rng.integers(1, 4, 10)])
    good = (found[:, 2:] - found[:, :2] > 1).all(1)
    return found[good], scores[good], kinds[good]


# ---------------------------------------------------------------------------------------------------- rules


def overlaps(box: Array, boxes: Array, smaller: bool) -> Array:
    """Return the IoU of a box with others, or the intersection over the area of the smaller one."""
    sides = (np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])).clip(0)
    common, own, other = sides.prod(1), (box[2:] - box[:2]).prod(), (boxes[:, 2:] - boxes[:, :2]).prod(1)
    return np.asarray(common / np.maximum(np.minimum(own, other) if smaller else own + other - common, 1e-9))


def suppressed(found: Found, smaller: bool, joined: bool) -> Found:
    """Return what NMS leaves; `joined`: each box that stays grows around those that go, as GREEDYNMM does."""
    boxes, scores, labels = (each[np.argsort(-found[1], kind="stable")] for each in found)
    boxes, left, kept = boxes.copy(), np.ones(len(boxes), bool), []
    for at in range(len(boxes)):
        if not left[at]:
            continue
        rest = np.flatnonzero(left & (labels == labels[at]) & (np.arange(len(boxes)) > at))
        gone = rest[overlaps(boxes[at], boxes[rest], smaller) > 0.5]
        left[gone] = False
        if joined and len(gone):
            boxes[at, :2] = np.minimum(boxes[at, :2], boxes[gone, :2].min(0))
            boxes[at, 2:] = np.maximum(boxes[at, 2:], boxes[gone, 2:].max(0))
        kept.append(at)
    return boxes[kept], scores[kept], labels[kept]


def in_picture(tiles: list[Found], windows: Array) -> Found:
    """Return the detections of all tiles in pixels of the image."""
    moved = [boxes + np.tile(window[:2], 2) for (boxes, *_), window in zip(tiles, windows, strict=True)]
    return np.concatenate(moved), *(np.concatenate([each[at] for each in tiles]) for at in (1, 2))  # type: ignore


def ours(tiles: list[Found], windows: Array, size: tuple[int, int]) -> Found:
    """Return what `da.merge_tiles` leaves."""
    predictions = [
        {
            "boxes": torch.from_numpy(boxes.reshape(-1, 4)),
            "scores": torch.from_numpy(scores),
            "labels": torch.from_numpy(labels).long(),
        }
        for boxes, scores, labels in tiles
    ]
    merged = da.merge_tiles(predictions, windows, size)
    return tuple(merged[name].double().numpy() for name in ("boxes", "scores", "labels"))  # type: ignore[return-value]


RULES: dict[str, Callable[[list[Found], Array, tuple[int, int]], Found]] = {
    "none": lambda tiles, windows, size: in_picture(tiles, windows),
    "NMS, IoU 0.5": lambda tiles, windows, size: suppressed(in_picture(tiles, windows), False, False),
    "SAHI: NMS, IoS 0.5": lambda tiles, windows, size: suppressed(in_picture(tiles, windows), True, False),
    "SAHI: GREEDYNMM, IoS 0.5": lambda tiles, windows, size: suppressed(in_picture(tiles, windows), True, True),
    "da.merge_tiles": ours,
}


# ---------------------------------------------------------------------------------------------------- scores


def score(truth: Path, found: dict[int, Found], folder: Path) -> tuple[float, float]:
    """Return AP and AP50 of the detections in images, by image id."""
    rows = [
        {"image_id": image, "category_id": int(label), "bbox": [*box[:2], *(box[2:] - box[:2])], "score": value}
        for image, each in found.items()
        for box, value, label in zip(each[0].tolist(), each[1].tolist(), each[2].tolist(), strict=True)
        for box in [np.array(box)]
    ]
    path = folder / "found.json"
    path.write_text(json.dumps([{**row, "bbox": [float(side) for side in row["bbox"]]} for row in rows]))
    metrics = da.CocoEvaluator(truth, max_detections=1000).load(path).compute()
    return metrics.AP, metrics.AP50


def drawn(pictures: int, weak: bool, large: bool, seed: int, folder: Path) -> dict[str, tuple[float, float]]:
    """Return the scores of each rule on drawn images."""
    rng = np.random.default_rng(seed)
    images = [{"id": at, "file_name": f"{at}.jpg", "width": WIDTH, "height": HEIGHT} for at in range(1, pictures + 1)]
    document: dict[str, Any] = {"images": images, "annotations": []}
    document["categories"] = [{"id": at, "name": str(at)} for at in (1, 2, 3)]
    windows = np.array(
        [
            (min(x, WIDTH - SIZE), min(y, HEIGHT - SIZE), SIZE, SIZE)
            for y in range(0, HEIGHT - int(SIZE * OVERLAP), SIZE - int(SIZE * OVERLAP))
            for x in range(0, WIDTH - int(SIZE * OVERLAP), SIZE - int(SIZE * OVERLAP))
        ]
    )
    found: dict[str, dict[int, Found]] = {name: {} for name in RULES}
    for image in range(1, pictures + 1):
        boxes, labels = draw_boxes(rng, large)
        for box, label in zip(boxes, labels.tolist(), strict=True):
            left, top, right, bottom = box.tolist()
            entry = {"id": len(document["annotations"]) + 1, "image_id": image, "category_id": int(label), "iscrowd": 0}
            bbox = [left, top, right - left, bottom - top]
            document["annotations"].append({**entry, "bbox": bbox, "area": bbox[2] * bbox[3]})
        tiles = [detect(boxes, labels, window, rng, weak) for window in windows]
        for name, rule in RULES.items():
            found[name][image] = rule(tiles, windows, (HEIGHT, WIDTH))
    truth = folder / "truth.json"
    truth.write_text(json.dumps(document))
    return {name: score(truth, each, folder) for name, each in found.items()}


def of_a_model(options: argparse.Namespace, folder: Path) -> dict[str, tuple[float, float]]:
    """Return the scores of each rule on a model's detections in tiles."""
    tiles, truth = (json.loads(Path(path).read_text()) for path in (options.tiles, options.truth))
    rows = json.loads(Path(options.detections).read_text())
    found: dict[str, dict[int, Found]] = {name: {} for name in RULES}
    for picture in truth["images"]:
        own = [tile for tile in tiles["images"] if tile["tile_of"]["id"] == picture["id"]]
        each = []
        for tile in own:
            of_tile = [row for row in rows if row["image_id"] == tile["id"]]
            boxes = np.array([row["bbox"] for row in of_tile], np.float64).reshape(-1, 4)
            boxes[:, 2:] += boxes[:, :2]
            scores, labels = (np.array([row[name] for row in of_tile], float) for name in ("score", "category_id"))
            each.append((boxes, scores, labels))
        windows = np.array([tile["window"] for tile in own])
        for name, rule in RULES.items():
            found[name][picture["id"]] = rule(each, windows, (picture["height"], picture["width"]))
    return {name: score(Path(options.truth), each, folder) for name, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=12)
    for name in ("detections", "tiles", "truth"):
        parser.add_argument(f"--{name}")
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        if options.detections:
            for rule, (all_, half) in of_a_model(options, folder).items():
                print(f"{rule}: AP {all_:.3f}  AP50 {half:.3f}")
            return
        for weak, large in ((False, False), (True, False), (False, True)):
            print("weak detector" if weak else "good detector", "of large objects" if large else "", sep=" ")
            runs = [drawn(options.pictures, weak, large, seed, folder) for seed in range(3)]
            for rule in RULES:
                print(f"  {rule}: AP {mean(each[rule][0] for each in runs):.3f}", end="  ")
                print(f"AP50 {mean(each[rule][1] for each in runs):.3f}")


if __name__ == "__main__":
    main()
