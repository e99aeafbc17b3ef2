"""Drawing, tested on the pixels: where a box is painted, that colors differ, that text is text."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFont

from detaug.drawing import Tile, class_color, class_colors, draw_boxes, hatch, labels, make_sheet, page, to_image
from detaug.drawing import text as lettering
from detaug.drawing.boxes import dashes
from detaug.drawing.colors import PALETTE
from detaug.drawing.images import to_images
from detaug.drawing.labels import overlaps

VOC = [
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
]  # fmt: skip


def canvas(width: int = 120, height: int = 80, color: tuple[int, int, int] = (90, 90, 90)) -> Image.Image:
    return Image.new("RGB", (width, height), color)


def painted(before: Image.Image, after: Image.Image) -> tuple[int, int, int, int] | None:
    """Return the box, XYXY half-open, of the pixels that differ."""
    changed = (np.asarray(before) != np.asarray(after)).any(2)
    return Image.fromarray(changed).getbbox()


# ---------------------------------------------------------------- boxes


@pytest.mark.parametrize("difficult", [False, True])
@pytest.mark.parametrize(
    ("box", "pixels"),
    [
        ((10, 20, 60, 70), (10, 20, 60, 70)),
        ((0, 0, 120, 80), (0, 0, 120, 80)),
        ((10.4, 20.4, 60.4, 70.4), (10, 20, 60, 70)),
        ((60, 70, 10, 20), (10, 20, 60, 70)),
        ((10, 20, 11, 21), (10, 20, 11, 21)),
        ((10, 20, 10, 20), (10, 20, 11, 21)),
        ((-30, 20, 60, 70), (0, 20, 60, 70)),
        ((-30, -30, 500, 70), (0, 68, 120, 70)),
    ],
)
def test_the_outermost_painted_pixels_are_the_box(box: Any, pixels: Any, difficult: bool) -> None:
    image = canvas()
    after = np.asarray(draw_boxes(image, [box], [""], difficult=[difficult]))
    in_color = Image.fromarray((after == class_color("")).all(2))
    left, top, right, bottom = in_color.getbbox() or (0, 0, 0, 0)
    assert (left, right, bottom) == (pixels[0], pixels[2], pixels[3])
    assert top == pixels[1] or box[1] < 0


def test_an_outline_has_the_colour_of_its_class_all_around() -> None:
    after = np.asarray(draw_boxes(canvas(), [(10, 20, 60, 70)], [""]))
    ring = [*after[20, 10:60], *after[69, 10:60], *after[20:70, 10], *after[20:70, 59]]
    assert {tuple(pixel) for pixel in ring} == {class_color("")}
    assert (after[30:60, 20:50] == 90).all()


def test_a_difficult_outline_has_gaps_and_its_corners() -> None:
    after = np.asarray(draw_boxes(canvas(), [(10, 20, 110, 70)], [""], difficult=[True]))
    top = (after[20] == class_color("")).all(1)
    assert (after[20, 10:110][~top[10:110]] < 60).all()
    assert top[10]
    assert top[109]
    assert 0.4 < top[10:110].mean() < 0.8


def contrast(one: Any, other: Any) -> float:
    """WCAG's, 1 to 21."""
    low, high = sorted(linear(color) @ (0.2126, 0.7152, 0.0722) for color in (one, other))
    return float((high + 0.05) / (low + 0.05))


@pytest.mark.parametrize("difficult", [False, True])
@pytest.mark.parametrize(
    "box", [(10, 20, 60, 70), (10, 20, 11, 21), (10, 20, 13, 70), (0, 0, 120, 80), (119, 79, 120, 80)]
)
@pytest.mark.parametrize("background", [(0, 0, 0), (255, 255, 255), class_color(""), (255, 0, 0), (0, 0, 255)])
def test_an_outline_is_seen_on_any_background(background: Any, box: Any, difficult: bool) -> None:
    """Even on its own color: a box of one pixel, one at the border, and both parts of a dashed one."""
    before = canvas(color=background)
    after = np.asarray(draw_boxes(before, [box], [""], difficult=[difficult]))
    left, top, right, bottom = painted(before, Image.fromarray(after)) or (0, 0, 0, 0)
    assert min(right - left, bottom - top) >= (2 if any(background) else 1)
    most = max(contrast(color, background) for color in np.unique(after.reshape(-1, 3), axis=0))
    assert most > 2


