"""detaug check: each kind of finding, what --clean leaves, the report, exit codes, and decoding."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from band_files import encode, values
from coco_files import Document, add_outlines, document, write, write_images
from command import detaug, usage_error
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from voc_files import HEIGHT, WIDTH, exif, image_bytes, png_chunk, rotated_jpeg, several, with_segment

import detaug as da
from detaug.check import decode as check_decode
from detaug.check.check import check_coco
from detaug.check.decode import Fault, Limits
from detaug.check.summary import CheckSummary
from detaug.coco.annotations import AnnotationError, read_annotations
from detaug.coco.boxes import look_like_corners
from detaug.errors import InputError
from detaug.files.image_file import ImageFile
from detaug.findings.kinds import CHECK_KINDS, KINDS

Change = Callable[[Document, Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_images(tmp_path / "images")


def checked(content: Document, folder: Path, **options: Any) -> CheckSummary:
    return check_coco(write(folder.parent / "train.json", content), folder, **options)


def box(*xywh: float, at: int = 0) -> Change:
    return lambda content, _: content["annotations"][at].update(bbox=list(xywh))


def image(at: int = 0, **changes: object) -> Change:
    return lambda content, _: content["images"][at].update(changes)


def annotation(at: int = 0, **changes: object) -> Change:
    def change(content: Document, _: Path) -> None:
        if "segmentation" in changes:
            add_outlines(content)
        content["annotations"][at].update(changes)

    return change


def category(at: int = 0, **changes: object) -> Change:
    return lambda content, _: content["categories"][at].update(changes)


def one_more(where: str, **changes: object) -> Change:
    return lambda content, _: content[where].append(content[where][0] | changes)


def file(name: str, content: bytes) -> Change:
    return lambda _, folder: (folder / name).write_bytes(content)


def longer(width: int) -> Change:
    """Make the third image one of 100 rows."""

    def change(content: Document, folder: Path) -> None:
        content["images"][2].update(width=width, height=100)
        Image.new("RGB", (width, 100)).save(folder / "sub/c.png")

    return change


def without(where: str, key: str) -> Change:
    return lambda content, _: content[where][0].pop(key)


def emptied(where: str) -> Change:
    return lambda content, _: content[where].clear()


def every(where: str, **changes: object) -> Change:
    return lambda content, _: [row.update(changes) for row in content[where]] and None


def corners() -> Change:
    """Return a change of all boxes to corners, half of which are in the image as sizes too."""

    def change(content: Document, _: Path) -> None:
        for n, row in enumerate(content["annotations"]):
            row["bbox"] = [5 + n, 5, 35 + n, 25] if n % 2 else [50 + n, 40, 70 + n, 60]

    return change


def relative(key: str) -> Change:
    """Return a change of a key of all annotations to numbers in 0..1, relative to the images."""

    def change(content: Document, _: Path) -> None:
        for n, row in enumerate(content["annotations"]):
            x, y, width, height = 0.1 + n / 50, 0.2, 0.5, 0.625
            ring = [x, y, x + width, y, x + width, y + height, x, y + height]
            points = [number for at in range(0, 8, 2) for number in (*ring[at : at + 2], 2)]
            values = {"bbox": [x, y, width, height], "segmentation": [ring], "keypoints": points}
            row[key] = (values | {"corners": [ring[at : at + 2] for at in range(0, 8, 2)]})[key]
            for category in content["categories"]:
                category |= {"flip_idx": [0, 1, 2, 3]} if key == "keypoints" else {}

    return change


def many(last: list[float]) -> Change:
    """Return a change to 25 boxes of one size and a last one."""

    def change(content: Document, _: Path) -> None:
        row = content["annotations"][0]
        boxes = [[3 * n, 2 * n, 10, 10 + n % 3] for n in range(25)]
        content["annotations"][2:] = [row | {"id": 100 + n, "bbox": each} for n, each in enumerate([*boxes, last])]

    return change


def frames(then: Change) -> Change:
    """Return a change to the frames of a video, with a track for each box, and then another one."""

    def change(content: Document, folder: Path) -> None:
        content["videos"] = [{"id": 1}]
        for frame, row in enumerate(content["images"]):
            row |= {"video_id": 1, "frame_id": frame}
        for track, row in enumerate(content["annotations"]):
            row["track_id"] = track
        then(content, folder)

    return change


def imbalance(content: Document, _: Path) -> None:
    row = content["annotations"][0] | {"category_id": 1}
    content["annotations"] = [row | {"id": n, "bbox": [n % 90, n // 90, 10, 10]} for n in range(1, 102)]
    content["annotations"].append(row | {"id": 102, "category_id": 2, "bbox": [50, 50, 10, 10]})


def copied(_: Document, folder: Path) -> None:
    (folder / "b.jpg").write_bytes((folder / "a.jpg").read_bytes())


def palette_png(bits: int) -> bytes:
    """Return a PNG of 100 x 80 pixels with a palette of this many bits per pixel."""
    image = Image.new("P", (WIDTH, HEIGHT))
    image.putpalette(bytes(range(3 * 2**bits)) if bits < 8 else bytes(range(256)) * 3)
    content = io.BytesIO()
    image.save(content, "PNG", bits=bits)
    assert content.getvalue()[24:26] == bytes([bits, 3])
    return content.getvalue()


def unreadable(**changes: object) -> Change:
    """Return a change of an image's entry, whose file becomes empty."""

    def change(content: Document, folder: Path) -> None:
        content["images"][0].update(changes)
        (folder / "a.jpg").write_bytes(b"")

    return change


EXTRA = {"image-unreferenced"}
UNREADABLE = {"image-unreadable"}
NOT_WHOLE = "must be a whole number from 0 to 2^63 - 1, got "

