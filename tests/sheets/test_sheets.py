"""Contact sheets, read back off their pixels: painted rectangles must lie exactly inside their outlines."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from coco_files import document, write, write_images
from command import detaug, usage_error
from numpy.typing import NDArray
from PIL import Image
from video_files import Videos, paint_videos

import detaug as da
from detaug.cli.main import main
from detaug.drawing import boxes, class_color, class_colors, page, save_picture
from detaug.drawing import text as lettering
from detaug.sheets import (
    Detections,
    batch_sheet,
    clip_sheet,
    detections_sheet,
    draws_sheet,
    ops_sheet,
    samples_sheet,
    save_animation,
    steps_sheet,
)
from detaug.sheets.photos import read_photos
from detaug.sheets.preview import preset_ops
from detaug.sheets.recipe_sheets import augment, shown_fractions, step_tile

SIZE = 300
OUTLINE = np.array(class_color("cat"))
BLACK = (0.0, 0.0, 0.0)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Pixels = NDArray[np.uint8]


def write_json(path: Path, images: list[dict[str, Any]], boxes: list[dict[str, Any]], names: list[str]) -> Path:
    categories = [{"id": at, "name": name} for at, name in enumerate(names, 1)]
    path.write_text(json.dumps({"images": images, "annotations": boxes, "categories": categories}))
    return path


def painted_reader(folder: Path, images: int = 3, difficult: bool = False) -> da.CocoReader:
    """Black squares of 400 x 400 pixels, each with one white rectangle, annotated."""
    rng, rows, boxes = np.random.default_rng(7), [], []
    for at in range(1, images + 1):
        x, y, width, height = (int(v) for v in rng.integers((40, 40, 120, 120), (140, 140, 200, 200)))
        pixels = np.zeros((400, 400, 3), np.uint8)
        pixels[y : y + height, x : x + width] = 255
        Image.fromarray(pixels).save(folder / f"{at}.png")
        rows.append({"id": at, "file_name": f"{at}.png", "width": 400, "height": 400})
        box = {"id": at, "image_id": at, "category_id": 1, "bbox": [x, y, width, height], "iscrowd": 0}
        boxes.append({**box, "difficult": int(difficult)})
    return da.CocoReader(folder, write_json(folder / "painted.json", rows, boxes, ["cat"]))


@pytest.fixture
def thin_outlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw thin outlines without labels, which have the outline's color and may lie outside the box."""
    monkeypatch.setattr(boxes, "paint_labels", lambda *_: None)
    monkeypatch.setattr(boxes, "_line_width", lambda *_: 1)


def cells(sheet: Image.Image, rows: int, columns: int, lines: int = 1, *, headings: bool = True) -> list[list[Pixels]]:
    """Cut out the images of a sheet without title, all SIZE x SIZE, above captions of `lines`."""
    top = page.MARGIN + page.strip(headings, page.HEADING)
    down = SIZE + page.strip(lines, page.CAPTION) + page.GAP
    left, right = page.MARGIN + page.GAP, SIZE + page.GAP
    pixels = np.asarray(sheet)
    lefts = [page.MARGIN, *(left + right * column for column in range(1, columns))]
    return [[pixels[top + down * row :, x:][:SIZE, :SIZE] for x in lefts] for row in range(rows)]


def outline(pixels: Pixels) -> tuple[int, int, int, int]:
    """Return the box, XYXY half-open, of the pixels in the outline's color."""
    return box_of((pixels == OUTLINE).all(2))


