"""Images with discs at the key points of their objects: red for left, blue for right, green for the middle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

RED, BLUE, GREEN = (255, 0, 0), (0, 0, 255), (0, 255, 0)
COLORS = (RED, BLUE, GREEN)
NAMES = ["left_hand", "right_hand", "nose"]
RADIUS = 7.0
BACKGROUND = 0


def write_discs(folder: Path, images: int = 8, seed: int = 0, size: tuple[int, int] = (240, 320)) -> Path:
    """Write PNGs with one or two objects each, and a json; return the json's path."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": [], "categories": []}
    content["categories"] = [{"id": 3, "name": "hand", "keypoints": NAMES, "skeleton": [[1, 3], [2, 3]]}]
    for number in range(1, images + 1):
        height, width = size if number % 2 else size[::-1]
        pixels = np.full((height, width, 3), BACKGROUND, np.float64)
        halves = [(0.0, width / 2), (width / 2, width)] if number % 3 else [(0.0, float(width))]
        for x0, x1 in halves:
            points = _far_apart(rng, (x0, 0.0, x1, float(height)))
            for point, color in zip(points, COLORS, strict=True):
                paint_disc(pixels, point, color)
            low, high = points.min(0) - 12, points.max(0) + 12
            keypoints = np.concatenate([points - 0.5, np.full((3, 1), 2)], axis=1)  # COCO counts pixels
            annotation = {"id": len(content["annotations"]) + 1, "image_id": number, "category_id": 3}
            bbox = [*low.tolist(), *(high - low).tolist()]
            content["annotations"].append({**annotation, "bbox": bbox, "keypoints": keypoints.ravel().tolist()})
        name = f"{number:03}.png"
        Image.fromarray(pixels.round().astype(np.uint8)).save(folder / name)
        content["images"].append({"id": number, "file_name": name, "width": width, "height": height})
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
    """Paint a disc with smooth edges: its centroid is its centre, in continuous pixels."""
    y, x = np.mgrid[: pixels.shape[0], : pixels.shape[1]] + 0.5
    share = (RADIUS + 0.5 - np.hypot(x - center[0], y - center[1])).clip(0, 1)[..., None]
    pixels[:] = pixels * (1 - share) + share * np.array(color)


def find_disc(image: NDArray[np.float64], near: NDArray[np.float64], color: int, reach: float) -> NDArray[np.float64]:
    """Return (3,): x, y of the centroid of a colour within `reach` of a point, and its mass."""
    height, width = image.shape[:2]
    x0, y0 = np.maximum(np.floor(near - reach).astype(int), 0)
    x1, y1 = np.minimum(np.ceil(near + reach).astype(int), (width, height))
    part = image[y0:y1, x0:x1, (0, 2, 1)[color]] / 255
    y, x = np.mgrid[y0:y1, x0:x1] + 0.5
    mass = part.sum()
    return np.array([(part * x).sum(), (part * y).sum(), mass]) / max(mass, 1e-9) * (1, 1, max(mass, 1e-9))
