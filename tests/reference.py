"""torchvision, the second implementation that ours is compared with."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import pytest
from torch import library

OPERATORS = ("nms", "qnms")
declared: list[library.Library] = []  # kept: an operator goes with the library that declared it


def import_torchvision() -> Any:
    """torchvision; where its wheel was built for another torch, with the two operators declared that it misses.

    What is called here is Python on torch tensors and needs none of its compiled code.
    """
    try:
        return import_module("torchvision")
    except RuntimeError as error:
        if not any(f"torchvision::{name}" in str(error) for name in OPERATORS):
            raise
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    declared.append(library.Library("torchvision", "DEF"))
    for name in OPERATORS:
        declared[-1].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return import_module("torchvision")


def v2functional() -> Any:
    """torchvision.transforms.v2.functional; a test that needs it is skipped where it cannot be imported."""
    try:
        import_torchvision()
        return import_module("torchvision.transforms.v2.functional")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision, the reference, cannot be imported: {error}")