def box_of(shown: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    box = Image.fromarray(shown).getbbox()
    assert box is not None
    return box


def assert_tight(pixels: Pixels) -> None:
    """Check for white inside the outline, two pixels wide with its shadow, and black a pixel outside."""
    x0, y0, x1, y1 = outline(pixels)
    light = pixels.min(2)
    assert (light[y0 + 3 : y1 - 3, x0 + 3 : x1 - 3] > 128).all()
    light = light.copy()
    light[max(y0 - 1, 0) : y1 + 1, max(x0 - 1, 0) : x1 + 1] = 0
    assert (light < 128).all()


# ---------------------------------------------------------------- boxes lie on their objects


@pytest.mark.parametrize("seed", range(3))
def test_outlines_lie_on_the_objects_in_the_source_and_in_every_draw(
    tmp_path: Path, thin_outlines: None, seed: int
) -> None:
    reader = painted_reader(tmp_path)
    ops = [
        da.RandomZoomOut(2, fill=BLACK),
        da.RandomIoUCrop(),
        da.RandomHorizontalFlip(),
        da.RandomVerticalFlip(),
        da.Resize((SIZE, SIZE)),
        da.Normalize(MEAN, STD),
    ]
    sheet = draws_sheet(reader, ops, range(3), columns=4, seed=seed, size=SIZE)
    pictures = [pixels for row in cells(sheet, 3, 5) for pixels in row]
    for pixels in pictures:
        assert_tight(pixels)
    assert len({outline(pixels) for pixels in pictures}) > 10


def test_outlines_lie_on_the_objects_after_every_op(tmp_path: Path, thin_outlines: None) -> None:
    reader = painted_reader(tmp_path)
    ops = [da.RandomZoomOut(2, p=1, fill=BLACK), da.RandomVerticalFlip(p=1), da.Resize((SIZE, SIZE)), da.Normalize()]
    sheet = steps_sheet(reader, ops, range(3), seed=1, size=SIZE)
    for row in cells(sheet, 3, 5, lines=2):
        for pixels in row:
            assert_tight(pixels)
        source, zoomed, flipped, resized, normalized = map(outline, row)
        assert zoomed[2] - zoomed[0] < source[2] - source[0]
        assert flipped == pytest.approx((zoomed[0], SIZE - zoomed[3], zoomed[2], SIZE - zoomed[1]), abs=1)
        assert resized == pytest.approx(flipped, abs=1)
        assert normalized == resized


def test_captions_of_steps_have_the_numbers_in_the_pixels(tmp_path: Path) -> None:
    """The ratio drawn is the size of the canvas; the numbers are those of the op, also behind an op of two parts."""
    ops = [da.RandAugment(), da.RandomZoomOut(2, p=1), da.RandomHorizontalFlip(p=1), da.Resize((SIZE, SIZE)), da.JPEG()]
    photos = read_photos(painted_reader(tmp_path), range(3), ())
    runs = [augment(photos, ops[:done], seed=1) for done in range(len(ops) + 1)]
    for at in range(3):
        policy, zoom, flip, resize, jpeg = (step_tile(runs, at, step).caption for step in range(1, len(runs)))
        assert "\ndrew op " in policy
        measured, ratio = zoom.split()[1], zoom.partition("ratio ")[2].partition(",")[0]
        assert float(measured) == pytest.approx(float(ratio), abs=0.011)
        assert flip == "flipped left-right\ndrew flip yes"
        assert "drew" not in resize
        assert jpeg.partition("\ndrew ")[2].startswith("apply ")


def test_objects_have_their_own_names_after_others_are_cropped(tmp_path: Path) -> None:
    pixels, colors = np.zeros((400, 400, 3), np.uint8), {"left": class_color("left"), "right": class_color("right")}
    pixels[100:300, 20:120], pixels[100:300, 280:380] = colors["left"], colors["right"]
    Image.fromarray(pixels).save(tmp_path / "1.png")
    image = {"id": 1, "file_name": "1.png", "width": 400, "height": 400}
    boxes = [[20, 100, 100, 200], [280, 100, 100, 200]]
    rows = [{"id": at, "image_id": 1, "category_id": at, "bbox": box} for at, box in enumerate(boxes, 1)]
    reader = da.CocoReader(tmp_path, write_json(tmp_path / "two.json", [image], rows, ["left", "right"]))
    photos = read_photos(reader, [0] * 20, ())
    run = augment(photos, [da.RandomIoUCrop(scaling=(0.3, 0.6)), da.Resize((SIZE, SIZE))], seed=0)
    kept = [run.tile(at, "") for at in range(20)]
    assert {tuple(tile.names) for tile in kept} >= {("left",), ("right",)}
    for tile in kept:
        for name, (x0, y0, x1, y1) in zip(tile.names, np.asarray(tile.boxes), strict=True):
            assert tile.image.getpixel(((x0 + x1) / 2, (y0 + y1) / 2)) == colors[name]


# ---------------------------------------------------------------- colors, difficult, names


def test_normalize_is_undone(tmp_path: Path) -> None:
    color = (200, 120, 40)
    Image.new("RGB", (400, 400), color).save(tmp_path / "1.png")
    image = {"id": 1, "file_name": "1.png", "width": 400, "height": 400}
    reader = da.CocoReader(tmp_path, write_json(tmp_path / "plain.json", [image], [], ["cat"]))
    for ops in ([], [da.Normalize()], [da.Normalize(MEAN, STD)]):
        picture = cells(draws_sheet(reader, [da.Resize((SIZE, SIZE)), *ops], [0], columns=1, size=SIZE), 1, 2)[0][1]
        assert (abs(picture.astype(int) - color) <= 1).all()


def test_difficult_objects_are_dashed_in_the_draws_too(tmp_path: Path, thin_outlines: None) -> None:
    def painted(difficult: bool) -> list[int]:
        reader = painted_reader(tmp_path, 1, difficult=difficult)
        sheet = draws_sheet(reader, [da.RandomHorizontalFlip(p=1), da.Resize((SIZE, SIZE))], [0], columns=1, size=SIZE)
        return [int((pixels == OUTLINE).all(2).sum()) for pixels in cells(sheet, 1, 2)[0]]

    for dashed, whole in zip(painted(True), painted(False), strict=True):
        assert 0.4 * whole < dashed < 0.8 * whole


def test_crowd_regions_do_not_shift_the_difficult_flags(tmp_path: Path) -> None:
    Image.new("RGB", (400, 400)).save(tmp_path / "1.png")
    image = {"id": 1, "file_name": "1.png", "width": 400, "height": 400}
    flags = [(1, 0), (0, 1), (0, 0)]
    boxes = [
        {"id": at, "image_id": 1, "category_id": 1, "bbox": [at, at, 50, 50], "iscrowd": crowd, "difficult": difficult}
        for at, (crowd, difficult) in enumerate(flags, 1)
    ]
    reader = da.CocoReader(tmp_path, write_json(tmp_path / "crowd.json", [image], boxes, ["cat"]))
    (photo,) = read_photos(reader, [0], ())
    assert photo.difficult == [True, False]
    assert photo.boxes[:, 0].tolist() == [2, 3]


def test_a_crowd_is_hatched_in_the_source(tmp_path: Path) -> None:
    Image.new("RGB", (400, 400), (90, 90, 90)).save(tmp_path / "1.png")
    image = {"id": 1, "file_name": "1.png", "width": 400, "height": 400}
    crowd = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [40, 80, 200, 120], "iscrowd": 1}
    reader = da.CocoReader(tmp_path, write_json(tmp_path / "t.json", [image], [crowd], ["cat"]))
    ((source, draw),) = cells(draws_sheet(reader, [da.Resize((SIZE, SIZE))], [0], columns=1, size=SIZE), 1, 2)
    assert Image.fromarray((source != 90).any(2)).getbbox() == (30, 60, 180, 150)
    assert (draw == 90).all()


