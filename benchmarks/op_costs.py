"""Measure the cost of each op, in images per second and as a fraction of decoding a JPEG of 500 x 375.

    python benchmarks/op_costs.py [--device cuda] [--json costs.json] [--only JPEG CLAHE]

Each op runs in a recipe with Resize to 300 x 300, planning included, on an image of 500 x 375 in memory; every image
draws the op (p=1). As in a loader, Triton's kernels render what they can on a GPU, marked with *, and DALI's operators
the rest, in one pipeline. `images/s` is the recipe's rate. `op, us` is the additional time of an image over Resize
alone, in microseconds: CPU time of all threads with --device cpu, which other programs disturb less, and wall time with
cuda. Differences of a few percent of Resize's time are noise. A negative time is noise too, or the op leaves Resize
less to do. `of a decode` is the additional time as a fraction of decoding. For Resize itself, it is the whole time.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from io import BytesIO
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, types
from PIL import Image

import detaug as da
from detaug.arrays import Arrays
from detaug.boxes.views import whole_images
from detaug.loading.devices import resolve_device
from detaug.loading.planner import BLOCK_IMAGES
from detaug.ops.op import Op
from detaug.pipelines.graph import Node
from detaug.pipelines.worker import PipelineWorker
from detaug.recipes.kernel_chain import KernelChain, chain_for
from detaug.recipes.recipe import Plan, Recipe, draws_from
from detaug.recipes.recipe_file import library

SOURCE, OUTPUT = (375, 500), (300, 300)
PREFETCH = 2
"""Batches in the pipeline."""
DECODE, RESIZE = "decode alone", "Resize alone"

ARGUMENTS: dict[str, dict[str, Any]] = {
    "CenterCrop": {"size": (300, 400)},
    "ColorJitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
    "Pad": {"padding": 20},
    "PadToMultiple": {"multiple": 64},
    "RandomAdjustSharpness": {"sharpness_factor": 2.0},
    "RandomAffine": {"degrees": 10, "translate": (0.1, 0.1), "scale": (0.7, 1.3), "shear": 5},
    "RandomApply": {"ops": (da.RandomHorizontalFlip(p=1), da.RandomVerticalFlip(p=1)), "p": 0.5},
    "RandomChoice": {"ops": (da.RandomHorizontalFlip(p=1), da.RandomVerticalFlip(p=1))},
    "RandomCrop": {"size": (300, 400)},
    "RandomOrder": {"ops": (da.RandomHorizontalFlip(p=1), da.RandomVerticalFlip(p=1))},
    "RandomPosterize": {"bits": 4},
    "RandomResizedCrop": {"size": OUTPUT},
    "RandomRotation": {"degrees": 10},
    "RandomShortestSize": {"min_size": (300,)},
    "RandomSolarize": {"threshold": 128},
    "Resize": {"size": OUTPUT},
    "ScaleJitter": {"size": SOURCE},
}
"""Arguments of the ops that need some. All ops get p=1 unless it is here."""


def make(name: str) -> Op:
    """Make a public op."""
    op = library()[name]
    always = {"p": 1.0} if "p" in {field.name for field in fields(op)} else {}  # type: ignore[arg-type]
    return op(**always | ARGUMENTS.get(name, {}))


def recipe_of(op: Op | None) -> Recipe:
    """Return a recipe of Resize and the op."""
    resize = da.Resize(OUTPUT)
    if op is None:
        return Recipe((resize,))
    return Recipe({"view": (op, resize), "render": (op,)}.get(op.stage, (resize, op)))


def jpeg() -> bytes:
    """Return an image of 500 x 375 with some noise, about as large a file as Pascal VOC's."""
    rng, file = np.random.default_rng(0), BytesIO()
    noise = Image.fromarray(rng.integers(0, 256, (25, 33, 3), np.uint8)).resize(SOURCE[::-1], Image.Resampling.BICUBIC)
    grain = rng.normal(0, 6, (*SOURCE, 1))
    Image.fromarray((noise + grain).clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def array(device: str) -> Node:
    """Return a node with the image, already decoded."""
    pixels = np.asarray(Image.open(BytesIO(jpeg())))
    return fn.reshape(types.Constant(pixels, device="gpu" if device == "cuda" else "cpu"), layout="HWC")


def decoded(device: str) -> Node:
    """Return a node that decodes the image."""
    encoded = types.Constant(np.frombuffer(jpeg(), np.uint8))
    return fn.decoders.image(encoded, device="mixed" if device == "cuda" else "cpu", output_type=types.RGB)


def plans(recipe: Recipe, batch_size: int, inputs_of: Callable[[Plan], Arrays]) -> Iterator[Arrays]:
    """Yield the inputs of one batch after another, planned in blocks as in the loader."""
    batches = max(1, BLOCK_IMAGES // batch_size)
    n, draws = batches * batch_size, draws_from(np.random.default_rng(0))
    boxes = np.tile([[0.1, 0.2, 0.5, 0.7], [0.4, 0.3, 0.9, 0.8]], (n, 1, 1))
    views = whole_images(boxes, np.ones((n, 2), np.int64), np.tile(np.array(SOURCE, np.float64), (n, 1)))
    views.batch[:], views.slot[:] = np.divmod(np.arange(n), batch_size)
    while True:
        inputs = inputs_of(recipe.plan(views, draws))
        for at in range(batches):
            part = slice(at * batch_size, (at + 1) * batch_size)
            yield {name: array[part] for name, array in inputs.items()}


def timed(recipe: Recipe, source: Callable[[str], Node], options: argparse.Namespace) -> tuple[float, float]:
    """Return images per second and microseconds per image: CPU time, or wall time on a GPU."""
    device = resolve_device(options.device)
    kernels = chain_for(recipe, device) if source is array else None
    batches = by_kernels(recipe, kernels, options) if kernels else by_dali(recipe, source, device, options)
    for _ in range(4):
        next(batches)
    images, start, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < options.seconds:
        next(batches)
        images += options.batch_size
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    return images / wall, (cpu if device.type == "cpu" else wall) / images * 1e6


def by_dali(
    recipe: Recipe, source: Callable[[str], Node], device: torch.device, options: argparse.Namespace
) -> Iterator[None]:
    """Render a batch in a pipeline for each `next`."""

    def graph() -> list[Node]:
        return [recipe.dali_graph(source(device.type))]

    worker = PipelineWorker(graph, options.batch_size, options.threads, device, PREFETCH)
    inputs = plans(recipe, options.batch_size, lambda plan: plan.inputs)
    for _ in range(PREFETCH):
        worker.start(next(inputs))
    while True:
        worker.finish()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        worker.start(next(inputs))
        yield


def by_kernels(recipe: Recipe, kernels: KernelChain, options: argparse.Namespace) -> Iterator[None]:
    """Render a batch with Triton's kernels for each `next`, at most `PREFETCH` of them ahead."""

    def inputs_of(plan: Plan) -> Arrays:
        sizes = np.tile(SOURCE, (len(plan.views), 1))
        return kernels.parameters(plan.views, sizes, plan.inputs) | {"size": plan.views.size}

    pixels = torch.from_numpy(np.array(Image.open(BytesIO(jpeg())))).to(kernels.device).view(-1)
    ends: deque[torch.cuda.Event] = deque()
    for inputs in plans(recipe, options.batch_size, inputs_of):
        height, width = inputs.pop("size").max(0).astype(int).tolist()
        (parameters,) = kernels.to_device([inputs], [np.zeros(options.batch_size, np.int64)])
        kernels.render(pixels, pixels, parameters, (height, width))
        ends.append(torch.cuda.current_stream().record_event())
        if len(ends) > PREFETCH:
            ends.popleft().synchronize()
        yield


def measure(names: Iterable[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure decoding, Resize alone and all ops, sorted by cost. Each is the best of several interleaved rounds."""
    recipes = {DECODE: (Recipe(()), decoded), RESIZE: (recipe_of(None), array)}
    recipes |= {name: (recipe_of(make(name)), array) for name in names}
    rounds = [{name: timed(*each, options) for name, each in recipes.items()} for _ in range(options.rounds)]
    best = {name: min((each[name] for each in rounds), key=lambda result: result[1]) for name in recipes}
    whole = {DECODE, RESIZE, *(name for name in names if make(name).stage == "render")}
    rows = []
    for name, (rate, microseconds) in best.items():
        cost = microseconds - (0 if name in whole else best[RESIZE][1])
        fused = name != DECODE and chain_for(recipes[name][0], resolve_device(options.device)) is not None
        share = cost / best[DECODE][1]
        rows.append({"op": name, "fused": fused, "rate": rate, "microseconds": cost, "of_a_decode": share})
    return rows[:2] + sorted(rows[2:], key=lambda row: -row["microseconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=min(8, len(os.sched_getaffinity(0))))
    parser.add_argument("--seconds", type=float, default=0.25, help="measured for each op in each round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=sorted(library()), metavar="OP")
    parser.add_argument("--json", metavar="OUT")
    options = parser.parse_args()
    result = {"device": options.device, "batch_size": options.batch_size, "threads": options.threads}
    result["ops"] = measure(options.only, options)
    print_table(result)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


def print_table(result: dict[str, Any]) -> None:
    print(f"{result['device']}, batch {result['batch_size']}, {result['threads']} threads, JPEG of {len(jpeg())} bytes")
    print(f"{'':28}{'images/s':>10}{'op, us':>10}{'of a decode':>13}")
    for row in result["ops"]:
        name = row["op"] + (" *" if row["fused"] else "")
        print(f"{name:28}{row['rate']:>10,.0f}{row['microseconds']:>10,.0f}{row['of_a_decode']:>13.2f}")


if __name__ == "__main__":
    main()
