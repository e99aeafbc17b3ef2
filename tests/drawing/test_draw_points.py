"""Keypoints and rotated boxes in images, tested on the pixels."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disc_files import paint_discs, write_discs
from numpy.typing import NDArray
from PIL import Image
from test_rotated_boxes import random_rectangles, write_quadrangles

import detaug as da
from detaug.coco.key_points import side_of
from detaug.drawing import Marks, Tile, class_color, draw_boxes, draw_key_points, make_sheet
from detaug.drawing.points import SIDES
from detaug.sheets import batch_sheet
from detaug.sheets.preview import preview_clips, preview_file

GREY = (90, 90, 90)


def canvas(width: int = 200, height: int = 150) -> Image.Image:
    return Image.new("RGB", (width, height), GREY)


def has(picture: Any, color: tuple[int, int, int]) -> NDArray[np.bool_]:
    """Return which pixels have exactly this color."""
    return np.asarray((np.asarray(picture) == color).all(2))


def centroid(picture: Any, color: tuple[int, int, int]) -> tuple[float, float]:
    y, x = np.nonzero(has(picture, color))
    return float(x.mean() + 0.5), float(y.mean() + 0.5)


def test_discs_and_rings_lie_at_their_points() -> None:
    points = [[150.0, 140.0, 2], [320.5, 160.5, 1], [290.0, 300.0, 0]]
    drawn = draw_key_points(canvas(600, 450), Marks([points], sides=[["left", "right", ""]]))
    for (x, y, _), side in zip(points[:2], ("left", "right"), strict=True):
        assert centroid(drawn, SIDES[side]) == pytest.approx((x, y), abs=0.2)
    assert drawn.getpixel((150, 140)) == SIDES["left"]
    assert drawn.getpixel((320, 160)) not in (SIDES["right"], GREY)  # hollow
    assert drawn.getpixel((290, 300)) == GREY


def test_lines_have_the_colour_of_their_side_and_end_where_points_are_not_shown() -> None:
    points = np.add([[20, 20, 2], [20, 80, 2], [100, 20, 2], [100, 80, 1], [180, 80, 0]], (0.5, 0.5, 0))
    bones = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]
    drawn = draw_key_points(canvas(), Marks([points], [bones], [["left", "", "right", "right", ""]]))
    for (x, y), side in {(20, 50): "left", (60, 20): "", (60, 80): "right", (100, 50): "right"}.items():
        assert drawn.getpixel((x, y)) == SIDES[side]
    assert drawn.getpixel((140, 80)) == GREY


def test_points_of_a_small_object_are_small() -> None:
    small, large = (
        draw_key_points(canvas(600, 450), Marks([[[20, 20, 2], [20 + length, 20, 2]]])) for length in (40, 400)
    )
    assert 4 <= has(small, SIDES[""]).sum() < has(large, SIDES[""]).sum()


def test_points_outside_the_picture_and_wrong_shapes() -> None:
    assert draw_key_points(canvas(), Marks([[[-50, 20, 2], [900, 20, 1], [np.nan, 5, 2]]])) == canvas()
    assert draw_key_points(canvas(), Marks(np.zeros((0, 3, 3)))) == canvas()
    with pytest.raises(da.InputError, match=r"keypoints must be \(M, K, 3\): x, y, visibility; got shape \(1, 3\)"):
        draw_key_points(canvas(), Marks([[1, 2, 2]]))


CORNERS = [[[40, 75], [100, 25], [160, 75], [100, 125]]]


@pytest.mark.parametrize("difficult", [False, True])
def test_a_rotated_box_is_drawn_instead_of_the_box(difficult: bool) -> None:
    color = class_color("ship")
    drawn = draw_boxes(canvas(), [[40, 25, 160, 125]], [""], difficult=[difficult], colors={"": color}, corners=CORNERS)
    y, x = np.nonzero(has(drawn, color))
    from_edge = abs(abs(x + 0.5 - 100) / 60 + abs(y + 0.5 - 75) / 50 - 1) / np.hypot(1 / 60, 1 / 50)
    assert from_edge.max() < 2
    assert len(x) > (100 if difficult else 250)
    assert drawn.getpixel((42, 27)) == GREY
    if difficult:
        whole = draw_boxes(canvas(), [[40, 25, 160, 125]], [""], colors={"": color}, corners=CORNERS)
        assert len(x) < 0.8 * has(whole, color).sum()


def test_the_name_stands_at_the_highest_corner() -> None:
    places = []
    for corners in (CORNERS, [[[40, 75], [60, 25], [160, 75], [100, 125]]]):
        boxes = [[40, 25, 160, 125]]
        named, plain = (draw_boxes(canvas(), boxes, [name], corners=corners, colors={name: (9, 9, 9)}) for name in "a ")
        changed = (np.asarray(named) != np.asarray(plain)).any(2)
        places.append(np.nonzero(changed)[1].min())
    assert 98 <= places[0] <= 102
    assert 58 <= places[1] <= 62


def test_corners_of_another_number_are_refused() -> None:
    with pytest.raises(da.InputError, match=r"corners must be \(M, 4, 2\), for 2 boxes, got shape \(1, 4, 2\)"):
        draw_boxes(canvas(), [[1, 1, 9, 9]] * 2, ["", ""], corners=CORNERS)


def test_marks_grow_with_the_picture() -> None:
    marks = Marks([[[50.0, 40.0, 2]]], sides=[["left"]])
    sheet = make_sheet([[Tile(canvas(100, 80), marks=marks)]], cell=(240, 300))
    area = Image.fromarray(has(sheet, GREY) | has(sheet, SIDES["left"])).getbbox()
    assert area is not None
    x, y = centroid(sheet, SIDES["left"])
    assert (x - area[0], y - area[1]) == pytest.approx((150, 120), abs=0.3)


@pytest.mark.parametrize(
    ("name", "side"),
    [("left_eye", "left"), ("r_eye", "right"), ("REar", "right"), ("eye-L", "left"), ("nose", ""), ("lip", "")],
)
def test_the_side_of_a_name(name: str, side: str) -> None:
    assert side_of(name) == side


# ----------------------------------------------------------------------------------- batches and datasets

BLACK = (0.0, 0.0, 0.0)
Drawn = Callable[[da.Batch], Any]
PICTURES: dict[str, Drawn] = {
    "notebook": lambda batch: Image.open(io.BytesIO(batch._repr_png_())).convert("RGB"),
    "sheet": batch_sheet,
}


@pytest.mark.parametrize("picture", PICTURES)
def test_pictures_of_batches_have_key_points(picture: str, tmp_path: Path) -> None:
    path = write_discs(tmp_path, paint_discs(4))
    recipe = [da.RandomHorizontalFlip(p=0.5), da.Resize((240, 320))]
    counts = []
    for keypoints in (True, False):
        reader = da.CocoReader(tmp_path, path, keypoints=keypoints)
        (batch,) = da.Loader(reader, recipe, 4, device="cpu", train=False)
        drawn = PICTURES[picture](batch)
        counts.append([int(has(drawn, color).sum()) for color in SIDES.values()])
    assert min(counts[0]) > 40
    assert max(counts[1]) == 0


@pytest.mark.parametrize("picture", PICTURES)
def test_pictures_of_batches_have_rotated_boxes(picture: str, tmp_path: Path) -> None:
    path = write_quadrangles(tmp_path, random_rectangles(np.random.default_rng(0), 4), "corners")
    pixels = []
    for rotated in (True, False):
        reader = da.CocoReader(tmp_path, path, rotated=rotated)
        (batch,) = da.Loader(reader, [da.Resize((200, 260))], 4, device="cpu", train=False)
        pixels.append(has(PICTURES[picture](batch), class_color("1")))
    straight = [int(each.sum(0).max()) for each in pixels]  # the longest upright line
    assert straight[0] < straight[1]
    assert pixels[0].any()


def test_samples_show_their_key_points() -> None:
    keypoints = da.KeyPoints([[[20, 20, 2], [60, 40, 2]]], [["left_eye", "right_eye"]])
    samples = da.batch([np.zeros((80, 100, 3), np.uint8)], [[[5, 5, 90, 70]]], shapes=da.Shapes(keypoints=keypoints))
    drawn = Image.open(io.BytesIO(da.RandomHorizontalFlip(p=1)(samples)._repr_png_())).convert("RGB")
    assert centroid(drawn, SIDES["left"])[0] < centroid(drawn, SIDES["right"])[0]  # mirrored, and swapped


@pytest.mark.parametrize("steps", [False, True])
def test_preview_draws_what_the_json_has(steps: bool, tmp_path: Path) -> None:
    path = write_discs(tmp_path, paint_discs(4))
    content = json.loads(path.read_text())
    content["categories"].insert(0, {"id": 1, "name": "other", "keypoints": ["left_foot", "right_foot", "tail"]})
    path.write_text(json.dumps(content))
    colors: list[list[int]] = []
    for change in (lambda: None, lambda: [each.pop("keypoints") for each in content["annotations"]]):
        change()
        path.write_text(json.dumps(content))
        output = tmp_path / "preview.png"
        preview_file(path, tmp_path, output, rows=3, steps=steps)
        drawn = Image.open(output)
        colors.append([int(has(drawn, color).sum()) for color in SIDES.values()])
    assert min(colors[0]) > 40
    assert max(colors[1]) == 0


def test_preview_of_key_points_whose_pairs_are_not_known(tmp_path: Path) -> None:
    path = write_discs(tmp_path, paint_discs(2))
    for names in (["left_hand", "foot", "nose"], []):
        content = json.loads(path.read_text())
        content["categories"][0]["keypoints"] = names
        path.write_text(json.dumps(content))
        preview_file(path, tmp_path, tmp_path / "preview.png", rows=2)
        assert has(Image.open(tmp_path / "preview.png"), SIDES[""]).sum() > 40


@pytest.mark.parametrize("key", ["corners", "segmentation"])
def test_preview_draws_rotated_boxes(key: str, tmp_path: Path) -> None:
    path = write_quadrangles(tmp_path, random_rectangles(np.random.default_rng(0), 4), key)
    preview_file(path, tmp_path, tmp_path / "turned.png", rows=3)
    content = json.loads(path.read_text())
    for each in content["annotations"]:
        each.pop(key)
    path.write_text(json.dumps(content))
    preview_file(path, tmp_path, tmp_path / "straight.png", rows=3)
    turned, straight = (
        has(Image.open(tmp_path / f"{name}.png"), class_color("ship")) for name in ("turned", "straight")
    )
    assert 0 < turned.sum(0).max() < straight.sum(0).max()


def test_a_sheet_of_clips_has_key_points(tmp_path: Path) -> None:
    content = json.loads(write_discs(tmp_path, paint_discs(images=8)).read_text())
    content["videos"] = [{"id": 1}, {"id": 2}]
    for image in content["images"]:
        image |= {"video_id": 1 + image["id"] % 2, "frame_id": image["id"]}
    for each in content["annotations"]:
        each["track_id"] = each["id"]
    (tmp_path / "clips.json").write_text(json.dumps(content))
    recipe = tmp_path / "recipe.json"
    da.save_recipe([da.Resize((240, 320))], recipe)
    preview_clips(tmp_path / "clips.json", tmp_path, tmp_path / "sheet.png", frames=4, recipe=recipe)
    colors = Image.open(tmp_path / "sheet.png").getcolors(1 << 20) or []
    assert all(sum(count for count, color in colors if color == side) > 50 for side in SIDES.values())


def test_marks_grow_along_both_axes() -> None:
    marks = Marks(keypoints=[[[1, 2, 2]]], corners=[[[1, 2], [3, 2], [3, 5], [1, 5]]]).scaled(np.array([2.0, 3]))
    assert marks.keypoints.tolist() == [[[2, 6, 2]]]
    assert marks.corners.tolist() == [[[2, 6], [6, 6], [6, 15], [2, 15]]]
