"""Images with discs at the keypoints of their objects: red for left, blue for right, green for the middle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import detaug as da

RED, BLUE, GREEN = (255, 0, 0), (0, 0, 255), (0, 255, 0)
COLORS = (RED, BLUE, GREEN)
NAMES = ["left_hand", "right_hand", "nose"]
RADIUS = 7.0
CHANNELS = (0, 2, 1)
"""The channel of each color."""


class Discs(NamedTuple):
    """Black images with discs, and where these are."""

    images: list[NDArray[np.uint8]]
    points: list[NDArray[np.float64]]
    """N (M, 3, 2) x, y, continuous pixels."""
    boxes: list[NDArray[np.float64]]
    """N (M, 4) XYXY, around the discs of each object."""


def paint_discs(images: int = 8, seed: int = 0, size: tuple[int, int] = (240, 320)) -> Discs:
    """Paint one or two objects into each image."""
    rng = np.random.default_rng(seed)
    discs = Discs([], [], [])
    for number in range(images):
        height, width = size if number % 2 else size[::-1]
        pixels = np.zeros((height, width, 3))
        halves = [(0.0, width / 2), (width / 2, width)] if number % 3 else [(0.0, float(width))]
        points = np.stack([_far_apart(rng, (x0, 0.0, x1, float(height))) for x0, x1 in halves])
        for point, color in zip(points.reshape(-1, 2), COLORS * len(points), strict=True):
            paint_disc(pixels, point, color)
        discs.images.append(pixels.round().astype(np.uint8))
        discs.points.append(points)
        discs.boxes.append(np.concatenate([points.min(1) - 12, points.max(1) + 12], axis=1))
    return discs


def disc_samples(discs: Discs, **arguments: Any) -> da.Samples:
    """Return the images with boxes and keypoints."""
    points = np.concatenate(discs.points)
    keypoints = da.KeyPoints(np.concatenate([points, np.full((*points.shape[:2], 1), 2.0)], axis=2), [NAMES])
    return da.batch(discs.images, discs.boxes, shapes=da.Shapes(keypoints=keypoints), **arguments)


def write_discs(folder: Path, discs: Discs) -> Path:
    """Write PNGs and a JSON file; return the JSON file's path."""
    content: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": [], "categories": []}
    content["categories"] = [{"id": 3, "name": "hand", "keypoints": NAMES, "skeleton": [[1, 3], [2, 3]]}]
    for number, (pixels, points, boxes) in enumerate(zip(*discs, strict=True), 1):
        name = f"{number:03}.png"
        Image.fromarray(pixels).save(folder / name)
        height, width = pixels.shape[:2]
        content["images"].append({"id": number, "file_name": name, "width": width, "height": height})
        for each, (x0, y0, x1, y1) in zip(points, boxes.tolist(), strict=True):
            keypoints = np.concatenate([each - 0.5, np.full((3, 1), 2)], axis=1)  # COCO counts pixels
            annotation = {"id": len(content["annotations"]) + 1, "image_id": number, "category_id": 3}
            annotation |= {"bbox": [x0, y0, x1 - x0, y1 - y0], "keypoints": keypoints.ravel().tolist()}
            content["annotations"].append(annotation)
    path = folder / "discs.json"
    path.write_text(json.dumps(content))
    return path


def _far_apart(rng: np.random.Generator, room: tuple[float, float, float, float]) -> NDArray[np.float64]:
    """Return three points in a rectangle, 20 pixels inside of it, 45 pixels from each other."""
    x0, y0, x1, y1 = room
    while True:
        points = rng.uniform((x0 + 20, y0 + 20), (x1 - 20, y1 - 20), (3, 2))
        if min(np.hypot(*(points[a] - points[b])) for a, b in ((0, 1), (1, 2), (0, 2))) > 45:
            return points


def paint_disc(pixels: NDArray[np.float64], center: NDArray[np.float64], color: tuple[int, int, int]) -> None:
    """Paint a disc with smooth edges: its centroid is its center, in continuous pixels."""
    x0, y0 = np.floor(center - RADIUS - 1).astype(int).clip(0)
    window = pixels[y0 : y0 + 2 * int(RADIUS) + 4, x0 : x0 + 2 * int(RADIUS) + 4]
    y, x = np.indices(window.shape[:2]) + 0.5
    share = (RADIUS + 0.5 - np.hypot(x + x0 - center[0], y + y0 - center[1])).clip(0, 1)[..., None]
    window[:] = window * (1 - share) + share * np.array(color)


def color_at(image: NDArray[Any], x: float, y: float) -> int:
    """Return which of `COLORS` is there most."""
    left, top = max(int(x) - 3, 0), max(int(y) - 3, 0)
    masses = image[top : top + 7, left : left + 7].astype(float).sum((0, 1))
    return int(np.argmax(masses[[*CHANNELS]]))


def find_disc(image: NDArray[Any], x: float, y: float, color: int) -> tuple[float, float] | None:
    """Return x and y of the centroid of the disc at a point; None where a part of it is cut off, or covered."""
    height, width = image.shape[:2]
    reach = 40
    left, top = max(int(x) - reach, 0), max(int(y) - reach, 0)
    part = image[top : int(y) + reach, left : int(x) + reach, CHANNELS[color]] / 255
    rows, columns = np.indices(part.shape) + 0.5
    rows, columns = rows + top, columns + left
    distance = np.hypot(columns - x, rows - y)
    for radius in range(4, reach - 3):
        near, ring = part[distance < radius].sum(), part[(distance >= radius) & (distance < radius + 3)].sum()
        if near > 5 and ring < 0.002 * near:
            break
    else:
        return None
    if min(x, y, width - x, height - y) < radius + 1:
        return None
    mass = np.where(distance < radius, part, 0)
    center = float((mass * columns).sum() / mass.sum()), float((mass * rows).sum() / mass.sum())
    x_moment, y_moment = columns - center[0], rows - center[1]
    pairs = [(a * b * mass).sum() / mass.sum() for a in (x_moment, y_moment) for b in (x_moment, y_moment)]
    ellipse = 4 * np.pi * np.sqrt(pairs[0] * pairs[3] - pairs[1] * pairs[2])  # its area, if it is one
    skew = [
        (moment**3 * mass).sum() / mass.sum() / spread**1.5
        for moment, spread in ((x_moment, pairs[0]), (y_moment, pairs[3]), (x_moment + y_moment, sum(pairs)))
    ]
    return center if abs(ellipse / mass.sum() - 1) < 0.06 and np.abs(skew).max() < 0.015 else None
