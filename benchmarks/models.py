"""Train each model of `detaug train` on 8 drawn images and score it on them: one that cannot learn them has a fault.

    python benchmarks/models.py -o OUT [--models NAME ...] [--steps 600] [--device cpu]

From random weights, with the authors' hyperparameters and without augmentation. Prints a row for each model: parameters
in millions, seconds a step, and AP, AP50 of what it finds after the last step, on the images that it was trained on.
Seconds are those of the last nine tenths of the steps, in 16 bits on a GPU, with 8 images per step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import detaug as da
from detaug.demo.people import make_people
from detaug.demo.shapes import make_voc
from detaug.demo.ships import make_ships
from detaug.training import TrainOptions, train
from detaug.training.model_table import MODELS, READS

IMAGES = 8


def write_data(folder: Path) -> None:
    """Draw images with boxes and masks, people with keypoints, and ships with rotated boxes."""
    make_voc(folder / "VOC", IMAGES)
    convert = ["convert-voc", str(folder / "VOC"), "-o", str(folder / "boxes.json"), "--masks"]
    subprocess.run([sys.executable, "-m", "detaug", *convert], check=True, stdout=subprocess.DEVNULL)
    make_people(folder, IMAGES)
    make_ships(folder, IMAGES)


def row(name: str, folder: Path, steps: int, device: str | None) -> dict[str, Any]:
    model = MODELS[name]
    own = {"keypoints": ("people.json", "people"), "rotated": ("ships.json", "ships")}
    file, images = (folder / each for each in own.get(model.finds, ("boxes.json", "VOC/JPEGImages")))
    size = model.size if isinstance(model.size, tuple) else (320, 320)
    recipe = folder / "plain.yaml"
    letterbox: Any = "center" if model.finds == "rotated" else None  # a stretched rectangle is none
    da.save_recipe([da.Resize(size, letterbox=letterbox), da.Normalize()], recipe)
    counts: list[float] = []

    def make_model(*arguments: Any, **more: Any) -> Any:
        from detaug.training.detectors import make_detector

        detector = make_detector(*arguments, **more)
        counts.append(sum(parameter.numel() for parameter in detector.model.parameters()) / 1e6)
        return detector

    output = folder / f"run-{name}"
    adamw = {} if model.optimizer == "adamw" else {"optimizer": "adamw"}
    options = TrainOptions(
        file, images, output, val=file, model=name, epochs=steps, batch_size=IMAGES, recipe=recipe, device=device,
        eval_every=steps, checkpoint_every=0, log_every=steps, **adamw,
    )  # fmt: skip
    start = time.perf_counter()
    ends: list[float] = []  # of the steps: an epoch is one, and has a line

    def say(line: str) -> None:
        if "  loss " in line:
            ends.append(time.perf_counter())

    result = train(options, make_model=make_model, say=say)
    assert len(ends) == steps
    first = max(1, steps // 10)
    seconds = (ends[-1] - ends[first - 1]) / (steps - first)
    scores = {**result["evaluation"], **result["evaluation"].get(model.finds, {})}
    assert model.finds in READS
    return {
        "model": name, "parameters": round(counts[0], 1), "size": "x".join(map(str, size)), "finds": model.finds,
        "s/step": round(seconds, 4), "AP": round(scores["AP"], 3), "AP50": round(scores["AP50"], 3),
        "total s": round(time.perf_counter() - start),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--device")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    write_data(arguments.output)
    for name in arguments.models:
        print(json.dumps(row(name, arguments.output, arguments.steps, arguments.device)), flush=True)


if __name__ == "__main__":
    main()