# kind, change, message, and further kinds that follow from the same change
DEEP = encode(values(1, "uint16", (HEIGHT, WIDTH)), "png")
JSON_ERRORS: list[tuple[str, Change, str, set[str]]] = [
    ("images-empty", emptied("images"), "has no images", {"image-id-unknown", "objects-none", "image-unreferenced"}),
    ("categories-empty", emptied("categories"), "has no categories", {"category-unknown", "objects-none"}),
    ("row-not-object", lambda c, _: c["annotations"].append(7), "annotations[5] (id None): must be an object", set()),
    ("row-not-object", lambda c, _: c["images"].append(None), "images[3] (id None): must be an object", set()),
    ("id-form", image(2, id="c"), "images[2] (id 3, sub/c.png): id 'c' becomes 3", set()),
    ("id-form", image(2, id=3.0), "id 3.0 becomes 3", set()),
    ("image-id", image(2, id=True), f"{NOT_WHOLE}True", set()),
    ("image-id", image(2, id=-1), f"{NOT_WHOLE}-1", set()),
    ("image-id", image(2, id=2**63), f"{NOT_WHOLE}9223372036854775808", set()),
    ("image-id", without("images", "id"), f"{NOT_WHOLE}None", {"image-id-unknown"}),
    ("image-id-repeated", image(2, id=2), "id 2 is taken by images[1] already", set()),
    (
        "file-name",
        image(file_name=""),
        "must be the path of a file below the image folder, got ''",
        {"image-unreferenced"},
    ),
    ("file-name", image(file_name=7), "got 7", EXTRA),
    ("file-name", image(file_name="a\0b"), "got 'a\\x00b'", EXTRA),
    ("file-name", image(file_name="a" * 256 + ".jpg"), "aaa...", EXTRA),
    ("file-name", image(file_name="\ud800.jpg"), r"'\ud800.jpg'", EXTRA),
    ("file-name-outside", image(file_name="/no.jpg"), "outside the image folder, got '/no.jpg'", EXTRA),
    ("image-shard", image(shard="../a.tar", offset=0, length=9), "must have the path of a shard below", set()),
    ("category-unknown", image(category_id=99), "category_id 99 is not among the ids of the categories", set()),
    ("file-name-outside", image(file_name="x/../../no.jpg"), "outside the image folder", EXTRA),
    (
        "file-name-repeated",
        image(1, file_name="./a.jpg"),
        "taken by images[0]",
        {"image-unreferenced", "image-identical"},
    ),
    (
        "file-name-repeated",
        one_more("images", id=9),
        "images[3] (id 9, a.jpg): file_name 'a.jpg' is",
        {"image-identical"},
    ),
    ("image-size", unreadable(width=0), "width must be a whole number from 1 to 16,777,216, got 0", UNREADABLE),
    ("image-size", unreadable(height=80.5), "height must be a whole number from 1 to 16,777,216, got 80.5", UNREADABLE),
    ("image-size", unreadable(height=None), "height must be a whole number", UNREADABLE),
    ("number-text", image(width="100"), "width '100' becomes 100", set()),
    ("image-format", image(file_name="a.GIF"), "DALI does not decode GIF", EXTRA),
    ("category-id", category(1, id=-2), f"categories[1] (id -2): id {NOT_WHOLE}-2", {"category-unknown"}),
    ("id-form", category(1, id="2"), "categories[1] (id 2): id '2' becomes 2", set()),
    ("category-id-repeated", category(1, id=1), "id 1 is taken by categories[0] already", {"category-unknown"}),
    ("id-form", annotation(id="x"), "annotations[0] (id 1, a.jpg): id 'x' becomes 1", set()),
    ("annotation-id", without("annotations", "id"), f"id {NOT_WHOLE}None", set()),
    ("annotation-id-repeated", annotation(4, id=1), "id 1 is taken by annotations[0] already", set()),
    ("image-id-unknown", annotation(image_id=9), "image_id 9 is not the id of an image", set()),
    ("image-id-unknown", annotation(image_id="9"), "image_id '9' is not", set()),
    ("id-form", annotation(image_id="1"), "image_id '1' becomes 1", set()),
    ("image-id-unknown", annotation(image_id=True), "image_id True is not", set()),
    ("image-id-unknown", annotation(image_id=10**30), "image_id 1000000000000", set()),
    ("image-id-unknown", without("annotations", "image_id"), "image_id is missing", set()),
    (
        "category-unknown",
        annotation(category_id=9),
        "category_id 9 is not among the ids of the categories, [1, 2]",
        set(),
    ),
    ("id-form", annotation(category_id=1.0), "category_id 1.0 becomes 1", set()),
    ("crowd-invalid", annotation(iscrowd=2), "iscrowd must be 0 or 1, got 2", set()),
    ("number-text", annotation(iscrowd="0"), "iscrowd '0' becomes 0", set()),
    ("crowd-invalid", annotation(iscrowd=[0]), "got [0]", set()),
    ("box-invalid", annotation(bbox=None), "must be [x, y, width, height] with four finite numbers, got None", set()),
    ("box-invalid", annotation(bbox=[1, 2, 3]), "got [1, 2, 3]", set()),
    ("box-invalid", annotation(bbox=["1", "2", "3", "4 px"]), "got ['1', '2', '3', '4 px']", set()),
    ("number-text", annotation(bbox=["1", "2", 3, "4.5"]), "bbox ['1', '2', 3, '4.5'] becomes [1, 2, 3, 4.5]", set()),
    ("box-invalid", annotation(bbox=[True, 2, 3, 4]), "got [True, 2, 3, 4]", set()),
    ("box-invalid", annotation(bbox=[10**400, 2, 3, 4]), "four finite numbers", set()),
    ("box-invalid", annotation(bbox={"x": 1}), "got {'x': 1}", set()),
    ("box-invalid", box(1, float("nan"), 3, 4), "got [1, nan, 3, 4]", {"not-json"}),
    ("box-invalid", box(1, 1, float("inf"), 4), "got [1, 1, inf, 4]", {"not-json"}),
    ("box-missing", annotation(1, bbox=None, segmentation=[[10, 10, 40, 10, 40, 30]]), "is [10, 10, 30, 20]", set()),
    (
        "box-corners",
        corners(),
        "they are corners [x0, y0, x1, y1], such as [50, 40, 70, 60]",
        {"box-outside", "class-empty"},
    ),
    ("box-empty", box(10, 10, 0, 10), "with sides of at least 0.01 pixel, got [10, 10, 0, 10]", set()),
    ("box-reversed", box(10, 10, 10, -5), "bbox [10, 10, 10, -5] becomes [10, 5, 10, 5]", set()),
    ("box-empty", box(10, 10, 0.009, 5), "got [10, 10, 0.009, 5]", set()),
    (
        "box-outside",
        box(90, 10, 11.1, 10),
        "[90, 10, 11.1, 10] reaches 1.1 pixels outside its image of 100 x 80",
        set(),
    ),
    ("box-outside", box(-2, 10, 20, 10), "reaches 2 pixels outside", set()),
    ("box-outside", box(200, 10, 20, 10), "reaches 120 pixels outside", set()),
    ("box-outside", box(100, 10, 0.5, 10), "reaches 0.5 pixels outside", set()),
    ("box-outside", box(1e14, 1e14, 1e14, 1e14), "outside its image", set()),
    ("video-id", frames(image(video_id=9)), "images[0] (id 1, a.jpg): video_id 9 is not the id of a video", set()),
    ("video-id", frames(image(video_id=None)), "video_id None is not the id of a video", set()),
    ("video-id", frames(lambda c, _: c["videos"].append({"id": 1})), "videos[1] (id 1): id 1 is taken by", set()),
    ("video-id", frames(lambda c, _: c["videos"].append({"id": -2})), "videos[1] (id -2): id must be a", set()),
    ("row-not-object", frames(lambda c, _: c["videos"].append(2)), "videos[1] (id None): must be an object", set()),
    ("frame-id", frames(image(1, frame_id=0)), "images[1] (id 2, b.jpg): frame_id must be", set()),
    ("frame-id", frames(image(1, frame_id=1.5)), "which no other image of the video has, got 1.5", set()),
    (
        "video-sizes",
        frames(image(1, width=50)),
        "a frame of 50 x 80 pixels in a video of 100 x 80",
        {"box-outside", "size-wrong"},
    ),
    ("track-id", frames(annotation(track_id="x")), "track_id must be a whole number, got 'x'", set()),
    ("number-text", frames(annotation(track_id="7")), "track_id '7' becomes 7", set()),
    ("track-id", frames(without("annotations", "track_id")), "track_id must be a whole number, got None", set()),
    ("track-repeated", frames(annotation(1, track_id=0)), "track_id 0 is taken by another box of the frame", set()),
]
JPEG = image_bytes()
PNG = image_bytes(kind="PNG")
HEIF = {brand: b"\0\0\0\x1cftyp" + brand + b"\0\0\0\0mif1miafmeta" + b"\0" * 99 for brand in (b"avif", b"heic")}
TWO_EXIFS = PNG[:33] + png_chunk(b"eXIf", exif(1)) * 2 + PNG[33:]
FILE_ERRORS: list[tuple[str, Change, str, set[str]]] = [
    (
        "image-missing",
        lambda _, folder: (folder / "b.jpg").unlink(),
        "images[1] (id 2, b.jpg): not in the image",
        set(),
    ),
    ("file-name-elsewhere", image(file_name="A.JPG"), "'A.JPG' leads to no file and becomes 'a.jpg'", set()),
    ("file-name-elsewhere", image(file_name="C:\\data\\a.jpg"), "leads to no file and becomes 'a.jpg'", set()),
    ("file-name-elsewhere", image(2, file_name="sub%2Fc.png"), "leads to no file and becomes 'sub/c.png'", set()),
    ("size-missing", without("images", "height"), "width 100 and height None become 100 and 80", set()),
    ("image-missing", image(2, file_name="c.jpeg"), "but 'sub/c.png' is", EXTRA),
    ("image-missing", image(2, file_name="sub"), "(id 3, sub): not in the image folder", EXTRA),
    ("image-unreadable", file("a.jpg", b""), "is empty (0 bytes)", set()),
    ("image-unreadable", file("a.jpg", JPEG[:20]), "is a JPEG whose header is broken or cut off", set()),
    ("image-format", file("a.jpg", image_bytes(kind="GIF")), "is GIF, which DALI does not decode", set()),
    ("image-unreadable", file("a.jpg", HEIF[b"avif"]), "is not an image that can be read", set()),
    ("image-unreadable", file("a.jpg", HEIF[b"heic"]), "is not an image that can be read", set()),
    (
        "image-format",
        file("sub/c.png", TWO_EXIFS),
        "images[2] (id 3, sub/c.png): has two eXIf chunks, which crash DALI's decoder; save it again",
        set(),
    ),
    (
        "image-bands",
        file("sub/c.png", DEEP),
        "has 1 band of type uint16, of which 8-bit RGB would be left; read",
        set(),
    ),
    ("size-wrong", image(width=101), "101 x 80 in the JSON file, 100 x 80 in the file", set()),
    ("size-unrotated", file("a.jpg", rotated_jpeg(6)), "80 x 100 in the file with EXIF orientation 6", set()),
    (
        "size-wrong",
        file("a.jpg", rotated_jpeg(6, size=(50, 40))),
        "100 x 80 in the JSON file, 40 x 50 in the file",
        set(),
    ),
]
WARNINGS: list[tuple[str, Change, str, set[str]]] = [
    ("size-not-integer", image(width=100.0), "width 100.0 is read as 100", set()),
    ("annotation-id-zero", annotation(id=0), "annotations[0] (id 0, a.jpg)", set()),
    ("category-name", without("categories", "name"), "name must be text, got None", set()),
    ("category-name", category(name=" "), "got ' '", set()),
    ("category-name", category(name=["cat"]), "got ['cat']", set()),
    ("category-alike", category(1, name=" Cat"), "' Cat' is like 'cat' of categories[0]", set()),
    ("category-similar", category(1, name="Cats"), "'Cats' with 3 objects is like 'cat' with", set()),
    ("not-json", annotation(area=float("nan")), "1 time, first NaN", set()),
    ("box-clipped", box(90, 10, 11, 10), "reaches 1 pixels outside", set()),
    ("box-tiny", box(10, 10, 0.5, 10), "0.5 x 10 pixels", set()),
    ("box-repeated", one_more("annotations", id=9), "'dog' [10, 10, 20, 30], like annotations[0]", set()),
    ("box-nearly-repeated", one_more("annotations", id=9, bbox=[10, 11, 20, 30]), "like annotations[0]", set()),
    ("box-nearly-repeated", one_more("annotations", id=9, bbox=[9.5, 10, 20, 30]), "annotations[5] (id 9", set()),
    ("box-two-classes", one_more("annotations", id=9, category_id=1), "'cat' where 'dog' is", set()),
    ("box-unusual", many([0, 0, 100, 80]), "100 x 80 pixels; usual for 'dog' is the area of", set()),
    ("box-unusual", many([0, 0, 100, 2]), "50 times as wide as high; usual for 'dog' is about square", set()),
    ("objects-none", emptied("annotations"), "training would see background only", set()),
    ("class-empty", one_more("categories", id=3, name="bird"), "categories[2] (id 3): 'bird'", set()),
    ("class-imbalance", imbalance, "'cat' has 101 objects, 'dog' has 1", set()),
    ("image-unreferenced", file("new.JPG", JPEG), "'new.JPG'", set()),
    ("image-unreferenced", file("new.HEIC", HEIF[b"heic"]), "'new.HEIC'", set()),
    ("image-unreferenced", file("new.avif", HEIF[b"avif"]), "'new.avif'", set()),
    ("image-identical", copied, "images[0], 'a.jpg'", set()),
    ("palette-small", file("sub/c.png", palette_png(4)), "(id 3, sub/c.png): a palette of 4 bits per pixel", set()),
    ("palette-small", file("sub/c.png", palette_png(1)), "a palette of 1 bit per pixel; save it as RGB or", set()),
    ("image-long", longer(2_001), "images[2] (id 3, sub/c.png): 2001 x 100 pixels; give Resize a max_size", set()),
    ("image-alpha", file("sub/c.png", image_bytes(kind="PNG", mode="RGBA")), "alpha beside 3 bands", set()),
    ("image-several", file("sub/c.png", several("PNG")), "c.png): further frames of the PNG are not used", set()),
    ("image-several", file("sub/c.png", several("TIFF")), "c.png): further pages of the TIFF are not used", set()),
    ("image-several", file("sub/c.png", several("WEBP")), "c.png): further frames of the WEBP are not used", set()),
    ("orientation-unclear", file("a.jpg", rotated_jpeg(3)), "EXIF orientation 3, 100 x 80", set()),
]  # fmt: skip


