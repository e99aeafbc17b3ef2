"""`detaug check --near`, `split --near`: variants of drawn images are found, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from command import detaug
from PIL import Image, ImageEnhance
from test_html_report import Page

import detaug as da
from detaug.check.near import groups_of
from detaug.converters import check_coco, split_coco
from detaug.demo.shapes import make_voc
from detaug.files.image_file import ImageFile
from detaug.files.near_duplicates import (
    NearPair,
    _candidates,
    largest_difference,
    near_pairs,
    read_thumbnails,
)

DRAWN = 8


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> list[Image.Image]:
    root = make_voc(tmp_path_factory.mktemp("drawn"), DRAWN)
    return [Image.open(path).convert("RGB") for path in sorted(root.glob("JPEGImages/*"))]


def cropped(image: Image.Image, left: float, top: float, right: float, bottom: float) -> Image.Image:
    width, height = image.size
    return image.crop(
        (round(left * width), round(top * height), round((1 - right) * width), round((1 - bottom) * height))
    )


def mirrored(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


VARIANTS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "the same": lambda image: image,
    "half the size": lambda image: image.resize((image.width // 2, image.height // 2)),
    "stretched": lambda image: image.resize((300, 300)),
    "cropped at the left and above": lambda image: cropped(image, 0.05, 0.04, 0, 0),
    "cropped at the right and below": lambda image: cropped(image, 0, 0.02, 0.05, 0.05),
    "flipped": mirrored,
    "darker": lambda image: ImageEnhance.Brightness(image).enhance(0.7),
    "brighter, cut off": lambda image: ImageEnhance.Brightness(image).enhance(1.2),
    "less contrast": lambda image: ImageEnhance.Contrast(image).enhance(0.6),
    "flipped, cropped, darker": lambda image: ImageEnhance.Brightness(
        mirrored(cropped(image, 0.03, 0.03, 0.02, 0))
    ).enhance(0.8),
}


def write(folder: Path, images: Sequence[tuple[str, Image.Image]], name: str = "all.json") -> Path:
    """Write images and a JSON file of them, each with an object."""
    rows, boxes = [], []
    for number, (file_name, image) in enumerate(images, 1):
        (folder / file_name).parent.mkdir(parents=True, exist_ok=True)
        image.save(folder / file_name)
        rows.append({"id": number, "file_name": file_name, "width": image.width, "height": image.height})
        boxes.append({"id": number, "image_id": number, "category_id": 1, "bbox": [1, 1, 20, 20], "iscrowd": 0})
    document = {"images": rows, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}]}
    (folder / name).write_text(json.dumps(document))
    return folder / name


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_found_and_nothing_else(drawn: list[Image.Image], tmp_path: Path, name: str) -> None:
    images = [(f"{number}.png", image) for number, image in enumerate(drawn)]
    images += [(f"variant {number}.jpg", VARIANTS[name](image)) for number, image in enumerate(drawn)]
    summary = check_coco(write(tmp_path, images), tmp_path, near=True)
    found = {row.entry: row for row in summary.findings if row.kind.startswith("image-near")}
    assert [*found] == [f"images[{DRAWN + number}]" for number in range(DRAWN)]
    for number, row in enumerate(found.values()):
        flipped = ", flipped" * ("flipped" in name)
        assert row.message == f"like images[{number}], '{number}.png'{flipped}"
        assert row.severity == "warning"


def test_without_the_option_no_pixels_are_compared(drawn: list[Image.Image], tmp_path: Path) -> None:
    path = write(tmp_path, [("a.png", drawn[0]), ("b.jpg", drawn[0])])
    assert check_coco(path, tmp_path).kind_counts == {}


def test_the_photo_as_displayed_counts(drawn: list[Image.Image], tmp_path: Path) -> None:
    path = write(tmp_path, [("a.png", drawn[0]), ("b.png", drawn[1])])
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated for display
    drawn[0].transpose(Image.Transpose.ROTATE_90).save(tmp_path / "c.jpg", exif=exif)
    thumbnails, faults = read_thumbnails([ImageFile(str(tmp_path / name)) for name in ("a.png", "b.png", "c.jpg")])
    assert not faults
    assert near_pairs(thumbnails) == [NearPair(0, 2, False)]
    assert path.exists()


def test_one_piece_less_is_another_image(drawn: list[Image.Image]) -> None:
    """A part of an eighth of the sides, of another brightness, keeps two images apart."""
    thumbnail = np.asarray(drawn[0].convert("L").resize((32, 32), Image.Resampling.BOX), float)
    for row, column in ((0, 0), (12, 20), (28, 28)):
        other = thumbnail.copy()
        part = other[row : row + 4, column : column + 4]
        part += 0.5 * thumbnail.std() * (1 if part.mean() < 120 else -1)
        assert 0.22 < largest_difference(thumbnail[None], other[None])[0] < 0.6
    assert largest_difference(thumbnail[None], thumbnail[None])[0] < 1e-6


def test_images_of_one_color_are_not_compared(tmp_path: Path) -> None:
    images = [(f"{value}.png", Image.new("RGB", (64, 48), (value, value, value))) for value in (0, 90, 91, 255)]
    faint = np.linspace(100, 106, 64 * 48).reshape(48, 64).astype(np.uint8)
    images += [(f"faint {number}.png", Image.fromarray(faint + number).convert("RGB")) for number in range(2)]
    assert check_coco(write(tmp_path, images), tmp_path, near=True).kind_counts == {}


def test_same_bytes_are_named_once(drawn: list[Image.Image], tmp_path: Path) -> None:
    path = write(tmp_path, [("a.png", drawn[0]), ("b.png", drawn[0]), ("c.jpg", drawn[0])])
    summary = check_coco(path, tmp_path, near=True)
    assert [(row.kind, row.entry, row.like) for row in summary.findings] == [
        ("image-identical", "images[1]", ""),
        ("image-near", "images[2]", "images[0]"),
    ]


def test_frames_of_a_video_are_not_named(drawn: list[Image.Image], tmp_path: Path) -> None:
    path = write(tmp_path, [("a.png", drawn[0]), ("b.jpg", drawn[0]), ("c.jpg", mirrored(drawn[0]))])
    document = json.loads(path.read_bytes())
    document["videos"] = [{"id": 1, "name": "v"}, {"id": 2, "name": "w"}]
    for number, row in enumerate(document["images"]):
        row |= {"video_id": 1 + number // 2, "frame_id": number}
    path.write_text(json.dumps(document))
    near = [row for row in check_coco(path, tmp_path, near=True).findings if row.kind == "image-near"]
    assert [(row.entry, row.message) for row in near] == [
        ("images[1]", "like images[2], 'c.jpg', flipped"),  # and not like images[0], of its video
        ("images[2]", "like images[0], 'a.png', flipped"),
    ]


def test_what_does_not_decode_is_named(drawn: list[Image.Image], tmp_path: Path) -> None:
    path = write(tmp_path, [("a.png", drawn[0]), ("b.png", drawn[1])])
    content = bytearray((tmp_path / "b.png").read_bytes())
    content[len(content) // 2 : len(content) // 2 + 400] = bytes(400)
    (tmp_path / "b.png").write_bytes(content)
    counts = check_coco(path, tmp_path, near=True).kind_counts
    assert counts["image-not-compared"] == 1


def test_another_split(drawn: list[Image.Image], tmp_path: Path) -> None:
    train = write(tmp_path / "train", [("a.png", drawn[0]), ("b.png", drawn[1]), ("c.png", drawn[2])])
    val = write(tmp_path / "val", [("x.png", drawn[3]), ("y.jpg", mirrored(drawn[1])), ("z.png", drawn[2])])
    summary = check_coco(train, tmp_path / "train", against=[val], near=True)
    found = [(row.kind, row.entry, row.message) for row in summary.findings if row.entry.startswith("images")]
    assert found == [
        ("image-leaked", "images[2]", f"same bytes as 'z.png' of {val}"),
        ("image-near-leaked", "images[1]", f"like 'y.jpg' of {val}, flipped"),
    ]


def test_split_keeps_them_together(drawn: list[Image.Image], tmp_path: Path) -> None:
    images = [(f"a{number}.jpg", mirrored(image)) for number, image in enumerate(drawn)]
    images += [(f"b{number}.jpg", image) for number, image in enumerate(drawn)]
    path = write(tmp_path, images)
    for seed in range(4):
        outputs = [tmp_path / f"{name}{seed}.json" for name in ("train", "val")]
        split_coco(path, outputs, (50, 50), images=tmp_path, near=True, seed=seed)
        parts = [{row["file_name"][1:] for row in json.loads(out.read_bytes())["images"]} for out in outputs]
        assert not parts[0] & parts[1]
        assert min(map(len, parts)) > 0
    with pytest.raises(da.InputError, match="near compares the pixels of the images; give images"):
        split_coco(path, [tmp_path / "a.json", tmp_path / "b.json"], (50, 50), near=True)


def test_groups_follow_each_other() -> None:
    rows = [(5, 7, True), (0, 9, False), (2, 5, False), (0, 4, True), (4, 9, True)]
    pairs = [NearPair(*row) for row in rows]
    assert groups_of(pairs, 10) == {4: pairs[3], 9: pairs[1], 5: pairs[2], 7: pairs[0]}
    assert [*groups_of(pairs, 10)] == [4, 9, 5, 7]


def test_all_pairs_are_compared_over_blocks_of_rows() -> None:
    """Planted pairs among random thumbnails, at the borders of the blocks too, and in both directions of a flip."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (700, 4, 4)).astype(np.uint8)
    thumbnails = coarse.repeat(8, 1).repeat(8, 2)
    planted = {
        (0, 699): False,
        (255, 511): True,
        (255, 256): True,
        (256, 511): False,
        (10, 11): True,
        (512, 600): False,
    }
    for (first, second), flipped in reversed(planted.items()):
        thumbnails[second] = thumbnails[first][:, ::-1] if flipped else thumbnails[first]
    assert {(a, b): flipped for a, b, flipped in near_pairs(thumbnails)} == planted
    others = np.stack([thumbnails[600], thumbnails[10][:, ::-1]])
    assert near_pairs(thumbnails, others) == [(0, 512, False), (0, 600, False), (1, 10, True), (1, 11, False)]


