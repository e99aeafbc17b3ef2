"""The captions of ops with known draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import detaug as da
from detaug.arrays import Arrays
from detaug.boxes.views import Views
from detaug.ops.op import Op
from detaug.sheets.captions import StepImage, count_boxes, describe_change

RNG = np.random.default_rng(0)
PHOTO = RNG.integers(40, 200, (60, 80, 3), dtype=np.uint8)


@dataclass(frozen=True)
class Shift(da.GeometricOp):
    """Move everything a tenth of the width to the right and a fifth of the height up."""

    fill = (0.0, 0.0, 0.0)

    def move(self, views: Views, drawn: Arrays) -> Views:
        start = np.tile([-0.1, 0.2], (len(views), 1))
        return views.fill_outside(self.fill).crop_to(start, start + 1).clip()


def stages(*ops: Op) -> list[StepImage]:
    samples = da.batch([PHOTO], [[[10, 10, 30, 40], [60, 20, 80, 60]]])
    found = [StepImage(samples.images[0], 2, samples.matrix[0])]
    for op in ops:
        samples = op(samples)
        field = samples.plan.views.field
        bent = field is not None and bool(field.bends[0])
        found.append(StepImage(samples.images[0], len(samples.labels[0]), samples.matrix[0], bent))
    return found


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (da.RandomHorizontalFlip(p=1), "flipped left-right"),
        (da.RandomVerticalFlip(p=1), "flipped top-bottom"),
        (da.RandomHorizontalFlip(p=0), "as it was"),
        (da.RandomZoomOut(1, p=1), "as it was"),
        (da.Resize((30, 50)), "50 x 30 pixels"),
        (da.Resize((60, 80)), "as it was"),
        (da.Resize((200, 200), letterbox="center"), "canvas 1.00 x 1.33 times as large, 200 x 200 pixels"),
        (da.RandomRotation((30, 30), p=1), "rotated +30°"),
        (da.RandomRotation((-30, -30), p=1), "rotated -30°"),
        (da.RandomPerspective(p=1), "perspective changed"),
        (da.RandomAffine((0, 0), scale=(1, 1), shear=(20, 20), p=1), "sheared"),
        (da.OpticalDistortion((0.2, 0.2)), "bent"),
        (Shift(), "shifted +10% x -20%"),
    ],
)
def test_geometry(op: Op, words: str) -> None:
    assert describe_change(*stages(op)) == words


def test_zoom_out_and_crop_are_measured() -> None:
    zoomed = stages(da.RandomZoomOut(3, p=1))
    ratio = zoomed[1].size[0] / 80
    assert describe_change(*zoomed).startswith("canvas ")
    assert float(describe_change(*zoomed).split()[1]) == pytest.approx(ratio, abs=0.02)
    before, after = stages(da.RandomIoUCrop((0.0,), scaling=(0.5, 0.5), allow_no_crop=False))
    assert describe_change(before, after).startswith("window 51%")  # 50% of the sides, in whole pixels
    assert ("of 2 boxes" in describe_change(before, after)) == (after.boxes < 2)


def test_after_a_crop_the_view_is_compared_with_the_crop() -> None:
    *_, cropped, flipped, resized = stages(
        da.RandomIoUCrop(allow_no_crop=False), da.RandomHorizontalFlip(p=1), da.Resize((32, 32))
    )
    assert describe_change(cropped, flipped) == "flipped left-right"
    assert describe_change(flipped, resized) == "32 x 32 pixels"


@pytest.mark.parametrize(("quarters", "words"), [(1, "rotated +90°"), (2, "flipped left-right, flipped top-bottom")])
def test_quarter_turns(quarters: int, words: str) -> None:
    samples = da.batch([PHOTO]).replay([{"turns": np.array([quarters])}, {}])
    turned = da.RandomRotate90()(samples)
    before, after = (StepImage(each.images[0], 0, each.matrix[0]) for each in (da.batch([PHOTO]), turned))
    assert describe_change(before, after) == words
    assert (after.image == np.rot90(PHOTO, quarters)).all()


def test_a_turn_then_a_mirror_are_told_apart() -> None:
    *_, turned, mirrored = stages(da.RandomRotation((30, 30), p=1), da.RandomHorizontalFlip(p=1))
    assert describe_change(turned, mirrored) == "flipped left-right"
    source = StepImage(PHOTO, 2, np.eye(2, 3))
    assert describe_change(source, mirrored).startswith("flipped left-right, rotated")
    distorted, mirrored = stages(da.RandomPerspective(p=1), da.RandomHorizontalFlip(p=1))[1:]
    assert describe_change(distorted, mirrored) == "flipped left-right"


@pytest.mark.parametrize(
    ("boxes", "before", "words"), [(3, 5, "3 of 5 boxes"), (9, 5, "9 boxes, were 5"), (0, 0, "no boxes")]
)
def test_how_many_boxes(boxes: int, before: int, words: str) -> None:
    assert count_boxes(boxes, before) == words


def test_colors() -> None:
    before, *_ = stages()
    lighter = before._replace(image=before.image.astype(np.float32) + 20)
    assert describe_change(before, lighter) == "light +20"
    flat = before._replace(image=before.image.mean() + (before.image - before.image.mean()) / 2)
    assert describe_change(before, flat).endswith("contrast x 0.50, color x 0.50")
    gray = before._replace(image=np.full_like(before.image, 9))
    assert describe_change(gray, gray) == "as it was"