def test_beside_detections_a_difficult_object_is_dashed_and_a_crowd_is_hatched(tmp_path: Path) -> None:
    Image.new("RGB", (300, 300), (90, 90, 90)).save(tmp_path / "1.png")
    image = {"id": 7, "file_name": "1.png", "width": 300, "height": 300}
    box = {"image_id": 7, "category_id": 1, "bbox": [40, 80, 200, 120]}
    one, dashed, hatched = (
        annotated(tmp_path, image, box | {"id": 1} | mark) for mark in ({}, {"difficult": 1}, {"iscrowd": 1})
    )
    assert shares_outline(one) == 1
    assert 0.3 < shares_outline(dashed) < 0.8
    assert Image.fromarray((hatched != 90).any(2)).getbbox() == (40, 80, 240, 200)


def test_unsure_detections_are_drawn_where_none_is_sure(tmp_path: Path) -> None:
    images = [{"id": number, "file_name": f"{number}.png", "width": 300, "height": 300} for number in (1, 2)]
    for number in (1, 2):
        Image.new("RGB", (300, 300), (90, 90, 90)).save(tmp_path / f"{number}.png")
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [40, 80, 200, 120]}
    reader = da.CocoReader(tmp_path, write_json(tmp_path / "t.json", images, [box], ["cat"]))
    first, second = (np.array([[50.0, 100, 250, 200]]) for _ in range(2))
    for score, is_drawn in ((0.39, True), (0.4, False)):
        found = [Detections(1, first, [1], [0.1]), Detections(2, second, [1], [score])]
        sheet = np.asarray(detections_sheet(reader, found))
        top, left = page.MARGIN + page.strip(1, page.HEADING), page.MARGIN + 300 + 2 * page.GAP
        assert (sheet[top : top + 300, left : left + 300] != 90).any() == is_drawn