def test_of_many_that_look_alike_the_nearest_are_aligned() -> None:
    rng = np.random.default_rng(1)
    base = rng.integers(60, 190, (4, 4)).repeat(8, 0).repeat(8, 1)
    thumbnails = (base + rng.normal(0, 2, (60, 32, 32))).clip(0, 255).astype(np.uint8)
    pairs = list(_candidates(thumbnails, None))
    counts = np.bincount([first for first, _, _ in pairs], minlength=60)
    assert counts[0] == 20
    assert all(first < second for first, second, _ in pairs)
    assert len(groups_of(near_pairs(thumbnails), len(thumbnails))) == 59


def test_several_processes_give_the_same(drawn: list[Image.Image], tmp_path: Path) -> None:
    write(tmp_path, [(f"{number}.png", image) for number, image in enumerate(drawn)])
    (tmp_path / "bad.png").write_bytes(b"no image")
    files = [ImageFile(str(path)) for path in sorted(tmp_path.glob("*.png"))] * 3
    one, two = (read_thumbnails(files, jobs=jobs) for jobs in (1, 2))
    assert (one[0] == two[0]).all()
    assert one[1] == two[1]
    assert [*one[1]] == [8, 17, 26]


def test_the_commands_and_the_page(drawn: list[Image.Image], tmp_path: Path) -> None:
    path = write(tmp_path, [("a.png", drawn[0]), ("b.jpg", mirrored(drawn[0])), ("c.png", drawn[1])])
    result = detaug("check", str(path), str(tmp_path), "--near", "--html", str(tmp_path / "page.html"))
    assert result.code == 0
    assert "image-near" in result.out
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    (picture,) = page.pictures("jpeg")
    height = round(240 * drawn[0].height / drawn[0].width)
    assert picture.size == (2 * 240 + 6, height)
    left, right = (np.asarray(picture.crop((x, 0, x + 240, height)), float) for x in (0, 246))
    assert np.abs(left - right[:, ::-1]).mean() < 8
    assert np.abs(left - right).mean() > 20
    words = ("split", str(path), "-o", str(tmp_path / "1.json"), "-o", str(tmp_path / "2.json"), "--ratios", "50,50")
    assert detaug(*words, "--images", str(tmp_path), "--near").code == 0
    result = detaug("check", str(path), str(tmp_path), "--near", "--decode", "--isolated")
    assert "near decodes images in processes without limits" in result.err
