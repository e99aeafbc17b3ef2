"""Label Studio's JSON and JSON-MIN: percent, rotations, brushes, several annotators; damaged files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_files import converted, data_set, kinds, refused
from pycocotools import mask as coco_mask

BLOB = np.random.default_rng(0).random((80, 100)) > 0.7
BLOB[:40] = False


def packed(mask: Any, rgb: int = 7) -> list[int]:
    """Return the bytes of a mask: a second writing of thi.ng/rle-pack, with counts of up to 8, 16, 256 and 65,536.

    Values that differ from their neighbors stand in rows of words, as Label Studio writes them.
    """
    values = np.stack([np.full(mask.size, rgb)] * 3 + [mask.ravel() * 255], axis=1).ravel()  # red, green, blue, alpha
    bits = f"{len(values):032b}{7:05b}" + "".join(f"{size - 1:04b}" for size in (3, 4, 8, 16))
    ends = [*(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    blocks: list[tuple[int, int, bool]] = []
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        if end - start > 1 or not blocks or blocks[-1][2]:
            blocks.append((start, end, end - start > 1))
        else:
            blocks[-1] = (blocks[-1][0], end, False)
    for first, last, is_run in blocks:
        for start in range(first, last, 65_536):
            end = min(last, start + 65_536)
            size, kind = next((size, kind) for kind, size in enumerate((3, 4, 8, 16)) if end - start <= 1 << size)
            words = values[start : start + 1] if is_run else values[start:end]
            bits += f"{is_run:b}{kind:02b}{end - start - 1:0{size}b}" + "".join(f"{value:08b}" for value in words)
    bits += "0" * (-len(bits) % 8)
    return [int(bits[at : at + 8], 2) for at in range(0, len(bits), 8)]


def region(kind: str, label: str | None = "cat", id: str = "", **value: Any) -> dict[str, Any]:
    labels = {} if label is None else {kind: [label]}
    size = {"original_width": 100, "original_height": 80, "image_rotation": 0}
    return {
        "id": id or f"{kind}{value}",
        "type": kind,
        "from_name": "label",
        "to_name": "image",
        "value": value | labels,
    } | size


REGIONS = [
    region("rectanglelabels", x=10, y=12.5, width=30, height=25, rotation=0, id="r1"),
    region("rectanglelabels", "ship", x=20, y=12.5, width=20, height=12.5, rotation=90),
    region("polygonlabels", points=[[10, 12.5], [40, 15], [30, 50]], closed=True),
    region("ellipselabels", x=50, y=50, radiusX=20, radiusY=12.5, rotation=90),
    region("brushlabels", "blob", format="rle", rle=packed(BLOB)),
    region("keypointlabels", "nose", x=12, y=25, width=0.5) | {"parentID": "r1"},
    region("keypointlabels", "lone", x=12, y=25, width=0.5),
    region("choices", None, id="r1", choices=["red"]) | {"from_name": "color"},
    region("textarea", None, id="r1", text=["a note"]) | {"from_name": "note"},
    {"type": "relation", "from_id": "r1", "to_id": "r1"},
    region("choices", None, id="x", choices=["day", "rain"]) | {"from_name": "scene"},
    {"id": "v", "type": "videorectangle", "value": {"sequence": []}},
]
EXPECTED = [
    [10, 10, 30, 20],
    [10, 10, 10, 20],  # turned clockwise about its left top corner, (20, 10)
    [10, 10, 30, 30],
    [40, 20, 20, 40],
    [0, 40, 100, 40],
]


def task(image: str, regions: Any, **more: Any) -> dict[str, Any]:
    annotation = {"id": 1, "completed_by": 1, "result": regions, "was_cancelled": False, "ground_truth": False}
    return {"id": 7, "annotations": [annotation], "data": {"image": image}, "predictions": []} | more


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # of pycocotools
def test_every_kind_of_region(tmp_path: Path) -> None:
    content = [task("/data/upload/3/90f1a2b3-a.jpg", REGIONS), task("/data/upload/3/12345678-b.jpg", [])]
    root = data_set(tmp_path / "set", {"export.json": json.dumps(content)}, "images/a.jpg", "images/12345678-b.jpg")
    document, summary = converted(root)
    rows = document["annotations"]
    assert [row["bbox"] for row in rows] == EXPECTED
    assert (rows[0]["color"], rows[0]["note"], rows[0]["keypoints"]) == ("red", "a note", [11.5, 19.5, 2])
    assert rows[1]["corners"] == [[20, 10], [20, 30], [10, 30], [10, 10]]
    assert rows[2]["segmentation"] == [[10, 10, 40, 12, 30, 40]]
    assert rows[3]["area"] == pytest.approx(math.pi * 20 * 10, rel=2e-3)
    encoded = rows[4]["segmentation"]
    assert (coco_mask.decode(encoded | {"counts": encoded["counts"].encode()}) == BLOB).all()
    assert document["images"][1]["scene"] == ["day", "rain"]
    assert (summary.images_without_boxes, kinds(summary)) == (1, {"shape-unused": 2, "element-unused": 1})


def test_results_about_a_region_repeat_its_shape(tmp_path: Path) -> None:
    place = {"x": 10, "y": 12.5, "width": 30, "height": 25, "rotation": 0}
    about = {"type": "textarea", "from_name": "note", "value": place | {"text": ["a note"]}, "id": "r1"}
    size = {"original_width": 100, "original_height": 80}
    for number, results in enumerate(([REGIONS[0], about], [about | size, REGIONS[0]])):
        root = data_set(tmp_path / f"{number}", {"a.json": json.dumps([task("a.jpg", results)])}, "a.jpg")
        document, summary = converted(root)
        (row,) = document["annotations"]
        assert (row["bbox"], row["note"], kinds(summary)) == (EXPECTED[0], "a note", {})
    flat = {"note": [about["value"] | size], "label": [each["value"] | size for each in REGIONS[:2]]}
    content = [{"image": "a.jpg", "id": 1, "annotator": 1, "annotation_id": 2} | flat]
    document, summary = converted(data_set(tmp_path / "min", {"a.json": json.dumps(content)}, "a.jpg"))
    rows = document["annotations"]
    assert ([row["bbox"] for row in rows], [row.get("note") for row in rows]) == (EXPECTED[:2], ["a note", None])


def test_what_is_about_a_region_is_not_about_the_image(tmp_path: Path) -> None:
    """Also where the region is a keypoint, which has no columns, or has no place in the JSON file."""
    regions = [
        region("rectanglelabels", id="r", x=10, y=10, width=10, height=10),
        region("keypointlabels", "nose", id="k", x=12, y=25) | {"parentID": "r"},
        {"id": "v", "type": "videorectangle", "value": {"sequence": []}},
        region("textarea", None, id="k", text=["a note"]) | {"from_name": "note"},
        region("choices", None, id="v", choices=["red"]) | {"from_name": "color"},
        region("choices", None, id="x", choices=["day"]) | {"from_name": "scene"},
    ]
    document, summary = converted(data_set(tmp_path, {"a.json": json.dumps([task("a.jpg", regions)])}, "a.jpg"))
    (image,) = document["images"]
    assert image["scene"] == "day"
    assert not {"color", "note"} & image.keys()
    assert kinds(summary) == {"shape-unused": 1, "element-unused": 2}
    assert "have no place in the JSON file: color, note\n" in str(summary)


def test_skipped_annotations_do_not_count(tmp_path: Path) -> None:
    skipped = {"result": REGIONS[1:2], "skipped": True}
    content = [task("a.jpg", [])]
    content[0]["annotations"] = [skipped, {"result": REGIONS[:1]}]
    document, summary = converted(data_set(tmp_path / "set", {"a.json": json.dumps(content)}, "a.jpg"))
    assert ([row["bbox"] for row in document["annotations"]], kinds(summary)) == (EXPECTED[:1], {})


def test_json_min(tmp_path: Path) -> None:
    flat = [each["value"] | {"original_width": 100, "original_height": 80} for each in REGIONS[:3]]
    content = [
        {
            "image": "/data/local-files/?d=photos%5Ca.jpg",
            "id": 1,
            "label": flat[:2],
            "poly": flat[2:],
            "annotator": 1,
            "annotation_id": 2,
        },
        {"image": "https://x.org/b%20c.jpg?token=1", "id": 2, "annotator": 1, "annotation_id": 3},
    ]
    root = data_set(tmp_path / "set", {"min.json": json.dumps(content)}, "photos/a.jpg", "other/b c.jpg")
    document, summary = converted(root)
    assert [row["bbox"] for row in document["annotations"]] == EXPECTED[:3]
    assert (summary.images_without_boxes, kinds(summary)) == (1, {})


@pytest.mark.parametrize(
    "url",
    [
        "a.jpg",
        "http://[/a.jpg",
        "s3://bucket/x/a.jpg",
        "/data/upload/1/90f1a2b3-a.jpg",
        "gs://b/%61.jpg?x=1#y",
        "/storage-data/uploaded/?filepath=upload/1/90f1a2b3-a.jpg",
        "http://localhost:8080/data/local-files/?d=photos/a.jpg",
        "/data?d=/mnt/photos/a.jpg",
        "C:\\x\\a.jpg",
    ],
)
def test_urls(tmp_path: Path, url: str) -> None:
    content = [{"id": 1, "annotations": [{"result": REGIONS[:1]}], "data": {"text": "hello", "photo": url}}]
    document, _ = converted(data_set(tmp_path / "set", {"a.json": json.dumps(content)}, "images/a.jpg"))
    assert [row["bbox"] for row in document["annotations"]] == EXPECTED[:1]


def test_names_that_are_not_plain(tmp_path: Path) -> None:
    """Uploading changes them, as Django's get_valid_filename; local files are quoted; keys of buckets are not."""
    images = {
        "/data/upload/1/90f1a2b3-my_photo_1.jpg": "x/my photo (1).jpg",
        "/data/upload/1/90f1a2b3-%C3%A4_b.jpg": "\u00e4 b.jpg",
        "/data/local-files/?d=x/a%26b%2Bc%20d%23.jpg": "x/a&b+c d#.jpg",
        "s3://bucket/x/#7.jpg": "#7.jpg",
    }
    content = [
        {"id": at, "annotations": [{"result": REGIONS[:at]}], "data": {"image": url}}
        for at, url in enumerate(images, 1)
    ]
    root = data_set(tmp_path / "set", {"a.json": json.dumps(content)}, *images.values())
    document, _ = converted(root)
    counts = [sum(row["image_id"] == image["id"] for row in document["annotations"]) for image in document["images"]]
    names = [image["file_name"] for image in document["images"]]
    assert dict(zip(names, counts, strict=True)) == {name: at for at, name in enumerate(images.values(), 1)}
    other = data_set(tmp_path / "more", {"a.json": json.dumps(content[:1])}, "my photo (1).jpg", "my photo 1.jpg")
    assert "has the image of none" in refused(other)  # which of the two it is, nothing tells