def test_the_highest_detections_are_kept_without_a_sure_one(tmp_path: Path) -> None:
    batch = next(iter(da.Loader(white_reader(tmp_path), [da.Resize((60, 60))], 1, device="cpu", train=False)))
    boxes = torch.tensor([[0.0, 0, 20, 20]]).repeat(5, 1)
    predictions = [{"boxes": boxes, "labels": torch.ones(5).long(), "scores": torch.tensor([0.1, 0.5, 0.2, 0.05, 0.3])}]
    for least, scores in ((0, [0.5]), (3, [0.5, 0.2, 0.3]), (9, [0.1, 0.5, 0.2, 0.05, 0.3])):
        assert Detections.of(batch, predictions, 0.4, least)[0].scores == pytest.approx(scores)


def annotated(folder: Path, image: dict, annotation: dict) -> Pixels:
    """Return the left image of a sheet of no detections."""
    reader = da.CocoReader(folder, write_json(folder / "t.json", [image], [annotation], ["cat"]))
    sheet = np.asarray(detections_sheet(reader, [Detections(7, np.zeros((0, 4)), [], [])]))
    top = page.MARGIN + page.strip(1, page.HEADING)
    return sheet[top : top + 300, page.MARGIN : page.MARGIN + 300]


def shares_outline(picture: Pixels) -> float:
    """Return the fraction of the lower edge of the box at y 80 to 200 that has the class's color."""
    return float((picture[199, 40:240] == class_color("cat")).all(1).mean())


def test_the_same_seed_gives_the_same_sheet(tmp_path: Path) -> None:
    reader = painted_reader(tmp_path)
    one, same, other = (draws_sheet(reader, da.presets.ssd300(), [0, 2], seed=seed).tobytes() for seed in (4, 4, 5))
    assert one == same != other


def white_reader(folder: Path) -> da.CocoReader:
    for number in (1, 2, 3):
        Image.new("RGB", (400, 300), "white").save(folder / f"{number}.png")
    images = [{"id": each, "file_name": f"{each}.png", "width": 400, "height": 300} for each in (1, 2, 3)]
    return da.CocoReader(folder, write_json(folder / "white.json", images, [], ["cat"]))


def test_draws_that_are_mostly_fill_are_left_out(tmp_path: Path) -> None:
    reader = white_reader(tmp_path)

    def shown(p: float, **options: Any) -> NDArray[np.float64]:
        ops = [da.RandomZoomOut(4, p=p, fill=BLACK), da.Resize((SIZE, SIZE))]
        sheet = draws_sheet(reader, ops, [0, 1, 2], columns=3, seed=1, size=SIZE, **options)
        return np.array([[(picture > 127).mean() for picture in row[1:]] for row in cells(sheet, 3, 4)])

    assert shown(0.5).min() < 0.2
    enough = shown(0.5, min_shown=0.3)
    assert 0.29 < enough.min() < 0.9  # less fill stays
    assert shown(1, min_shown=0.9).mean() > shown(1).mean() + 0.1  # too few show so much: those that show most


