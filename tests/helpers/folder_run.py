"""`train_folder` with a tiny model, which tests run under torchrun: python folder_run.py PATH OUT MODEL."""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

from semantic_files import tiny_semantic
from train_run import tiny

import detaug.training.loop as loop
from detaug.cli.main import main


def tiny_detr(_: str, num_classes: int) -> Any:
    from tiny_detectors import made, rt_detr_v2

    from detaug.training import Detector
    from detaug.training.detr_models import TransformersDetector

    return Detector(TransformersDetector(made(rt_detr_v2, num_classes - 1), 0.5), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


if __name__ == "__main__":
    path, output, model = sys.argv[1:]
    make_model = {"rt": tiny_detr, "lr": tiny_semantic}.get(model[:2], tiny())
    loop.train.__kwdefaults__["make_model"] = make_model
    size = "128x128" if model.startswith("rt") else "32x32"
    words = ["train", path, "-o", output, "--model", model, "--size", size, "--batch-size", "2", "--device", "cpu"]
    with patch("detaug.training.predict.make_detector", make_model):
        sys.exit(main([*words, "--epochs", "2", "--eval-every", "1", "--log-every", "1"]))
