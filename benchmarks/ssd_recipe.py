"""The SSD recipe, images a second, side by side on one machine in one run.

    python benchmarks/ssd_recipe.py train.json JPEGImages --batch-size 32 [--device cuda]

loader        da.Loader with da.presets.ssd300(): batches as torch tensors
graph         the same graphs, fed and collected the same way, without making torch batches of their outputs
by hand       the recipe as DALI's examples write it: readers.coco, paste, random_bbox_crop, slice, flip, resize,
              color_twist, normalise; one pipeline, its PyTorch iterator
decode        decoding alone, fed as the loader feeds

Each runs in a process of its own, in turns, so that a slow minute of the machine hits them alike; the table has
the medians, the range, and how many times as fast the loader was, turn by turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from nvidia.dali import Pipeline, fn, types
from nvidia.dali import math as dali_math
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

import detaug as da
from detaug.reader import decoded
from detaug.recipe import Recipe

Rounds = Iterator[Any]


def make_loader(options: argparse.Namespace) -> da.Loader:
    reader = da.CocoReader(options.images, options.annotations)
    settings = {"pipelines": options.pipelines, "threads": options.threads}
    return da.Loader(reader, da.presets.ssd300(), options.batch_size, device=options.device, **settings)


def loader(options: argparse.Namespace) -> Rounds:
    ours = make_loader(options)
    return (batch.images for _ in count() for batch in ours)


def graph(options: argparse.Namespace) -> Rounds:
    return bare(make_loader(options))


def decode(options: argparse.Namespace) -> Rounds:
    ours = make_loader(options)

    ours._planner = replace(ours._planner, recipe=Recipe(()))
    ours._graph = lambda: [decoded(ours.device.type)]  # type: ignore[method-assign]
    ours._open()
    return bare(ours)


def bare(ours: da.Loader) -> Rounds:
    """The outputs of the loader's pipelines as DALI hands them out."""
    for epoch in count():
        ours._go_to(epoch, 0)
        for _ in range(len(ours)):
            _, outputs = ours._finish()
            ours._start_lanes()
            yield outputs


def by_hand(options: argparse.Namespace) -> Rounds:
    on_gpu = torch.device(options.device).type == "cuda"
    threads = len(os.sched_getaffinity(0)) if not on_gpu else 8
    pipe = Pipeline(options.batch_size, threads, 0 if on_gpu else None, seed=1)
    with pipe:
        pipe.set_outputs(*by_hand_graph(options, "mixed" if on_gpu else "cpu"))
    names = ["images", "boxes", "labels"]
    policy = {"last_batch_policy": LastBatchPolicy.FILL, "auto_reset": True, "reader_name": "reader"}
    iterator = DALIGenericIterator(pipe, names, **policy)
    return (batch[0]["images"] for _ in count() for batch in iterator)


def by_hand_graph(options: argparse.Namespace, decoder: str) -> list[Any]:
    encoded, boxes, labels = fn.readers.coco(
        file_root=options.images, annotations_file=options.annotations, ltrb=True, ratio=True,
        shuffle_after_epoch=True, pad_last_batch=True, name="reader",
    )  # fmt: skip
    image = fn.decoders.image(encoded, device=decoder, output_type=types.RGB)
    ratio = 1 + fn.random.coin_flip(probability=0.5) * fn.random.uniform(range=[0.0, 3.0])
    x, y = fn.random.uniform(range=[0.0, 1.0]), fn.random.uniform(range=[0.0, 1.0])
    image = fn.paste(image, ratio=ratio, paste_x=x, paste_y=y, fill_value=[123, 117, 104])
    boxes = fn.bbox_paste(boxes, ltrb=True, ratio=ratio, paste_x=x, paste_y=y)
    boxes = dali_math.clamp(boxes, 0.0, 1.0)
    anchor, shape, boxes, labels = fn.random_bbox_crop(
        boxes, labels, bbox_layout="xyXY", thresholds=[0.0, 0.1, 0.3, 0.5, 0.7, 0.9], scaling=[0.3, 1.0],
        aspect_ratio=[0.5, 2.0], num_attempts=40, total_num_attempts=320, quiet=True,
        all_boxes_above_threshold=False,
    )  # fmt: skip
    image = fn.slice(image, anchor, shape)
    flip = fn.random.coin_flip()
    image, boxes = fn.flip(image, horizontal=flip), fn.bb_flip(boxes, ltrb=True, horizontal=flip)
    image = fn.resize(image, size=[300, 300])
    image = fn.color_twist(
        image,
        brightness=fn.random.uniform(range=[0.875, 1.125]), contrast=fn.random.uniform(range=[0.5, 1.5]),
        saturation=fn.random.uniform(range=[0.5, 1.5]), hue=fn.random.uniform(range=[-18.0, 18.0]),
    )  # fmt: skip
    image = fn.crop_mirror_normalize(image, mean=[0.0] * 3, std=[255.0] * 3, dtype=types.FLOAT, output_layout="CHW")
    boxes, labels = fn.pad(boxes, axes=[0], fill_value=0), fn.pad(labels, axes=[0], fill_value=-1)
    return [image, *((boxes.gpu(), labels.gpu()) if decoder == "mixed" else (boxes, labels))]


def measure(batches: Rounds, options: argparse.Namespace) -> dict[str, float]:
    """Images a second, and CPU seconds of this process per 1,000 images, after a warm-up."""
    for _ in range(options.warm_up):
        next(batches)
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(options.batches):
        last = next(batches)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    del last
    images = options.batches * options.batch_size
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"rate": images / seconds, "cpu": cpu / images * 1000}


def in_own_process(name: str) -> dict[str, float]:
    command = [sys.executable, __file__, *sys.argv[1:], "--child", name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations")
    parser.add_argument("images")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--batches", type=int, default=40, help="batches timed in a turn")
    parser.add_argument("--warm-up", type=int, default=8, help="batches before them")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pipelines", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", nargs="*", default=["loader", "graph", "by_hand", "decode"])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(globals()[options.child](options), options)))
        return
    turns = [{name: in_own_process(name) for name in options.only} for _ in range(options.turns)]
    print_table(options, turns)


def print_table(options: argparse.Namespace, turns: list[dict[str, dict[str, float]]]) -> None:
    print(f"{options.device}, batch {options.batch_size}, {options.turns} turns of {options.batches} batches")
    print(f"{'':10}{'images/s':>10}{'range':>16}{'loader/this':>13}{'CPU s/1000':>12}")
    for name in options.only:
        rates = [turn[name]["rate"] for turn in turns]
        ratio = statistics.median(turn[options.only[0]]["rate"] / turn[name]["rate"] for turn in turns)
        cpu = statistics.median(turn[name]["cpu"] for turn in turns)
        spread = f"{min(rates):.0f}..{max(rates):.0f}"
        print(f"{name:10}{statistics.median(rates):>10.0f}{spread:>16}{ratio:>13.2f}{cpu:>12.2f}")


if __name__ == "__main__":
    main()