def test_labels_do_not_hide_the_boxes_of_a_crowd() -> None:
    """60 small boxes side by side: each outline is still there, and each of the three names is said."""
    corners = np.array([(30 + 22 * x, 40 + 20 * y) for x in range(10) for y in range(6)])
    boxes = np.concatenate([corners, corners + np.array([14, 12])], 1)
    names = [("person", "motorbike", "sheep")[at % 3] for at in range(60)]
    after = np.asarray(draw_boxes(canvas(300, 200), boxes, names))
    for (left, top, right, bottom), name in zip(boxes, names, strict=True):
        inside = after[top:bottom, left:right]
        assert ((inside == class_color(name)).all(2).sum() + 0.0) / (2 * (14 + 12) - 4) > 0.5
        assert (inside == 90).all(2).any()


def test_each_class_of_a_crowd_is_named_and_far_boxes_all_are(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = [(100 + 9 * at, 100, 106 + 9 * at, 106) for at in range(12)]
    assert len(plates(monkeypatch, canvas(300, 260), [*crowd, (20, 200, 90, 240)], ["mug"] * 12 + ["cup"])) < 13
    apart = [(20 + 70 * at, 100, 60 + 70 * at, 140) for at in range(4)]
    assert len(plates(monkeypatch, canvas(300, 260), apart, ["mug"] * 4)) == 4


def test_the_image_given_stays_as_it_was() -> None:
    image = canvas()
    draw_boxes(image, [(10, 20, 60, 70)], ["cat"])
    hatch(image, [(10, 20, 60, 70)])
    assert painted(canvas(), image) is None


def test_boxes_grow_with_the_image() -> None:
    after = draw_boxes(canvas(30, 20), [(5, 5, 25, 15)], [""], size=(200, 300))
    assert after.size == (300, 200)
    assert painted(canvas(300, 200), after) == (50, 50, 250, 150)


@pytest.mark.parametrize("box", [(200, 10, 300, 20), (-20, 10, 0, 20), (np.nan, 0, 9, 9), (0, 0, np.inf, 9)])
def test_a_box_outside_or_not_finite_is_not_drawn(box: Any) -> None:
    assert painted(canvas(), draw_boxes(canvas(), [box], ["cat"])) is None


coordinate = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-50, 150) | st.integers(-20, 140)
boxes_of_any_kind = st.lists(st.tuples(*[coordinate] * 4), max_size=8)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(boxes_of_any_kind, st.integers(1, 120), st.integers(1, 120), st.sampled_from(["", "a", "person" * 9]))
def test_any_boxes_on_any_image(boxes: Any, width: int, height: int, name: str) -> None:
    flags = [k % 2 == 0 for k in range(len(boxes))]
    after = draw_boxes(canvas(width, height), boxes, [name] * len(boxes), difficult=flags)
    assert after.size == (width, height)


