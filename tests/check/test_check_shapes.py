"""detaug check of polygons, rotated boxes and keypoints: findings, what --clean leaves out, and its speed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import Document, add_outlines, document, write, write_images
from command import detaug
from PIL import Image, ImageDraw
from pycocotools import mask as coco_mask
from shapely.geometry import LinearRing

import detaug as da
from detaug.check.check import check_coco
from detaug.check.shapes import crossing_rings
from detaug.check.summary import CheckSummary
from detaug.findings.kinds import CHECK_KINDS

RING = [10, 10, 30, 10, 30, 40, 10, 40]
NAMES = ["left_eye", "right_eye", "nose"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_images(tmp_path / "images")


def checked(content: Document, folder: Path, **options: Any) -> CheckSummary:
    return check_coco(write(folder.parent / "train.json", content), folder, **options)


def first_annotation(**keys: Any) -> Document:
    """Return a JSON file whose first annotation, with the box [10, 10, 20, 30] of the class dog, has these keys too.

    With a segmentation, the others have the polygons of their boxes.
    """
    content = document()
    if "segmentation" in keys:
        add_outlines(content)
    content["annotations"][0] |= keys
    return content


def dog(**keys: Any) -> Document:
    """Return a JSON file with keypoints in one annotation of the class dog, which has these keys too."""
    content = first_annotation(keypoints=[10, 10, 2, 20, 10, 1, 0, 0, 0], num_keypoints=2)
    content["categories"][1] |= keys
    return content


REFUSED: list[tuple[str, Document, str, dict[str, bool]]] = [
    (
        "segmentation-invalid",
        first_annotation(segmentation=[[1, 2, 3]]),
        "a ring of the segmentation must be a list",
        {"tight": True},
    ),
    (
        "segmentation-invalid",
        first_annotation(segmentation=[[1, 2, 3, 4, 5, 10**400]]),
        "must be finite numbers",
        {"tight": True},
    ),
    (
        "segmentation-invalid",
        first_annotation(segmentation="rle"),
        "must be rings or RLE, got 'rle'",
        {"tight": True},
    ),
    (
        "segmentation-invalid",
        first_annotation(segmentation={"size": [100, 80], "counts": [0, 8000]}),
        "the size of the RLE is [100, 80], that of the image [80, 100]",
        {"tight": True},
    ),
    (
        "segmentation-invalid",
        first_annotation(segmentation={"size": [80, 100], "counts": [10, 20]}),
        "add up to 30, the image has 8000 pixels",
        {"tight": True},
    ),
    (
        "segmentation-invalid",
        first_annotation(segmentation={"size": [80, 100], "counts": "~"}),
        "cannot be read",
        {"tight": True},
    ),
    (
        "corners-invalid",
        first_annotation(corners=[[1, 2], [3, 4]]),
        "must be four pairs [x, y], got [[1, 2]",
        {"rotated": True},
    ),
    (
        "corners-invalid",
        first_annotation(corners=[[1, 2]] * 3 + [[1, float("nan")]]),
        "must be finite",
        {"rotated": True},
    ),
    ("keypoints-number", first_annotation(keypoints=[1, 2]), "3 numbers for each, got 2 numbers", {"keypoints": True}),
    ("keypoints-number", first_annotation(keypoints=7), "3 numbers for each, got 7", {"keypoints": True}),
    ("keypoints-number", first_annotation(keypoints=[1, 2, "2"]), "must be finite numbers", {"keypoints": True}),
    ("keypoints-number", dog(keypoints=NAMES[:2]), "3 numbers for each of 2, got 9 numbers", {"keypoints": True}),
    (
        "keypoints-visibility",
        first_annotation(keypoints=[1, 2, 3]),
        "must be 0, 1 or 2, got [3.0]",
        {"keypoints": True},
    ),
    (
        "keypoints-names",
        dog(keypoints=[1, 2, 3]),
        "categories[1] (id 2): keypoints must be a list of names",
        {"keypoints": True},
    ),
    (
        "keypoints-flips",
        dog(keypoints=NAMES, flip_idx=[1, 1, 2]),
        "must have each of 0..2 once, got [1, 1, 2]",
        {"keypoints": True},
    ),
]
"""Kind, JSON, message, and the arguments of CocoReader that refuse it."""


def twins(box: list[float]) -> Document:
    """Return COCO JSON whose second annotation, of the first one's image and class, has its polygon and another box."""
    content = first_annotation(segmentation=[RING])
    first, second = content["annotations"][:2]
    moved = [number + 0.2 for number in RING]
    content["annotations"][1] = second | {"bbox": box, "segmentation": [moved], "category_id": first["category_id"]}
    return content


