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

from importlib import import_module
from typing import Any

from detaug.errors import MissingPackageError
from detaug.packages import missing_module, needs
from detaug.recipes.public_names import public_names

__version__ = "0.2.0"

__all__ = sorted(public_names())


def __getattr__(name: str) -> Any:
    """Import torch and DALI, which take seconds, only when something that needs them is used."""
    module = public_names().get(name)
    if module is None:
        raise AttributeError(import_module("detaug.recipes.public_names").explain_missing(name, __all__))
    try:
        return import_module(f"detaug.{name}") if module == "detaug" else getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        missing = missing_module(error)
        if missing is None:
            raise
        raise MissingPackageError(f"da.{name} {needs(missing)}") from error


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