@pytest.mark.parametrize(
    ("boxes", "names", "message"),
    [
        ([(1, 2, 3, 4)], [], "equal lengths, got 1, 0 and 1"),
        ([(1, 2, 3)], ["a"], r"\(M, 4\) XYXY pixels, got shape \(1, 3\)"),
        ((1, 2, 3, 4), ["a"], r"got shape \(4,\)"),
    ],
)
def test_wrong_boxes_are_named(boxes: Any, names: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_boxes(canvas(), boxes, names)


# ---------------------------------------------------------------- labels


def plates(monkeypatch: pytest.MonkeyPatch, image: Image.Image, boxes: Any, names: Any) -> list[Any]:
    """Return where the plates of the labels were painted, XYXY."""
    boxes_of_plates: list[Any] = []
    monkeypatch.setattr(labels, "paint_plate", lambda draw, box, plate, color: boxes_of_plates.append(box))
    draw_boxes(image, boxes, names)
    return boxes_of_plates


@pytest.mark.parametrize("width", [12, 32, 60, 500])
@pytest.mark.parametrize("name", ["ox", "person", "a class name that is far longer than the image is wide"])
@pytest.mark.parametrize("box", [(0, 0, 1, 1), (0.9, 0, 1, 0.1), (0.9, 0.9, 1, 1), (0, 0.9, 0.1, 1)])
def test_a_label_never_leaves_the_image(
    monkeypatch: pytest.MonkeyPatch, width: int, name: str, box: tuple[float, ...]
) -> None:
    spots = plates(monkeypatch, canvas(width, width), [np.array(box) * width], [name])
    assert len(spots) == 1 or width == 12
    assert all(0 <= s[0] < s[2] <= width and 0 <= s[1] < s[3] <= width for s in spots)


def test_the_letters_stay_on_their_plate() -> None:
    """Pure black is in the text only: black under the plate of another color would be letters beside it."""
    after = np.asarray(draw_boxes(canvas(200, 80, (255, 255, 255)), [(40, 40, 160, 75)], ["gjÅ_Qy|"]))
    dark = Image.fromarray(after.sum(2) < 60).getbbox()
    plate = Image.fromarray((after == class_color("gjÅ_Qy|")).all(2)).crop((0, 0, 200, 40)).getbbox()
    assert dark is not None
    assert plate is not None
    assert plate[0] < dark[0] < dark[2] < plate[2]
    assert plate[1] <= dark[1] < dark[3] <= 40
    assert dark[3] - dark[1] > 0.7 * (40 - plate[1])


def test_labels_make_room_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = [(100, 100, 180, 160), (104, 104, 184, 164), (98, 96, 178, 158)]
    spots = plates(monkeypatch, canvas(300, 260), boxes, ["mug", "cup", "glass"])
    hidden = [overlaps(a[None], b[None])[0, 0] for a, b in itertools.combinations(spots, 2)]
    assert hidden == [0, 0, 0]


def test_a_tiny_image_is_not_filled_with_lines() -> None:
    after = np.asarray(draw_boxes(canvas(32, 32), [(4, 4, 28, 28)], [""]))
    assert (after[6:26, 6:26] == 90).all()


# ---------------------------------------------------------------- colors


def linear(color: Any) -> Any:
    color = np.asarray(color) / 255
    return np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)


