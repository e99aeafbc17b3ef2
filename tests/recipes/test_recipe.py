"""Recipes: the order of ops, fills, ops of users."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from painted import painted_batch
from places import TESTS

import detaug as da
from detaug.boxes.views import Views


@dataclass(frozen=True)
class Look(da.GeometricOp):
    """A user's op that looks at a part of the view, or beside it."""

    start: float
    end: float

    def move(self, views: Views, drawn: dict) -> Views:
        sides = np.ones((len(views), 2))
        return views.crop_to(self.start * sides, self.end * sides)


def test_a_look_outside_without_a_fill_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^Look \(1st op of the recipe\) looks outside"):
        _ = da.Resize((9, 9))(Look(1.5, 2.5)(painted_batch(0))).images


def test_a_box_out_of_view_goes_with_its_label() -> None:
    samples = da.batch([np.zeros((100, 100, 3), np.uint8)], [[[0, 0, 20, 20], [60, 60, 80, 90]]], [[1, 2]])
    samples = da.Resize((50, 50))(Look(0.5, 1.0)(samples))
    assert samples.labels[0].tolist() == [2]
    assert samples.boxes[0][0] == pytest.approx([10, 10, 30, 40])


@pytest.mark.parametrize("ops", [[], [da.RandomHorizontalFlip(p=1)], [da.RandomRotation(30), da.Resize((30, 30))]])
def test_boxes_and_matrices_lie_in_one_piece(ops: list[da.Op]) -> None:
    samples = da.batch([np.zeros((40, 50, 3), np.uint8)] * 3, [[[1, 2, 30, 20], [5, 5, 20, 20]]] * 3).then(*ops)
    assert all(each.flags.c_contiguous for each in [*samples.boxes, samples.matrix])


def test_two_fills_are_refused() -> None:
    with pytest.raises(ValueError, match="all fills of a recipe must be the same"):
        da.RandomZoomOut(fill=(1, 1, 1))(da.RandomZoomOut(fill=(2, 2, 2))(painted_batch(0)))


def test_a_fill_may_be_a_list_and_pixel_ops_may_have_their_own() -> None:
    @dataclass(frozen=True)
    class Paint(da.PixelOp):
        fill: int = 7

    zoom = da.RandomZoomOut(fill=[1, 2, 3], p=1)
    assert painted_batch(0).then(zoom, zoom, da.Resize((9, 9)), Paint()).images[0].shape == (9, 9, 3)


@pytest.mark.parametrize("boxes", [[[[1, 2, 3, 4, 5]]], [[1, 2, 3, 4, 5, 6, 7, 8]]])
def test_boxes_of_another_shape_are_refused(boxes: list) -> None:
    with pytest.raises(ValueError, match=r"boxes\[0\] must be"):
        da.batch([np.zeros((9, 9, 3), np.uint8)], boxes)


FLIP, RESIZE, COLOR = da.RandomHorizontalFlip(), da.Resize((9, 9)), da.RandomPhotometricDistort()


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ([COLOR, FLIP], r"^RandomHorizontalFlip \(2nd\) must come before RandomPhotometricDistort \(1st\): it moves"),
        ([FLIP, COLOR, da.CenterCrop(3)], r"^CenterCrop \(3rd\) must come before RandomPhotometricDistort \(2nd\)"),
        ([FLIP, da.MixUp()], r"^MixUp \(2nd\) needs images of one size: give Resize \(height, width\)$"),
        ([COLOR, RESIZE], r"^RandomPhotometricDistort \(1st\) must come after Resize \(2nd\), "),
        (
            [RESIZE, da.RandomCrop(9, p=0.5)],
            r"^RandomCrop \(2nd\) must come before Resize \(1st\): only flips and crops",
        ),
        (
            [RESIZE, da.GridMask(), FLIP],
            r"^RandomHorizontalFlip \(3rd\) must come before GridMask \(2nd\): it moves the",
        ),
        ([FLIP, FLIP, RESIZE, da.RandomIoUCrop()], r"^RandomIoUCrop \(4th\) must come before Resize \(3rd\): "),
        ([RESIZE, RESIZE], r"^Resize \(2nd\) is one too many after Resize \(1st\): a recipe has one Resize"),
        (
            [RESIZE, da.Normalize(), COLOR],
            r"^RandomPhotometricDistort \(3rd\) comes after Normalize \(2nd\), which ",
        ),
        ([da.Resize(9), da.MixUp()], r"^MixUp \(2nd\) needs images of one size: give Resize \(height, width\)$"),
    ],
)
def test_an_op_in_the_wrong_place_says_where_it_belongs(ops: list[da.Op], message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        painted_batch(0).then(*ops)
    with pytest.raises(da.InputError, match=message if ops[-1:] != [da.MixUp()] else "MixUp"):
        da.Compose(ops)


@pytest.mark.parametrize("image", [np.zeros((9, 9, 3), np.uint8), [[0]], None])
def test_an_op_on_a_bare_image_says_what_it_runs_on(image: object) -> None:
    with pytest.raises(TypeError, match=r"ops run on da\.batch\(\[image\]"):
        da.RandomHorizontalFlip()(image)  # type: ignore[type-var]


def test_every_op_is_in_a_test() -> None:
    text = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    ops = [name for name in da.__all__ if isinstance(getattr(da, name), type) and issubclass(getattr(da, name), da.Op)]
    assert [name for name in ops if f"da.{name}(" not in text and not name.endswith("Op")] == []
