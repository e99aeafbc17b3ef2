"""COCO JSON file to LabelMe, CVAT and tables, and back with `detaug convert`: the same objects."""

from __future__ import annotations

import json
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import Document, document, write
from command import detaug
from even_odd import even_odd
from format_files import data_set, kinds
from pycocotools import mask as coco_mask

from detaug.converters import (
    ConversionError,
    Summary,
    coco_to_csv,
    coco_to_cvat,
    coco_to_dota,
    coco_to_label_studio,
    coco_to_labelme,
    coco_to_voc,
    coco_to_yolo,
)

NAMES = ("ä ö.jpg", "sub dir/b & <c>.jpg", "sub dir/ö/b.jpg", "empty.jpg")
CLASSES = ("zebra & <co>", "person", "ship", "unused")
POINTS = ["nose", "left <eye>", 'right "eye"']
RING = [[10, 10, 30, 10, 10, 40]]
BLOB = np.random.default_rng(0).random((12, 9)) > 0.4


def runs_of(mask: Any) -> dict[str, Any]:
    encoded = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": encoded["size"], "counts": encoded["counts"].decode()}


def annotation(number: int, image: int, category: int, box: list[float], **more: Any) -> dict[str, Any]:
    return {"id": number, "image_id": image, "category_id": category, "bbox": box, "iscrowd": 0, **more}


def everything() -> Document:
    """Return a JSON file with every kind of shape, of images of 100 x 80 pixels, as `detaug convert` writes it."""
    blob, crowd = np.zeros((80, 100), bool), np.zeros((80, 100), bool)
    blob[20:32, 30:39] = BLOB
    rows, columns = np.flatnonzero(blob.any(1)), np.flatnonzero(blob.any(0))
    around = [int(columns[0]), int(rows[0]), int(np.ptp(columns) + 1), int(np.ptp(rows) + 1)]
    crowd[:10, 50:] = True
    turned = [[35.392, 25.67], [55.392, 35.67], [50.92, 44.614], [30.92, 34.614]]
    ring = [number for corner in turned for number in corner]
    rings = [[10, 10, 40.5, 12, 30, 40.125], [50, 50, 60, 50, 60, 60, 50, 60]]
    flat = [[60, 20], [90, 20], [90, 30], [60, 30]]
    flat_ring = [number for corner in flat for number in corner]
    points = [19.5, 29.25, 2, 24.5, 24.5, 1, 0, 0, 0]
    annotations = [
        annotation(1, 1, 1, [10.25, 10, 20.5, 30.125], color="red & <blue>"),
        annotation(2, 1, 1, [10, 10, 50, 50], segmentation=rings),
        annotation(3, 1, 3, [30.92, 25.67, 24.472, 18.944], segmentation=[ring], corners=turned),
        annotation(4, 2, 1, around, segmentation=runs_of(blob)),
        annotation(5, 2, 1, [50, 0, 50, 10], segmentation=runs_of(crowd), iscrowd=1),
        annotation(6, 2, 2, [15, 20, 20.5, 40], keypoints=points, num_keypoints=2),
        annotation(7, 3, 2, [20, 25, 5, 4.75], keypoints=points, num_keypoints=2),
        annotation(8, 3, 2, [10, 10, 20, 30], segmentation=RING, keypoints=points, num_keypoints=2),
        annotation(9, 3, 3, [60, 20, 30, 10], segmentation=[flat_ring], corners=flat, occluded=1),
        annotation(10, 3, 2, [0, 0, 100, 80]),
        annotation(11, 1, 3, [31, 26, 24, 18], segmentation=[[31, 34, 36, 26, 55, 36, 50, 44]], corners=turned),
        annotation(12, 2, 3, around, segmentation=runs_of(blob), corners=turned),
    ]  # fmt: skip
    images = [{"id": n, "file_name": name, "width": 100, "height": 80} for n, name in enumerate(NAMES, 1)]
    categories: list[dict[str, Any]] = [{"id": n, "name": name} for n, name in enumerate(CLASSES, 1)]
    categories[1] |= {"keypoints": POINTS, "skeleton": [[1, 2], [1, 3]]}
    return {"images": images, "annotations": annotations, "categories": categories}


_UNCOMPARED = ("id", "image_id", "category_id", "num_keypoints", "area", "tool_id")