SHAPES = ("segmentation-", "corners-", "keypoints-")


def names_of(cases: list[tuple[str, Change, str, set[str]]]) -> list[Any]:
    return [pytest.param(*case, id=f"{case[0]}-{n}") for n, case in enumerate(cases)]


def test_an_image_of_twenty_to_one_is_not_long(folder: Path) -> None:
    content = document()
    longer(2_000)(content, folder)
    assert "image-long" not in checked(content, folder).kind_counts


def test_a_sound_data_set_has_no_findings(folder: Path) -> None:
    summary = checked(document(), folder)
    assert (summary.kind_counts, summary.errors, summary.warnings) == ({}, 0, 0)
    assert (summary.images, summary.images_without_boxes, summary.class_counts) == (3, 1, {"cat": 2, "dog": 3})
    assert list(summary.findings) == []
    line = "0 errors, 0 warnings: ready for training"
    assert str(summary).splitlines()[-1] == f"{line}; images not decoded (decode=True)"


@pytest.mark.parametrize(("kind", "change", "message", "more"), names_of(JSON_ERRORS))
def test_errors_in_the_json(folder: Path, kind: str, change: Change, message: str, more: set[str]) -> None:
    content = document()
    change(content, folder)
    summary = checked(content, folder)
    assert set(summary.kind_counts) == {kind} | more
    assert message in str(summary)
    assert summary.errors
    with pytest.raises(AnnotationError) as raised:
        read_annotations(summary.annotations)
    assert message in str(raised.value)
    assert_cleanable(summary)


@pytest.mark.parametrize(("kind", "change", "message", "more"), names_of(FILE_ERRORS))
def test_errors_in_the_files(folder: Path, kind: str, change: Change, message: str, more: set[str]) -> None:
    content = document()
    change(content, folder)
    summary = checked(content, folder)
    assert set(summary.kind_counts) == {kind} | more
    assert summary.kind_counts[kind] == summary.errors == 1
    assert message in str(summary)
    if kind != "size-missing":
        read_annotations(summary.annotations)
    assert_cleanable(summary)


@pytest.mark.parametrize(("kind", "change", "message", "more"), names_of(WARNINGS))
def test_warnings(folder: Path, kind: str, change: Change, message: str, more: set[str]) -> None:
    content = document()
    change(content, folder)
    summary = checked(content, folder)
    assert set(summary.kind_counts) - {"class-empty"} | {kind} == {kind} | more
    assert summary.errors == 0
    assert message in str(summary)
    read_annotations(summary.annotations)


RELATIVE = {f"{what}-relative" for what in ("box", "segmentation", "corners", "keypoints")}
NOTHING_LEFT = {"images-empty", "categories-empty", "category-id-repeated", "box-corners"} | RELATIVE