@pytest.mark.parametrize(
    "ops",
    [
        da.presets.for_problem("aerial", (SIZE, SIZE)),
        da.presets.for_problem("night", (SIZE, SIZE)),
        [
            da.RandomChoice([da.RandomZoomOut(2), da.RandomOrder([da.RandomIoUCrop(), da.RandomRotation(20)])]),
            da.RandAugment(),
            da.Resize((SIZE, SIZE)),
            da.RandomApply([da.ColorJitter(0.5), da.GaussianNoise()], p=0.7),
        ],
    ],
)
def test_chosen_draws_are_drawn_as_all_are(ops: list[da.Op], tmp_path: Path) -> None:
    """With the smallest min_shown they are the first ones of four times as many."""
    reader = painted_reader(tmp_path)
    chosen = cells(draws_sheet(reader, ops, [0, 1, 2], columns=2, seed=3, size=SIZE, min_shown=1e-9), 3, 3)
    drawn = cells(draws_sheet(reader, ops, [0, 1, 2], columns=8, seed=3, size=SIZE), 3, 9)
    for few, many in zip(chosen, drawn, strict=True):
        assert all(np.array_equal(one, other) for one, other in zip(few, many[:3], strict=True))


def test_the_fraction_that_shows_the_source_is_that_of_its_pixels(tmp_path: Path) -> None:
    reader = white_reader(tmp_path)
    photos = read_photos(reader, [0, 1, 2])
    for op in (
        da.RandomZoomOut(3, p=1, fill=BLACK),
        da.RandomRotation(40, fill=BLACK),
        da.RandomPerspective(0.7, p=1, fill=BLACK),
    ):
        result = augment(photos, [da.RandomIoUCrop(), op, da.Resize((SIZE, SIZE))], 2)
        pixels = [float((image[..., :3] > 127).mean()) for image in np.asarray(result.samples.images)]
        assert shown_fractions(result.samples.plan.views) == pytest.approx(pixels, abs=0.03)
        assert min(pixels) < 0.95


def test_an_image_is_rotated_by_its_exif_tag_and_may_have_no_boxes(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (400, 200)).save(tmp_path / "1.jpg", exif=exif)
    image = {"id": 1, "file_name": "1.jpg", "width": 200, "height": 400}
    reader = da.CocoReader(tmp_path, write_json(tmp_path / "exif.json", [image], [], ["cat"]))
    assert read_photos(reader, [0], ())[0].pixels.shape == (400, 200, 3)
    draws_sheet(reader, da.presets.ssd300(), [0])


# ---------------------------------------------------------------- samples and batches


