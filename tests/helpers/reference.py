"""Import torchvision, the second implementation with which ops are compared."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import pytest
import torch
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


def torchvision_part(name: str) -> Any:
    """Return a module of torchvision's Python code, or skip the test where it cannot be imported."""
    try:
        import_torchvision()
        return import_module(name)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision, the reference, cannot be imported: {error}")


def v2functional() -> Any:
    """Return torchvision.transforms.v2.functional, or skip the test where it cannot be imported."""
    return torchvision_part("torchvision.transforms.v2.functional")


def require_torchvision(name: str = "torchvision") -> Any:
    """Return torchvision or a module of it; skip a test, or a module of tests, where its compiled code does not load.

    pytest.importorskip skips where it is not installed. A wheel that was built for another torch raises RuntimeError:
    when it is imported, or when an operator is called that import_torchvision has declared.
    """
    try:
        import_module("torchvision.ops").nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
        return import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        reason = (str(error).splitlines() or ["?"])[0]
        pytest.skip(f"needs a torchvision that fits the installed torch: {reason}", allow_module_level=True)
