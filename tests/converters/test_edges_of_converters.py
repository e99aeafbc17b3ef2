"""First entries, equal signs and second coordinates of the converters, each of which a small slip would change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from coco_files import document, write
from format_files import converted, data_set, kinds, refused

from detaug.coco.boxes import BoxNumbers, box_of_shape, joined_numbers
from detaug.converters import merge_coco, split_coco
from detaug.converters.voc.xml import to_coco_box
from detaug.converters.yolo.labels import LabelLog, RowForm, read_boxes

SIZE = (80, 100)
"""(height, width)"""


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"keypoints": [9.5, 19.5, 2, 29.5, 59.5, 1, 0, 0, 0]}, [10, 20, 20, 40]),
        ({"keypoints": [-9, 19.5, 2, 29.5, 99, 1]}, [0, 20, 30, 60]),  # cut at the edges
        ({"corners": [[10, 20], [40, 25], [38, 60], [8, 55]]}, [8, 20, 32, 40]),
        ({"corners": [[10, 20], [40, 25], [38, 60]]}, None),
        ({"corners": [[10, 20], [40, 25], [38, 60], [8, 55], [7, 30]]}, None),
        ({"segmentation": [[10, 20, 40, 20, 40, 60], [50, 10, 70, 10, 70, 30]]}, [10, 10, 60, 50]),
        ({"segmentation": [[10, 20, 10.009, 20, 10.009, 60]]}, None),
        ({"segmentation": [[10, 20, 10.01, 20, 10.01, 60]]}, [10, 20, 0.01, 40]),
        ({"segmentation": {"size": [80, 100], "counts": [80 * 3 + 5, 10, 70, 20, 8000 - 345]}}, [3, 5, 2, 20]),
    ],
)
def test_the_box_of_a_shape(row: dict[str, Any], expected: list[float] | None) -> None:
    assert box_of_shape(row, SIZE) == expected


@pytest.mark.parametrize(
    ("corners", "kind"),
    [
        ((10, -30, 20, 0), "box-outside"),
        ((10, -30, 20, 1), "box-clipped"),
        ((10, 81, 20, 99), "box-outside"),
        ((-30, 10, 0, 20), "box-outside"),
        ((101, 10, 120, 20), "box-outside"),
        ((100, 80, 120, 99), "box-clipped"),
        ((10, 10, 9.001, 20), "box-empty"),
        ((10, 10, 20, 9.001), "box-empty"),
        ((10, -5, 20, -5.999), "box-outside"),  # thin, and past an edge
        ((10, 90, 20, 89.001), "box-outside"),
        ((-5, 10, -5.999, 20), "box-outside"),
        ((110, 10, 109.001, 20), "box-outside"),
    ],
)
def test_where_a_box_of_voc_ends(corners: tuple[float, ...], kind: str) -> None:
    box, found = to_coco_box(corners, "one", SIZE)  # type: ignore[arg-type]
    assert found == (kind,)
    assert (box is None) == (kind != "box-clipped")


@pytest.mark.parametrize(("number", "is_relative"), [(-0.01, True), (-0.011, False), (1.01, True), (1.011, False)])
@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_the_limits_of_yolos_numbers(number: float, is_relative: bool, at: int) -> None:
    row = [0.1, 0.1, 0.5, 0.1, 0.5, 0.5, 0.2, 0.4]
    row[at] = number
    log = LabelLog("a.txt", [])
    boxes = [*read_boxes(" ".join(map(str, [0, *row])), RowForm(1), SIZE, log)]
    assert bool(boxes) == is_relative
    assert ("row-not-relative" in {finding.kind for finding in log.findings}) != is_relative


@pytest.mark.parametrize(("rows", "is_right"), [(0, False), (1, False), (2, True), (3, False)])
def test_the_number_of_rows_of_wider_face(tmp_path: Path, rows: int, is_right: bool) -> None:
    text = "a.jpg\n2\n" + "10 10 20 20 0 0 0 0 0 0\n" * rows + "b.jpg\n1\n1 2 30 40 0 0 0 0 0 0\n"
    folder = data_set(tmp_path / "set", {"wider_face_train_bbx_gt.txt": text}, "a.jpg", "b.jpg")
    if is_right:
        assert len(converted(folder)[0]["annotations"]) == 3
    else:
        assert f"got the number 2 and {rows} rows" in refused(folder, format="wider-face")


@pytest.mark.parametrize(
    ("right", "expected"), [(1, [0, 0, 100, 80]), (1.01, [0, 0, 100, 80]), (1.02, [0, 0, 1.02, 1])]
)
def test_a_table_is_relative_up_to_the_whole_image(tmp_path: Path, right: float, expected: list[float]) -> None:
    text = f"filename,class,xmin,ymin,xmax,ymax\na.jpg,cat,0,0,{right},1\n"
    document, _ = converted(data_set(tmp_path / "set", {"a.csv": text}, "a.jpg"), check=False)
    assert [row["bbox"] for row in document["annotations"]] == [expected]


def task(*results: dict[str, Any], **data: Any) -> dict[str, Any]:
    return {"id": 1, "data": {"image": "a.jpg"} | data, "annotations": [{"result": results}]}


def region(label: str, **more: Any) -> dict[str, Any]:
    value = {"x": 10, "y": 10, "width": 20, "height": 25, "rotation": 0, "rectanglelabels": [label]}
    size = {"original_width": 100, "original_height": 80}
    return {"id": label, "type": "rectanglelabels", "from_name": "l", "to_name": "image", "value": value, **size} | more


def studio(folder: Path, *tasks: dict[str, Any]) -> Path:
    return data_set(folder, {"tasks.json": json.dumps(tasks)}, "a.jpg", "b.jpg")


def test_the_first_of_several_annotations_and_the_first_page_of_label_studio(tmp_path: Path) -> None:
    several = task(region("first")) | {"annotations": [{"result": [region(name)]} for name in ("first", "second")]}
    assert converted(studio(tmp_path / "several", several))[1].class_counts == {"first": 1}
    pages = task(region("one", item_index=0), region("two", item_index=1), image=["a.jpg", "b.jpg"])
    document, _ = converted(studio(tmp_path / "pages", pages))
    names = {row["id"]: row["file_name"] for row in document["images"]}
    assert [names[row["image_id"]] for row in document["annotations"]] == ["a.jpg", "b.jpg"]
    for number in (-1, 2):
        pages = task(region("one", item_index=number), image=["a.jpg", "b.jpg"])
        assert "item_index must be from 0 to 1" in refused(studio(tmp_path / f"page{number}", pages))


def test_key_points_are_in_the_pixels_of_both_sides(tmp_path: Path) -> None:
    """The task says another size than that of the file: 200 x 240, so that x and y have other scales."""
    point = {"x": 25, "y": 50, "width": 1, "keypointlabels": ["nose"]}
    point = region("p", type="keypointlabels", parentID="cat", value=point)
    size = {"original_width": 200, "original_height": 240}
    results = [each | size for each in (region("cat"), point)]
    document, summary = converted(studio(tmp_path / "set", task(*results)))
    assert document["annotations"][0]["keypoints"] == [24.5, 39.5, 2]
    assert kinds(summary)["size-conflict"] == 1


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([[10, 10], [50, 10], [50, 99]], [10, 10, 40, 70]),
        ([[10, -9], [50, -9], [50, 40]], [17.347, 0, 32.653, 40]),
        ([[60, 10], [160, 10], [160, 40]], [60, 10, 40, 12]),
        ([[-40, 10], [50, 10], [50, 40]], [0, 10, 50, 30]),
    ],
)
def test_outlines_are_cut_at_each_edge(tmp_path: Path, points: list[Any], expected: list[float]) -> None:
    shape = {"label": "cat", "points": points, "shape_type": "polygon"}
    files = {"a.json": json.dumps({"version": "5", "shapes": [shape], "imagePath": "a.jpg"})}
    document, summary = converted(data_set(tmp_path / "set", files, "a.jpg"))
    assert document["annotations"][0]["bbox"] == pytest.approx(expected)
    assert kinds(summary) == {"outline-cut": 1}


def test_an_ellipse_of_via_turns_clockwise(tmp_path: Path) -> None:
    ellipse = {"name": "ellipse", "cx": 50, "cy": 40, "rx": 20, "ry": 2, "theta": 0.6}
    region = {"shape_attributes": ellipse, "region_attributes": {"name": "cat"}}
    files = {"via.json": json.dumps({"a.jpg9": {"filename": "a.jpg", "size": 9, "regions": [region]}})}
    document, _ = converted(data_set(tmp_path / "set", files, "a.jpg"))
    ring = document["annotations"][0]["segmentation"][0]
    furthest = max(zip(ring[::2], ring[1::2], strict=True))  # at (cos 0.6, sin 0.6) times 20: right and below
    assert furthest == pytest.approx((50 + 20 * 0.8253, 40 + 20 * 0.5646), abs=0.2)


def test_splits_of_images_with_classes_of_their_own(tmp_path: Path) -> None:
    """Images have a class, and no boxes: each class goes to both files."""
    images = [{"id": n, "file_name": f"{n}.jpg", "width": 9, "height": 9, "category_id": 1 + n % 4} for n in range(40)]
    categories = [{"id": n, "name": str(n)} for n in range(1, 5)]
    source = write(tmp_path / "a.json", {"images": images, "annotations": [], "categories": categories})
    split_coco(source, [tmp_path / "b.json", tmp_path / "c.json"], (50, 50))
    for name in ("b.json", "c.json"):
        classes = [row["category_id"] for row in json.loads((tmp_path / name).read_bytes())["images"]]
        assert [classes.count(number) for number in range(1, 5)] == [5] * 4


def test_a_first_file_that_would_be_empty(tmp_path: Path) -> None:
    source = write(tmp_path / "a.json", document())
    for at in (0, 1):
        shares = [99.9, 99.9]
        shares[at] = 0.01
        with pytest.raises(ValueError, match=f"{'bc'[at]}.json would get none of the images"):
            split_coco(source, [tmp_path / "b.json", tmp_path / "c.json"], shares)


def test_groups_of_a_pattern_are_its_groups(tmp_path: Path) -> None:
    """The pattern also matches the number of the frame, which is in no group of it."""
    content = document()
    for row, name in zip(content["images"], ("p1_f1.jpg", "p1_f2.jpg", "p2_f1.jpg"), strict=True):
        row["file_name"] = name
    source = write(tmp_path / "a.json", content)
    split_coco(source, [tmp_path / "b.json", tmp_path / "c.json"], (50, 50), group_name=r"(p\d)_f\d")
    names = [
        {row["file_name"][:2] for row in json.loads((tmp_path / name).read_bytes())["images"]}
        for name in ("b.json", "c.json")
    ]
    assert sorted(map(sorted, names)) == [["p1"], ["p2"]]


def test_tiles_of_the_first_image_are_of_image_1_after_a_merge(tmp_path: Path) -> None:
    content = document()
    for row in content["images"]:
        row["tile_of"] = {"id": row["id"] + 6, "file_name": f"whole/{row['id']}.jpg"}
    other = document()
    for row in other["images"]:
        row["file_name"] = f"other/{row['file_name']}"
    paths = [write(tmp_path / name, each) for name, each in (("a.json", content), ("b.json", other))]
    merge_coco(paths, tmp_path / "c.json")
    rows = json.loads((tmp_path / "c.json").read_bytes())["images"]
    assert [row["tile_of"]["id"] for row in rows if "tile_of" in row] == [1, 2, 3]


@pytest.mark.parametrize(
    ("fit", "far", "is_fault"), [(100, 20, True), (99, 20, True), (98, 20, False), (100, 19, False)]
)
def test_how_many_boxes_tell_corners_from_sizes(fit: int, far: int, is_fault: bool) -> None:
    """Of 100 boxes, in images of 100 x 80, in two parts."""
    corners = [[60, 40, 65, 45]] * far + [[10, 10, 30, 30]] * (fit - far) + [[50, 10, 20, 30]] * (100 - fit)
    parts = [BoxNumbers(), BoxNumbers()]
    for at, (x, y, right, bottom) in enumerate(corners):
        parts[at % 2].add([(x, y, x + right, y + bottom)], (), SIZE)
    assert bool(joined_numbers(parts).fault()) == is_fault


@pytest.mark.parametrize(
    ("boxes", "is_fault"),
    [
        ([(0, 0, 1, 1), (0, 0, 1, 1)], False),  # the first pixel, twice
        ([(0, 0, 1, 1), (0, 0.5, 1, 1)], True),
        ([(0, 0, 1, 1.1), (0, 0.5, 1, 1)], False),
        ([], False),
    ],
)
def test_numbers_that_are_relative(boxes: list[Any], is_fault: bool) -> None:
    numbers = BoxNumbers()
    numbers.add(boxes, (), SIZE)
    assert bool(numbers.fault()) == is_fault
    numbers = BoxNumbers()
    numbers.add(boxes, (), (15, 100))  # in so small an image pixels are in 0..1 too
    assert not numbers.fault()