def oklab(light: Any) -> Any:
    """Björn Ottosson, A perceptual color space for image processing (2020)."""
    to_cones = np.array(
        [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
         [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip
    to_lab = np.array(
        [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
         [0.0259040371, 0.7827717662, -0.8086757660]])  # fmt: skip
    return np.cbrt(light @ to_cones.T) @ to_lab.T


# Machado, Oliveira, Fernandes (2009), severity 1, on linear RGB
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


@pytest.mark.parametrize("sight", SIGHT)
def test_every_two_colours_can_be_told_apart(sight: str) -> None:
    seen = oklab(np.clip(linear(PALETTE) @ np.array(SIGHT[sight]).T, 0, 1))
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)]
    assert min(distances) > 0.05


@pytest.mark.parametrize("color", PALETTE)
def test_black_text_is_legible_on_every_colour(color: Any) -> None:
    luminance = linear(color) @ (0.2126, 0.7152, 0.0722)
    assert (luminance + 0.05) / 0.05 >= 4.5


def test_the_classes_of_voc_and_of_the_demo_have_colours_of_their_own() -> None:
    for names in (VOC, ["ball", "car", "fish", "house", "mug", "tree"]):
        assert len({class_color(name) for name in names}) == len(names)


def test_classes_of_one_sheet_share_no_colour_while_colours_are_left() -> None:
    names = ["cat", *(f"class {number}" for number in range(len(PALETTE) - 1))]
    assert len({class_color(name) for name in names}) < len(names)
    assert len(set(class_colors(names).values())) == len(PALETTE)
    assert class_colors(reversed(names)) == class_colors(names)
    assert class_colors(["cat"]) == {"cat": class_color("cat")}
    assert set(class_colors([*names, "more", "than", "there are"])) == {*names, "more", "than", "there are"}
    alike = next(list(pair) for pair in itertools.combinations(names, 2) if len(set(map(class_color, pair))) == 1)
    boxes = [(5, 5, 30, 30), (50, 30, 90, 60)]
    drawn = np.asarray(draw_boxes(canvas(), boxes, alike, labels=["", ""]))
    assert {tuple(drawn[5, 10]), tuple(drawn[30, 60])} == set(class_colors(alike).values())
    apart = [Tile(canvas(400, 300), [(9, 9, 90, 90)], [name]) for name in alike]  # in two images of one sheet
    pixels = np.asarray(make_sheet([apart], cell=(300, 400))).reshape(-1, 3)
    assert all((pixels == color).all(1).sum() > 300 for color in class_colors(alike).values())


def test_a_colour_belongs_to_the_name_in_every_process() -> None:
    code = "from detaug.drawing import class_color as c; print([c(n) for n in ('dog', '猫', '\\ud800')])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert answer.strip() == str([class_color(name) for name in ("dog", "猫", "\ud800")])


# ---------------------------------------------------------------- text


def glyph(font: ImageFont.FreeTypeFont, letter: str) -> bytes:
    mask = font.font_variant(layout_engine=ImageFont.Layout.BASIC).getmask(letter)
    return bytes(mask) + bytes(mask.size)


NAMES = [
    "cat",
    "naïve café",
    "собака",
    "猫",
    "ねこ",
    "고양이",
    "قطة",
    "חתול",
    "γάτα",
    "แมว",
    "बिल्ली",
    "猫 cat قطة",
    "🐈",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fonts", ["of this machine", "none"])
def test_no_letter_is_drawn_as_tofu(monkeypatch: pytest.MonkeyPatch, name: str, fonts: str) -> None:
    if fonts == "none":
        monkeypatch.setattr(lettering, "fontconfig", lambda text: iter(()))
        monkeypatch.setattr(lettering, "FONT_PATHS", ())
    lettering.find_font.cache_clear()
    text, font = lettering.typeset(name, 20)
    lettering.find_font.cache_clear()
    tofu = glyph(font, lettering.NONCHARACTER)
    assert all(glyph(font, letter) != tofu for letter in text if not letter.isspace())
    for letter in set(name) - set(text):
        assert f"U+{ord(letter):04X}" in text


def test_without_a_font_for_it_a_letter_is_its_code_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lettering, "fontconfig", lambda text: iter([lettering.Face("/no/such/font.ttf", 0)]))
    monkeypatch.setattr(lettering, "FONT_PATHS", ())
    lettering.find_font.cache_clear()
    assert lettering.typeset("a 猫狗", 20)[0] == "a U+732B U+72D7"
    lettering.find_font.cache_clear()


def test_a_font_with_the_letters_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        ImageFont.truetype("DejaVuSans.ttf", 12)
    except OSError:
        pytest.skip("DejaVu Sans is not installed: no font here is known to have Cyrillic letters")
    assert lettering.typeset("собака", 20)[0] == "собака"


def test_fontconfig_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert list(lettering.fontconfig("猫")) == []


def test_control_characters_are_spelled_out() -> None:
    assert lettering.typeset("a\nb\0\ud800", 20)[0] == "a U+000A b U+0000 U+D800"


def test_another_name_is_another_picture() -> None:
    pictures = {draw_boxes(canvas(), [(5, 30, 90, 70)], [name]).tobytes() for name in NAMES}
    assert len(pictures) == len(NAMES)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)  # fontconfig, a process, is asked for each
@given(st.text(max_size=12))
def test_any_name_is_drawn(name: str) -> None:
    assert draw_boxes(canvas(), [(5, 30, 90, 70)], [name]).size == (120, 80)


# ---------------------------------------------------------------- hatching, pixels