def test_labels_in_a_tag_of_their_own_and_several_labels(tmp_path: Path) -> None:
    shape, labels = region("rectangle", None, "r", x=10, y=12.5, width=30, height=25), region("labels", "dog", "r")
    both = region("labels", None, "r", x=10, y=12.5, width=30, height=25, labels=["cat", "big"])
    for number, (regions, name, column) in enumerate([([shape, labels], "dog", None), ([both], "cat", ["cat", "big"])]):
        root = data_set(tmp_path / f"set{number}", {"a.json": json.dumps([task("a.jpg", regions)])}, "a.jpg")
        document, summary = converted(root)
        (row,) = document["annotations"]
        assert (document["categories"][0]["name"], row["bbox"], row.get("labels")) == (name, EXPECTED[0], column)
        assert kinds(summary).get("labels-several", 0) == number
        assert ("the first is its class, and the key labels has all" in str(summary)) == bool(number)


def test_whose_annotation_counts(tmp_path: Path) -> None:
    one, two = ({"id": n, "result": [each], "was_cancelled": False} for n, each in enumerate((REGIONS[0], REGIONS[2])))
    content = [
        task("a.jpg", None, annotations=[one, two | {"ground_truth": True}]),
        task("b.jpg", None, annotations=[one | {"was_cancelled": True}]),
        task("c.jpg", None, annotations=[]),
    ]
    root = data_set(tmp_path / "set", {"a.json": json.dumps(content)}, "a.jpg", "b.jpg", "c.jpg")
    document, summary = converted(root)
    assert [row["file_name"] for row in document["images"]] == ["a.jpg"]
    assert [row["bbox"] for row in document["annotations"]] == [EXPECTED[2]]
    assert kinds(summary) == {"annotation-unused": 1, "task-unfinished": 2, "image-unlisted": 2}