def objects(content: Document) -> dict[str, list[dict[str, Any]]]:
    """Return by file name what annotations have, without ids, corners in any order, keypoints by name."""
    found: dict[str, list[dict[str, Any]]] = {row["file_name"]: [] for row in content["images"]}
    names = {row["id"]: row["file_name"] for row in content["images"]}
    categories = {row["id"]: row for row in content["categories"]}
    for row in content["annotations"]:
        rest = {key: value for key, value in row.items() if key not in _UNCOMPARED}
        category = categories[row["category_id"]]
        if points := rest.pop("keypoints", None):
            labelled = zip(category["keypoints"], np.array(points).reshape(-1, 3).tolist(), strict=True)
            rest["points"] = {name: point for name, point in labelled if point[2]}
        if corners := rest.get("corners"):
            rest["corners"] = sorted(corners)
            if isinstance(rest["segmentation"], list):
                rest["segmentation"] = sorted(rest["segmentation"][0])
        found[names[row["image_id"]]].append({"class": category["name"], **rest})
    return found


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, numbers within a thousandth and its rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) <= 1.1e-3
    return bool(one == other)


def there_and_back(
    tmp_path: Path, content: Document, convert: Callable[..., Summary], **options: Any
) -> tuple[Document, Summary]:
    """Convert, run the command that the summary names, and return what it wrote."""
    images = data_set(tmp_path / "photos", {}, *(row["file_name"] for row in content["images"]))
    (tmp_path / "a.json").write_text(json.dumps(content), encoding="utf-8")
    summary = convert(tmp_path / "a.json", tmp_path / "out dir", images=images, **options)
    command = shlex.split(summary.next_step.removeprefix("and back: detaug "))
    command[command.index("again.json")] = str(tmp_path / "again.json")
    result = detaug(*command)
    assert result.code == 0, result.err
    return json.loads((tmp_path / "again.json").read_bytes()), summary


@pytest.mark.parametrize(
    "convert", [coco_to_csv, coco_to_cvat, coco_to_dota, coco_to_label_studio, coco_to_labelme, coco_to_voc]
)
def test_the_way_back_from_files_without_images(tmp_path: Path, convert: Callable[..., Summary]) -> None:
    """The folder of the images is not known: the command has a word to replace by it."""
    images = data_set(tmp_path / "photos", {}, "a.jpg", "b.jpg", "sub/c.png")
    summary = convert(write(tmp_path / "a.json", document()), tmp_path / "out")
    command = shlex.split(summary.next_step.removeprefix("and back: detaug "))
    command[command.index("-o") + 1] = str(tmp_path / "again.json")
    result = detaug(*(str(images) if word == "IMAGES" else word for word in command))
    assert result.code == 0, result.err


@pytest.mark.parametrize("with_images", ["none", "link", "copy"])
def test_labelme(tmp_path: Path, with_images: str) -> None:
    again, summary = there_and_back(tmp_path, everything(), coco_to_labelme, with_images=with_images)
    expected = objects(everything())
    found = objects(again)
    assert found.keys() == expected.keys()
    # LabelMe has no box beside a polygon, and the order of classes is that of labels.txt.
    for name, rows in expected.items():
        assert same(rows, found[name]), (name, rows, found[name])
    assert [row["name"] for row in again["categories"]] == [*CLASSES]
    assert kinds(summary) == {"key-dropped": 1, "points-order": 1}  # the skeleton
    assert (tmp_path / "out dir/sub dir/b & <c>.jpg").is_symlink() == (with_images == "link")
    written = json.loads((tmp_path / "out dir/sub dir/ö/b.json").read_bytes())
    assert (tmp_path / "out dir/sub dir/ö" / written["imagePath"]).is_file()


