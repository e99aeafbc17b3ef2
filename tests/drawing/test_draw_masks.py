"""Masks in images: the drawn area and its outline are those of painted objects."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

import detaug as da
from detaug.converters import check_coco
from detaug.drawing import Marks, Tile, draw_masks, make_sheet
from detaug.drawing.masks import FILL
from detaug.loading.clip_batch import ClipBatch
from detaug.report.finding_picture import finding_picture
from detaug.sheets import batch_sheet, clip_sheet, samples_sheet
from detaug.sheets.preview import preview_clips, preview_file

Mask = NDArray[np.bool_]
GREY = (90, 90, 90)
WHITE = (250, 250, 250)
RED, BLUE = (255, 0, 0), (0, 0, 255)
STAR = 55 * np.stack([np.cos(np.arange(10) * np.pi / 5), np.sin(np.arange(10) * np.pi / 5)], 1) * ([[1], [0.5]] * 5)
SIZE = (150, 200)


def star(number: int = 0) -> NDArray[np.float64]:
    return np.add(STAR, (70 + 20 * number, 75))


def paint(ring: NDArray[np.float64]) -> Image.Image:
    """Return an image of an object on a gray background."""
    large = Image.new("RGB", (SIZE[1] * 4, SIZE[0] * 4), GREY)
    ImageDraw.Draw(large).polygon([tuple(point) for point in (ring * 4 - 0.5).tolist()], fill=WHITE)
    return large.reduce(4)


def disc(height: int, width: int) -> Mask:
    y, x = (np.arange(height)[:, None] + 0.5) / height, (np.arange(width) + 0.5) / width
    return np.asarray(((x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.3**2)[None])


def changed(one: Any, other: Any) -> Mask:
    return np.asarray((np.asarray(one).astype(int) != np.asarray(other)).any(2))


def iou(one: Mask, other: Mask) -> float:
    return float((one & other).sum() / (one | other).sum())


def test_a_disc_is_filled_and_has_a_smooth_outline() -> None:
    side = 300
    plain = Image.new("RGB", (side, side), GREY)
    drawn = np.asarray(draw_masks(plain, disc, [RED])).astype(int)
    y, x = np.mgrid[:side, :side] + 0.5
    depth = 0.3 * side - np.hypot(x - side / 2, y - side / 2)  # how far inside
    assert np.array_equal(np.unique(drawn[depth > 3], axis=0), [[round(90 + (255 - 90) * FILL), 54, 54]])
    assert (drawn[depth < -2] == GREY).all()
    assert (drawn[(depth > 0.8) & (depth < 0.9)][:, 0] > 220).all()  # the line, inside of the object
    assert drawn[(depth < -0.1) & (depth > -0.5)].mean() < 80  # dark beside it
    assert len(np.unique(drawn[abs(depth) < 1], axis=0)) > 8  # fractions of pixels


def test_small_objects_lie_on_large_ones_and_the_border_of_the_picture_is_no_outline() -> None:
    masks = np.zeros((2, 60, 80), bool)
    masks[0, 20:30, 20:30] = True
    masks[1, :, :50] = True
    drawn = draw_masks(Image.new("RGB", (80, 60)), masks, [RED, BLUE])
    red, _, blue = drawn.getpixel((25, 25))  # type: ignore[misc]
    assert (red, blue) == (round(255 * FILL), round(255 * FILL * (1 - FILL)))
    assert drawn.getpixel((0, 30)) == drawn.getpixel((40, 0)) == (0, 0, round(255 * FILL))
    assert drawn.getpixel((49, 30)) == BLUE


def test_masks_are_stretched_over_the_picture() -> None:
    masks = np.zeros((1, 2, 2), bool)
    masks[0, 1, 0] = True
    plain = Image.new("RGB", (60, 40), WHITE)
    area = np.zeros((40, 60), bool)
    area[20:, :30] = True
    assert iou(changed(draw_masks(plain, masks, [RED]), plain), area) > 0.9
    marks = Marks(masks=masks)
    assert marks.scaled(np.array([2.0, 2.0])).masks is masks


def test_no_objects_empty_masks_and_wrong_shapes() -> None:
    plain = Image.new("RGB", (60, 40), WHITE)
    assert draw_masks(plain, np.zeros((0, 40, 60), bool), []) == plain
    assert draw_masks(plain, np.zeros((2, 40, 60), bool), [RED, BLUE]) == plain
    with pytest.raises(da.InputError, match=r"masks must be \(M, H, W\), of 1 objects, got shape \(40, 60\)"):
        draw_masks(plain, np.zeros((40, 60), bool), [RED])
    with pytest.raises(da.InputError, match=r"of 1 objects, got shape \(2, 40, 60\)"):
        draw_masks(plain, np.zeros((2, 40, 60), bool), [RED])


def test_many_samples_are_taken_once_a_pixel(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, sizes = Image.new("RGB", (60, 40)), list[tuple[int, int]]()

    def masks(height: int, width: int) -> Mask:
        sizes.append((height, width))
        return disc(height, width)

    draw_masks(plain, masks, [RED])
    monkeypatch.setattr("detaug.drawing.masks.MOST_SAMPLES", 60 * 40)
    draw_masks(plain, masks, [RED])
    assert sizes == [(120, 180), (40, 60)]


# ----------------------------------------------------------------------------------- batches and datasets


def write(folder: Path, **more: Any) -> Path:
    """Write four images with a star each; return the JSON file."""
    images, annotations = [], []
    for number in range(4):
        ring = star(number)
        paint(ring).save(folder / f"{number}.png")
        low, high = ring.min(0), ring.max(0)
        images.append({"id": number + 1, "file_name": f"{number}.png", "width": SIZE[1], "height": SIZE[0]})
        box = [*low.tolist(), *(high - low).tolist()]
        outline = {"bbox": box, "segmentation": [ring.ravel().tolist()]}
        annotations.append({"id": number + 1, "image_id": number + 1, "category_id": 1, **outline})
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "star"}], **more}
    (folder / "stars.json").write_text(json.dumps(content))
    return folder / "stars.json"


def without_outlines(path: Path) -> Path:
    content = json.loads(path.read_text())
    for each in content["annotations"]:
        del each["segmentation"]
    (path.parent / "boxes.json").write_text(json.dumps(content))
    return path.parent / "boxes.json"


Drawn = Callable[[da.Batch], Any]
PICTURES: dict[str, Drawn] = {
    "notebook": lambda batch: Image.open(io.BytesIO(batch._repr_png_())).convert("RGB"),
    "sheet": batch_sheet,
}


def bright(picture: Any) -> Mask:
    """Return where an image shows the white of objects or of paper."""
    return np.asarray(np.asarray(picture).min(2) > 170)


def check_area(marked: Any, plain: Any) -> None:
    """Check that what masks change in an image are the painted objects."""
    background = make_sheet([[Tile(Image.new("RGB", (8, 8)))]]).getpixel((0, 0))
    paper = (np.asarray(plain) == background).all(2)
    objects = bright(plain) & ~paper
    assert objects.sum() > 2000
    assert iou(changed(marked, plain), objects) > 0.85


TURN = da.RandomAffine(degrees=40, shear=10, fill=(0.35, 0.35, 0.35))


@pytest.mark.parametrize("picture", PICTURES)
def test_pictures_of_batches_have_the_masks_of_painted_objects(picture: str, tmp_path: Path) -> None:
    path = write(tmp_path)
    recipe = [TURN, da.Resize((400, 520))]  # reduced in the images
    drawn = []
    for masks in (True, False):
        reader = da.CocoReader(tmp_path, path, masks=masks)
        (batch,) = da.Loader(reader, recipe, 4, device="cpu", train=False)
        drawn.append(PICTURES[picture](batch))
    check_area(*drawn)


def samples(masks: bool = True) -> da.Samples:
    shapes = da.Shapes.of_segmentations([[star(n).ravel().tolist()] for n in range(3)]) if masks else None
    boxes = [[[*star(n).min(0), *star(n).max(0)]] for n in range(3)]
    return da.batch([np.asarray(paint(star(n))) for n in range(3)], boxes, shapes=shapes, seed=5)


def test_samples_show_their_masks() -> None:
    notebook, sheet = (
        [draw(samples(masks).then(TURN)) for masks in (True, False)]
        for draw in (lambda each: Image.open(io.BytesIO(each._repr_png_())).convert("RGB"), samples_sheet)
    )
    check_area(*notebook)
    check_area(*sheet)


@pytest.mark.parametrize("normalize", [False, True])
def test_masks_of_samples_are_their_painted_pixels(normalize: bool) -> None:
    moved = samples().then(TURN, da.RandomHorizontalFlip(p=0.5))  # each image keeps its size
    normalized = samples().then(TURN, da.RandomHorizontalFlip(p=0.5), da.Normalize()) if normalize else moved
    for image, masks, same in zip(moved.images, moved.masks, normalized.masks, strict=True):
        assert masks.shape == (1, *image.shape[:2])
        assert iou(masks[0], bright(image)) > 0.97
        assert np.array_equal(masks, same)


def test_masks_of_samples_of_several_sizes_and_without_outlines() -> None:
    images = [np.zeros((40, 60, 3), np.uint8), np.zeros((50, 30, 3), np.uint8)]
    shapes = da.Shapes.of_segmentations([[[5, 5, 25, 5, 25, 25, 5, 25]]] * 3)
    one = [[5, 5, 25, 25]]
    given = da.batch(images, [one * 2, one], shapes=shapes)
    square = np.zeros((50, 30), bool)
    square[5:25, 5:25] = True
    assert [each.shape for each in given.masks] == [(2, 40, 60), (1, 50, 30)]
    assert np.array_equal(given.masks[1][0], square)
    with pytest.raises(da.InputError, match="there are no masks"):
        _ = samples(masks=False).masks


def test_an_enlarged_picture_has_smooth_masks() -> None:
    """Of an image of 20 x 20 pixels, drawn at 300 x 300, the outline is where it is, not along the edges of pixels."""
    ring = np.array([[2, 2], [18, 4], [9, 18]], float)
    shapes = da.Shapes.of_segmentations([[ring.ravel().tolist()]])
    drawn = []
    for own in (shapes, None):
        given = da.batch([np.full((20, 20, 3), 90, np.uint8)], [[[2, 2, 18, 18]]], shapes=own)
        drawn.append(np.asarray(samples_sheet(given)))
    tile = (drawn[1] == GREY).all(2)
    (top, bottom), (left, right) = (np.flatnonzero(tile.any(axis))[[0, -1]] + np.array([0, 1]) for axis in (1, 0))
    factor = (right - left) / 20
    expected = Image.new("1", (right - left, bottom - top))
    ImageDraw.Draw(expected).polygon([tuple(point) for point in (ring * factor - 0.5).tolist()], fill=1)
    assert factor > 10
    assert iou(changed(*drawn)[top:bottom, left:right], np.asarray(expected)) > 0.95


@pytest.mark.parametrize("steps", [False, True])
def test_preview_draws_the_outlines_of_a_json(steps: bool, tmp_path: Path) -> None:
    path, recipe = write(tmp_path), tmp_path / "recipe.json"
    da.save_recipe([TURN, da.Resize((150, 200))], recipe)
    pictures = []
    for name in (path, without_outlines(path)):
        preview_file(name, tmp_path, tmp_path / "preview.png", rows=3, steps=steps, recipe=recipe)
        pictures.append(np.asarray(Image.open(tmp_path / "preview.png").convert("RGB"))[60:])  # but for the title
    check_area(*pictures)


def test_preview_of_a_json_with_quadrangles_only_draws_no_masks(tmp_path: Path) -> None:
    path, recipe, pictures = write(tmp_path), tmp_path / "recipe.json", []
    content = json.loads(path.read_text())
    da.save_recipe([da.Resize(SIZE)], recipe)
    for key in ("segmentation", "corners"):
        for each in content["annotations"]:
            x, y, width, height = each["bbox"]
            corners = [[x + width / 2, y], [x + width, y], [x + width / 2, y + height], [x, y + height]]
            each.pop("segmentation", None)
            each[key] = [np.ravel(corners).tolist()] if key == "segmentation" else corners
        path.write_text(json.dumps(content))
        preview_file(path, tmp_path, tmp_path / "preview.png", rows=4, recipe=recipe)
        pictures.append(np.asarray(Image.open(tmp_path / "preview.png")))
    assert np.array_equal(*pictures)


def write_clips(folder: Path) -> Path:
    path = write(folder, videos=[{"id": 1}])
    content = json.loads(path.read_text())
    for number, (image, each) in enumerate(zip(content["images"], content["annotations"], strict=True)):
        image |= {"video_id": 1, "frame_id": number}
        each["track_id"] = 1
    path.write_text(json.dumps(content))
    return path


def test_sheets_of_clips_have_masks(tmp_path: Path) -> None:
    path, pictures = write_clips(tmp_path), []
    for masks in (True, False):
        reader = da.ClipReader(tmp_path, path, frames=4, masks=masks)
        loader: da.Loader[ClipBatch] = da.Loader(reader, [TURN, da.Resize((150, 200))], 1, device="cpu")
        pictures.append(clip_sheet(next(iter(loader))))
    check_area(*pictures)
    files = []
    for name in (path, without_outlines(path)):
        preview_clips(name, tmp_path, tmp_path / "sheet.png", frames=4)
        files.append(np.asarray(Image.open(tmp_path / "sheet.png").convert("RGB"))[60:])
    assert changed(*files).sum() > 2000


def test_the_picture_of_a_finding_has_the_outline(tmp_path: Path) -> None:
    path = write(tmp_path)
    content = json.loads(path.read_text())
    content["annotations"][1]["bbox"][2] += 12
    pictures = []
    for outline in (True, False):
        path.write_text(json.dumps(content))
        summary = check_coco(path, tmp_path)
        (finding,) = summary.findings
        assert finding.kind == "segmentation-box"
        if not outline:  # of the same finding
            summary.table.row("annotations", 1)["segmentation"] = []
        pictures.append(finding_picture(summary, finding))
    check_area(*pictures)


def test_the_picture_of_a_finding_without_a_usable_outline(tmp_path: Path) -> None:
    path = write(tmp_path)
    content = json.loads(path.read_text())
    content["annotations"][1]["segmentation"] = {"size": [3, 4], "counts": [12]}
    content["annotations"][2]["segmentation"] = [[1, 2, 3]]
    content["annotations"][3]["segmentation"] = []
    path.write_text(json.dumps(content))
    summary = check_coco(path, tmp_path)
    assert set(summary.kind_counts) == {"segmentation-invalid", "segmentation-missing"}
    for finding in summary.findings:
        assert finding_picture(summary, finding).size == (240, 180)
