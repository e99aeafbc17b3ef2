"""What OpticalFlow costs: clips of video files through a loader with it and without it.

    python benchmarks/optical_flow.py [--size 720 1280] [--frames 16] [--resize 224] [--videos 16] [--turns 3]

Makes the videos of videos.py. In each turn, for the loader without OpticalFlow and with each of its presets, at grid 4:
frames/s of some epochs after the first; and flow of the same frames alone, without decoding. Prints medians of the
turns and in brackets their range.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
from videos import write_video

import detaug as da
from detaug.ops.recipe import make_recipe
from detaug.video.flow import FlowPipeline

BATCH, EPOCHS = 8, 2


def through_loader(reader: da.VideoReader, ops: list[da.Op]) -> float:
    loader: da.Loader[da.ClipBatch] = da.Loader(reader, [*ops, da.Normalize()], BATCH, device="cuda")
    with loader:
        for _ in loader:
            pass
        start, frames = perf_counter(), 0
        for _ in range(EPOCHS):
            for batch in loader:
                frames += batch.frame.numel()
        torch.cuda.synchronize()
        return frames / (perf_counter() - start)


def alone(frames: int, resize: int, op: da.OpticalFlow) -> float:
    recipe = make_recipe([da.Resize((resize, resize)), op])
    flow = FlowPipeline(op, recipe, BATCH, frames, torch.device("cuda", 0))
    images = torch.randint(0, 256, (BATCH * frames, 3, resize, resize), dtype=torch.uint8, device="cuda")
    flow(images)
    torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(10):
        flow(images)
    torch.cuda.synchronize()
    rate = 10 * len(images) / (perf_counter() - start)
    flow.close()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs=2, default=(720, 1280), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--resize", type=int, default=224)
    parser.add_argument("--videos", type=int, default=16)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    resize: da.Op = da.Resize((options.resize, options.resize))
    columns: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder, ProcessPoolExecutor() as pool:
        files = [Path(folder) / f"{at}.mp4" for at in range(options.videos)]
        list(pool.map(write_video, files, [options.size] * len(files), [30] * len(files), range(len(files))))
        reader = da.VideoReader(folder, frames=options.frames, cache=False)
        for _ in range(options.turns):
            found = {"without": through_loader(reader, [resize])}
            for preset in (1.0, 0.5, 0.0):
                op = da.OpticalFlow(preset)
                found[f"preset {preset:g}"] = through_loader(reader, [resize, op])
                found[f"preset {preset:g}, flow alone"] = alone(options.frames, options.resize, op)
            print(", ".join(f"{name} {value:,.0f}" for name, value in found.items()), flush=True)
            for name, value in found.items():
                columns.setdefault(name, []).append(value)
    for name, rates in columns.items():
        print(f"{name}: {median(rates):,.0f} frames/s ({min(rates):,.0f} to {max(rates):,.0f})")


if __name__ == "__main__":
    main()