def assert_cleanable(summary: CheckSummary) -> None:
    """Check that a cleaned file has no errors and loads everywhere, unless nothing is left."""
    clean = summary.annotations.with_name("clean.json")
    result = check_coco(summary.annotations, summary.image_folder, clean=clean)
    if "not written: " in str(result):
        assert NOTHING_LEFT & set(summary.kind_counts)
        assert not clean.exists()
        return
    assert check_coco(clean, summary.image_folder).errors == 0
    read_annotations(clean)
    COCO(str(clean))
    content, before = json.loads(clean.read_bytes()), json.loads(summary.annotations.read_bytes())
    assert list(content) == list(before)
    assert content["licenses"] == before["licenses"]


@pytest.mark.parametrize("key", ["bbox", "segmentation", "corners", "keypoints"])
def test_numbers_relative_to_the_images_are_an_error(folder: Path, key: str) -> None:
    content = document()
    relative(key)(content, folder)
    clean = folder.parent / "clean.json"
    summary = checked(content, folder, clean=clean)
    kind = f"{key.removeprefix('b')}-relative"
    assert summary.kind_counts[kind] == 1
    assert f"each {key} is in 0..1, relative to its image: multiply x and widths by the image's width" in str(summary)
    with pytest.raises(AnnotationError, match=f"each {key} is in"):
        read_annotations(summary.annotations)
    assert not clean.exists()
    result = detaug("split", summary.annotations, "-o", "a.json", "-o", "b.json", "--ratios", "1,1")
    assert (result.code, f"each {key} is in 0..1" in result.err) == (2, True)
    first = content["annotations"][0]
    first[key] = {"bbox": [3, 3, 20, 30], "segmentation": [[1, 1, 20, 1, 20, 20]], "keypoints": [9, 9, 2] * 4}.get(
        key, [[1, 1], [30, 1], [30, 20], [1, 20]]
    )
    assert kind not in checked(content, folder).kind_counts  # one in pixels: those in 0..1 are tiny


def test_pixels_in_a_corner_are_not_relative(folder: Path) -> None:
    content = document()
    for row in content["annotations"]:
        row |= {"bbox": [0, 0, 1, 1], "keypoints": [0, 0, 2, 1, 1, 2]}
    assert not RELATIVE & checked(content, folder).kind_counts.keys()
    content["annotations"] = content["annotations"][:1]
    content["annotations"][0] |= {"bbox": [9, 9, 30, 30], "keypoints": [0.5, 0.5, 2, 0, 0, 0]}
    assert not RELATIVE & checked(content, folder).kind_counts.keys()
    for row in content["images"]:
        row |= {"width": 15, "height": 15}
    content["annotations"][0] |= {"bbox": [0.2, 0.2, 0.5, 0.5]}  # as large as in a tiny image
    assert not RELATIVE & checked(content, folder).kind_counts.keys()


def test_every_kind_has_a_test() -> None:
    elsewhere = {
        "image-broken",
        "image-changed",
        "image-unsafe",
        "image-not-decoded",
        "image-leaked",
        "group-leaked",  # both in test_groups.py
        "group-name-shared",
        "categories-differ",
        "class-elsewhere",  # in test_repairs.py
        "image-class",
        "video-missing",
        "video-unusable",
        "frame-missing",
    }
    elsewhere |= (
        {"crowds-only"} | RELATIVE | {kind for kind in CHECK_KINDS if kind.startswith(SHAPES)}
    )  # test_check_shapes.py
    elsewhere |= {kind for kind in CHECK_KINDS if kind.startswith(("map-", "depth-"))}  # test_check_maps.py
    elsewhere |= {"image-near", "image-near-leaked", "image-not-compared"}  # test_near.py
    assert {case[0] for case in JSON_ERRORS + FILE_ERRORS + WARNINGS} | elsewhere == set(CHECK_KINDS)
    assert all(CHECK_KINDS[case[0]].effect == "error" for case in JSON_ERRORS + FILE_ERRORS)
    assert all(CHECK_KINDS[case[0]].effect == "warning" for case in WARNINGS)


def test_kinds_of_image_headers_are_those_of_the_converter() -> None:
    assert {"image-unreadable", "image-format", "image-missing"} <= set(KINDS) & set(CHECK_KINDS)


# ----------------------------------------------------------------------------------------------------------
# Further cases


def keypoints_with_sides(content: Document, _: Path) -> None:
    content["annotations"][0] |= {"keypoints": [10, 10, 2, 0, 0, 0, 99.5, 79.5, 1], "num_keypoints": 2}
    for row in content["categories"]:
        row["flip_idx"] = [0, 1, 2]


@pytest.mark.parametrize(
    "change",
    [
        box(80, 60, 20.0005, 20),
        annotation(iscrowd=None),
        annotation(iscrowd=True),
        without("annotations", "iscrowd"),
        annotation(segmentation={"counts": [0, 8000], "size": [80, 100]}, iscrowd=1, bbox=[0, 0, 100, 80]),
        annotation(segmentation=[[10, 10, 30, 10, 30, 40, 10, 40]], area=600),
        annotation(segmentation=[[10, 10, 30, 10, 30, 40, 10, 40], [12, 12, 20, 12, 20, 20]], area=600),
        annotation(segmentation=[[10, 10, 30, 10, 30, 40, 30, 40, 10, 40, 10, 10]], area=625),
        annotation(segmentation=[[-0.5, 10, 20, 10, 20, 40]], bbox=[0, 10, 20, 30]),
        annotation(corners=[[-20, 10], [0, -10], [40, 30], [20, 50]], bbox=[0, 0, 40, 50]),
        annotation(corners=[[-10, 10], [40, 40], [40, 60], [-10, 12]], bbox=[0, 16, 40, 44]),  # cut, then boxed
        keypoints_with_sides,
        annotation(area="odd", extra=[[[]]]),
        file(".hidden.jpg", JPEG),
        file("sub/c.png", palette_png(8)),
        file("sub/c.png", image_bytes(kind="PNG", mode="1")),
        file("sub/c.png", image_bytes(kind="PNG", mode="L")),
        file("readme.txt", b""),
    ],
)
def test_nothing_to_report(folder: Path, change: Change) -> None:
    content = document()
    change(content, folder)
    assert checked(content, folder).kind_counts == {}


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_a_rotation_that_the_size_shows_is_fine(folder: Path, orientation: int) -> None:
    (folder / "a.jpg").write_bytes(rotated_jpeg(orientation, size=(HEIGHT, WIDTH)))
    assert checked(document(), folder).kind_counts == {}


def test_boxes_are_tiny_after_the_resize(folder: Path) -> None:
    summary = checked(document(), folder, size=(3, 100))
    assert summary.kind_counts == {"box-tiny": 1}
    text = "annotations[3] (id 4, b.jpg): 30 x 20 pixels, 30 x 0.75 at 3 x 100 (height x width)"
    assert text in str(summary)


@pytest.mark.parametrize("left", [0.03, 8.1, 50.01, 99.99])
def test_a_box_of_a_hundredth_of_a_pixel_lies_inside(folder: Path, left: float) -> None:
    content = document()
    box(left, 10, 0.01, 10)(content, folder)
    assert checked(content, folder).kind_counts == {"box-tiny": 1}
    assert len(read_annotations(folder.parent / "train.json").boxes) == len(content["annotations"])


def test_a_class_of_many_sizes_has_no_unusual_one(folder: Path) -> None:
    content = document()
    row = content["annotations"][0]
    boxes = [[n % 50, 0, 1.15**n, 1.15**n] for n in range(30)]
    content["annotations"] = [row | {"id": n + 1, "bbox": each} for n, each in enumerate(boxes)]
    assert "box-unusual" not in checked(content, folder).kind_counts


