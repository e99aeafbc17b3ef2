"""Object-detection augmentation on NVIDIA DALI, boxes never out of step with the pixels.

import detaug as da
loader = da.Loader(da.CocoReader("VOC2012/JPEGImages", "train.json"), da.presets.ssd300(), batch_size=32)
for batch in loader:
    losses = model(batch.images, batch.targets())

Sizes are (height, width) in pixels, boxes XYXY, `p` is a probability, `fill` RGB in 0..255. A wrong argument is an
InputError (a ValueError) or a TypeError when the op or the loader is made; it names the argument, the rule and the
value.

The examples in docstrings run in a folder where `detaug demo` and
`detaug convert-voc demo/VOC -o train.json --split train` were run, after

import detaug as da
import numpy as np
import torch
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _read_public_names() -> dict[str, str]:
    """Return the module of each public name, as `__init__.pyi` imports it."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_MODULE_OF = _read_public_names()

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Import torch and DALI, which take seconds, only when something that needs them is used."""
    if name not in _MODULE_OF:
        raise AttributeError(import_module("detaug.ops.other_names").explain_missing(name, __all__))
    module = _MODULE_OF[name]
    return import_module(f"detaug.{name}") if module == "detaug" else getattr(import_module(module), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
