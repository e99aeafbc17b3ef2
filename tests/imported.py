"""Import pipelines, as files and as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import detaug as da

PIPELINES = Path(__file__).parent / "pipelines"

ARGUMENTS: dict[str, dict[str, Any]] = {
    "kaggle_sartorius": {"name": "train"},
    "kaggle_nfl": {},
    "tutorial_detr": {"name": "train_augment_and_transform"},
    "tutorial_pytorch_ssd": {"name": "train_transforms"},
    "wheat_fasterrcnn": {"name": "get_train_transform"},
    "classification": {"name": "transform"},
    "references_presets": {"settings": {"data_augmentation": "ssd"}},
    "tutorial_pennfudan": {"settings": {"train": True}},
}
"""For files with several pipelines, or with values that the file does not give."""


def import_file(path: Path) -> da.ImportedRecipe:
    """Import a pipeline of the folder."""
    return da.import_recipe(path, **ARGUMENTS.get(path.stem, {}))


def import_ops(ops: str, folder: Path, library: str = "albumentations", **given: Any) -> da.ImportedRecipe:
    """Import a list of ops, such as "[A.HorizontalFlip()]" or "[v2.RandomHorizontalFlip()]"."""
    imports = {"albumentations": "import albumentations as A", "torchvision": "from torchvision.transforms import v2"}
    alias = {"albumentations": "A", "torchvision": "v2"}[library]
    return import_text(f"{imports[library]}\nt = {alias}.Compose({ops})\n", folder, **given)


def import_text(text: str, folder: Path, **given: Any) -> da.ImportedRecipe:
    """Import a Python file of this text."""
    path = folder / "pipeline.py"
    path.write_text(text)
    return da.import_recipe(path, **given)
