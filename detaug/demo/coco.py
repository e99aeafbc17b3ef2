"""Write drawn images as a folder of images with a COCO JSON file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from detaug.coco.writer import write_coco


class Drawn(NamedTuple):
    """An image and the annotations of its objects, without ids and iscrowd."""

    image: Image.Image
    objects: list[dict[str, Any]]


def write_pictures(root: Path, name: str, categories: Sequence[dict[str, Any]], drawn: Iterable[Drawn]) -> Path:
    """Write the images into `root`/`name` and their annotations into `root`/`name`.json; return the JSON file."""
    folder, images, annotations = root / name, list[dict[str, Any]](), list[dict[str, Any]]()
    folder.mkdir(parents=True, exist_ok=True)
    for number, (image, objects) in enumerate(drawn, 1):
        file_name = f"{name}_{number:03d}.jpg"  # other names than those of VOC: errors advise where images are
        image.save(folder / file_name, quality=90)
        images.append({"id": number, "file_name": file_name, "width": image.width, "height": image.height})
        for annotation in objects:
            annotations.append({"id": len(annotations) + 1, "image_id": number, **annotation, "iscrowd": 0})
    write_coco(root / f"{name}.json", images, annotations, categories, {"description": f"{name}, drawn by detaug demo"})
    return root / f"{name}.json"
