"""COCO panoptic: boxes and masks of things from the PNGs, read a second time; faults; damaged files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import Document
from format_files import converted, data_set, kinds, refused
from numpy.typing import NDArray
from PIL import Image
from test_label_maps import decoded

from detaug.converters import convert_to_coco, merge_coco

IDS = np.zeros((80, 100), np.int64)
IDS[:40] = 700  # sky
IDS[50:70, 10:40] = 256 * 256 + 3  # two cats, one hidden by the other
IDS[60:75, 30:55] = 5
IDS[20:30, 60:90] = 90_000  # a crowd of people
SEGMENTS = [
    {"id": 700, "category_id": 4, "iscrowd": 0, "bbox": [0, 0, 100, 40], "area": 3700},
    {"id": 65539, "category_id": 2, "iscrowd": 0, "bbox": [10, 50, 30, 20], "area": 500},
    {"id": 5, "category_id": 2, "iscrowd": 0, "bbox": [30, 60, 25, 15], "area": 375},
    {"id": 90_000, "category_id": 9, "iscrowd": 1, "bbox": [60, 20, 30, 10], "area": 300},
]
CONTENT: dict[str, Any] = {
    "images": [
        {"id": 7, "file_name": "a.jpg", "width": 100, "height": 80},
        {"id": 8, "file_name": "b.jpg", "width": 100, "height": 80},
    ],
    "annotations": [{"image_id": 7, "file_name": "a.png", "segments_info": SEGMENTS}],
    "categories": [
        {"id": 2, "name": "cat", "isthing": 1},
        {"id": 4, "name": "sky", "isthing": 0},
        {"id": 9, "name": "person", "isthing": 1},
    ],
}


def png(ids: NDArray[np.int64], mode: str = "RGB") -> bytes:
    file, colors = io.BytesIO(), np.stack([ids % 256, ids // 256 % 256, ids // 65536], axis=2).astype(np.uint8)
    Image.fromarray(colors).convert(mode).save(file, "PNG")
    return file.getvalue()


OTHERS: dict[str, Any] = {"panoptic/a.png": png(IDS)}
EXAMPLES = [
    ("a COCO panoptic JSON file", "panoptic.json", json.dumps(CONTENT), OTHERS, ("images/a.jpg", "images/b.jpg"))
]


def write(folder: Path, content: Document = CONTENT, masks: bytes = OTHERS["panoptic/a.png"]) -> Path:
    files = {"panoptic.json": json.dumps(content), "panoptic/a.png": masks}
    return data_set(folder, files, "images/a.jpg", "images/b.jpg")


def test_things_have_the_masks_of_their_segments(tmp_path: Path) -> None:
    document, summary = converted(write(tmp_path / "set"))
    names = {row["id"]: row["name"] for row in document["categories"]}
    assert set(names.values()) == {"cat", "person"}
    found = {row["tool_id"]: row for row in document["annotations"]}
    assert found.keys() == {65539, 5, 90_000}
    for segment in SEGMENTS[1:]:
        row = found[segment["id"]]
        assert (decoded(row["segmentation"]) == (segment["id"] == IDS)).all()
        y, x = np.nonzero(segment["id"] == IDS)
        assert row["bbox"] == [x.min(), y.min(), np.ptp(x) + 1, np.ptp(y) + 1]
        assert row["iscrowd"] == segment["iscrowd"]
        assert names[row["category_id"]] == ("person" if segment["category_id"] == 9 else "cat")
    assert [row["file_name"] for row in document["images"]] == ["a.jpg", "b.jpg"]  # and no PNG
    assert (summary.images_without_boxes, kinds(summary)) == (1, {"element-unused": 1})
    assert "segments of stuff" in str(summary)


def test_jobs_parts_and_images_elsewhere(tmp_path: Path) -> None:
    root = write(tmp_path / "set")
    document, _ = converted(root)
    assert converted(root, jobs=2)[0] == document
    parts = [tmp_path / f"{number}.json" for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        convert_to_coco(root, part, part=(number, 2))
    merge_coco(parts, tmp_path / "merged.json")
    assert json.loads((tmp_path / "merged.json").read_text())["annotations"] == document["annotations"]
    (root / "images").rename(tmp_path / "elsewhere")
    assert converted(root / "panoptic.json", images=tmp_path / "elsewhere")[0] == document


FAULTS: list[tuple[str, dict[str, Any], bytes, str]] = [
    ("an unknown category", {"category_id": 3}, OTHERS["panoptic/a.png"], "must be the id of a category, got 3"),
    ("a gray PNG", {}, png(IDS, "L"), "has no colors, which would be the ids of segments"),
    ("a palette", {}, png(IDS, "P"), "has a palette"),
    ("a PNG that is cut off", {}, OTHERS["panoptic/a.png"][:60], "cannot be read"),
]


@pytest.mark.parametrize(
    ("change", "masks", "message"), [case[1:] for case in FAULTS], ids=[case[0] for case in FAULTS]
)
def test_faults(tmp_path: Path, change: dict[str, Any], masks: bytes, message: str) -> None:
    segments = [SEGMENTS[0], SEGMENTS[1] | change, *SEGMENTS[2:]]
    root = write(
        tmp_path / "set", CONTENT | {"annotations": [CONTENT["annotations"][0] | {"segments_info": segments}]}, masks
    )
    assert message in refused(root)


def test_a_segment_that_the_json_does_not_have_is_counted(tmp_path: Path) -> None:
    less = CONTENT | {"annotations": [CONTENT["annotations"][0] | {"segments_info": SEGMENTS[:2]}]}
    _, summary = converted(write(tmp_path / "set", less))
    assert kinds(summary)["mask-unmatched"] == 2
    assert summary.boxes == 1


def test_a_segment_that_the_png_does_not_have_is_left_out(tmp_path: Path) -> None:
    more = [*SEGMENTS, SEGMENTS[1] | {"id": 77}]
    content = CONTENT | {"annotations": [CONTENT["annotations"][0] | {"segments_info": more}]}
    _, summary = converted(write(tmp_path / "set", content))
    assert summary.boxes == 3
    assert "no pixel of segment 77" in "".join(map(str, summary.findings))


def test_pngs_that_are_not_there_or_outside(tmp_path: Path) -> None:
    root = write(tmp_path / "set")
    (root / "panoptic/a.png").unlink()
    assert "a.png is not there; unpack the PNGs into" in refused(root)
    outside = CONTENT | {"annotations": [CONTENT["annotations"][0] | {"file_name": "../../a.png"}]}
    assert "must be below its folder" in refused(write(tmp_path / "other", outside))


def test_an_annotation_of_no_image_and_two_of_one(tmp_path: Path) -> None:
    annotation = CONTENT["annotations"][0]
    lost = CONTENT | {"annotations": [annotation, annotation | {"image_id": 99}]}
    assert "image_id 99 is not the id of an image" in refused(write(tmp_path / "lost", lost))
    twice = CONTENT | {"annotations": [annotation, annotation]}
    assert "two annotations are of image 7" in refused(write(tmp_path / "twice", twice))
