"""Import torchvision, the second implementation with which ops are compared."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import pytest
from torch import library

OPERATORS = ("nms", "qnms")
declared: list[library.Library] = []  # so that they are not collected, and the operators with them


def import_torchvision() -> Any:
    """Import torchvision; if its wheel was built for another torch, declare the two operators that it misses.

    The tests call only its Python code on torch tensors, none of its compiled code.
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
    """Return torchvision.transforms.v2.functional, or skip the test where it cannot be imported."""
    try:
        import_torchvision()
        return import_module("torchvision.transforms.v2.functional")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision, the reference, cannot be imported: {error}")