@pytest.mark.parametrize("with_images", ["none", "copy"])
def test_cvat(tmp_path: Path, with_images: str) -> None:
    again, summary = there_and_back(tmp_path, everything(), coco_to_cvat, with_images=with_images)
    expected, found = objects(everything()), objects(again)
    for rows in (*expected.values(), *found.values()):
        for row in rows:
            row["occluded"] = row.get("occluded", 0)  # every shape of CVAT has it
    for name, rows in expected.items():
        assert same(rows, found[name]), (name, rows, found[name])
    assert [row["name"] for row in again["categories"]] == [*CLASSES]
    assert again["categories"][1]["keypoints"] == POINTS
    assert again["categories"][1]["skeleton"] == [[1, 2], [1, 3]]
    assert kinds(summary) == {}
    root = ET.parse(tmp_path / "out dir/annotations.xml").getroot()
    assert [each.get("name") for each in root.iter("image")] == [*NAMES]


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # of pycocotools
@pytest.mark.parametrize("with_images", ["none", "copy"])
def test_label_studio(tmp_path: Path, with_images: str) -> None:
    again, summary = there_and_back(tmp_path, everything(), coco_to_label_studio, with_images=with_images)
    expected, found = objects(everything()), objects(again)
    two_rings, joined = expected["ä ö.jpg"][1], found["ä ö.jpg"][1]
    masks = [
        coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(each.pop("segmentation"), 80, 100)))
        for each in (two_rings, joined)
    ]
    assert (masks[0] != masks[1]).sum() <= 2  # the bridge between the rings has no width
    for each in (expected["ä ö.jpg"][3], expected["sub dir/b & <c>.jpg"][3]):
        del each["corners"]  # beside a polygon, or a mask
    expected["ä ö.jpg"][3]["segmentation"] = [[31, 34, 36, 26, 55, 36, 50, 44]]
    for name, rows in expected.items():
        assert same(rows, found[name]), (name, rows, found[name])
    assert [row["name"] for row in again["categories"]] == [*CLASSES]
    assert kinds(summary) == {"rings-joined": 1, "key-dropped": 2, "points-order": 1}
    config = ET.parse(tmp_path / "out dir/label_config.xml").getroot()
    assert [label.get("value") for label in config.iterfind("RectangleLabels/Label")] == [*CLASSES]
    tasks = json.loads((tmp_path / "out dir/tasks.json").read_bytes())
    used = {result["from_name"] for task in tasks for result in task["annotations"][0]["result"]}
    assert used == {each.get("name") for each in config if each.tag != "Image"}


def test_predictions_of_label_studio(tmp_path: Path) -> None:
    source = write(tmp_path / "a.json", everything())
    coco_to_label_studio(source, tmp_path / "out", kind="predictions", image_root="s3://photos/")
    tasks = json.loads((tmp_path / "out/tasks.json").read_bytes())
    assert [task["data"]["image"] for task in tasks] == [f"s3://photos/{name}" for name in NAMES]
    assert {"annotations"} & tasks[0].keys() == set()
    (box, about, *_) = tasks[0]["predictions"][0]["result"]
    value = {"x": 10.25, "y": 12.5, "width": 20.5, "height": 37.65625, "rotation": 0}
    assert same(box["value"], value | {"rectanglelabels": [CLASSES[0]]})
    assert (about["id"], about["value"]["text"]) == (box["id"], ["red & <blue>"])
    assert "score" not in tasks[0]["predictions"][0]


def test_scores_are_those_of_label_studio(tmp_path: Path) -> None:
    document = everything()
    wanted = {str(row["id"]): round(1 / (at + 2), 4) for at, row in enumerate(document["annotations"])}
    for row in document["annotations"]:
        row["score"] = wanted[str(row["id"])]
    summary = coco_to_label_studio(write(tmp_path / "a.json", document), tmp_path / "out", kind="predictions")
    assert not [each for each in summary.findings if "score" in f"{each.before} {each.note}"]
    found = {}
    for task in json.loads((tmp_path / "out/tasks.json").read_bytes()):
        (prediction,) = task["predictions"]
        scores = {each["id"]: each["score"] for each in prediction["result"] if "score" in each}
        assert prediction.get("score") == (pytest.approx(np.mean([*scores.values()])) if scores else None)
        found |= scores
    assert found == wanted
    assert 'name="score"' not in (tmp_path / "out/label_config.xml").read_text()


@pytest.mark.parametrize("style", ["tensorflow", "retinanet"])
def test_csv(tmp_path: Path, style: str) -> None:
    again, summary = there_and_back(tmp_path, everything(), coco_to_csv, style=style)
    keys = {"class", "bbox", "iscrowd"} | ({"color", "occluded"} if style == "tensorflow" else set())
    expected, found = (
        {name: [{key: row[key] for key in row.keys() & keys} for row in rows] for name, rows in objects(each).items()}
        for each in (everything(), again)
    )
    if style == "tensorflow":
        assert expected.pop("empty.jpg") == []
        assert kinds(summary) == {"image-without-row": 1, "key-dropped": 6}
    else:
        expected["sub dir/b & <c>.jpg"] = [row for row in expected["sub dir/b & <c>.jpg"] if not row["iscrowd"]]
        assert kinds(summary) == {"crowd-dropped": 1, "key-dropped": 8}
    assert same(expected, found)
    assert [row["name"] for row in again["categories"]] == [*CLASSES]