def test_percent_follow_the_image(tmp_path: Path) -> None:
    """The image may have been resized since: percent are right, masks of pixels cannot be."""
    halved = [each | {"original_width": 50, "original_height": 40} for each in REGIONS[:2]]
    brush = region("brushlabels", x=1, y=1, width=1, height=1, format="rle", rle=packed(BLOB[:40, :50]))
    content = [task("a.jpg", [*halved, brush | {"original_width": 50, "original_height": 40}])]
    document, summary = converted(data_set(tmp_path / "set", {"a.json": json.dumps(content)}, "a.jpg"))
    assert [row["bbox"] for row in document["annotations"]] == EXPECTED[:2]
    assert kinds(summary) == {"size-conflict": 1, "mask-unusable": 1, "box-empty": 1}


def test_several_images_in_a_task(tmp_path: Path) -> None:
    """The data have the name of the image's tag, or `image`; regions in several images would be put into one."""
    small, photo = "https://x.org/small.jpg", "https://x.org/a.jpg"
    in_photo = [each | {"to_name": "photo"} for each in REGIONS[:1]]
    for data, regions in (
        ({"thumbnail": small, "photo": photo}, in_photo),
        ({"thumbnail": small, "image": photo}, in_photo),
    ):
        text = json.dumps([task("", regions, data=data)])
        document, _ = converted(data_set(tmp_path / str(len(text)), {"a.json": text}, "a.jpg", "small.jpg"))
        images = {row["id"]: row["file_name"] for row in document["images"]}
        assert [images[row["image_id"]] for row in document["annotations"]] == ["a.jpg"]
    text = json.dumps(
        [
            task("", [], data={"thumbnail": small, "photo": "https://x.org/b.jpg"}),  # other tasks tell which it is
            task("", in_photo, data={"thumbnail": small, "photo": photo}),
        ]
    )
    document, _ = converted(data_set(tmp_path / "negative", {"a.json": text}, "a.jpg", "b.jpg", "small.jpg"))
    assert [row["file_name"] for row in document["images"]] == ["a.jpg", "b.jpg"]
    for number, (data, regions, message) in enumerate(
        [
            ({"thumbnail": small, "photo": photo}, REGIONS[:1], "several images, thumbnail and photo; call the annota"),
            ({"image": photo}, [REGIONS[0], *in_photo], "regions are in several images, image and photo; make a task"),
        ]
    ):
        root = data_set(
            tmp_path / f"refused {number}", {"a.json": json.dumps([task("", regions, data=data)])}, "a.jpg", "small.jpg"
        )
        assert message in refused(root)


