"""The check itself: it must find wrong boxes and name them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvidia.dali import fn
from PIL import Image

import detaug as da
from detaug.arrays import Arrays
from detaug.boxes import shape_group
from detaug.boxes.masks import Grid, rasterise
from detaug.boxes.units import ONE
from detaug.boxes.views import Views
from detaug.pipelines.graph import Node, Nodes
from detaug.samples import samples
from detaug.testing import assert_boxes_follow_pixels, assert_masks_follow_pixels, assert_points_follow_pixels, painted


@dataclass(frozen=True)
class Shifted(da.GeometricOp):
    """Flips correctly, then moves boxes by some pixels; `sides`: of x0, y0, x1, y1, which sides."""

    pixels: float
    sides: tuple[int, ...] = (1, 1, 1, 1)

    def move(self, views: Views, drawn: Arrays) -> Views:
        moved = da.RandomHorizontalFlip(p=1).move(views, {"flip": np.ones(len(views))})
        move = self.pixels * np.array(self.sides) / np.tile(views.size[:, ::-1], 2)
        return replace(moved, boxes=moved.boxes + move[:, None])


@dataclass(frozen=True)
class Mirror(da.PixelOp):
    """Mirrors the pixels and forgets the boxes."""

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        return fn.flip(image, horizontal=1)


@dataclass(frozen=True)
class Swapped(da.GeometricOp):
    """Reverses the labels."""

    def move(self, views: Views, drawn: Arrays) -> Views:
        return replace(views, labels=views.labels[:, ::-1])


@dataclass(frozen=True)
class Dropping(da.GeometricOp):
    """Drops every box from the label `first` on."""

    first: int

    def move(self, views: Views, drawn: Arrays) -> Views:
        return views.clip(keep=(views.labels >= 0) & (views.labels < self.first))


@pytest.mark.parametrize("pipeline", [False, True])
def test_boxes_that_are_off_are_found_and_drawn(pipeline: bool, tmp_path: Path) -> None:
    picture = tmp_path / "wrong.png"
    with pytest.raises(AssertionError, match=r"24 of 24 boxes are not where their pixels are") as raised:
        assert_boxes_follow_pixels([Shifted(2), da.Resize((192, 256))], pipeline=pipeline, picture=picture)
    assert "image 0, label 1: box [" in str(raised.value)
    assert str(picture) in str(raised.value)
    colors = {color for _, color in Image.open(picture).getcolors(1 << 16)}
    assert {(0, 255, 0), (255, 0, 0)} <= colors


@pytest.mark.parametrize("sides", [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)])
def test_one_side_that_is_off_is_found(sides: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError, match=r"24 of 24 boxes are not where their pixels are"):
        assert_boxes_follow_pixels(Shifted(2, sides))


def test_a_box_smaller_than_a_pixel_is_drawn(tmp_path: Path) -> None:
    tiny = [da.RandomAffine(degrees=0, scale=(0.02, 0.02), fill=(0, 0, 0)), Shifted(2)]
    with pytest.raises(AssertionError, match="boxes are not where their pixels are"):
        assert_boxes_follow_pixels(tiny, seed=1, min_boxes=0, picture=tmp_path / "wrong.png")
    assert (tmp_path / "wrong.png").exists()


def test_half_a_pixel_is_found_when_asked_for() -> None:
    assert assert_boxes_follow_pixels(Shifted(0.4)) == 24
    with pytest.raises(AssertionError):
        assert_boxes_follow_pixels(Shifted(0.4), tolerance=0.3)


def test_swapped_labels_are_found() -> None:
    with pytest.raises(AssertionError, match="16 of 24 boxes"):
        assert_boxes_follow_pixels(Swapped())


@pytest.mark.parametrize("pipeline", [False, True])
def test_an_op_that_drops_every_box_fails_unless_it_is_meant_to(pipeline: bool) -> None:
    ops = [Dropping(1), da.Resize((192, 256))]
    with pytest.raises(
        AssertionError, match=r"^none of the 24 painted boxes are left to check after \[Dropping.*such as 0$"
    ):
        assert_boxes_follow_pixels(ops, pipeline=pipeline)
    assert assert_boxes_follow_pixels(ops, pipeline=pipeline, min_boxes=0) == 0


def test_min_boxes_finds_an_op_that_drops_some_boxes() -> None:
    assert assert_boxes_follow_pixels(Dropping(3)) == 16
    with pytest.raises(
        AssertionError, match=r"^only 16 of the 24 painted boxes are left .* but min_boxes is 24: correct"
    ):
        assert_boxes_follow_pixels(Dropping(3), min_boxes=24)
    with pytest.raises(ValueError, match="min_boxes must be a whole number"):
        assert_boxes_follow_pixels(Dropping(3), min_boxes=25)


def test_pixel_ops_that_move_pixels_are_found() -> None:
    resize = da.Resize((192, 256))
    with pytest.raises(AssertionError, match="rectangles are not where they were"):
        assert_boxes_follow_pixels([resize, Mirror()])
    assert assert_boxes_follow_pixels([resize, da.RandomPhotometricDistort(), da.Normalize()]) == 24


def test_an_error_names_the_pixel_op_that_failed() -> None:
    @dataclass(frozen=True)
    class Failing(da.PixelOp):
        def draw(self, rng: np.random.Generator, n: int) -> Arrays:
            raise IndexError("no number")

    with pytest.raises(RuntimeError, match=r"^Failing \(2nd op .*\) failed in draw: IndexError: no number$"):
        assert_boxes_follow_pixels([da.Resize((192, 256)), Failing()])


def test_presets_follow_pixels(device: str) -> None:
    ops = [replace(op, fill=(0.0, 0.0, 0.0)) if hasattr(op, "fill") else op for op in da.presets.ssd300()]
    for pipeline in (False, True):
        assert assert_boxes_follow_pixels(ops, images=32, device=device, pipeline=pipeline) > 32


# ---------------------------------------------------------------- keypoints


@dataclass(frozen=True)
class Exchanged(da.GeometricOp):
    """Reverses the rows, which tell the annotation of each box, and not the boxes."""

    def move(self, views: Views, drawn: Arrays) -> Views:
        return replace(views, rows=views.rows[:, ::-1])


@pytest.mark.parametrize("pipeline", [False, True])
def test_points_of_another_object_are_found_and_drawn(pipeline: bool, tmp_path: Path) -> None:
    picture = tmp_path / "wrong.png"
    with pytest.raises(AssertionError, match=r"32 of 48 keypoints are not where their pixels are") as raised:
        assert_points_follow_pixels([Exchanged(), da.Resize((192, 256))], pipeline=pipeline, picture=picture)
    assert "image 0, label 1: keypoint [" in str(raised.value)
    colors = {color for _, color in Image.open(picture).getcolors(1 << 16)}
    assert {(0, 255, 0), (255, 0, 0)} <= colors


def test_points_that_are_off_by_half_a_pixel_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    resize = da.Resize((192, 256))
    assert assert_points_follow_pixels(resize) == 48
    place = shape_group.place_key_points
    monkeypatch.setattr(shape_group, "place_key_points", lambda *given: place(*given) + np.array([0.52, 0, 0]))
    with pytest.raises(AssertionError, match="48 of 48 keypoints"):
        assert_points_follow_pixels(resize)
    assert assert_points_follow_pixels(resize, tolerance=0.6) == 48


@pytest.mark.parametrize("flip", [da.RandomHorizontalFlip(p=1), da.RandomVerticalFlip(p=1)])
def test_sides_that_do_not_change_places_are_found(flip: da.Op, monkeypatch: pytest.MonkeyPatch) -> None:
    assert assert_points_follow_pixels(flip) == 48
    stay = partial(painted.KeyPoints, swapped=np.array([[0, 1]]))
    monkeypatch.setattr(painted, "KeyPoints", stay)
    with pytest.raises(AssertionError, match="48 of 48 keypoints"):
        assert_points_follow_pixels(flip)
    assert assert_points_follow_pixels(da.CenterCrop((150, 150))) > 10


def test_visible_points_that_are_called_out_of_view_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    place = shape_group.place_key_points
    monkeypatch.setattr(shape_group, "place_key_points", lambda *given: place(*given) * 0)
    with pytest.raises(AssertionError, match="48 of 48 keypoints"):
        assert_points_follow_pixels(da.Resize((192, 256)))


def test_too_few_points_and_pixels_that_move_are_found() -> None:
    resize = da.Resize((192, 256))
    with pytest.raises(AssertionError, match=r"^none of the 48 painted keypoints .* smaller min_points, such"):
        assert_points_follow_pixels([Dropping(1), resize])
    assert assert_points_follow_pixels([Dropping(1), resize], min_points=0) == 0
    with pytest.raises(AssertionError, match="rectangles are not where they were"):
        assert_points_follow_pixels([resize, Mirror()])
    with pytest.raises(ValueError, match="min_points must be a whole number"):
        assert_points_follow_pixels(resize, min_points=49)


@pytest.mark.parametrize("pipeline", [False, True])
def test_points_follow_pixels_through_turns(device: str, pipeline: bool) -> None:
    black = (0, 0, 0)
    turns = [da.RandomAffine(20, shear=15, scale=(0.6, 1.5), fill=black), da.RandomPerspective(p=1, fill=black)]
    ops = [da.RandomRotate90(), *turns, da.RandomHorizontalFlip(), da.Resize((300, 260), fill=black), da.RandomHSV()]
    assert assert_points_follow_pixels(ops, images=16, device=device, pipeline=pipeline) > 30


def moved(pixels: float, table: Any, objects: Any, grid: Grid) -> Any:
    """Return masks that are some pixels farther to the right and the bottom."""
    return rasterise(table, objects, Grid(grid.y - round(pixels * ONE), grid.x - round(pixels * ONE)))


def test_masks_that_are_off_are_found_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resize, picture = da.Resize((192, 256)), tmp_path / "wrong.png"
    assert assert_masks_follow_pixels(resize) == 24
    monkeypatch.setattr(samples, "rasterise", lambda *given: moved(3.1, *given))
    with pytest.raises(AssertionError, match="24 of 24 masks are not where their pixels are") as raised:
        assert_masks_follow_pixels(resize, picture=picture)
    assert "image 0, label 1: mask of the box [" in str(raised.value)
    assert {(0, 255, 0), (255, 0, 0)} <= {color for _, color in Image.open(picture).getcolors(1 << 16)}
    monkeypatch.setattr(samples, "rasterise", lambda *given: moved(0.5, *given))
    assert assert_masks_follow_pixels(resize) == 24


@pytest.mark.parametrize("pipeline", [False, True])
def test_masks_of_another_object_are_found(pipeline: bool) -> None:
    with pytest.raises(AssertionError, match="16 of 24 masks"):
        assert_masks_follow_pixels([Exchanged(), da.Resize((192, 256))], pipeline=pipeline)


def test_too_few_masks_and_pixels_that_move_are_found() -> None:
    resize = da.Resize((192, 256))
    with pytest.raises(AssertionError, match=r"^none of the 24 painted masks .* smaller min_masks, such"):
        assert_masks_follow_pixels([Dropping(1), resize])
    assert assert_masks_follow_pixels([Dropping(1), resize], min_masks=0) == 0
    with pytest.raises(AssertionError, match="rectangles are not where they were"):
        assert_masks_follow_pixels([resize, Mirror()])
    with pytest.raises(ValueError, match="min_masks must be a whole number"):
        assert_masks_follow_pixels(resize, min_masks=25)


@pytest.mark.parametrize("pipeline", [False, True])
def test_masks_follow_pixels_through_turns(device: str, pipeline: bool) -> None:
    black = (0, 0, 0)
    turns = [da.RandomAffine(20, shear=15, scale=(0.6, 1.5), fill=black), da.RandomPerspective(p=1, fill=black)]
    ops = [da.RandomRotate90(), *turns, da.RandomHorizontalFlip(), da.Resize((300, 260), fill=black), da.RandomHSV()]
    erased = [*ops, da.RandomErasing(value=black), da.GridMask(value=black)]
    assert assert_masks_follow_pixels(erased, images=16, device=device, pipeline=pipeline) > 15


def test_a_smallest_side_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="smallest must be"):
        assert_boxes_follow_pixels(da.Pad(1), smallest=100)