def test_hatching_is_dark_and_light_inside_and_nothing_outside() -> None:
    after = np.asarray(hatch(canvas(), [(20, 10, 60, 50)]))
    assert painted(canvas(), Image.fromarray(after)) == (20, 10, 60, 50)
    region = after[10:50, 20:60]
    assert (region < 90).any()
    assert (region > 90).any()


@pytest.mark.parametrize("region", [(120, 0, 150, 80), (-9, -9, 0, 0), (np.nan, 0, 9, 9)])
def test_a_region_outside_is_not_hatched(region: Any) -> None:
    assert painted(canvas(), hatch(canvas(), [region])) is None


def test_to_image_takes_each_layout_and_type() -> None:
    pixels = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    same = [pixels, pixels.transpose(2, 0, 1), pixels / 255, pixels.astype(np.float32) / 255]
    assert all((np.asarray(to_image(array)) == pixels).all() for array in same)
    assert (np.asarray(to_image(pixels.astype(np.float32), white=255)) == pixels).all()
    assert (np.asarray(to_image(pixels[..., 0])) == pixels[..., :1]).all()
    assert (np.asarray(to_image(pixels[None, ..., 0])) == pixels[..., :1]).all()
    assert to_image(Image.new("L", (7, 5))).mode == "RGB"


def test_to_image_undoes_normalize() -> None:
    pixels = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    normal = ((pixels / 255 - mean) / std).transpose(2, 0, 1)
    assert (np.asarray(to_image(normal, mean=mean, std=std)) == pixels).all()


@pytest.mark.parametrize(
    ("kind", "values", "shown", "note"),
    [
        ("uint8", [(0, 200), (3, 4)], [(0, 200), (3, 4)], ""),
        ("float32", [(0, 200), (3, 4)], [(0, 200), (3, 4)], ""),
        ("float32", [(0, 1), (0.2, 0.4)], [(0, 255), (51, 102)], ""),
        ("float32", [(0, 2.64), (0.66, 1.32)], [(0, 255), (64, 128)], "normalized, so in false colors"),
        ("float32", [(-2, 2), (-1, 0)], [(0, 255), (64, 128)], "normalized, so in false colors"),
    ],
)
def test_colours_of_a_batch_are_told_from_all_its_images(kind: str, values: Any, shown: Any, note: str) -> None:
    arrays = [np.stack([np.full((4, 5), value, kind) for value in (low, high, high)]) for low, high in values]
    pictures, said = to_images(arrays)
    assert said == note
    for picture, (low, high) in zip(pictures, shown, strict=True):
        assert np.abs(np.asarray(picture, int) - (low, high, high)).max() <= 1


def test_to_image_takes_tensors() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.rand(3, 5, 7, requires_grad=True)
    expected = (tensor.detach().permute(1, 2, 0).numpy() * 255).round()
    assert (np.asarray(to_image(tensor)) == expected).all()
    assert to_image(tensor.bfloat16()).size == (7, 5)
    assert draw_boxes(tensor, torch.tensor([[1.0, 1, 4, 4]]), ["a"]).size == (7, 5)