@pytest.mark.parametrize("broken", [[1], "text", {"annotations": 5}, {"annotations": [6, {"result": 7}]}])
def test_tasks_at_fault_tell_nothing_of_others(tmp_path: Path, broken: Any) -> None:
    """The one that is at fault is named, not one that has several images."""
    data = {"thumbnail": "https://x.org/small.jpg", "photo": "https://x.org/a.jpg"}
    others = [task("", [], data=data), task("", [REGIONS[0] | {"to_name": "photo"}], data=data)]
    root = data_set(tmp_path / "set", {"a.json": json.dumps([others[0], broken, others[1]])}, "a.jpg", "small.jpg")
    assert "task 1: " in refused(root)
    assert "several images" not in refused(root)


@pytest.mark.parametrize("rotation", [0, 180, 90])
def test_a_rotation_needs_the_size_of_the_image(tmp_path: Path, rotation: int) -> None:
    """In percent of sides of different lengths nothing can be turned, but by 180 degrees."""
    value = region("rectanglelabels", x=40, y=20, width=20, height=20, rotation=rotation)["value"]
    text = json.dumps([task("a.jpg", [{"id": "r", "type": "rectanglelabels", "value": value}])])
    root = data_set(tmp_path / "set", {"a.json": text}, "a.jpg")
    if rotation == 90:
        assert "a region with a rotation must have original_width and original_height" in refused(root)
    else:
        box = converted(root)[0]["annotations"][0]["bbox"]
        assert box == pytest.approx([40, 16, 20, 16] if rotation == 0 else [20, 0, 20, 16])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (REGIONS[2] | {"image_rotation": 90}, "object 1: image_rotation must be 0: turn the image back"),
        (
            {"value": {"x": 1, "y": 2, "width": 3, "height": "x", "rectanglelabels": ["a"]}},
            "height must be a finite number",
        ),
        ({"value": {"x": 1, "y": 2, "width": 3, "height": 4}}, "a region must have a label, or one choice"),
        ({"value": {"rle": [1, 2], "brushlabels": ["a"]}}, "rle is cut off"),
        (
            {"value": {"rle": [0] * 99, "brushlabels": ["a"]}},
            "rle must have 4 values for each of 100 x 80 pixels, it has 0",
        ),
        ({"value": {"rle": [-1], "brushlabels": ["a"]}}, "rle must be bytes, numbers from 0 to 255"),
        ({"value": {"rle": packed(BLOB)[:99], "brushlabels": ["a"]}}, "rle is cut off"),
    ],
)
def test_what_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    content = [task("a.jpg", [REGIONS[0], region("x", "a", "two") | change]), task("b.jpg", REGIONS[:1])]
    root = data_set(tmp_path / "set", {"a.json": json.dumps(content)}, "a.jpg", "b.jpg")
    assert message in refused(root)
    assert len(converted(root, on_error="skip")[0]["images"]) == 1


def test_a_task_of_a_video_is_named_as_one(tmp_path: Path) -> None:
    value = {"sequence": [{"frame": 1, "x": 10, "y": 10, "width": 10, "height": 10}], "labels": ["car"]}
    result = [{"id": "x", "type": "videorectangle", "from_name": "box", "to_name": "video", "value": value}]
    tasks = [{"id": 1, "data": {"video": "/data/upload/7/a.mp4"}, "annotations": [{"id": 1, "result": result}]}]
    root = data_set(tmp_path / "set", {"tasks.json": json.dumps(tasks)}, "a.jpg")
    assert "must have the path of an image, and has that of the video '/data/upload/7/a.mp4': label" in refused(root)
