"""RF-DETR's `aug_config`: a dict of names of Albumentations' ops and their arguments, or a list of such dicts of one.

After `_build_albu_transform` and `AlbumentationsWrapper.from_config` of rfdetr/datasets/transforms.py, 1.11.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detaug.errors import InputError
from detaug.importing.arrange import Size
from detaug.importing.library_ops import LibraryOp

_CONTAINERS = "OneOf", "SomeOf", "Sequential"


def is_aug_config(value: Any) -> bool:
    """Return whether a value is meant as an `aug_config`: names of classes with dicts of arguments."""
    if isinstance(value, list):
        return bool(value) and all(
            isinstance(entry, Mapping) and len(entry) == 1 and is_aug_config(entry) for entry in value
        )
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(name, str) and name[:1].isupper() for name in value)
        and all(
            isinstance(arguments, Mapping) or (name in _CONTAINERS and isinstance(arguments, list))
            for name, arguments in value.items()
        )
    )


def read_aug_config(config: Any, size: Size | None) -> tuple[LibraryOp, Size | None]:
    """Return an `aug_config` as a pipeline of Albumentations, and `size` if the pipeline does not set it.

    To (H, W) RF-DETR resizes first.
    """
    ops = _ops(config, "aug_config")
    if isinstance(size, tuple):
        ops.insert(0, LibraryOp("albumentations", "Resize", {"height": size[0], "width": size[1]}))
        size = None
    return LibraryOp("albumentations", "Compose", {"transforms": ops}), size


def _ops(config: Any, where: str) -> list[LibraryOp]:
    entries = [config] if isinstance(config, Mapping) else config
    if not is_aug_config(config):
        raise InputError(
            f"{where} must be a dict of names and arguments, or a list of such dicts of one, got {config!r:.80}"
        )
    return [_op(name, arguments) for entry in entries for name, arguments in entry.items()]


def _op(name: str, settings: Mapping[str, Any] | list[Any]) -> LibraryOp:
    # RF-DETR takes a list for the transforms of a container
    arguments: dict[str, Any] = {"transforms": settings} if isinstance(settings, list) else dict(settings)
    if name in _CONTAINERS:
        arguments["transforms"] = _ops(arguments.get("transforms"), f"{name}.transforms")
        if name != "SomeOf":
            arguments.setdefault("p", 1.0)  # RF-DETR's default; that of Albumentations' OneOf is 0.5
    elif name == "RandomSizedCrop" and "size" not in arguments and {"height", "width"} <= arguments.keys():
        arguments["size"] = arguments.pop("height"), arguments.pop("width")
    return LibraryOp("albumentations", name, arguments)