@pytest.mark.parametrize("convert", [coco_to_labelme, coco_to_cvat, coco_to_label_studio, coco_to_csv])
def test_any_boxes_come_back(tmp_path: Path, convert: Callable[..., Summary]) -> None:
    chance = np.random.default_rng(1)
    content = everything() | {"annotations": []}
    content["categories"] = without_points(content)
    for number in range(200):
        x, y = chance.uniform(0, 60, 2)
        box = [round(float(value), int(chance.integers(0, 7))) for value in (x, y, *chance.uniform(0.5, 20, 2))]
        content["annotations"].append(annotation(number + 1, 1 + number % 4, 1 + number % 2, box))
    again, summary = there_and_back(tmp_path, content, convert)
    for row in again["annotations"]:
        assert row.pop("occluded", 0) == 0  # every shape of CVAT has it
    assert same(objects(content), objects(again))
    assert kinds(summary) == {}


def without_points(content: Document) -> list[dict[str, Any]]:
    """Return the categories without the names and the skeleton of keypoints."""
    return [{key: row[key] for key in ("id", "name")} for row in content["categories"]]


def lost(tmp_path: Path, convert: Callable[..., Summary], *annotations: dict[str, Any]) -> dict[str, int]:
    """Return what is counted for a JSON file of these annotations."""
    tmp_path.mkdir()
    content = everything() | {"annotations": [*annotations]}
    content["categories"] = without_points(content)
    return kinds(convert(write(tmp_path / "a.json", content), tmp_path / "out"))


UNEVEN = [[10, 10], [40, 12], [38, 40], [12, 30]]


def test_what_is_lost_is_counted(tmp_path: Path) -> None:
    own_box = annotation(1, 1, 1, [5, 5, 50, 50], segmentation=RING, track_id=7)
    assert lost(tmp_path / "1", coco_to_labelme, own_box) == {"box-outline": 1, "key-dropped": 1}
    assert lost(tmp_path / "2", coco_to_cvat, own_box) == {"key-dropped": 1}
    uneven = annotation(1, 1, 1, [10, 10, 30, 30], corners=UNEVEN, wheels=4, of="a", parts=["a"])
    assert lost(tmp_path / "3", coco_to_cvat, uneven) == {"corners-outline": 1, "value-text": 2}
    assert lost(tmp_path / "4", coco_to_labelme, uneven) == {}
    assert lost(tmp_path / "5", coco_to_csv, uneven) == {"image-without-row": 3, "key-dropped": 2}
    other_box = annotation(1, 1, 1, [1, 1, 9, 9], corners=[[60, 20], [90, 20], [90, 30], [60, 30]])
    assert lost(tmp_path / "6", coco_to_cvat, other_box) == {"box-outline": 1}
    assert lost(tmp_path / "8", coco_to_label_studio, own_box) == {"box-outline": 1, "key-dropped": 1}
    counts = {"corners-outline": 1, "value-text": 1}
    assert lost(tmp_path / "9", coco_to_label_studio, uneven) == counts
    groups = [annotation(n, 1, 1, [10, 10, 20, 30], segmentation=RING, group_id=3) for n in (1, 2)]
    assert lost(tmp_path / "7", coco_to_cvat, *groups) == {"key-dropped": 1}


@pytest.mark.parametrize("convert", [coco_to_labelme, coco_to_cvat, coco_to_label_studio])
def test_the_area_of_a_box_is_counted(tmp_path: Path, convert: Callable[..., Summary]) -> None:
    points = {"keypoints": [20, 20, 2, 30, 20, 2], "num_keypoints": 2}
    assert lost(tmp_path / "1", convert, annotation(1, 1, 1, [10, 10, 20, 30], area=600)) == {}
    assert lost(tmp_path / "2", convert, annotation(1, 1, 1, [10, 10, 20, 30], area=310)) == {"key-dropped": 1}
    content = everything()
    content["categories"][0]["keypoints"] = ["nose", "tail"]  # their scores are relative to the area
    content["annotations"] = [annotation(1, 1, 1, [10, 10, 20, 30], area=310, **points)]
    summary = convert(write(tmp_path / "a.json", content), tmp_path / "out")
    assert ["annotations.area", 1] in [finding.before for finding in summary.findings]