def test_images_that_differ_at_their_ends_are_two(folder: Path) -> None:
    long = with_segment(JPEG, b"comment" * 1000, 0xFE)
    for name, end in (("a.jpg", b"1"), ("b.jpg", b"2")):
        (folder / name).write_bytes(long + end)
    other = other_split(folder)
    assert checked(document(), folder).kind_counts == {}
    assert checked(document(), folder, against=[other]).kind_counts == {"image-leaked": 1}


def test_links_in_the_folder_are_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "a.jpg").rename(tmp_path / "elsewhere.jpg")
    (folder / "a.jpg").symlink_to(tmp_path / "elsewhere.jpg")
    assert checked(document(), folder).kind_counts == {}


def test_two_points_in_a_name_do_not_lead_outside(folder: Path) -> None:
    content = document()
    content["images"][1]["file_name"] = "b..jpg"
    (folder / "b.jpg").rename(folder / "b..jpg")
    assert checked(content, folder).kind_counts == {}


def test_a_link_to_nowhere_is_missing(folder: Path) -> None:
    (folder / "a.jpg").unlink()
    (folder / "a.jpg").symlink_to("nowhere")
    assert checked(document(), folder).kind_counts == {"image-missing": 1}


def test_two_categories_of_one_name_keep_their_counts(folder: Path) -> None:
    content = document()
    content["categories"][1]["name"] = "cat"
    assert checked(content, folder).class_counts == {"cat (id 1)": 2, "cat (id 2)": 3}


def test_crowds_are_not_counted_as_objects(folder: Path) -> None:
    content = document()
    content["annotations"][0]["iscrowd"] = 1
    assert checked(content, folder).class_counts == {"cat": 2, "dog": 2}


# ----------------------------------------------------------------------------------------------------------
# Other splits


def other_split(folder: Path, **changes: Any) -> Path:
    content = document()
    content["images"] = [content["images"][1] | changes]
    return write(folder.parent / "val.json", content)


def test_an_image_in_two_splits(folder: Path) -> None:
    summary = checked(document(), folder, against=[other_split(folder)])
    assert summary.kind_counts == {"image-leaked": 1}
    assert f"images[1] (id 2, b.jpg): same bytes as 'b.jpg' of {folder.parent}/val.json" in str(summary)


def test_a_copy_in_the_folder_of_the_other_split(folder: Path) -> None:
    val = write_images(folder.parent / "val")
    (val / "b.jpg").rename(val / "copy.jpg")
    other = other_split(val, file_name="copy.jpg").rename(val / "val.json")
    assert checked(document(), folder, against=[other]).kind_counts == {"image-leaked": 1}


def test_an_image_of_another_split_is_not_unreferenced(folder: Path) -> None:
    content = document()
    del content["images"][1], content["annotations"][2:]
    assert checked(content, folder).kind_counts == {"image-unreferenced": 1}
    assert "image-unreferenced" not in checked(content, folder, against=[other_split(folder)]).kind_counts


def test_an_image_in_two_splits_is_cleaned_away(folder: Path) -> None:
    clean, other = folder.parent / "clean.json", other_split(folder)
    checked(document(), folder, against=[other], clean=clean)
    assert check_coco(clean, folder, against=[other]).kind_counts == {}


def test_splits_with_folders_of_their_own(folder: Path) -> None:
    """Images often have the same names in both, and are no leaks; images beside the other JSON file are its own."""
    content = document()
    for row in content["annotations"]:
        row["bbox"] = [each / 2 for each in row["bbox"]]
    other = write(folder.parent / "val.json", content)
    with pytest.raises(InputError, match=r"val\.json and .* have different boxes for 2 images .*a\.jpg: if its images"):
        checked(document(), folder, against=[other])
    own = folder.parent / "val"
    own.mkdir()
    (own / "a.jpg").write_bytes(with_segment(JPEG, b"another", 0xFE))
    (own / "b.jpg").write_bytes((folder / "b.jpg").read_bytes())
    content["images"] = content["images"][:2]
    summary = checked(document(), folder, against=[write(own / "val.json", content)])
    assert summary.kind_counts == {"image-leaked": 1}
    assert "same bytes as 'b.jpg'" in str(summary)


def test_classes_of_some_images(folder: Path) -> None:
    """In a dataset of objects they are too many; in one of images the others lack theirs."""
    content = document()
    content["images"][0]["category_id"] = 1
    content["images"][1]["category_id"] = None
    clean = folder.parent / "clean.json"
    summary = checked(content, folder, clean=clean)
    assert summary.kind_counts == {"image-class": 1}
    assert "1 image lost the category_id" in str(summary)
    assert len(da.CocoReader(folder, clean).objects()[0]) == 5
    content["annotations"] = []
    summary = checked(content, folder, clean=clean)
    assert summary.kind_counts["category-unknown"] == 2
    assert len(json.loads(clean.read_text())["images"]) == 1


def test_categories_that_are_no_objects(folder: Path) -> None:
    content = document()
    content["categories"] = ["cat", 7]
    content["annotations"][0] |= {"keypoints": [1, 2, 2], "num_keypoints": 1}
    assert checked(content, folder).kind_counts["row-not-object"] == 2


def test_other_categories(folder: Path) -> None:
    content = document()
    content["categories"].append({"id": 3, "name": "bird"})
    del content["images"][1], content["annotations"][2:]
    summary = checked(content, folder, against=[other_split(folder)])
    assert "categories-differ" in summary.kind_counts
    assert f"id 3 is 'bird' here, 'not there' in {folder.parent}/val.json" in str(summary)


# ----------------------------------------------------------------------------------------------------------
# --clean


def cleaned(content: Document, folder: Path) -> tuple[Document, CheckSummary]:
    path = folder.parent / "clean.json"
    summary = checked(content, folder, clean=path)
    return json.loads(path.read_bytes()), summary


def test_a_sound_file_is_written_as_it_was(folder: Path) -> None:
    content, summary = cleaned(document(), folder)
    assert content == document()
    assert str(summary.cleaned) == f"written: {folder.parent}/clean.json, nothing was left out"


def test_an_image_goes_with_its_boxes(folder: Path) -> None:
    (folder / "b.jpg").unlink()
    content, summary = cleaned(document(), folder)
    assert content["images"] == document()["images"][::2]
    assert content["annotations"] == document()["annotations"][:2]
    assert str(summary.cleaned).endswith("without 1 image and 3 annotations (3 of them only for their image)")


def test_other_keys_stay(folder: Path) -> None:
    content = document() | {"more": {"a": [1, None]}}
    content["annotations"][0] |= {
        "segmentation": {"counts": [810, 30, 7160], "size": [80, 100]},
        "area": 30.25,
        "ключ": "é",
    }
    content["annotations"][1]["bbox"] = None
    result, _ = cleaned(content, folder)
    assert result == content | {"annotations": [content["annotations"][0], *content["annotations"][2:]]}


def test_nan_becomes_null(folder: Path) -> None:
    content = document()
    content["annotations"][0]["area"] = float("inf")
    content["info"] = {"x": [float("nan")]}
    result, _ = cleaned(content, folder)
    assert (result["annotations"][0]["area"], result["info"]) == (None, {"x": [None]})


def test_annotations_get_ids_of_their_own(folder: Path) -> None:
    content = document()
    content["annotations"][1]["id"] = content["annotations"][3]["id"] = 1
    content["annotations"][4]["id"] = None
    result, summary = cleaned(content, folder)
    assert [row["id"] for row in result["annotations"]] == [1, 2, 3, 4, 5]
    assert [row["bbox"] for row in result["annotations"]] == [row["bbox"] for row in document()["annotations"]]
    assert "3 annotations got another id" in str(summary.cleaned)


