"""Describe the random numbers that an op drew for an image: "ratio 2.31, offset 0.12 0.80", "flip yes"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.ops.auto_augment import OPS, RandAugment, TrivialAugmentWide
from detaug.ops.color import BRIGHTNESS, CONTRAST, HUE, MIDDLE, RGB_TO_YIQ, SATURATION
from detaug.ops.color_ops import StepwiseColorOp
from detaug.ops.containers import values_of_step
from detaug.ops.op import Op

Array = NDArray[Any]

MOST = 4  # numbers of one name; of more, only the least and the greatest are written
CHANGED = 0.005  # a smaller change rounds to nothing in two decimals


def describe_draw(op: Op, drawn: Mapping[str, Array], at: int) -> str:
    """Describe the numbers in `drawn`, as in `Plan.drawn`, of the image at `at`; "" for none.

    Where a draw decided against the op, as "flip no", the others do not matter and are left out. A colour matrix is
    decomposed.
    """
    own = {name: np.asarray(array)[at] for name, array in drawn.items() if not name.endswith("seed")}
    if "chosen" in own and hasattr(op, "sequence"):
        return "; ".join(_chosen(op, own, drawn, at)) or "none"
    refused = [name for name, value in own.items() if value.dtype == bool and value.ndim == 0 and not value]
    if refused:
        return f"{refused[0]} no"
    if isinstance(op, StepwiseColorOp):
        return ", ".join(_steps(**own)) or "no change"
    if isinstance(op, RandAugment | TrivialAugmentWide):
        own["op"] = np.array(OPS)[own["op"]]
    return ", ".join(filter(None, (_words(name, value) for name, value in own.items())))


def _chosen(op: Any, own: Mapping[str, Array], drawn: Mapping[str, Array], at: int) -> Iterator[str]:
    """Describe the ops inside a RandomApply, RandomChoice or RandomOrder that run, with their numbers."""
    for step in np.flatnonzero(own["chosen"]).tolist():
        inner = op.ops[op.sequence[step]]
        yield f"{type(inner).__name__} {describe_draw(inner, values_of_step(step, drawn), at)}".strip()


def _words(name: str, value: Array) -> str:
    if value.shape == (3, 4):
        return ", ".join(_color(value)) or "no change"
    texts = [_text(each) for each in value.ravel().tolist()]
    if len(texts) > MOST:
        texts = [_text(value.min().item()), "to", _text(value.max().item())]
    return f"{name} {' '.join(texts)}"


def _text(value: bool | float | str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------- colour


def _steps(kind: Array, amount: Array, channels: Array) -> Iterator[str]:
    """Describe colour changes in steps, in their order."""
    names = {BRIGHTNESS: "brightness", CONTRAST: "contrast", SATURATION: "saturation"}
    for each, value in zip(kind.tolist(), amount.tolist(), strict=True):
        if each == HUE:
            yield f"hue {360 * value:+.0f}°"
        elif each in names:
            yield f"{names[each]} {value:.2f}"
    yield from _order(channels)


def _order(channels: Iterable[int]) -> Iterator[str]:
    name = "".join("RGB"[channel] for channel in channels)
    yield from [f"channels {name}"] if name != "RGB" else []


def _color(matrix: Array) -> Iterator[str]:
    """Decompose a (3, 4) colour matrix into its effect on greys, on colours and on the order of the channels."""
    order = min(permutations(range(3)), key=lambda order: _luma_from_chroma(_before(order, matrix)))
    linear, offset = _before(order, matrix), matrix[:, 3].mean()
    gain, chroma = linear[0, 0], linear[1:, 1:]
    gray = MIDDLE * gain + offset - MIDDLE
    saturation = np.sqrt(max(np.linalg.det(chroma), 0)) / gain if gain else 1.0
    turn = np.degrees(np.arctan2(chroma[0, 1] - chroma[1, 0], chroma[0, 0] + chroma[1, 1]))
    yield from [f"gain {gain:.2f}"] if abs(gain - 1) >= CHANGED else []
    yield from [f"middle grey {gray:+.0f}"] if abs(gray) >= 0.5 else []
    yield from [f"saturation {saturation:.2f}"] if abs(saturation - 1) >= CHANGED else []
    yield from [f"hue {turn:+.0f}°"] if abs(turn) >= 0.5 and saturation >= CHANGED else []
    yield from _order(order)


def _before(order: tuple[int, ...], matrix: Array) -> Array:
    """Return the (3, 3) linear part in YIQ, before its channels were put into `order`."""
    return np.asarray(RGB_TO_YIQ @ matrix[np.argsort(order), :3] @ np.linalg.inv(RGB_TO_YIQ))


def _luma_from_chroma(linear: Array) -> float:
    """Return 0 where luma depends on luma alone, as after brightness, contrast, saturation and hue."""
    return float(np.abs(linear[0, 1:]).sum().round(6))
