"""Videos as folders of frames: painted rectangles that move, come and go, and a CocoVID JSON file of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
from numpy.typing import NDArray
from painted import paint
from PIL import Image

SIZES = [(96, 128), (128, 96), (150, 150)]


class Videos(NamedTuple):
    folder: Path
    json: Path
    boxes: dict[int, NDArray[np.int64]]
    """By image id: (3, 4) XYXY, of the objects in the color channels; -1 for one that is not there."""


def moving_boxes(rng: np.random.Generator, size: tuple[int, int], frames: int) -> NDArray[np.int64]:
    """(frames, 3, 4) XYXY whole pixels: three boxes that move evenly, each gone in a part of the frames."""
    height, width = size
    sides = rng.integers(20, 40, (3, 2))
    first, last = (rng.integers(0, (width, height) - sides + 1) for _ in range(2))
    share = np.linspace(0, 1, frames)[:, None, None]
    corner = np.round(first + (last - first) * share).astype(np.int64)
    boxes = np.concatenate([corner, corner + sides], axis=2)
    for at in range(3):
        boxes[rng.integers(frames) :, at][: rng.integers(frames // 2)] = -1
    return boxes


def paint_videos(folder: Path, lengths: tuple[int, ...] = (14, 9, 11), **of_videos: Any) -> Videos:
    """Write frames as PNG files in a folder for each video. `of_videos`: further keys of each video."""
    rng = np.random.default_rng(0)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    boxes: dict[int, NDArray[np.int64]] = {}
    for video, length in enumerate(lengths):
        size = SIZES[video % 3]
        (folder / f"v{video}").mkdir(parents=True)
        for frame, each in enumerate(moving_boxes(rng, size, length)):
            name, number = f"v{video}/{frame:03}.png", 100 * (video + 1) + frame
            Image.fromarray(paint(size, np.maximum(each, 0))).save(folder / name)
            place = {"video_id": video + 1, "frame_id": frame}
            images.append({"id": number, "file_name": name, "height": size[0], "width": size[1], **place})
            boxes[number] = each
            for label in np.flatnonzero(each[:, 0] >= 0).tolist():
                x0, y0, x1, y1 = each[label].tolist()
                box = {"image_id": number, "category_id": label + 1, "bbox": [x0, y0, x1 - x0, y1 - y0]}
                annotations.append({"id": len(annotations) + 1, **box, "iscrowd": 0, "track_id": 10 * (label + 1)})
    shuffled = [images[at] for at in rng.permutation(len(images))]
    videos = [{"id": video + 1, "name": f"v{video}", **of_videos} for video in range(len(lengths))]
    categories = [{"id": label, "name": f"class {label}"} for label in (1, 2, 3)]
    document = {"images": shuffled, "annotations": annotations, "categories": categories, "videos": videos}
    path = folder / "videos.json"
    path.write_text(json.dumps(document))
    return Videos(folder, path, boxes)


def write_lossless(path: Path, images: list[Path]) -> None:
    """Write images as the frames of a video file with the same pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("ffv1", rate=10)
        frames = [read_rgb(each) for each in images]
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "bgr0"
        for each in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(each, format="rgb24").reformat(format="bgr0")))
        container.mux(stream.encode())


def read_rgb(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.array(image)