def test_two_images_of_one_id_both_go(folder: Path) -> None:
    content = document()
    content["images"][1]["id"] = 1
    content["annotations"].append(content["annotations"][0] | {"id": 9, "image_id": 3})
    result, _ = cleaned(content, folder)
    assert [row["id"] for row in result["images"]] == [3]
    assert [row["id"] for row in result["annotations"]] == [9]


def test_an_image_listed_twice_stays_once(folder: Path) -> None:
    content = document()
    content["images"].append(content["images"][0] | {"license": 4})
    result, _ = cleaned(content, folder)
    assert result == document()


def test_images_of_one_file_are_joined(folder: Path) -> None:
    content = document()
    content["images"].append(content["images"][0] | {"id": 9})
    content["annotations"][1]["image_id"] = 9
    result, summary = cleaned(content, folder)
    assert result == document()
    assert str(summary.cleaned).endswith("1 image joined with an earlier one of the same file")


def test_a_category_of_two_meanings_goes_with_its_boxes(folder: Path) -> None:
    content = document()
    content["categories"].append({"id": 1, "name": "bird"})
    result, _ = cleaned(content, folder)
    assert result["categories"] == document()["categories"][1:]
    assert {row["category_id"] for row in result["annotations"]} == {2}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (every("images", id=None), "since none of the images can be used"),
        (every("images", id="text"), "since none of the images can be used"),
        (every("categories", id="1"), "since none of the categories can be used"),
        (every("annotations", bbox=None), "since no object would be left to train on"),
        (every("annotations", iscrowd=1), "since no object would be left to train on"),
        (emptied("annotations"), "since no object would be left to train on"),
        (corners(), "since boxes that are corners are wrong also where they fit; correct them all"),
    ],
)
def test_a_json_without_objects_is_not_written_and_the_findings_stay(folder: Path, change: Change, reason: str) -> None:
    content, clean = document(), folder.parent / "clean.json"
    change(content, folder)
    path = write(folder.parent / "train.json", content)
    result = detaug("check", path, folder, "--clean", clean)
    lines = result.out.splitlines()
    assert (result.code, result.err, lines[-2]) == (1, "", f"not written: {clean}, {reason}")
    assert not clean.exists()
    assert "--clean" not in lines[-1]
    assert "ready" not in lines[-1]
    assert any(line.startswith(("error ", "warning ")) for line in lines)


def test_crowds_only(folder: Path) -> None:
    content = document()
    every("annotations", iscrowd=1)(content, folder)
    summary = checked(content, folder)
    assert set(summary.kind_counts) == {"crowds-only"}
    assert "5 crowds; write iscrowd 0 where it is a single object" in str(summary)
    assert str(summary).endswith("1 error, 0 warnings: training would stop or learn wrongly")
    content["annotations"][0]["iscrowd"] = 0
    assert "crowds-only" not in checked(content, folder).kind_counts


def test_the_box_of_polygons_is_written(folder: Path) -> None:
    content = document()
    both = [[[10, 10, 40, 10, 40, 30.5]], [[1, 2, 3, 4, 5, 6], [7, 8, 9, 9, 4, 4]]]
    for row, polygons in zip(content["annotations"], both, strict=False):
        row.pop("bbox")
        row["segmentation"] = polygons
    content["annotations"][2] |= {"bbox": None, "segmentation": [[1, 2, 3, 4]]}
    content["annotations"][3] |= {"bbox": [], "segmentation": [[10, 10, 400, 10, 40, 30]]}
    result, summary = cleaned(content, folder)
    assert summary.kind_counts["box-missing"] == 3
    assert (summary.kind_counts["box-invalid"], summary.kind_counts["box-outside"]) == (1, 1)
    assert [row["bbox"] for row in result["annotations"][:2]] == [[10, 10, 30, 20.5], [1, 2, 8, 7]]
    assert [row["id"] for row in result["annotations"]] == [1, 2, 5]
    expected = "without 2 annotations; 2 annotations got the box around the shape"
    assert str(summary.cleaned).endswith(expected)


def test_the_box_of_any_shape_is_written(folder: Path) -> None:
    """Of RLE, as numbers and as text, of corners, and of labeled keypoints, which count from pixel centers."""
    content = document()
    mask = np.zeros((80, 100), np.uint8, order="F")
    mask[10:30, 20:22] = 1
    text = coco_mask.encode(mask)["counts"].decode()
    counts = [20 * 80 + 10, 20, 60, 20, 100 * 80 - 1610 - 100]
    shapes: list[dict[str, Any]] = [
        {"segmentation": {"size": [80, 100], "counts": counts}},
        {"segmentation": {"size": [80, 100], "counts": text}},
        {"corners": [[60, -4], [70, 6], [60, 16], [50, 6]]},
        {"keypoints": [1, 1, 0, 20, 30, 1, 40, 70, 2], "num_keypoints": 2},
        {"keypoints": [20, 30, 2, 0, 0, 0, 0, 0, 0], "num_keypoints": 1},  # one point has no area
    ]
    for row, shape in zip(content["annotations"], shapes, strict=True):
        row.pop("bbox")
        row.pop("segmentation")
        row.update(shape)
    result, summary = cleaned(content, folder)
    assert (summary.kind_counts["box-missing"], summary.kind_counts["box-invalid"]) == (4, 1)
    expected = [[20, 10, 2, 20], [20, 10, 2, 20], [50, 0, 20, 16], [20.5, 30.5, 20, 40]]
    assert [row["bbox"] for row in result["annotations"]] == expected
    content["annotations"][0]["segmentation"] = {"size": [80, 100], "counts": [8000]}  # nothing
    content["annotations"][1]["segmentation"] = {"size": [100, 80], "counts": counts}  # of another image
    assert cleaned(content, folder)[1].kind_counts["box-missing"] == 2


@pytest.mark.parametrize(
    "form",
    [
        [10, 10, 30, 10, 30, 30.5],
        [[10, 10], [30, 10], [30, 30.5]],
        [[[10, 10], [30, 10], [30, 30.5]]],
    ],
)
def test_a_segmentation_that_can_mean_one_ring_only_is_read(folder: Path, form: Any) -> None:
    content = document()
    content["annotations"][0] |= {"segmentation": form, "bbox": [10, 10, 20, 20.5]}
    result, summary = cleaned(content, folder)
    assert {"segmentation-invalid", "segmentation-short"}.isdisjoint(summary.kind_counts)
    assert summary.kind_counts["segmentation-form"] == 1
    assert result["annotations"][0]["segmentation"] == [[10, 10, 30, 10, 30, 30.5]]
    path = write(folder / "again.json", content)
    reader = da.CocoReader(folder, path, masks=True)
    assert reader.shapes.outlines is not None
    assert reader.shapes.outlines.points[:3].tolist() == [[10, 10], [30, 10], [30, 30.5]]


def corner_findings(folder: Path, boxes: list[list[float]]) -> int:
    content = document()
    row = content["annotations"][0]
    content["annotations"] = [row | {"id": n, "bbox": box} for n, box in enumerate(boxes, 1)]
    return checked(content, folder).kind_counts.get("box-corners", 0)


def test_how_many_boxes_tell_corners(folder: Path) -> None:
    inside, outside = [5, 5, 35, 25], [50, 40, 70, 60]
    assert corner_findings(folder, [outside] * 4) == 1
    assert corner_findings(folder, [outside] * 3) == 0
    assert corner_findings(folder, [outside] + [inside] * 4) == 1
    assert corner_findings(folder, [outside] + [inside] * 5) == 0
    assert corner_findings(folder, [outside] * 99 + [[50, 40, 30, 20]]) == 1
    assert corner_findings(folder, [outside] * 98 + [[50, 40, 30, 20]] * 2) == 0
    assert corner_findings(folder, [[7, 5, 100, 30]] * 4) == 1  # 7 of 100 pixels outside
    assert corner_findings(folder, [[5.9, 5, 100, 30]] * 4) == 0


