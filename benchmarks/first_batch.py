"""Time the first batch from a cold start of Python, and say where the time goes.

    python benchmarks/first_batch.py [FILE.json IMAGES] [--device cuda] [--batch-size 32] [--turns 5]

Each turn is a process of its own. Prints the seconds of each step, medians of the turns, in brackets their range:
Python and torch first, which a training needs anyway. Files that were read before come from the page cache. The last
line is what a process takes longer that compiles Numba's loops, as the first one of an installation does. Without
FILE.json, the images are generated: JPEGs of 500 x 375.
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

STEPS = """
import json, sys, time
marks = [("start of Python", float(sys.argv[1]))]
def mark(step):
    marks.append((step, time.time()))
mark("start of Python")
import torch
mark("import torch")
if sys.argv[5] != "cpu":
    torch.zeros(1, device=sys.argv[5])
    mark("CUDA")
import nvidia.dali.fn
mark("import nvidia.dali")
import detaug as da
da.Loader
mark("import detaug")
reader = da.CocoReader(sys.argv[2], sys.argv[3])
mark("CocoReader")
loader = da.Loader(reader, da.presets.ssd300(), int(sys.argv[4]), device=sys.argv[5])
mark("Loader")
batch = next(iter(loader))
if sys.argv[5] != "cpu":
    torch.cuda.synchronize()
mark("first batch")
print(json.dumps([(name, end - start) for (_, start), (name, end) in zip(marks, marks[1:])]))
"""


def seconds_of_steps(
    images: str, annotations: str, batch_size: int, device: str, **environment: str
) -> dict[str, float]:
    """Return the seconds of each step of one process, in their order, and "total"."""
    command = [sys.executable, "-c", STEPS, str(time.time()), images, annotations, str(batch_size), device]
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
        seconds_of_steps(*given)  # reads the files of the packages
        turns = [seconds_of_steps(*given) for _ in range(arguments.turns)]
        compiling = seconds_of_steps(*given, NUMBA_CACHE_DIR=f"{folder}/compiled")
    for step in turns[0]:
        times = [turn[step] for turn in turns]
        print(f"{step}: {median(times):.2f} s ({min(times):.2f} to {max(times):.2f})")
    longer = {step: compiling[step] - median(turn[step] for turn in turns) for step in ("Loader", "first batch")}
    print("compiling Numba's loops, once:", ", ".join(f"{step} {seconds:.1f} s" for step, seconds in longer.items()))


if __name__ == "__main__":
    main()