def without_outline(at: int = 3) -> Document:
    content = first_annotation(segmentation=[RING])
    content["annotations"][at]["segmentation"] = []
    return content


CHANGED = ("keypoints-count", "keypoints-skeleton", "segmentation-form")
"""Kinds that --clean changes, of those that no reader refuses."""

NOTED: list[tuple[str, Document, str]] = [
    ("segmentation-missing", without_outline(), "annotations[3] (id 4, b.jpg): there is no segmentation"),
    ("segmentation-form", first_annotation(segmentation=RING), "is read as rings"),
    ("keypoints-skeleton", dog(keypoints=NAMES, skeleton=[[0, 1]]), "must be pairs of 1..3, got [[0, 1]]"),
    ("segmentation-short", first_annotation(segmentation=[RING, [1, 2, 3, 4]]), "left out: [1, 2, 3, 4]"),
    (
        "segmentation-empty",
        first_annotation(segmentation={"size": [80, 100], "counts": [8000]}),
        "the segmentation has no area in its image",
    ),
    ("segmentation-empty", first_annotation(segmentation=[[10, 10, 20, 25, 30, 40]]), "no area in its image"),
    (
        "segmentation-between",
        first_annotation(segmentation=[[10.6, 10.1, 11, 10.1, 30.9, 30, 30.5, 30]], bbox=[10.6, 10.1, 20.3, 19.9]),
        "no pixel's center is inside of the segmentation",
    ),
    (
        "corners-empty",
        first_annotation(corners=[[10, 10], [30, 40], [30, 40.005], [10, 10.005]]),
        "a side of their rectangle is shorter than 0.01 pixel",
    ),
    (
        "segmentation-crossed",
        first_annotation(segmentation=[[10, 10, 30, 40, 30, 10, 10, 40]]),
        "edges of a ring cross",
    ),
    (
        "segmentation-outside",
        first_annotation(segmentation=[[-5, 10, 20, 10, 20, 30]], bbox=[0, 10, 20, 20]),
        "reaches 5 pixels outside its image",
    ),
    (
        "segmentation-area",
        first_annotation(segmentation=[RING], area=100),
        "area is 100, and that of the segmentation 600",
    ),
    (
        "segmentation-area",
        first_annotation(segmentation={"size": [80, 100], "counts": [0, 8000]}, bbox=[0, 0, 100, 80], area=4000),
        "area is 4000, and that of the segmentation 8000",
    ),
    (
        "segmentation-box",
        first_annotation(segmentation=[[10, 10, 30, 10, 30, 40, 7, 40]]),
        "bbox is 3 pixels from that",
    ),
    (
        "segmentation-box",
        first_annotation(segmentation={"size": [80, 100], "counts": [0, 8000]}),
        "a side of bbox is 70 pixels from that of the box around",
    ),
    ("segmentation-box", first_annotation(corners=[[10, 10], [34, 10], [30, 40], [10, 40]]), "bbox is 4 pixels"),
    (
        "corners-crossed",
        first_annotation(corners=[[10, 10], [30, 40], [30, 10], [10, 40]]),
        "between the corners cross",
    ),
    (
        "corners-outside",
        first_annotation(corners=[[-30, 10], [10, 10], [10, 40], [-30, 40]], bbox=[0, 10, 10, 30]),
        "the middle of the corners is 10 pixels outside",
    ),
    ("keypoints-outside", first_annotation(keypoints=[104, 10, 2]), "a labeled keypoint is 4.5 pixels outside"),
    (
        "keypoints-count",
        first_annotation(keypoints=[10, 10, 2, 0, 0, 0], num_keypoints=2),
        "num_keypoints is 2, and 1 key",
    ),
    ("keypoints-sides", dog(keypoints=["left_eye", "mouth", "nose"]), "there is no 'right_eye'"),
]