KEPT_OF_CATEGORIES: list[tuple[Callable[..., Summary], dict[str, Any], set[str]]] = [
    (coco_to_labelme, {}, {"keypoints"}),
    (coco_to_cvat, {}, {"keypoints", "skeleton"}),
    (coco_to_label_studio, {}, {"keypoints"}),
    (coco_to_csv, {}, set()),
    (coco_to_voc, {}, set()),
    (coco_to_dota, {}, set()),
    (coco_to_yolo, {}, set()),
    (coco_to_yolo, {"task": "pose"}, {"keypoints", "flip_idx"}),
]


@pytest.mark.parametrize(("convert", "options", "kept"), KEPT_OF_CATEGORIES)
def test_keys_of_categories_without_a_place_are_counted(
    tmp_path: Path, convert: Callable[..., Summary], options: dict[str, Any], kept: set[str]
) -> None:
    content = everything()
    points = {"keypoints": ["nose", "tail"], "skeleton": [[1, 2]], "flip_idx": [0, 1]}
    content["categories"] = [
        {"id": 1, "name": "fish", "supercategory": "animal", **points},
        {"id": 2, "name": "ship", "supercategory": "vehicle", "color": [1, 2, 3], "isthing": 0},
        {"id": 3, "name": "none", "supercategory": "none"},  # these two say nothing
        {"id": 4, "name": "self", "supercategory": "self"},
    ]
    content["annotations"] = [annotation(1, 1, 1, [10, 10, 20, 30], keypoints=[20, 20, 2, 25, 25, 2])]
    summary = convert(write(tmp_path / "a.json", content), tmp_path / "out", **options)
    before = (finding.before for finding in summary.findings if finding.kind == "key-dropped")
    counts = {name: count for name, count in before if name.startswith("categories.")}  # type: ignore[misc]
    lost = {key: 1 for key in points if key not in kept} | {"supercategory": 2, "color": 1}
    assert counts == {f"categories.{key}": count for key, count in lost.items()}
    assert "categories.supercategory" in str(summary)


def test_groups_of_cvat(tmp_path: Path) -> None:
    boxes = [annotation(n, 1, 1, [n, 10, 20, 30], group_id=3) for n in (1, 2)]
    outline = annotation(3, 1, 2, [5, 5, 50, 50], segmentation=RING, group_id=3)
    own = annotation(4, 1, 1, [5, 5, 50, 50], segmentation=RING)  # of two shapes
    again, _ = there_and_back(tmp_path, everything() | {"annotations": [*boxes, outline, own]}, coco_to_cvat)
    rows = again["annotations"]
    assert [(row["bbox"], row.get("group_id")) for row in rows] == [
        *(([n, 10, 20, 30], 3) for n in (1, 2)),
        ([5, 5, 50, 50], None),  # its polygon and its box are a group of their own
        ([5, 5, 50, 50], None),
    ]


def test_columns_of_labelme(tmp_path: Path) -> None:
    columns = {
        "flags": {"far": True},
        "description": "a cat",
        "difficult": 1,
        "attribute_area": "wide",
        "deep": {"a": [1]},
    }
    content = everything() | {"annotations": [annotation(1, 1, 1, [10, 10, 20, 30], iscrowd=1) | columns]}
    again, _ = there_and_back(tmp_path, content, coco_to_labelme)
    assert {key: again["annotations"][0][key] for key in columns} == columns
    (shape,) = json.loads((tmp_path / "out dir/ä ö.json").read_bytes())["shapes"]
    assert shape["flags"] == {"far": True, "iscrowd": True}
    assert shape["attributes"] == {"area": "wide", "deep": {"a": [1]}}


def test_what_is_refused(tmp_path: Path) -> None:
    content = document()
    content["images"][1]["file_name"] = "a.png"  # and a.jpg
    for convert in (coco_to_cvat, coco_to_csv):
        assert convert(write(tmp_path / "a.json", content), tmp_path / convert.__name__).images == 3
    with pytest.raises(ConversionError, match="stem-repeated"):
        coco_to_labelme(tmp_path / "a.json", tmp_path / "labelme")
    content = document()
    content["categories"][0]["name"] = "__ignore__"
    with pytest.raises(ConversionError, match="a class named __ignore__ is not a class in LabelMe; rename it"):
        coco_to_labelme(write(tmp_path / "b.json", content), tmp_path / "labelme")
    assert not (tmp_path / "labelme").exists()
    with pytest.raises(ConversionError, match="exist with other content"):
        coco_to_csv(write(tmp_path / "a.json", everything()), tmp_path / "coco_to_csv")


# ---------------------------------------------------------------- several conversions, shards, overlapping rings