@given(st.lists(st.tuples(*[st.floats(0, 1)] * 4), min_size=4, max_size=30))
@settings(max_examples=50, deadline=None)
def test_right_boxes_are_never_taken_for_corners(shares: list[tuple[float, ...]]) -> None:
    x, y, w, h = np.array(shares).T
    left, top = x * WIDTH, y * HEIGHT
    boxes = np.stack([left, top, w * (WIDTH - left), h * (HEIGHT - top)], axis=1)
    assert not look_like_corners(boxes, np.full((len(boxes), 2), (HEIGHT, WIDTH)))


def test_corners_are_not_converted(folder: Path, tmp_path: Path) -> None:
    content = document()
    corners()(content, folder)
    path = write(folder.parent / "train.json", content)
    error = usage_error("convert-coco-to-yolo", path, tmp_path / "yolo", "--on-error", "skip")
    assert "write each bbox as [x, y, width, height]; they are corners [x0, y0, x1, y1]" in error


# ----------------------------------------------------------------------------------------------------------
# The command


def test_exit_codes_and_report(folder: Path) -> None:
    content = document()
    path, report = write(folder.parent / "train.json", content), folder.parent / "report.json"
    assert detaug("check", path, folder).code == 0
    content["images"][0]["file_name"] = "a.jpeg"
    content["annotations"][4]["bbox"] = [95, 0, 10, 10]
    write(path, content)
    code, out, _ = detaug("check", path, folder, "--report", report)
    assert code == 1
    assert out.splitlines()[-11:] == [
        "error box-outside (1): a box reaches more than 1 pixel past its image, or has no area inside it",
        "  annotations[4] (id 5, b.jpg): bbox [95, 0, 10, 10] reaches 5 pixels outside its image of 100 x 80",
        "",
        "error image-missing (1): an image is not in the image folder",
        "  images[0] (id 1, a.jpeg): not in the image folder, but 'a.jpg' is",
        "",
        "warning image-unreferenced (1): no split that is found names a file in the image folder; if another JSON file "
        "does, give --against OTHER.json",
        "  'a.jpg'",
        "",
        f"every finding: {report}",
        "2 errors, 1 warning: training would stop or learn wrongly; --clean FILE writes the JSON without these",
    ]
    written = json.loads(report.read_bytes())
    assert (written["errors"], written["warnings"], written["class_counts"]) == (2, 1, {"cat": 2, "dog": 2})
    assert written["counts"] == {"box-outside": 1, "image-missing": 1, "image-unreferenced": 1}
    assert written["kinds"]["box-outside"]["severity"] == "error"
    assert written["findings"][0] == {
        "kind": "box-outside",
        "severity": "error",
        "entry": "annotations[4]",
        "id": 5,
        "file_name": "b.jpg",
        "message": "bbox [95, 0, 10, 10] reaches 5 pixels outside its image of 100 x 80",
        "like": "",
        "origin": "",
    }


@pytest.mark.parametrize(
    ("kind", "boxes", "worst_first"),
    [
        ("box-outside", [[95, 0, 10, 10], [90, 0, 30, 10], [95, 0, 15, 10]], [1, 2, 0]),
        ("box-clipped", [[90, 0, 10.5, 10], [90, 0, 10.75, 10]], [1, 0]),
        ("box-tiny", [[9, 9, 9, 0.9], [9, 30, 0.2, 9], [9, 50, 9, 0.5]], [1, 2, 0]),
        ("box-nearly-repeated", [[0, 0, 50, 50], [0, 1, 50, 49], [0, 30, 50, 50], [0, 30.5, 50, 50]], [3, 1]),
        ("box-unusual", [*[[0, 0, 20, 20]] * 40, [0, 0, 99, 50], [0, 0, 99, 79]], [41, 40]),
    ],
)
def test_the_worst_comes_first(folder: Path, kind: str, boxes: list[list[float]], worst_first: list[int]) -> None:
    content = document()
    rows = [{"id": at, "image_id": 1, "category_id": 1, "bbox": box} for at, box in enumerate(boxes, 1)]
    summary = checked(content | {"annotations": rows}, folder)
    entries = [f"annotations[{at}]" for at in worst_first]
    assert [found.entry for found in summary.findings if found.kind == kind] == entries
    printed = [line for line in str(summary).partition(f" {kind} (")[2].splitlines() if line.startswith("  ann")]
    assert [line.split()[0] for line in printed[: len(entries)]] == entries[:3]


def test_a_report_names_what_a_box_repeats(folder: Path) -> None:
    content = document()
    content["annotations"].append(content["annotations"][0] | {"id": 9})
    (found,) = checked(content, folder).findings
    assert (found.kind, found.entry, found.like) == ("box-repeated", "annotations[5]", "annotations[0]")


def test_more_than_three_of_a_kind_are_counted(folder: Path) -> None:
    content = document()
    for row in content["annotations"]:
        row["bbox"] = []
    assert "\n  and 2 more\n" in str(checked(content, folder))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no.json", "{images}"], "no.json: no such file"),
        (["{images}/a.jpg", "{images}"], "not readable as JSON"),
        (["{json}", "{images}/no"], "/no: no such folder; it must have the images of "),
        (["{json}", "{images}/.."], "none of the 3 images of {json} is here, the first is 'a.jpg'; give the folder"),
        (["{json}", "{images}/.."], "; {images} has it"),
        (["{json}", "{images}", "--size", "300"], "must be HxW pixels, such as 300x300, got '300'"),
        (["{json}", "{images}", "--size", "0x300"], "must be HxW pixels"),
        (["{json}", "{images}", "--clean", "{json}"], "clean must be another file than {json}"),
        (
            ["{json}", "{images}", "--clean", "{images}/a.jpg"],
            "a.jpg must end in .json, got '.jpg'",
        ),
        (["{json}", "{images}", "--report", "{images}/no/r.json"], "/no does not exist; make it first"),
        (
            ["{json}", "{images}", "--clean", "{images}/x.json", "--report", "{images}/./x.json"],
            "report must be another file than",
        ),
        (["{json}", "{images}", "--against", "no.json"], "no.json: no such file"),
    ],
)
def test_usage_errors(folder: Path, arguments: list[str], message: str) -> None:
    names = {"images": folder, "json": write(folder.parent / "train.json", document())}
    error = usage_error("check", *[argument.format(**names) for argument in arguments])
    assert message.format(**names) in error


def test_names_that_a_terminal_would_act_on_are_escaped(folder: Path) -> None:
    content = document()
    content["categories"][0]["name"] = "\x1b[2Jcat\n\ud800"
    content["images"][0]["file_name"] = "\x1b[31m.jpg"
    text = str(checked(content, folder))
    assert "\x1b" not in text
    text.encode()


# ----------------------------------------------------------------------------------------------------------
# --decode


def cut_in_half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def data_set(folder: Path, broken: dict[int, bytes], count: int = 40) -> Path:
    """Write `count` JPEGs, some of them replaced, and the JSON file beside the folder; return the JSON file."""
    folder.mkdir()
    row = document()["images"][0]
    images = [row | {"id": n, "file_name": f"{n}.jpg"} for n in range(count)]
    boxes = [
        document()["annotations"][0] | {"id": n + 1, "image_id": n, "category_id": 1 + n % 2} for n in range(count)
    ]
    for n in range(count):
        (folder / f"{n}.jpg").write_bytes(broken.get(n, with_segment(JPEG, b"%d" % n, 0xFE)))
    return write(folder.parent / "train.json", document() | {"images": images, "annotations": boxes})


