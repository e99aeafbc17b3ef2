"""A painted dataset in COCO's panoptic form: every segment has a color of its own, in all images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import detaug as da

CATEGORIES = [
    {"id": 7, "name": "sky", "isthing": 0},
    {"id": 3, "name": "dog", "isthing": 1},
    {"id": 9, "name": "grass", "isthing": 0},
    {"id": 5, "name": "cat", "isthing": 1},
]
CLASS_NAMES = ("dog", "cat", "sky", "grass")
"""Of a reader with the things in its own JSON file."""

LEVELS = np.arange(40, 256, 40)
"""Of a color's channels: they differ more than what rendering leaves."""


def as_color(numbers: Any) -> NDArray[np.uint8]:
    """Return ids as colors, (..., 3)."""
    numbers = np.asarray(numbers)
    return np.stack([numbers % 256, numbers // 256 % 256, numbers // 65536], -1).astype(np.uint8)


class PaintedPanoptic:
    """`images/N.png`, `things.json`, `panoptic.json` and `panoptic/N.png`.

    The upper half of each image is sky, the lower one grass; dogs and cats are ellipses, the last one of each image
    that has four or more is a crowd, and a part at the left is void.
    """

    def __init__(self, folder: Path, count: int = 6, seed: int = 0, size: tuple[int, int] = (96, 128)) -> None:
        self.folder, rng = folder, np.random.default_rng(seed)
        for name in ("images", "panoptic"):
            (folder / name).mkdir(parents=True)
        self.images: list[dict[str, Any]] = []
        self.entries: list[dict[str, Any]] = []
        self.things: list[dict[str, Any]] = []
        self.colors = [(0, 0, 0)]
        """Of each segment, by its number in all images; the first is that of nothing."""
        self.rows = [-1]
        """The row of each segment among the things of the JSON file, -1 of none."""
        self.classes = [-1]
        """The position in `CLASS_NAMES` of stuff, -1 of others."""
        self.segments: list[NDArray[np.int64]] = []
        """The number of each pixel's segment, of each image; 0 where there is void."""
        free = rng.permutation(len(LEVELS) ** 3)
        y, x = np.mgrid[: size[0], : size[1]] + 0.5
        for index in range(count):
            ids = np.unique(rng.integers(1, 1 << 24, 20))[rng.permutation(12)].tolist()
            numbers = np.full(size, len(self.colors))
            numbers[size[0] // 2 :] += 1
            infos = [{"id": ids[0], "category_id": 7, "iscrowd": 0}, {"id": ids[1], "category_id": 9, "iscrowd": 0}]
            first = len(self.colors)
            things = int(rng.integers(2, 6))
            for number in range(things):
                center, radius = rng.uniform((12, 12), (size[1] - 12, size[0] - 12)), rng.uniform(8, 22, 2)
                inside = (((x - center[0]) / radius[0]) ** 2 + ((y - center[1]) / radius[1]) ** 2) < 1
                numbers[inside] = first + 2 + number
                crowd = int(number == 3 and things >= 4)
                infos.append({"id": ids[2 + number], "category_id": (3, 5)[number % 2], "iscrowd": crowd})
            numbers[:, :10] = 0
            present = [number for number in np.unique(numbers) if number]
            infos = [infos[number - first] for number in present]
            final = np.zeros_like(numbers)
            for number, info in zip(present, infos, strict=True):
                where = np.argwhere(numbers == number)
                low, high = where.min(0)[::-1].tolist(), (where.max(0)[::-1] + 1).tolist()
                info |= {"bbox": [*low, high[0] - low[0], high[1] - low[1]], "area": len(where)}
                final[numbers == number] = len(self.colors)
                is_thing = info["category_id"] in (3, 5)
                is_row = is_thing and not info["iscrowd"]
                self.rows.append(sum(not each["iscrowd"] for each in self.things) if is_row else -1)
                self.classes.append(-1 if is_thing else {7: 2, 9: 3}[info["category_id"]])
                self.colors.append(
                    tuple(LEVELS[list(np.unravel_index(free[len(self.colors)], (len(LEVELS),) * 3))].tolist())
                )
                if is_thing:
                    thing = {key: info[key] for key in ("category_id", "bbox", "area", "iscrowd")}
                    self.things.append({"id": 1000 - len(self.things), "image_id": index + 1, **thing})
            self.segments.append(final)
            id_of = np.zeros(len(self.colors), np.int64)
            id_of[[len(self.colors) - len(infos) + n for n in range(len(infos))]] = [info["id"] for info in infos]
            Image.fromarray(as_color(id_of[final])).save(folder / f"panoptic/{index}.png")
            Image.fromarray(np.array(self.colors, np.uint8)[final]).save(folder / f"images/{index}.png")
            self.images.append({"id": index + 1, "file_name": f"{index}.png", "height": size[0], "width": size[1]})
            self.entries.append({"image_id": index + 1, "file_name": f"{index}.png", "segments_info": infos})
        self.write()

    def write(self) -> None:
        """Write both JSON files; the order of the entries is not that of the images."""
        things = [{"id": each["id"], "name": each["name"]} for each in CATEGORIES if each["isthing"]]
        content = {"images": self.images, "annotations": self.things, "categories": things}
        (self.folder / "things.json").write_text(json.dumps(content))
        content = {"images": self.images, "annotations": self.entries[::-1], "categories": CATEGORIES}
        (self.folder / "panoptic.json").write_text(json.dumps(content))

    def reader(self, kind: Any = None, **more: Any) -> da.CocoReader:
        """Return a reader with the map "panoptic"."""
        maps = {"panoptic": kind or da.PanopticMap("panoptic")}
        return da.CocoReader(self.folder / "images", self.folder / "things.json", maps=maps, **more)

    def seen(self, image: NDArray[Any]) -> NDArray[np.int64]:
        """Return (H, W) the segment whose color a pixel (H, W, 3) and its neighbors show, 0 for black; -1 at edges."""
        colors = np.array(self.colors)
        nearest, least = np.zeros(image.shape[:2], np.int64), np.full(image.shape[:2], np.inf)
        for number, color in enumerate(colors):
            distance = abs(image - color).max(2)
            nearest[distance < least] = number
            least = np.minimum(least, distance)
        nearest[least > 8] = -1
        padded = np.pad(nearest, 1, mode="edge")
        height, width = nearest.shape
        around = np.stack([padded[i : i + height, j : j + width] for i in range(3) for j in range(3)])
        return np.where((around == nearest).all(0), nearest, -1)