def test_to_image_reads_a_shape_that_fits_both_as_it_is_told() -> None:
    pixels = np.arange(3 * 5 * 3, dtype=np.uint8).reshape(3, 5, 3)
    assert to_image(pixels).size == (3, 5)
    assert to_image(pixels, layout="HWC").size == (5, 3)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (np.zeros((2, 3, 8, 8)), r"one image.*got shape \(2, 3, 8, 8\).*batch.images\[0\]"),
        (np.zeros((8, 8, 4), np.uint8), r"got shape \(8, 8, 4\)"),
        (np.full((8, 8, 3), 200.0), r"0..1 .*got 200..200.*white=255"),
        (np.full((8, 8, 3), -2.1), r"mean and std of Normalize"),
    ],
)
def test_to_image_says_what_it_cannot_show(pixels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_image(pixels)


# ---------------------------------------------------------------- sheets


def test_a_sheet_holds_every_image_whole_and_apart() -> None:
    colors = [(200, 0, 0), (0, 200, 0), (0, 0, 200), (200, 200, 0)]
    sizes = [(60, 40), (40, 60), (300, 200), (8, 8)]
    first, second, third, fourth = (Image.new("RGB", s, c) for s, c in zip(sizes, colors, strict=True))
    pixels = np.asarray(make_sheet([[first, second], [Tile(third, caption="three")], [fourth]], cell=(120, 120)))
    for color, size in zip(colors, [(120, 80), (80, 120), (120, 80), (120, 120)], strict=True):
        mask = (pixels == color).all(2)
        left, top, right, bottom = Image.fromarray(mask).getbbox() or (0, 0, 0, 0)
        assert (right - left, bottom - top) == size
        assert mask.sum() == size[0] * size[1]
        assert min(left, top) > 8
        assert right < pixels.shape[1] - 8
        assert bottom < pixels.shape[0] - 8


def test_the_boxes_of_a_tile_are_drawn_where_they_lie() -> None:
    tile = Tile(canvas(60, 40), [(30, 20, 60, 40)], [""], [False], hatched=[(0, 0, 30, 40)])
    pixels = np.asarray(make_sheet([[tile]], cell=(80, 120)))
    outline = Image.fromarray((pixels == class_color("")).all(2)).getbbox()
    left, top = page.MARGIN, page.MARGIN
    assert outline == (left + 60, top + 40, left + 120, top + 80)
    plain, hatched = pixels[top : top + 38, left + 62 : left + 120], pixels[top : top + 80, left : left + 60]
    assert (plain == 90).all()
    assert (hatched != 90).all()


def test_a_heading_is_set_smaller_before_it_is_cut() -> None:
    images = [[canvas()] * 2]
    one, other = (
        make_sheet(images, columns=["source", f"RandomPhotometricDistor{end}"], cell=(180, 180)) for end in "tx"
    )
    assert one.tobytes() != other.tobytes()


def test_title_headings_and_captions_take_their_own_room() -> None:
    heights = [
        make_sheet([[Tile(canvas(), caption=caption)]], title=title, columns=columns).height
        for caption, title, columns in [("", "", ()), ("x", "", ()), ("x", "x", ()), ("x", "x", ("x",))]
    ]
    assert heights == sorted(set(heights))


def texts(monkeypatch: pytest.MonkeyPatch, tiles: list[Tile], **options: Any) -> list[str]:
    """Return the labels at the boxes of a sheet, then "legend:" and the names of its legend."""
    found: list[str] = []
    entries: list[str] = []
    monkeypatch.setattr(labels, "paint_plate", lambda draw, box, plate, color: found.append(plate.text))
    monkeypatch.setattr(page, "_draw_entry", lambda draw, entry, *_: entries.append(entry.name))
    make_sheet([tiles], **options)
    return [*sorted(found), "legend:", *entries]


CROWD = [(60 + 22 * x, 40 + 26 * y, 76 + 22 * x, 60 + 26 * y) for x in range(8) for y in range(6)]


def test_in_small_and_crowded_pictures_a_legend_names_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (["white-pawn", "black-pawn", "king"] * 16)[: len(CROWD)]
    crowded = Tile(canvas(300, 260), CROWD, names)
    roomy = Tile(canvas(300, 260), [(20, 60, 60, 90), (180, 150, 240, 200)], names[:2])
    legend = ["legend:", "black-pawn", "king", "white-pawn"]
    assert texts(monkeypatch, [crowded]) == legend
    assert texts(monkeypatch, [roomy]) == ["black-pawn", "white-pawn", "legend:"]
    assert texts(monkeypatch, [roomy, crowded]) == ["black-pawn", "white-pawn", *legend]
    assert texts(monkeypatch, [roomy], cell=(100, 100)) == ["legend:", "black-pawn", "white-pawn"]
    queen = Tile(canvas(300, 260), [[10, 10, 100, 100]], ["queen"])  # in the legend too, though it has a label
    assert texts(monkeypatch, [queen, crowded]) == ["queen", *legend[:3], "queen", legend[3]]
    many = [f"class {number}" for number in range(len(CROWD))]  # too many for the colors
    assert texts(monkeypatch, [Tile(canvas(300, 260), CROWD, many)])[-1] == "legend:"


def test_predictions_carry_their_score(monkeypatch: pytest.MonkeyPatch) -> None:
    roomy = Tile(canvas(300, 260), CROWD[:1], ["cat"], scores=[0.876])
    assert texts(monkeypatch, [roomy]) == ["cat 0.88", "legend:"]
    assert texts(monkeypatch, [roomy], cell=(100, 100)) == ["0.88", "legend:", "cat"]


def test_the_colours_of_a_legend_are_those_of_the_boxes() -> None:
    tile = Tile(canvas(80, 60), [(10, 10, 70, 50)], ["cat"])
    pixels = np.asarray(make_sheet([[tile]], title="title", cell=(60, 80)))
    rows = np.flatnonzero((pixels == class_color("cat")).all(2).any(1))
    assert np.count_nonzero(np.diff(rows) > 1) == 1  # the legend, then the box
    long = ["a class name that is longer than the image is wide", "b"]
    make_sheet([[Tile(canvas(40, 40), [(0, 0, 9, 9)] * 2, long)]], cell=(40, 40))


@pytest.mark.parametrize("text", ["a" * 400, "猫" * 400])
def test_text_does_not_run_into_the_next_column(text: str) -> None:
    tiles = [Tile(canvas(40, 40), caption=text), Tile(canvas(40, 40))]
    pixels = np.asarray(make_sheet([tiles], title=text, columns=[text], cell=(100, 100)))
    gutter = pixels[:, page.MARGIN + 101 : page.MARGIN + 100 + 2 * page.GAP]
    below_title = page.MARGIN + page.strip(True, page.TITLE)
    assert (gutter[below_title:] == 255).all()
    assert (pixels[:, -page.MARGIN + 1 :] == 255).all()


def test_a_long_caption_is_wrapped_and_every_line_has_its_row() -> None:
    """Ink below the image: as many lines, with paper between, as the caption has; at most six."""
    for caption, lines in [("one", 1), ("one\ntwo", 2), ("a caption of words " * 2, 2), ("many words " * 60, 6)]:
        pixels = np.asarray(make_sheet([[Tile(canvas(200, 40), caption=caption)]], cell=(40, 200)))
        inked = (pixels[page.MARGIN + 40 :] < 200).any((1, 2))
        assert np.count_nonzero(np.diff(inked.astype(int)) == 1) == lines
        assert not inked[-8:].any()


@pytest.mark.parametrize("rows", [[], [[]], [[], []]])
def test_a_sheet_of_nothing_is_an_error(rows: Any) -> None:
    with pytest.raises(ValueError, match="at least one image, got none"):
        make_sheet(rows)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), max_size=3), max_size=3))