FOLDERS: list[Callable[..., Summary]] = [coco_to_yolo, coco_to_labelme, coco_to_dota]


@pytest.mark.parametrize("convert", FOLDERS)
def test_labels_of_an_earlier_conversion_are_not_mixed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, convert: Callable[..., Summary]
) -> None:
    """A folder of labels is the dataset: images of another split would be trained on."""
    monkeypatch.chdir(tmp_path)
    content = document()
    one, all_of_them = tmp_path / "one.json", write(tmp_path / "all.json", content)
    convert(all_of_them, tmp_path / "out")
    convert(all_of_them, "out")  # the same again
    (tmp_path / "out" / "classes.json").write_text("[]")  # no labels
    for folder in [path for path in (tmp_path / "out").rglob("*") if path.is_dir()] + [tmp_path / "out"]:
        (folder / "classes.txt").write_text("cat\n")
        (folder / "x.json").mkdir()
        (folder / "x.txt").mkdir()
    convert(all_of_them, tmp_path / "out")
    content["images"] = content["images"][:1]
    content["annotations"] = [row for row in content["annotations"] if row["image_id"] == 1]
    with pytest.raises(ConversionError, match=r"2 label files of another conversion .* such as .*out.*; give another"):
        convert(write(one, content), tmp_path / "out")
    assert convert(one, tmp_path / "another").images == 1


@pytest.mark.parametrize("convert", [*FOLDERS, coco_to_voc, coco_to_csv, coco_to_cvat, coco_to_label_studio])
def test_images_of_two_shards_with_one_name_are_refused(tmp_path: Path, convert: Callable[..., Summary]) -> None:
    """Their labels would be those of one image."""
    names = "ab"
    for name in names:
        content = document()
        content["images"] = content["images"][:1]
        content["annotations"] = [row for row in content["annotations"] if row["image_id"] == 1]
        images = data_set(tmp_path / name, {}, "a.jpg")
        write(tmp_path / f"{name}.json", content)
        assert detaug("pack", tmp_path / f"{name}.json", images, "-o", tmp_path / "packed").code == 0
    jsons = [tmp_path / "packed" / f"{name}.json" for name in names]
    both = tmp_path / "packed" / "both.json"
    assert detaug("merge", *jsons, "-o", both).code == 0
    assert len(json.loads(both.read_text())["images"]) == 2
    with pytest.raises(ConversionError, match=r"an image of another shard has this name, too \[stem-repeated\]"):
        convert(both, tmp_path / "out")
    assert convert(both, tmp_path / "out", on_error="skip").images == 1


def test_regions_of_label_studio_have_ids_of_their_own(tmp_path: Path) -> None:
    """Conversions do not need ids of annotations, and results with one id are one region."""
    content = everything()
    for at, row in enumerate(content["annotations"]):
        row["id"] = 7
        if at % 3 == 0:
            del row["id"]
    again, _ = there_and_back(tmp_path, content, coco_to_label_studio)
    assert len(again["annotations"]) == len(content["annotations"])


def test_rings_that_overlap_are_their_union(tmp_path: Path) -> None:
    """As in COCO. Two rings that touch no other one stay as they are."""
    square = [[10, 10, 40, 10, 40, 40, 10, 40], [30, 30, 60, 30, 60, 60, 30, 60]]
    rings = [*square, [70.25, 10, 90, 10, 90, 30], [70, 60, 75, 60, 75, 70]]
    content = document()
    content["annotations"] = [content["annotations"][0] | {"bbox": [10, 10, 80, 60], "segmentation": rings}]
    images = data_set(tmp_path / "photos", {}, *(row["file_name"] for row in content["images"]))
    expected = np.any([even_odd([np.array(ring).reshape(-1, 2)], (80, 100)) for ring in rings], axis=0)
    path = write(tmp_path / "a.json", content)
    segments = coco_to_yolo(path, tmp_path / "yolo", task="segment", images=images, with_images="link")
    regions = coco_to_label_studio(path, tmp_path / "studio", images=images, with_images="link")
    for summary in (segments, regions):
        assert kinds(summary)["rings-traced"] == 1
        out = tmp_path / f"{summary.output.name}.json"
        assert detaug("convert", summary.output, "-o", out).code == 0
        rows = json.loads(out.read_text())["annotations"]
        row = next(row for row in rows if row["segmentation"])
        ring = np.array(row["segmentation"][0]).reshape(-1, 2)
        assert (even_odd([ring], (80, 100)) == expected).all()
        assert [70.25, 10] in ring.tolist()
