"""Compare our rule for the pixels of a polygon with those of pycocotools, OpenCV and Pillow, on random stars.

    python benchmarks/mask_rules.py

Ours: a pixel is in a polygon if its center is, by the even-odd rule, with vertices rounded to 1/256 pixel. For each of
the others: the mean IoU with ours, and its pixels too many and too few for each pixel of polygon. "ours, float64" is
the same rule without rounding.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from pycocotools import mask as coco_mask

from detaug.boxes.mask_table import MaskTable
from detaug.boxes.masks import pixel_grid, rasterise, whole_objects
from detaug.coco.outlines import read_outlines

SIDE = 160
Points = NDArray[np.float64]
Mask = NDArray[np.bool_]


def star(rng: np.random.Generator) -> Points:
    """Return (V, 2): a polygon of 5 to 40 points with a radius of 4 to 60 pixels, inside the image."""
    count, radius = int(rng.integers(5, 41)), rng.uniform(4, 60)
    angles = np.sort(rng.uniform(0, 2 * np.pi, count))
    radii = radius * rng.uniform(0.4, 1, (count, 1))
    center = rng.uniform(radius + 1, SIDE - radius - 1, 2)
    return np.asarray(center + radii * np.stack([np.cos(angles), np.sin(angles)], axis=1))


def ours(points: Points) -> Mask:
    sides = np.array([SIDE])
    outlines, _ = read_outlines([[points.ravel().tolist()]], [None], sides, sides)
    objects = whole_objects(np.zeros(1, np.int64), SIDE, SIDE)
    return np.asarray(rasterise(MaskTable.of(outlines, sides), objects, pixel_grid(SIDE, SIDE, 1))[0])


def exact(points: Points) -> Mask:
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    inside = np.zeros((SIDE, SIDE), bool)
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, axis=0), strict=True):
        if y0 != y1:
            inside ^= ((y0 <= y) != (y1 <= y)) & (x >= x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    return inside


def of_pycocotools(points: Points) -> Mask:
    runs = coco_mask.frPyObjects([points.ravel().tolist()], SIDE, SIDE)
    return np.asarray(coco_mask.decode(coco_mask.merge(runs))).astype(bool)


def of_opencv(points: Points) -> Mask:
    """Fill as Ultralytics does: whole numbers, cut off."""
    return np.asarray(cv2.fillPoly(np.zeros((SIDE, SIDE), np.uint8), [points.astype(np.int32)], 1)).astype(bool)


def of_opencv_in_parts(points: Points) -> Mask:
    """Fill with points of 1/64 pixel; OpenCV counts from the center of the first pixel."""
    parts: Any = ((points - 0.5) * 64).round().astype(np.int32)
    return np.asarray(cv2.fillPoly(np.zeros((SIDE, SIDE), np.uint8), [parts], 1, shift=6)).astype(bool)


def of_pillow(points: Points) -> Mask:
    image = Image.new("1", (SIDE, SIDE))
    ImageDraw.Draw(image).polygon([tuple(point) for point in points.tolist()], fill=1)
    return np.asarray(image)


RULES: dict[str, Callable[[Points], Mask]] = {
    "ours, float64": exact,
    "pycocotools": of_pycocotools,
    "cv2.fillPoly, int32": of_opencv,
    "cv2.fillPoly, 1/64 pixel": of_opencv_in_parts,
    "Pillow": of_pillow,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--polygons", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    polygons = [star(rng) for _ in range(arguments.polygons)]
    lengths = [float(np.hypot(*(each - np.roll(each, 1, axis=0)).T).sum()) for each in polygons]
    own = [ours(each) for each in polygons]
    print("| rule | mean IoU | extra | missing | equal |\n|---|---|---|---|---|")
    for name, rule in RULES.items():
        found = [rule(each) for each in polygons]
        pairs = [*zip(found, own, strict=True)]
        iou = np.mean([(one & other).sum() / max(1, (one | other).sum()) for one, other in pairs])
        extra, missing = (
            sum(int((one & ~other).sum()) for one, other in each) / sum(lengths)
            for each in (pairs, [(other, one) for one, other in pairs])
        )
        equal = sum(np.array_equal(one, other) for one, other in pairs)
        print(f"| {name} | {iou:.3f} | {extra:.3f} | {missing:.3f} | {equal} of {len(pairs)} |")


if __name__ == "__main__":
    main()
