"""Import pipelines that are written as text, with the libraries themselves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import albumentations
import pytest
from reference import import_torchvision

import detaug as da

OLD_ARGUMENTS = [
    "ignore:Argument.s. .* are not valid for transform:UserWarning",
    "ignore:ShiftScaleRotate is a special case:UserWarning",
    "ignore:Got processor for bboxes, but no transform:UserWarning",
    "ignore:blur_limit. Invalid kernel size range .1, 3.:UserWarning",
]
"""What Albumentations 2.0.8 warns of in pipelines that were written for earlier versions."""


@cache
def libraries() -> dict[str, ModuleType]:
    """Return the names that pipelines use."""
    import torch

    try:
        import_torchvision()
        from torchvision.transforms import v2
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision cannot be imported: {error}")
    return {"A": albumentations, "v2": v2, "torch": torch}


def live(ops: str) -> Any:
    """Return the pipeline that is written as text, such as "[A.HorizontalFlip()]"."""
    return eval(ops, libraries() if "v2." in ops else {"A": albumentations})


def seed_apart(pipeline: Any, seeds: Iterator[int]) -> None:
    """Give each op and container of Albumentations a seed of its own: one seed for all makes their draws equal."""
    pipeline.set_random_seed(next(seeds))
    for op in getattr(pipeline, "transforms", []):
        if hasattr(op, "set_random_seed"):
            seed_apart(op, seeds)


def import_ops(ops: str, **options: Any) -> da.ImportedRecipe:
    """Import a pipeline that is written as text."""
    return da.import_recipe(live(ops), **options)