@pytest.mark.parametrize(("kind", "content", "message", "wanted"), REFUSED)
def test_what_a_reader_refuses_is_a_warning_and_cleaned(
    folder: Path, kind: str, content: Document, message: str, wanted: dict[str, Any]
) -> None:
    clean = folder.parent / "clean.json"
    summary = checked(content, folder, clean=clean)
    assert set(summary.kind_counts) - {"not-json"} == {kind}
    assert message in str(summary)
    assert summary.errors == 0
    da.CocoReader(folder, summary.annotations)  # boxes train all the same
    if kind.startswith("keypoints"):
        wanted = wanted | {"flip_pairs": []}
    with pytest.raises(da.AnnotationError) as raised:
        da.CocoReader(folder, summary.annotations, **wanted)
    assert message.removeprefix("categories[1] (id 2): ") in str(raised.value)
    assert f"detaug check {summary.annotations} IMAGES lists them all; --clean NEW.json" in str(raised.value)
    assert " lost " in str(summary.cleaned)
    left = {"not-json", "segmentation-missing", *(["keypoints-sides"] if kind == "keypoints-names" else [])}
    assert set(check_coco(clean, folder).kind_counts) <= left  # without names nobody knows the sides
    if kind.startswith("keypoints") and "keypoints" not in json.loads(clean.read_text())["annotations"][0]:
        with pytest.raises(da.AnnotationError, match="no annotation has 'keypoints'"):  # it was the only one
            da.CocoReader(folder, clean, **wanted)
    else:
        da.CocoReader(folder, clean, **wanted)


def test_the_remedy_of_the_error_is_a_command(folder: Path) -> None:
    content = first_annotation(segmentation=[[1, 2, 3]])
    content["annotations"][1]["segmentation"] = [[40, 10, 60, 10, 60, 40]]
    path, clean = write(folder.parent / "train.json", content), folder.parent / "clean.json"
    assert detaug("check", path, folder, "--clean", clean).code == 0
    rows = json.loads(clean.read_text())["annotations"]
    assert [("segmentation" in row, row["bbox"]) for row in rows[:2]] == [
        (False, content["annotations"][0]["bbox"]),
        (True, content["annotations"][1]["bbox"]),
    ]
    assert len(da.CocoReader(folder, clean, tight=True)) == 3


@pytest.mark.parametrize(("kind", "content", "message"), NOTED)
def test_what_a_person_should_look_at(folder: Path, kind: str, content: Document, message: str) -> None:
    summary = checked(content, folder, clean=folder.parent / "clean.json")
    assert set(summary.kind_counts) == {kind}
    assert (message in str(summary), summary.errors) == (True, 0)
    da.CocoReader(folder, summary.annotations, tight=True, rotated=True)
    assert json.loads((folder.parent / "clean.json").read_text()) == content or kind in CHANGED


def test_an_outline_beside_its_image_is_empty(folder: Path) -> None:
    """Below an image of 100 x 80 pixels, where it would lie in one of 80 x 100; and one of which a strip is inside."""
    below, partly = [[10, 82, 30, 82, 30, 98, 10, 98]], [[10, 79, 30, 79, 30, 98, 10, 98]]
    assert checked(first_annotation(segmentation=below), folder).kind_counts["segmentation-empty"] == 1
    assert "segmentation-empty" not in checked(first_annotation(segmentation=partly), folder).kind_counts


def test_every_kind_has_a_test() -> None:
    kinds = {kind for kind in CHECK_KINDS if kind.startswith(("segmentation-", "corners-", "keypoints-"))}
    errors = {kind for kind in kinds if kind.endswith("-relative")}  # test_check.py
    assert {case[0] for case in [*REFUSED, *NOTED]} | {"segmentation-repeated", "keypoints-swapped"} == kinds - errors


def faces(swapped: int) -> Document:
    """Return a JSON file with 100 faces seen from the front, so the left of each is on the right of the image."""
    content, rng = document(), np.random.default_rng(0)
    names = ["left_eye", "right_eye", "nose", "left_ear", "right_ear"]
    content["categories"][0] |= {"keypoints": names}
    content["annotations"] = []
    for number in range(1, 101):
        x, y = rng.uniform((20, 20), (80, 60))
        places = [(x + 5, y), (x - 5, y), (x, y + 4), (x + 9, y + 2), (x - 9, y + 2)]
        if number <= swapped:
            places = [places[at] for at in (1, 0, 2, 4, 3)]
        elif number == 100:  # in profile
            places[3] = (x - 12, y + 2)
        box = {"id": number, "image_id": 1 + number % 3, "category_id": 1, "bbox": [x - 10, y - 5, 20, 15]}
        keypoints = [value for place in places for value in (*place, 2)]
        content["annotations"].append(box | {"area": 300, "iscrowd": 0, "keypoints": keypoints, "num_keypoints": 5})
    return content


