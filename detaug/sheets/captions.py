"""Describe what an op drew for an image, and the change that it made, measured on the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from detaug.arrays import Array
from detaug.gpu.color_steps import BRIGHTNESS, CONTRAST, HUE, SATURATION
from detaug.ops.auto_augment import OPS, AutoAugment
from detaug.ops.color_ops import StepwiseColorOp
from detaug.ops.containers import values_of_step
from detaug.ops.op import Op

GRAY = np.array([0.299, 0.587, 0.114])
SAME = 0.01  # relative; Resize rounds to whole pixels


class StepImage(NamedTuple):
    """An image between two ops: (H, W, 3) in 0..255, its number of boxes, its map from source to output pixels."""

    image: Array
    boxes: int
    to_output: Array
    bent: bool = False
    """Whether an op has bent it."""

    @property
    def size(self) -> Array:
        """Return (width, height) in pixels."""
        height, width, _ = self.image.shape
        return np.array([width, height])


def describe_change(before: StepImage, after: StepImage) -> str:
    """Return a caption such as "flipped left-right" or "window 62% x 48%, 3 of 5 boxes"; "as it was" for no change."""
    moves = list(_moves(before, after))
    pixels = [] if moves else list(_color_changes(before.image, after.image))
    boxes = [count_boxes(after.boxes, before.boxes)] if after.boxes != before.boxes else []
    return ", ".join(moves + pixels + boxes) or "as it was"


def count_boxes(boxes: int, before: int) -> str:
    """Return "3 of 5 boxes"; "9 boxes, were 5" after an op such as Mosaic; "no boxes" for 0 of 0."""
    if boxes > before:
        return f"{boxes} boxes, were {before}"
    return f"{boxes} of {before} boxes" if before else "no boxes"


# ---------------------------------------------------------------- geometry


def _moves(before: StepImage, after: StepImage) -> Iterator[str]:
    change = _square(after.to_output) @ np.linalg.inv(_square(before.to_output))
    change /= change[2, 2]
    if (np.abs(change[2, :2] * before.size) > SAME).any():
        yield "perspective changed"
    elif (np.abs(np.diag(np.fliplr(change[:2, :2]))) > SAME).any():
        yield from _turns(change[:2, :2])
    else:
        yield from _windows(before, after, np.linalg.inv(change))
    if after.bent and not before.bent:
        yield "bent"


def _turns(linear: Array) -> Iterator[str]:
    """Describe a (2, 2) map that rotates or shears; positive angles are counter-clockwise on the screen."""
    if np.linalg.det(linear) < 0:
        yield "flipped left-right"
        linear = linear @ np.diag([-1, 1])
    angle = np.degrees(np.arctan2(-linear[1, 0], linear[0, 0]))
    sides = np.linalg.norm(linear, axis=0)
    yield from [f"rotated {angle:+.0f}°"] if abs(angle) >= 0.5 else []
    yield from ["sheared"] if abs(linear[:, 0] @ linear[:, 1]) > SAME * sides.prod() else []


def _windows(before: StepImage, after: StepImage, back: Array) -> Iterator[str]:
    """Describe a map without rotation; `back`: (3, 3), from pixels after the op to pixels before it."""
    start, end = (back[:2, 2] / before.size, (back[:2, :2] @ after.size + back[:2, 2]) / before.size)
    span, shift = np.abs(end - start), -np.minimum(start, end)
    yield from (f"flipped {how}" for how, a, b in zip(("left-right", "top-bottom"), start, end, strict=True) if a > b)
    if (span > 1 + SAME).any():
        yield f"canvas {_by(*(f'{value:.2f}' for value in span))} times as large"
    elif (span < 1 - SAME).any():
        yield f"window {_by(*(f'{value:.0%}' for value in span))}"
    elif (np.abs(shift) > SAME).any():
        yield f"shifted {' x '.join(f'{value:+.0%}' for value in shift)}"
    if (np.abs(after.size - before.size * span) > 1 + span).any():
        yield f"{after.size[0]} x {after.size[1]} pixels"


def _by(width: str, height: str) -> str:
    return width if width == height else f"{width} x {height}"


def _square(matrix: Array) -> Array:
    """Extend (2, 3) or (3, 3) to (3, 3)."""
    return np.concatenate([matrix, np.eye(3)[len(matrix) :]])


# ---------------------------------------------------------------- pixels


def _color_changes(before: Array, after: Array) -> Iterator[str]:
    """Describe light as a difference, of 255; contrast and color as factors."""
    light = (after @ GRAY).mean() - (before @ GRAY).mean()
    if abs(light) >= 1:
        yield f"light {light:+.0f}"
    for name, spread in (("contrast", _contrast), ("color", _colorfulness)):
        old, new = spread(before), spread(after)
        if old > 0 and abs(new / old - 1) > SAME:
            yield f"{name} x {new / old:.2f}"


def _contrast(image: Array) -> float:
    return float((image @ GRAY).std())


def _colorfulness(image: Array) -> float:
    """Return the mean distance from gray."""
    return float(np.linalg.norm(image - (image @ GRAY)[:, :, None], axis=2).mean())


MOST = 4  # numbers of one name; of more, only the least and the greatest are written


def describe_draw(op: Op, drawn: Mapping[str, Array], index: int) -> str:
    """Describe the numbers in `drawn`, as in `Plan.drawn`, of the image at `index`; "" for none.

    Where a draw decided against the op, as "flip no", its other numbers are left out. Color matrices are always left
    out: `describe_change` measures what they do.
    """
    own = {name: np.asarray(array)[index] for name, array in drawn.items() if not name.endswith("seed")}
    own = {name: value for name, value in own.items() if value.shape != (3, 4)}
    if "chosen" in own and hasattr(op, "sequence"):
        return "; ".join(_chosen(op, own, drawn, index)) or "none"
    refused = [name for name, value in own.items() if value.dtype == bool and value.ndim == 0 and not value]
    if refused:
        return f"{refused[0]} no"
    if isinstance(op, StepwiseColorOp):
        return ", ".join(_steps(**own)) or "no change"
    if isinstance(op, AutoAugment):
        own["op"] = np.array(OPS)[own["op"]]
    return ", ".join(_words(name, value) for name, value in own.items())


def _chosen(op: Any, own: Mapping[str, Array], drawn: Mapping[str, Array], index: int) -> Iterator[str]:
    """Describe the ops inside a RandomApply, RandomChoice or RandomOrder that run, with their numbers."""
    for step in np.flatnonzero(own["chosen"]).tolist():
        inner = op.ops[op.sequence[step]]
        yield f"{type(inner).__name__} {describe_draw(inner, values_of_step(step, drawn), index)}".strip()


def _words(name: str, value: Array) -> str:
    texts = [_text(number) for number in value.ravel().tolist()]
    if len(texts) > MOST:
        texts = [_text(value.min().item()), "to", _text(value.max().item())]
    return f"{name} {' '.join(texts)}"


def _text(value: bool | float | str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------- color


def _steps(kind: Array, amount: Array, channels: Array) -> Iterator[str]:
    """Describe color changes in steps, in their order."""
    names = {BRIGHTNESS: "brightness", CONTRAST: "contrast", SATURATION: "saturation"}
    for change, value in zip(kind.tolist(), amount.tolist(), strict=True):
        if change == HUE:
            yield f"hue {360 * value:+.0f}°"
        elif change in names:
            yield f"{names[change]} {value:.2f}"
    if (order := "".join("RGB"[channel] for channel in channels)) != "RGB":
        yield f"channels {order}"
