"""List the images of a COCO JSON file several times, as links, for benchmarks whose epochs would be too short.

    python benchmarks/copy_images.py train.json JPEGImages -o many --copies 20

Writes many/train.json and links to the images in many/images.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def copy_images(annotations: Path, images: Path, copies: int, output: Path) -> None:
    data, rows, boxes = json.loads(annotations.read_text()), [], []
    step = 1 + max(image["id"] for image in data["images"])
    for copy in range(copies):
        for image in data["images"]:
            link = output / "images" / f"{copy}" / image["file_name"]
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to((images / image["file_name"]).resolve())
            rows.append({**image, "id": image["id"] + copy * step, "file_name": f"{copy}/{image['file_name']}"})
        for box in data["annotations"]:
            boxes.append({**box, "id": len(boxes) + 1, "image_id": box["image_id"] + copy * step})
    (output / "train.json").write_text(json.dumps({**data, "images": rows, "annotations": boxes}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--copies", type=int, default=20)
    options = parser.parse_args()
    copy_images(options.annotations, options.images, options.copies, options.output)


if __name__ == "__main__":
    main()