@pytest.mark.parametrize("swapped", [0, 3, 20, 96])
def test_sides_that_are_swapped(folder: Path, swapped: int) -> None:
    found = [each for each in checked(faces(swapped), folder).findings if each.kind == "keypoints-swapped"]
    numbers = {0: set[int](), 3: {1, 2, 3}, 20: set[int](), 96: {97, 98, 99}}[swapped]  # of most, nobody can tell
    assert {each.id for each in found} == numbers
    share = {3: "97.0%", 96: "97.0%"}.get(swapped, "")
    assert all(f"the left of 2 pairs of keypoints lies where {share} of the objects" in each.message for each in found)


def test_annotations_with_one_mask_and_two_boxes(folder: Path) -> None:
    found = checked(twins([10, 10, 24, 30]), folder)
    assert set(found.kind_counts) == {"segmentation-repeated", "segmentation-box"}
    assert "annotations[1] (id 2, a.jpg): 'dog' with the mask of annotations[0], IoU 1.00" in str(found)
    (twin,) = [each for each in found.findings if each.kind == "segmentation-repeated"]
    assert twin.like == "annotations[0]"
    assert set(checked(twins([10, 10, 20.2, 30.2]), folder).kind_counts) == {"box-nearly-repeated"}  # the boxes tell


@pytest.mark.parametrize("change", [{"category_id": 1}, {"image_id": 2}, {"iscrowd": 1}, {"segmentation": [RING[2:]]}])
def test_annotations_that_are_no_twins(folder: Path, change: Document) -> None:
    content = twins([10, 10, 24, 30])
    content["annotations"][1] |= change
    assert "segmentation-repeated" not in checked(content, folder).kind_counts


def test_twins_of_run_lengths(folder: Path) -> None:
    content = twins([10, 10, 24, 30])
    mask = np.zeros((80, 100), np.uint8)
    mask[10:40, 10:30] = 1
    runs = coco_mask.encode(np.asfortranarray(mask))
    content["annotations"][1]["segmentation"] = {"size": [80, 100], "counts": runs["counts"].decode()}
    assert checked(content, folder).kind_counts["segmentation-repeated"] == 1
    mask[10:12] = 0
    runs = coco_mask.encode(np.asfortranarray(mask))
    content["annotations"][1]["segmentation"] = {"size": [80, 100], "counts": runs["counts"].decode()}
    assert "segmentation-repeated" not in checked(content, folder).kind_counts


def test_crowds_and_rotated_boxes_need_no_outline(folder: Path) -> None:
    content = without_outline()
    content["annotations"][3]["iscrowd"] = 1
    assert "segmentation-missing" not in checked(content, folder).kind_counts
    content = without_outline(4)
    content["annotations"][4]["corners"] = [[60, 50], [100, 50], [100, 80], [60, 80]]
    assert "segmentation-missing" not in checked(content, folder).kind_counts
    content = document()
    assert not checked(content, folder).kind_counts  # none has one
    content["annotations"][0] |= {"iscrowd": 1, "segmentation": [RING]}
    assert not checked(content, folder).kind_counts


def test_num_keypoints_is_counted_again(folder: Path) -> None:
    content, clean = first_annotation(keypoints=[10, 10, 2, 0, 0, 0], num_keypoints=2), folder.parent / "clean.json"
    summary = checked(content, folder, clean=clean)
    assert "1 annotation got another num_keypoints" in str(summary.cleaned)
    assert json.loads(clean.read_text())["annotations"][0]["num_keypoints"] == 1


def test_boxes_of_painted_masks_and_polygons_agree(folder: Path) -> None:
    """pycocotools' boxes and areas of shapes that Pillow paints are no findings, a shifted box is one."""
    rng, content = np.random.default_rng(0), document()
    row = content["annotations"][0]
    content["annotations"] = []
    for number in range(60):
        angles, radius = np.arange(12) / 12 * 2 * np.pi, rng.uniform(7, 10, (12, 1))
        ring = rng.uniform((15, 15), (85, 65)) + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        ring = ring.round(1)
        image = Image.new("L", (100, 80))
        ImageDraw.Draw(image).polygon([tuple(point) for point in ring.tolist()], fill=1)
        runs = coco_mask.encode(np.asfortranarray(np.asarray(image)))
        if number % 2:
            runs = coco_mask.frPyObjects([ring.ravel().tolist()], 80, 100)[0]
        area, box = float(coco_mask.area(runs)), coco_mask.toBbox(runs).tolist()
        segmentation: Any = {"size": [80, 100], "counts": runs["counts"].decode()}
        segmentation = [ring.ravel().tolist()] if number % 2 else segmentation
        more = {"id": number + 1, "segmentation": segmentation, "area": area, "bbox": box, "image_id": 1 + number % 3}
        content["annotations"].append(row | more)
    usual = {"box-nearly-repeated", "box-repeated", "box-unusual", "class-empty"}
    assert set(checked(content, folder).kind_counts) <= usual
    for each in content["annotations"]:
        each["bbox"][0] += 3 if each["bbox"][0] < 40 else -3
    assert checked(content, folder).kind_counts["segmentation-box"] == len(content["annotations"])