def test_a_picture_of_three_rows_is_shown_as_it_is(tmp_path: Path) -> None:
    """Nothing takes the rows of (3, 120, 3) pixels for planes: 8 x 300 pixels, a quarter of them red."""
    pixels = np.zeros((3, 120, 3), np.uint8)
    pixels[:, 20:50, 0] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    row = {"id": 1, "file_name": "a.png", "width": 120, "height": 3}
    reader = da.CocoReader(tmp_path, write_json(tmp_path / "a.json", [row], [], ["cat"]))
    sheet = np.asarray(draws_sheet(reader, [da.Resize((SIZE, SIZE))], [0], columns=1, size=SIZE))
    left, top, right, bottom = box_of((sheet[:, : SIZE // 2] == (255, 0, 0)).all(2))
    assert (left - page.MARGIN, right - page.MARGIN) == (pytest.approx(50, abs=2), pytest.approx(125, abs=2))
    assert bottom - top == pytest.approx(8, abs=2)


def test_samples_and_batches_are_drawn_in_true_colors(tmp_path: Path) -> None:
    reader = painted_reader(tmp_path)
    ops = [da.Resize((SIZE, SIZE)), da.Normalize(MEAN, STD)]
    batch = next(iter(da.Loader(reader, ops, 3, train=False, device="cpu")))
    samples = da.batch([np.zeros((400, 400, 3), np.uint8)] * 3, [[[50, 60, 200, 300]]] * 3)
    for op in ops:
        samples = op(samples)
    pictures = [batch_sheet(batch, reader.class_names, ops=ops), samples_sheet(samples, reader.class_names)]
    for sheet in pictures:
        pixels = np.asarray(sheet)
        assert ((pixels == OUTLINE).all(2)).sum() > 1000
        assert ((pixels == 0).all(2)).sum() > 10_000
    assert samples_sheet(samples).size == samples_sheet(samples, reader.class_names).size


def test_each_image_of_samples_has_its_own_names() -> None:
    images, boxes, names = [np.zeros((90, 90, 3), np.uint8)] * 2, [[[9, 30, 70, 80]]] * 2, ["", "cat", "dog"]
    sheets = [np.asarray(samples_sheet(da.batch(images, boxes, [[1], [label]]), names)) for label in (1, 2)]
    left, right = (np.split(each[:, : each.shape[1] // 8 * 8], 8, axis=1) for each in sheets)
    assert np.array_equal(left[0], right[0])
    assert any(not np.array_equal(*each) for each in zip(left, right, strict=True))


def test_a_batch_without_its_recipe_is_stretched(tmp_path: Path) -> None:
    reader = painted_reader(tmp_path, 1)
    for ops in ([], [da.RandomPhotometricDistort()], [da.Normalize()], [da.Normalize(MEAN, STD)]):
        loader = da.Loader(reader, [da.Resize((SIZE, SIZE)), *ops], 1, train=False, device="cpu")
        pixels = np.asarray(batch_sheet(next(iter(loader)), reader.class_names))[50:250, 50:250]
        assert pixels.max() > 240
        assert pixels.min() < 80


# ---------------------------------------------------------------- the command


@pytest.fixture
def painted(tmp_path: Path) -> list[str]:
    painted_reader(tmp_path)
    return [str(tmp_path / "painted.json"), str(tmp_path)]


@pytest.mark.parametrize("extension", ["png", "jpg", "JPEG", "webp"])
def test_preview_writes_a_picture(
    painted: list[str], tmp_path: Path, extension: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / f"sheet.{extension}"
    assert main(["preview", *painted, "-o", str(output), "--rows", "2", "--columns", "3", "--size", "100"]) == 0
    assert capsys.readouterr() == (f"written: {output}, 2 of 3 images\n", "")
    with Image.open(output) as sheet:
        assert sheet.width == 4 * 100 + 2 * page.MARGIN + 4 * page.GAP
    assert not list(tmp_path.glob(".*"))


def test_preview_names_the_letters_without_a_font(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("RGB", (40, 30)).save(tmp_path / "1.png")
    image = {"id": 1, "file_name": "1.png", "width": 40, "height": 30}
    path = write_json(tmp_path / "t.json", [image], [], ["cat", "a \u56fd\u4e2d"])
    monkeypatch.setattr(lettering, "fontconfig", lambda text: iter(()))
    monkeypatch.setattr(lettering, "FONT_PATHS", ())
    lettering.find_font.cache_clear()
    assert main(["preview", str(path), str(tmp_path), "-o", str(tmp_path / "x.png"), "--columns", "1"]) == 0
    lettering.find_font.cache_clear()
    assert "; no font here has \u4e2d\u56fd: install one" in capsys.readouterr().out


def test_every_option_of_preview_changes_the_sheet(painted: list[str], tmp_path: Path) -> None:
    sheets_of = {}
    for options in ("", "--steps", "--seed 3", "--preset retinanet", "--only cat --smallest", "--crowded --columns 1"):
        output = tmp_path / f"sheet{len(sheets_of)}.png"
        assert main(["preview", *painted, "-o", str(output), "--size", "100", "--rows", "1", *options.split()]) == 0
        sheets_of[options] = output.read_bytes()
    assert len(set(sheets_of.values())) == len(sheets_of)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{folder}/no.json {folder} -o {folder}/x.png", "no.json"),
        ("{json} {folder}/nowhere -o {folder}/x.png", "nowhere"),
        ("{json} {folder} -o {folder}/x.png --preset ssd", "'ssd' is not one of 'ssd300', 'retinanet'"),
        ("{json} {folder} -o {folder}/x.png --preset Normalize", "'Normalize' is not one of 'ssd300', 'retinanet'"),
        ("{json} {folder} -o {folder}/x.png --only dog", "got 'dog'"),
        ("{json} {folder} -o {folder}/x.tiff", "must end in .png, .jpg, .jpeg, .webp, got '.tiff'"),
        ("{json} {folder} -o {folder}/x", "got 'no extension'"),
        ("{json} {folder} -o {folder}/no/x.png", "no does not exist; make it first"),
        ("{json} {folder} -o {folder}/2.png", "2.png exists and was not written by detaug; give a new name, or"),
        ("{json} {folder} -o {folder}/x.png --size 100000", "a sheet may have 200,000,000 pixels, "),
        ("{json} {folder} -o {folder}/x.png --size 100000", "give a smaller size or fewer rows"),
        ("{json} {folder} -o {folder}/x.png --columns 999999", "x 1,000,000 images of 300 x 300 pixels have "),
        ("{json} {folder} -o {folder}/x.png --rows 0", "0 is not in the range x>=1"),
        ("{json} {folder} -o {folder}/x.png --steps --columns 3", "columns must be left out with steps"),
        ("{json} {folder} -o {folder}/x.png --epoch 9", "epoch must be left out for ssd300, a recipe without stages"),
        ("{json} {folder}", "Missing option '-o'"),
    ],
)
def test_errors_of_preview_are_one_line(
    painted: list[str], tmp_path: Path, arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preview", *arguments.format(json=painted[0], folder=tmp_path).split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("detaug: ")
    assert message in err
    assert not list(tmp_path.glob("x*"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:300]), "1.png does not decode"),
        (lambda path: path.write_bytes(b""), "1.png does not decode"),
        (lambda path: Image.new("RGB", (300, 400)).save(path), "1.png has 300 x 400 pixels"),
        (lambda path: path.unlink(), "1.png"),
    ],
)
def test_preview_names_an_image_that_cannot_be_used(
    painted: list[str], tmp_path: Path, spoil: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(tmp_path / "1.png")
    assert main(["preview", *painted, "-o", str(tmp_path / "x.png")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err
    assert not (tmp_path / "x.png").exists()


def test_a_sheet_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.png").write_text("old")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_picture(Image.new("RGB", (8, 8)), tmp_path / "x.png")
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]
    assert (tmp_path / "x.png").read_text() == "old"


def test_recipes_are_found_by_name() -> None:
    assert preset_ops("ssd300") == da.presets.ssd300()
    with pytest.raises(ValueError, match=r"preset must be one of ssd300, .*, got 'evaluation'"):
        preset_ops("evaluation")


def test_rows_and_columns_are_checked(tmp_path: Path) -> None:
    reader = painted_reader(tmp_path, 1)
    with pytest.raises(ValueError, match="columns must be at least 1, got 0"):
        draws_sheet(reader, [], [0], columns=0)
    with pytest.raises(ValueError, match="rows must name at least one image, got none"):
        steps_sheet(reader, [], [])


def test_preview_draws_a_recipe_from_a_file(tmp_path: Path) -> None:
    annotations, images = write(tmp_path / "t.json", document()), write_images(tmp_path / "images")
    da.save_recipe(da.presets.ssd300(), recipe := tmp_path / "mine.yaml")
    arguments = [str(annotations), str(images), "--rows", "1", "--columns", "1", "-o"]
    assert main(["preview", *arguments, str(tmp_path / "file.png"), "--recipe", str(recipe)]) == 0
    assert main(["preview", *arguments, str(tmp_path / "both.png"), "--recipe", str(recipe), "--preset", "ssd300"]) == 2
    assert not (tmp_path / "both.png").exists()
    assert (tmp_path / "file.png").is_file()


def test_an_ops_sheet_has_each_op_alone() -> None:
    image = np.full((60, 80, 3), (200, 40, 90), np.uint8)
    image[:, :40] = (20, 160, 60)
    samples = da.Resize((60, 80))(da.batch([image], [[[5, 5, 30, 30]]]))
    picture = ops_sheet(samples, [da.RandomInvert(p=1), da.Normalize()], ["background", "cat"], columns=3, size=80)
    below = [picture.getpixel((left + 20, 16 + 50)) for left in (16, 16 + 80 + 24, 16 + 80 + 24 + 80 + 12)]
    assert np.abs(np.subtract(below, [(20, 160, 60), (235, 95, 195), (20, 160, 60)])).max() <= 2
    with pytest.raises(ValueError, match=r"RandomHorizontalFlip \(2nd\) must come before RandomInvert \(1st\)"):
        ops_sheet(da.batch([image]).then(da.RandomInvert(p=1)), [da.RandomHorizontalFlip()])


# ----------------------------------------------------------------------------------------------------------
# Clips


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Videos:
    return paint_videos(tmp_path_factory.mktemp("clips"), fps=10)


def batch_of(clips: Videos, ops: list[da.Op], frames: int = 4) -> da.ClipBatch:
    reader = da.ClipReader(clips.folder, clips.json, frames=frames)
    loader: da.Loader[da.ClipBatch] = da.Loader(reader, ops, 2, device="cpu", train=False)
    return next(iter(loader))


def test_a_row_for_each_clip_and_a_color_for_each_track(clips: Videos, thin_outlines: None) -> None:
    batch = batch_of(clips, [da.Resize((SIZE, SIZE))])
    sheet = clip_sheet(batch, ["", "a", "b", "c"], size=SIZE)
    drawn = cells(sheet, 2, 4, headings=False)
    colors = class_colors([f"{name} {track}" for name, track in zip("abc", (10, 20, 30), strict=True)])
    for clip, frame, row in np.argwhere(batch.valid.numpy()):
        name = f"{'_abc'[batch.labels[clip, frame, row]]} {batch.track_id[clip, frame, row]}"
        outline = (drawn[clip][frame] == np.array(colors[name])).all(2)
        x1, y1, x2, y2 = batch.boxes[clip, frame, row].round().int().tolist()
        assert outline[y1:y2, x1:x2].any(), f"no outline of {name} in frame {frame} of clip {clip}"


def test_an_animation_has_a_page_for_each_frame(clips: Videos, tmp_path: Path) -> None:
    batch = batch_of(clips, [da.Resize((60, 60)), da.Normalize()], frames=5)
    path = save_animation(batch, tmp_path / "clips.gif", size=60, title="clips")
    with Image.open(path) as picture:
        assert (picture.n_frames, picture.info["duration"], picture.info["loop"]) == (5, 100, 0)
    with pytest.raises(da.InputError, match=r"clips.mp4 must end in \.gif"):
        save_animation(batch, tmp_path / "clips.mp4")


def test_preview_of_clips(clips: Videos, tmp_path: Path) -> None:
    sheet, animation = tmp_path / "sheet.png", tmp_path / "sheet.gif"
    for output in (sheet, animation):
        result = detaug("preview", clips.json, clips.folder, "-o", output, "--frames", 3, "--stride", 2, "--rows", 2)
        assert (result.code, result.out) == (0, f"written: {output}, 2 of 22 clips\n")
    with Image.open(animation) as picture:
        assert picture.n_frames == 3
    with Image.open(sheet) as picture:
        assert picture.width > 3 * SIZE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--frames", 3, "--steps"], "--steps is for images: leave it out, or --frames"),
        (["--frames", 3, "--crowded"], "--crowded is for images"),
        (["--frames", 30], "a clip spans 30 frames, the longest video has 14"),
        ([], "must end in .png, .jpg, .jpeg, .webp, got '.gif'"),
    ],
)
def test_options_that_clips_do_not_have(clips: Videos, tmp_path: Path, options: list[object], message: str) -> None:
    assert message in usage_error("preview", clips.json, clips.folder, "-o", tmp_path / "a.gif", *options)


def test_a_notebook_shows_tracks(clips: Videos) -> None:
    batch = batch_of(clips, [da.Resize((60, 60))])
    assert Image.open(io.BytesIO(batch._repr_png_())).width > 4 * 200
