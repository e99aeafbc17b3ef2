"""The drawn numbers of an op in words, against known numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import detaug as da
from detaug.ops import color
from detaug.ops.auto_augment import OPS
from detaug.ops.op import Op
from detaug.sheets.captions import describe_draw

N = 3


def drawn(op: Op, /, **arrays: Any) -> str:
    """Describe the draw of the second of three images; the others have zeros."""
    rows = {}
    for name, value in arrays.items():
        one = np.asarray(value)
        rows[name] = np.zeros((N, *one.shape), one.dtype)
        rows[name][1] = one
    return describe_draw(op, rows, 1)


FLIP, ZOOM = da.RandomHorizontalFlip(), da.RandomZoomOut()


@pytest.mark.parametrize(
    ("op", "arrays", "words"),
    [
        (FLIP, {"flip": True}, "flip yes"),
        (FLIP, {"flip": False}, "flip no"),
        (FLIP, {}, ""),
        (ZOOM, {"ratio": 2.314, "offset": [0.12, 0.8]}, "ratio 2.31, offset 0.12 0.80"),
        (da.JPEG(), {"apply": False, "quality": 31}, "apply no"),
        (da.JPEG(), {"apply": True, "quality": 31}, "apply yes, quality 31"),
        (da.RandomErasing(), {"erase": True, "area": np.linspace(0.02, 0.3, 10)}, "erase yes, area 0.02 to 0.30"),
        (da.GaussianNoise(), {"apply": True, "seed": [4_000_000_000, 12]}, "apply yes"),
        (da.RandAugment(), {"op": [OPS.index("Rotate"), 0], "strength": [-9.0, 0.0]},
         "op Rotate Identity, strength -9.00 0.00"),
    ],
)  # fmt: skip
def test_numbers_by_name(op: Op, arrays: dict[str, Any], words: str) -> None:
    assert drawn(op, **arrays) == words


def test_a_colour_matrix_is_left_out() -> None:
    assert drawn(da.RandomHSV(), color=color.hue(np.array([0.05]))[0]) == ""


@pytest.mark.parametrize(
    ("kind", "amount", "channels", "words"),
    [
        ([0, 0, 0, 0], [1, 1, 1, 0], [0, 1, 2], "no change"),
        ([1, 2, 3, 4], [1.1, 0.6, 1.3, 0.05], [0, 1, 2], "brightness 1.10, contrast 0.60, saturation 1.30, hue +18°"),
        ([0, 4, 3, 2], [1, -0.25, 0.5, 1.25], [1, 2, 0], "hue -90°, saturation 0.50, contrast 1.25, channels GBR"),
        ([0, 0, 0, 0], [1, 1, 1, 0], [0, 2, 1], "channels RBG"),
    ],
)
def test_colour_steps_are_in_their_order(kind: Any, amount: Any, channels: Any, words: str) -> None:
    op = da.RandomPhotometricDistort()
    assert drawn(op, kind=kind, amount=np.array(amount, float), channels=channels) == words


def test_the_ops_inside_of_a_choice_are_named() -> None:
    choice = da.RandomChoice([da.JPEG(p=1, quality=(31, 31)), da.ColorJitter(contrast=(0.6, 0.6))])
    samples = choice(da.Resize((8, 8))(da.batch([np.zeros((8, 8, 3), np.uint8)] * 20, seed=3)))
    said = {describe_draw(choice, samples.params[1], at) for at in range(20)}
    assert said == {"JPEG apply yes, quality 31", "ColorJitter contrast 0.60"}
    never = da.RandomApply([da.JPEG()], p=0)
    assert drawn(never, chosen=[False]) == "none"


def test_every_op_says_something_short() -> None:
    """All ops that need no arguments, on noise: a line of words, no arrays and no names of types."""
    photos = np.random.default_rng(0).integers(0, 256, (2, 40, 60, 3), np.uint8)
    for name in da.__all__:
        kind = getattr(da, name)
        if not (isinstance(kind, type) and issubclass(kind, Op)):
            continue
        if kind in (Op, da.GeometricOp, da.PixelOp, da.OpticalFlow):
            continue
        try:
            op = kind()
        except TypeError:
            continue
        ops = [op] if op.stage == "view" else [da.Resize((32, 32)), op]
        samples = da.batch(photos, [[[5, 5, 30, 30]]] * 2).then(*ops)
        words = describe_draw(op, samples.params[len(ops) - 1], 0)
        assert len(words) < 150, (name, words)
        assert not set("[]{}()\n") & set(words), (name, words)