def test_any_sizes_make_a_sheet(sizes: list[list[tuple[int, int]]]) -> None:
    if any(sizes):
        rows = [[Tile(Image.new("RGB", size), [(0, 0, 1, 1)], ["a"]) for size in row] for row in sizes]
        assert make_sheet(rows, cell=(40, 40)).height > 2 * page.MARGIN


def test_drawing_needs_neither_torch_nor_dali() -> None:
    code = "import sys, detaug.drawing, detaug.demo.shapes; print({'torch', 'nvidia.dali'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert answer.strip() == "set()"


def test_dashes_begin_and_end_at_the_corners() -> None:
    for length in range(1, 90):
        spans = dashes(0, length, 2, True)
        assert spans[0][0] == 0
        assert spans[-1][1] == length
        assert all(a < b for a, b in spans)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(spans))


def test_boxes_grow_along_both_axes() -> None:
    """As the same boxes on an image that has that size."""
    boxes, size = np.array([[8.0, 8, 40, 30], [2, 20, 12, 44]]), (144, 128)
    grown = draw_boxes(Image.new("RGB", (64, 48)), boxes, ["cat", "dog"], size=size)
    expected = draw_boxes(Image.new("RGB", (128, 144)), boxes * (2, 3, 2, 3), ["cat", "dog"])
    assert np.array_equal(np.asarray(grown), np.asarray(expected))
