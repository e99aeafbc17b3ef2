"""Ultralytics' augmentation settings, a dict such as `{"degrees": 10, "mosaic": 0.5}`, to a recipe.

The names, meanings and defaults are those of https://docs.ultralytics.com/usage/cfg/#augmentation-settings for
detection, 8.4. A setting that is not given has its default, as in `model.train(**settings)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from detaug.arguments import is_number, is_whole
from detaug.errors import InputError
from detaug.importing.arrange import Size
from detaug.importing.rules import Entry
from detaug.ops.affine import RandomAffine
from detaug.ops.color_ops import RandomHSV
from detaug.ops.copy_paste import CopyPaste
from detaug.ops.flips_and_crops import RandomHorizontalFlip, RandomVerticalFlip
from detaug.ops.mixing import CutMix, MixUp, Mosaic
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.resize import Resize
from detaug.ops.sanitize import SanitizeBoundingBoxes

DEFAULTS: dict[str, Any] = {
    "hsv_h": 0.015, "hsv_s": 0.7, "hsv_v": 0.4, "degrees": 0.0, "translate": 0.1, "scale": 0.5, "shear": 0.0,
    "perspective": 0.0, "flipud": 0.0, "fliplr": 0.5, "bgr": 0.0, "mosaic": 1.0, "mixup": 0.0, "cutmix": 0.0,
    "copy_paste": 0.0, "copy_paste_mode": "flip", "close_mosaic": 10, "imgsz": 640, "epochs": None,
    "multi_scale": 0.0, "auto_augment": "randaugment", "erasing": 0.4,
}  # fmt: skip
"""The settings that are taken, and their defaults. `epochs` has none here: it says where `close_mosaic` is."""

_HIGHEST = {"degrees": 180.0, "shear": 89.0}
"""The largest value of a setting that is a number from 0; of others 1."""
_NO_OP = {
    "perspective": "add da.RandomPerspective(distortion_scale), whose unit is another one",
    "bgr": "add da.RandomChannelPermutation(p), which is near",
    "multi_scale": "give da.Resize a list of sizes",
}
_GRAY = (114.0, 114.0, 114.0)
_LIMITS = SanitizeBoundingBoxes(min_size=2, min_visibility=0.1, max_aspect_ratio=100)


def is_settings(value: Any) -> bool:
    """Return whether a value is meant as Ultralytics' settings: a dict with one of their names."""
    return isinstance(value, Mapping) and any(name in DEFAULTS for name in value)


def recipe_of(settings: Mapping[str, Any], size: Size | None) -> tuple[list[Op], list[Entry], list[str]]:
    """Return the recipe of settings, what became of each, and notes. `size`: in place of `imgsz`.

    Raises InputError for a name that is not a setting of augmentation, a wrong value, and a setting without an op.
    """
    for name in settings:
        if name not in DEFAULTS:
            raise InputError(
                f"{name!r} must be an augmentation setting of Ultralytics: one of {', '.join(DEFAULTS)}; leave it out"
            )
    values = DEFAULTS | {name: value for name, value in settings.items() if value is not None}
    _check(values)
    become = _Entries(settings)
    end = _end_of_mosaics(settings, values, become)
    ops = [*_geometry(values, become), Resize(_size(values, size), letterbox="center", fill=_GRAY), _LIMITS]
    ops += [*_mixing(values, end, become), *_colors(values, become), Normalize()]
    if names := [name for name in ("auto_augment", "erasing") if name in settings]:
        become.entry(names, "", "it augments classification alone, in Ultralytics, too")
    notes = []
    if values["mosaic"] and values["epochs"] is not None and values["close_mosaic"] > values["epochs"]:
        notes.append(
            f"mosaics do not end, as in Ultralytics where epochs={values['epochs']} is below "
            f"close_mosaic={values['close_mosaic']}"
        )
    notes += [
        "where Albumentations is installed, Ultralytics also blurs 2 % of the images, and makes 1 % gray; "
        "add such ops by yourself"
    ]
    return ops, become.entries, notes


