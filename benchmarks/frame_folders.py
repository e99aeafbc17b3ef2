"""Clips of frames in folders through da.ClipReader, beside the same files as images through da.CocoReader.

    python benchmarks/frame_folders.py [--videos 128] [--frames 8] [--batch-size 16] [--turns 5] [--seconds 3]

Makes folders of JPEGs of 500 x 375, 64 frames of a moving picture each, with three boxes. Both loaders read them all in
an epoch, with the recipe `presets.ssd300`; a batch has `--batch-size` clips of `--frames` frames, or as many images.
Prints images a second, medians of the turns and in brackets their range.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

import detaug as da
from detaug.converters.machine import available_cores
from detaug.demo.shapes import paint

LENGTH, WIDTH, HEIGHT = 64, 500, 375


def write_frames(folder: Path, video: int) -> None:
    """Write the frames of a video."""
    picture = paint(video)[0].convert("RGB").resize((WIDTH + LENGTH, HEIGHT + LENGTH))
    (folder / str(video)).mkdir()
    for at in range(LENGTH):
        picture.crop((at, at, at + WIDTH, at + HEIGHT)).save(folder / f"{video}/{at:03}.jpg", quality=92)


def document(videos: int) -> dict[str, Any]:
    """Return a CocoVID json of them."""
    places = [(video, at) for video in range(videos) for at in range(LENGTH)]
    images = [
        {"id": n, "file_name": f"{video}/{at:03}.jpg", "width": WIDTH, "height": HEIGHT, "video_id": video + 1}
        | {"frame_id": at}
        for n, (video, at) in enumerate(places)
    ]
    boxes = [
        {"id": 3 * n + k, "image_id": n, "category_id": 1, "bbox": [100 * k + at, 200 - at, 80, 90], "track_id": k}
        for n, (_, at) in enumerate(places)
        for k in range(3)
    ]
    rows = [{"id": video + 1, "fps": 25} for video in range(videos)]
    return {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}], "videos": rows}


def images_of(loader: da.Loader[Any]) -> Iterator[int]:
    """Yield the number of images of each batch, without end."""
    while True:
        yield from (batch.image_id.numel() for batch in loader)


def rate(counts: Iterator[int], seconds: float, device: str) -> float:
    """Return images a second, after a quarter of the time that does not count."""
    _take(counts, seconds / 4, device)
    start = time.perf_counter()
    return _take(counts, seconds, device) / (time.perf_counter() - start)


def _take(counts: Iterator[int], seconds: float, device: str) -> int:
    end, images = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        images += next(counts)
    if device == "cuda":
        torch.cuda.synchronize()
    return images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=128)
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        with ProcessPoolExecutor(available_cores()) as pool:
            list(pool.map(partial(write_frames, folder), range(options.videos)))
        (folder / "clips.json").write_text(json.dumps(document(options.videos)))
        measure(folder, options)


def measure(folder: Path, options: argparse.Namespace) -> None:
    """Print the rates of both loaders."""
    frames, batch_size = options.frames, options.batch_size
    clips = da.ClipReader(folder, folder / "clips.json", frames=frames, step=frames)
    images = da.CocoReader(folder, folder / "clips.json")
    recipe, device = da.presets.ssd300(), options.device
    with (
        da.Loader(images, recipe, frames * batch_size, device=device) as of_images,
        da.Loader(clips, recipe, batch_size, device=device) as of_clips,
    ):
        counts = images_of(of_images), images_of(of_clips)
        turns = [[rate(each, options.seconds, device) for each in counts] for _ in range(options.turns)]
    for name, column in zip(("images", "frames of clips"), zip(*turns, strict=True), strict=True):
        print(f"{name}: {median(column):,.0f} a second ({min(column):,.0f} to {max(column):,.0f})")
    ratios = [b / a for a, b in turns]
    print(f"frames / images: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