@pytest.mark.slow
def test_broken_images_are_found_and_cleaned_away(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import detaug as da

    png = image_bytes(kind="PNG")
    damaged = png[:50] + bytes([png[50] ^ 255]) + png[51:]
    broken = {6: damaged, 7: cut_in_half(JPEG), 8: JPEG[:-2], 16: cut_in_half(png), 39: png[:-1]}
    formats = [image_bytes(kind=kind) for kind in ("PNG", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000")]
    odd = [image_bytes(mode="L"), image_bytes(mode="CMYK"), image_bytes(progressive=True), JPEG + b"\0" * 9]
    path, clean = data_set(tmp_path / "images", broken | dict(enumerate([*formats, *odd], 20))), tmp_path / "clean.json"
    calls: list[tuple[int, int]] = []
    summary = check_coco(path, tmp_path / "images", decode=True, clean=clean, progress=lambda *done: calls.append(done))
    assert summary.kind_counts == {"image-broken": 5}
    assert [found.file_name for found in summary.findings] == ["6.jpg", "7.jpg", "8.jpg", "16.jpg", "39.jpg"]
    assert "images[6] (id 6, 6.jpg): does not decode: broken data stream" in str(summary)
    assert "images[7] (id 7, 7.jpg): is cut off: its end marker is missing" in str(summary)
    assert calls[-1] == (36, 36)  # not tried again: those that are cut off
    assert capfd.readouterr() == ("", "")
    assert check_coco(clean, tmp_path / "images").errors == 0
    loader = da.Loader(da.CocoReader(tmp_path / "images", clean), da.presets.ssd300(), 4, device="cpu")
    seen = {int(number) for batch in loader for number in batch.image_id}
    assert seen == set(range(40)) - set(broken)


THUMBNAIL = with_segment(JPEG, b"Exif\0\0" + exif(1) + image_bytes((16, 16)))
WHOLE = {
    "padded": JPEG + b"\0" * 5000,
    "with a video behind it": JPEG + bytes(range(250)) * 20 + b"\xff\xda" + b"video" * 100,
    "with a thumbnail": THUMBNAIL,
    "with fill bytes": JPEG[:2] + b"\xff" + JPEG[2:] + b"\0" * 99,
    "progressive": image_bytes(progressive=True),
    "png": PNG,
    "png, padded": PNG + b"\0" * 5000,
}
CUT = {
    "in the middle": cut_in_half(JPEG),
    "two bytes": JPEG[:-2],
    "padded to its length": cut_in_half(JPEG).ljust(len(JPEG), b"\0"),
    "with a thumbnail": cut_in_half(THUMBNAIL),
    "progressive": cut_in_half(image_bytes(progressive=True)),
    "png": cut_in_half(PNG),
    "png, in its end": PNG[:-1],
}


def test_images_that_are_cut_off_are_found_without_decoding(tmp_path: Path) -> None:
    contents = [*WHOLE.values(), *CUT.values()]
    path, clean = data_set(tmp_path / "images", dict(enumerate(contents)), len(contents)), tmp_path / "clean.json"
    summary = check_coco(path, tmp_path / "images", clean=clean)
    found = [int(Path(found.file_name or "").stem) for found in summary.findings if found.kind == "image-broken"]
    assert found == list(range(len(WHOLE), len(contents)))
    assert summary.errors == len(CUT)
    assert str(check_coco(clean, tmp_path / "images")).endswith("ready for training; images not decoded (decode=True)")


def test_an_image_too_large_to_try(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from struct import pack

    tried: list[ImageFile] = []
    monkeypatch.setattr(check_decode, "find_undecodable", lambda paths, *_: tried.extend(paths) or {})
    content = document()
    size = JPEG.index(b"\xff\xc0") + 5
    scan = JPEG[size + 4 : -2] + bytes(2_000_000) + JPEG[-2:]
    (folder / "a.jpg").write_bytes(JPEG[:size] + pack(">HH", 40_000, 40_000) + scan)
    content["images"][0] |= {"width": 40_000, "height": 40_000}
    summary = checked(content, folder, decode=True)
    assert (summary.kind_counts, summary.errors) == ({"image-not-decoded": 1}, 0)
    assert "images[0] (id 1, a.jpg): 1,600,000,000 pixels, and --decode tries at most 268,435,456; make" in str(summary)
    assert str(summary).endswith("0 errors, 1 warning: ready for training")
    assert [Path(each.path) for each in tried] == [folder / "b.jpg", folder / "sub/c.png"]


CRASHING_DECODER = """if True:
    import json, os, sys
    print('"ready"', flush=True)
    for line in sys.stdin:
        paths = json.loads(line)
        if any("crash" in path for path in paths):
            os._exit(139)
        print(json.dumps({path: "broken" for path in paths if "broken" in path}), flush=True)
"""


def test_images_that_end_the_decoding_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_decode, "_COMMAND", CRASHING_DECODER)
    paths = [Path(f"{n}.jpg") for n in range(100)]
    paths[33], paths[34], paths[99] = Path("crash.jpg"), Path("broken.jpg"), Path("crash2.jpg")
    crash = Fault("image-unsafe", "ends the process that decodes it")
    assert check_decode.find_undecodable(paths) == {33: crash, 34: Fault("image-broken", "broken"), 99: crash}


HUNGRY_DECODER = """if True:
    import json, os, sys, time
    print('"ready"', flush=True)
    kept = []
    for line in sys.stdin:
        names = json.loads(line)
        if any("slow" in name for name in names):
            time.sleep(1000)
        if any("hungry" in name for name in names):
            kept.append(b"x" * 200_000_000)
            time.sleep(1000)
        if any("segfault" in name for name in names):
            os.kill(os.getpid(), 11)
        print(json.dumps({names[0]: str(os.getpid())} if "pid" in names[0] else {}), flush=True)
"""


def test_images_that_take_too_much_memory_or_end_the_process_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_decode, "_COMMAND", HUNGRY_DECODER)
    paths = [Path(f"{n}.jpg") for n in range(9)]
    paths[3], paths[7] = Path("hungry.jpg"), Path("segfault.jpg")
    assert check_decode.find_undecodable(paths, limits=Limits(100, 100_000_000, 1000, 1000)) == {
        3: Fault("image-unsafe", "takes more than 0.1 GB of memory to decode"),
        7: Fault("image-unsafe", "ends the process that decodes it (SIGSEGV)"),
    }


def test_an_image_that_takes_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_decode, "_COMMAND", HUNGRY_DECODER)
    fault = Fault("image-unsafe", "is not decoded after 0.5 seconds")
    assert check_decode.find_undecodable([Path("slow.jpg")], limits=Limits(0.5, 10**9, 1000, 1000)) == {0: fault}


def test_another_process_decodes_after_some_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_decode, "_COMMAND", HUNGRY_DECODER)
    faults = check_decode.find_undecodable(
        [Path(f"pid{n}.jpg") for n in range(5 * 32)], limits=Limits(60, 10**9, 64, 1)
    )
    assert list(faults) == [0, 32, 64, 96, 128]
    one, two, three, four, five = (fault.reason for fault in faults.values())
    assert one == two != three == four != five != one


def test_a_decoding_process_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_decode, "_COMMAND", "raise SystemExit('no DALI')")
    with pytest.raises(RuntimeError, match="the decoding process does not start"):
        check_decode.find_undecodable([Path("a.jpg")])


@pytest.mark.gpu
def test_cut_off_images_are_found_on_a_gpu(tmp_path: Path) -> None:

    broken = {n: JPEG[: len(JPEG) * n // 20] for n in range(10, 20)} | {3: JPEG[:-2], 4: image_bytes(kind="PNG")[:-20]}
    path = data_set(tmp_path / "images", broken)
    summary = check_coco(path, tmp_path / "images", decode=True)
    found = {found.file_name for found in summary.findings if found.kind == "image-broken"}
    assert found == {f"{n}.jpg" for n in broken}