class _Entries:
    """What became of the settings."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings, self.entries = settings, []  # type: tuple[Mapping[str, Any], list[Entry]]

    def entry(self, names: list[str], became: str, *reasons: str) -> None:
        """Add an entry for settings of these names."""
        self.entries.append(Entry(", ".join(names), "ultralytics", became, list(reasons)))


def _check(values: Mapping[str, Any]) -> None:
    for name in ("imgsz", "close_mosaic", "epochs"):
        low = 0 if name == "close_mosaic" else 1
        if not (is_whole(values[name], low) or (name == "epochs" and values[name] is None)):
            raise InputError(f"{name} must be a whole number of at least {low}, got {values[name]!r}")
    if values["copy_paste_mode"] not in ("flip", "mixup"):
        raise InputError(f"copy_paste_mode must be 'flip' or 'mixup', got {values['copy_paste_mode']!r}")
    for name, remedy in _NO_OP.items():
        if values[name] not in (0, False):
            raise InputError(f"{name} must be 0, got {values[name]!r}, for which there is no op; {remedy}")
    others = {"copy_paste_mode", "auto_augment", "erasing", "imgsz", "close_mosaic", "epochs", *_NO_OP}
    for name in DEFAULTS.keys() - others:
        high = _HIGHEST.get(name, 1)
        below = name == "scale"  # an image of no size
        if not is_number(values[name], 0, high) or (below and values[name] == high):
            rule = "at least 0 and below 1" if below else f"in 0..{high:g}"
            raise InputError(f"{name} must be a number {rule}, got {values[name]!r}")


def _end_of_mosaics(settings: Mapping[str, Any], values: Mapping[str, Any], become: _Entries) -> int | None:
    """Return the epoch from which on there are no mosaics; None: they do not end.

    Ultralytics ends them at the start of epoch `epochs - close_mosaic` (engine/trainer.py), so not if that is below 0.
    """
    close, epochs, mosaic = values["close_mosaic"], values["epochs"], values["mosaic"]
    if not close or (epochs is None and not mosaic):
        return None
    if epochs is None:
        if "close_mosaic" in settings:
            raise InputError(
                f"epochs must be given with close_mosaic={close}, got none; add epochs=, or close_mosaic=0"
            )
        become.entry(["close_mosaic"], "", "without epochs the mosaics do not end 10 epochs before the training does")
        return None
    return int(epochs) - int(close) if close <= epochs else None


def _size(values: Mapping[str, Any], size: Size | None) -> tuple[int, int]:
    side = values["imgsz"] if size is None else size
    return (side, side) if isinstance(side, int) else side


def _geometry(values: Mapping[str, Any], become: _Entries) -> list[Op]:
    ops: list[Op] = []
    moves = {name: values[name] for name in ("degrees", "translate", "scale", "shear")}
    if any(moves.values()):
        degrees, translate, scale, shear = moves.values()
        move = RandomAffine(
            degrees=degrees,
            translate=(translate, translate),
            scale=(1 - scale, 1 + scale),
            shear=(-shear, shear, -shear, shear),
            fill=_GRAY,
        )
        joined = ["it moves each image of a mosaic by itself, in its own aspect ratio"] if values["mosaic"] else []
        become.entry([*moves], "RandomAffine", *joined)
        ops.append(move)
    flips: list[tuple[str, Callable[[float], Op]]] = [("flipud", RandomVerticalFlip), ("fliplr", RandomHorizontalFlip)]
    for name, flip in flips:
        if values[name]:
            reason = ["it flips each image of a mosaic by itself"] if values["mosaic"] else []
            become.entry([name], flip.__name__, *reason)
            ops.append(flip(values[name]))
    return ops


def _mixing(values: Mapping[str, Any], end: int | None, become: _Entries) -> list[Op]:
    ops: list[Op] = []
    partners = "its partners are of the batch, not of the whole dataset"
    together = "with the mosaics " if values["mosaic"] else ""
    late = [] if end is None else [f"it does not end {together}at epoch {end}, as da.Stages would let it"]
    if values["copy_paste"]:
        reason = (
            "objects of another image, not of the image itself" if values["copy_paste_mode"] == "flip" else partners
        )
        become.entry(["copy_paste"], "CopyPaste", f"{reason}; the reader needs masks=True", *late)
        ops.append(CopyPaste(values["copy_paste"], masks=True))
    if values["mosaic"]:
        become.entry(["mosaic"], "Mosaic", partners)
        ops.append(Mosaic(values["mosaic"], center=(0, 1), until_epoch=end))
    mixes: list[tuple[str, Callable[[float], Op]]] = [("mixup", MixUp), ("cutmix", CutMix)]
    for name, op in mixes:
        if values[name]:
            become.entry([name], op.__name__, partners, *late)
            ops.append(op(values[name]))
    return ops


def _colors(values: Mapping[str, Any], become: _Entries) -> list[Op]:
    names = ["hsv_h", "hsv_s", "hsv_v"]
    if not any(values[name] for name in names):
        return []
    become.entry(names, "RandomHSV", "hue rotates and saturation scales in YIQ, not in HSV")
    return [RandomHSV(*(values[name] for name in names))]
