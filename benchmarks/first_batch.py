"""Time the first batch from a cold start of Python, and say where the time goes.

    python benchmarks/first_batch.py [FILE.json IMAGES] [--device cuda] [--batch-size 32] [--turns 5]

Each turn is a process of its own. Prints the seconds of each step, medians of the turns, in brackets their range:
Python and torch first, which a training needs anyway. Files that were read before come from the page cache. After
them come the steps of a pipeline of DALI alone, which decodes and resizes the same files with as many threads; the
loader's own part is what it takes longer. The last line is what a process takes longer that compiles Numba's loops, as
the first one of an installation does. Without FILE.json, the images are generated: JPEGs of 500 x 375.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from compare_versions import write_data

IMPORTS = """
import json, sys, time
marks = [("start of Python", float(sys.argv[1]))]
def mark(step):
    if sys.argv[5] != "cpu" and "torch" in globals():
        torch.cuda.synchronize()
    marks.append((step, time.time()))
mark("start of Python")
import torch
mark("import torch")
if sys.argv[5] != "cpu":
    torch.zeros(1, device=sys.argv[5])
    mark("CUDA")
import nvidia.dali.fn as fn
mark("import nvidia.dali")
"""

LOADER = """
import detaug as da
da.Loader
mark("import detaug")
reader = da.CocoReader(sys.argv[2], sys.argv[3])
mark("CocoReader")
loader = da.Loader(reader, da.presets.ssd300(), int(sys.argv[4]), device=sys.argv[5])
mark("Loader")
batch = next(iter(loader))
mark("first batch")
"""

DALI = """
from glob import glob
from nvidia.dali import Pipeline
on_gpu = sys.argv[5] != "cpu"
pipeline = Pipeline(int(sys.argv[4]), 4 if on_gpu else 2, 0 if on_gpu else None)
with pipeline:
    file, _ = fn.readers.file(file_root="/", files=sorted(glob(sys.argv[2] + "/*.jpg")))
    pipeline.set_outputs(fn.resize(fn.decoders.image(file, device="mixed" if on_gpu else "cpu"), size=[300, 300]))
pipeline.build()
mark("pipeline of DALI")
pipeline.run()
mark("its first batch")
"""

PRINT = """
print(json.dumps([(name, end - start) for (_, start), (name, end) in zip(marks, marks[1:])]))
"""


def seconds_of_steps(
    what: str, images: str, annotations: str, batch_size: int, device: str, **environment: str
) -> dict[str, float]:
    """Return the seconds of each step of one process, in their order, and "total"."""
    given = [str(time.time()), images, annotations, str(batch_size), device]
    command = [sys.executable, "-c", IMPORTS + what + PRINT, *given]
    run = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | environment)
    steps = dict(json.loads(run.stdout))
    return {**steps, "total": sum(steps.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help="FILE.json and IMAGES")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        if not arguments.data:
            write_data(Path(folder), 256)
        annotations, images = arguments.data or (f"{folder}/train.json", folder)
        given = images, annotations, arguments.batch_size, arguments.device
        seconds_of_steps(LOADER, *given)  # reads the files of the packages
        turns = [[seconds_of_steps(what, *given) for what in (LOADER, DALI)] for _ in range(arguments.turns)]
        compiling = seconds_of_steps(LOADER, *given, NUMBA_CACHE_DIR=f"{folder}/compiled")
    of_loader, of_dali = zip(*turns, strict=True)
    for step in of_loader[0]:
        print_times(step, [turn[step] for turn in of_loader])
    for step in ("pipeline of DALI", "its first batch", "total"):
        print_times(step, [turn[step] for turn in of_dali])
    print_times("the loader's own part", [own_seconds(loader) - own_seconds(dali) for loader, dali in turns])
    longer = {step: compiling[step] - median(turn[step] for turn in of_loader) for step in ("Loader", "first batch")}
    print("compiling Numba's loops, once:", ", ".join(f"{step} {seconds:.1f} s" for step, seconds in longer.items()))


def own_seconds(steps: dict[str, float]) -> float:
    """Return the seconds of the steps after those of `IMPORTS`."""
    names = list(steps)
    return sum(steps[name] for name in names[names.index("import nvidia.dali") + 1 :] if name != "total")


def print_times(step: str, seconds: list[float]) -> None:
    print(f"{step}: {median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")


if __name__ == "__main__":
    main()