def test_crossing_rings_are_those_of_shapely() -> None:
    rng = np.random.default_rng(1)
    rings = [rng.uniform(0, 20, (n, 2)).astype(np.float32).astype(float) for n in rng.integers(3, 7, 400)]
    first = np.concatenate([[0], np.cumsum([len(ring) for ring in rings])])
    found = crossing_rings(np.concatenate(rings), first)
    assert found.tolist() == [not LinearRing(ring).is_simple for ring in rings]
    assert 100 < found.sum() < 300


def test_crossing_rings_of_many_points_and_of_none() -> None:
    angles = np.linspace(0, 2 * np.pi, 3000, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    knot = circle.copy()
    knot[[10, 1500]] = knot[[1500, 10]]
    points = np.concatenate([circle, knot])
    assert crossing_rings(points, np.array([0, 3000, 6000])).tolist() == [False, True]
    assert crossing_rings(np.zeros((0, 2)), np.array([0])).tolist() == []


@pytest.mark.slow
def test_thirty_thousand_annotations_take_seconds(tmp_path: Path) -> None:
    """Processor time: 5.6 s were measured for 100,000 on one machine, while others used it too."""
    (tmp_path / "images").mkdir()
    Image.new("RGB", (640, 480)).save(tmp_path / "images/a.jpg")
    rng, angles = np.random.default_rng(0), np.linspace(0, 2 * np.pi, 30, endpoint=False)
    annotations = []
    for number in range(1, 30_001):
        center, radius = rng.uniform((60, 60), (580, 420)), rng.uniform(20, 50, 30)
        ring = (center + radius[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)).round(2)
        low, high = ring.min(0), ring.max(0)
        keypoints = np.concatenate([ring[:17], np.full((17, 1), 2)], axis=1).ravel().tolist()
        row = {"id": number, "image_id": number % 5000, "category_id": 1, "segmentation": [ring.ravel().tolist()]}
        annotations.append(row | {"bbox": [*low.tolist(), *(high - low).tolist()], "keypoints": keypoints})
    images = [{"id": n, "file_name": f"{n}/../a.jpg", "width": 640, "height": 480} for n in range(5000)]
    categories = [{"id": 1, "name": "a", "flip_idx": [*range(17)]}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    from detaug.check.shapes import check_shapes
    from detaug.coco.examine import examine_file

    table = examine_file(write(tmp_path / "a.json", content))
    start = time.process_time()
    assert {found.kind for found in check_shapes(table)} == set()
    assert time.process_time() - start < 6


@pytest.mark.parametrize(
    ("rings", "is_between"),
    [
        ([[10, 10.6, 50, 10.6, 50, 11.4, 10, 11.4]], True),  # a strip between two rows of centers
        ([[10, 10.6, 50, 10.6, 50, 11.6, 10, 11.6]], False),
        ([[20.6, 10, 21.4, 10, 21.4, 40, 20.6, 40]], True),
        ([[20.6, 10, 21.4, 10, 21.4, 40, 20.6, 40], [30, 30, 40, 30, 40, 40]], False),
        ([[20.6, 10, 21.4, 10, 21.4, 40, 20.6, 40], [40.6, 10, 41.4, 10, 41.4, 40, 40.6, 40]], True),
        ([[10, 11, 11, 10, 30, 29, 29, 30]], False),  # along the diagonal, over centers
        ([[10.2, 10.7, 10.7, 10.2, 30.7, 30.2, 30.2, 30.7]], False),
        ([[10.6, 10.1, 11, 10.1, 30.9, 30, 30.5, 30]], True),  # beside it
        ([[10, 10, 10.4, 10, 10.4, 10.4, 10, 10.4]], True),
        ([[10, 10, 10.8, 10, 10.8, 10.8, 10, 10.8]], False),
    ],
)
def test_outlines_between_the_centres_of_pixels(folder: Path, rings: list[Any], is_between: bool) -> None:
    points = np.concatenate([np.reshape(ring, (-1, 2)) for ring in rings])
    low, high = points.min(0), points.max(0)
    content = first_annotation(segmentation=rings, bbox=[*low.tolist(), *(high - low).tolist()])
    assert ("segmentation-between" in checked(content, folder).kind_counts) == is_between
