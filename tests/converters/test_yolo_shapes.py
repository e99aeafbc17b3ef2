"""YOLO's pose, segment and obb labels, to COCO JSON and back: painted discs and polygons are found again."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import Document, document, write
from command import detaug, usage_error
from disc_files import color_at, find_disc, paint_discs, write_discs
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from voc_files import image_bytes, write_files

import detaug as da
from detaug.converters import ConversionError, coco_to_yolo, yolo_to_coco

YAML = "train: images/train\nnames: [cat, dog]\n"
KEY_POINTS = "kpt_shape: [3, 3]\nflip_idx: [1, 0, 2]\n"
OUTLINE = [20, 10, 60, 10, 60, 30, 40, 50, 20, 30]


def data_set(folder: Path, rows: str, more: str = "") -> Path:
    write_files(folder, {"images/train/a.jpg": image_bytes(), "labels/train/a.txt": rows, "data.yaml": YAML + more})
    return folder


def read(folder: Path, rows: str, more: str = "", **options: Any) -> Document:
    summary = yolo_to_coco(data_set(folder / "yolo", rows, more), folder / "out.json", **options)
    COCO(str(summary.output))
    content: Document = json.loads(summary.output.read_bytes())
    return content


def written(folder: Path, content: Document, **options: Any) -> tuple[dict[str, str], dict[str, int]]:
    output = folder / "yolo"
    summary = coco_to_yolo(write(folder / "train.json", content), output, **options)
    texts = {path.stem: path.read_text() for path in output.rglob("*") if path.suffix in (".txt", ".yaml")}
    return texts, {kind: count for kind, count in summary.kind_counts.items() if kind != "key-dropped"}


def with_keys(**keys: Any) -> Document:
    """Return a JSON file whose first annotation has some keys, and is the only one."""
    content = document()
    content["annotations"] = [content["annotations"][0] | keys]
    return content


# ----------------------------------------------------------------------------------------------------------
# To COCO


def test_key_points_of_three_numbers(tmp_path: Path) -> None:
    rows = "1 0.5 0.5 0.4 0.5 0.4 0.5 2 0.6 0.25 1 0.9 0.9 0\n0 0.5 0.5 0.2 0.5\n"
    content = read(tmp_path, rows, KEY_POINTS)
    first, second = content["annotations"]
    assert first["keypoints"] == [39.5, 39.5, 2, 59.5, 19.5, 1, 0, 0, 0]  # COCO counts pixels at their centers
    assert (first["num_keypoints"], first["bbox"]) == (2, [30, 20, 40, 40])
    assert (second["keypoints"], second["num_keypoints"]) == ([0] * 9, 0)
    names = ["point_1", "point_2", "point_3"]
    assert [row["keypoints"] for row in content["categories"]] == [names] * 2
    assert [row["flip_idx"] for row in content["categories"]] == [[1, 0, 2]] * 2


def test_key_points_of_two_numbers_are_visible_unless_they_are_no_place(tmp_path: Path) -> None:
    rows = "1 0.5 0.5 0.4 0.5 0.4 0.5 0 0 -1 -1 0 0.5"
    (row,) = read(tmp_path, rows, "kpt_shape: [4, 2]\n")["annotations"]
    assert row["keypoints"] == [39.5, 39.5, 2, 0, 0, 0, 0, 0, 0, -0.5, 39.5, 2]
    assert row["num_keypoints"] == 2


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("kpt_names: [a, b, c]\n", [["a", "b", "c"]] * 2),
        ("kpt_names: {1: [a, b, c]}\n", [["point_1", "point_2", "point_3"], ["a", "b", "c"]]),
    ],
)
def test_names_of_key_points(tmp_path: Path, names: str, expected: list[list[str]]) -> None:
    content = read(tmp_path, "0 0.5 0.5 0.4 0.5", KEY_POINTS + names)
    assert [row["keypoints"] for row in content["categories"]] == expected


def test_without_flip_idx_and_names_the_reader_asks_for_the_pairs(tmp_path: Path) -> None:
    content = read(tmp_path, "0 0.5 0.5 0.4 0.5 0.4 0.5 2 0.6 0.25 1 0.9 0.9 0", "kpt_shape: [3, 3]\n")
    assert all("keypoints" not in row for row in content["categories"])
    images, path = tmp_path / "yolo/images/train", tmp_path / "out.json"
    reader = da.CocoReader(images, path, keypoints=True)
    with pytest.raises(da.InputError, match="Give flip_pairs"):
        da.Loader(reader, [da.RandomHorizontalFlip(), da.Resize((9, 9))], 1, device="cpu")
    da.CocoReader(images, path, keypoints=True, flip_pairs=[])


@pytest.mark.parametrize(
    ("row", "more", "message"),
    [
        ("0 .5 .5 .4 .5 .5", KEY_POINTS, "a class, 4 numbers and 3 keypoints of 3 numbers"),
        ("0 .5 .5 .4 .5 .5 .5 3 0 0 0 0 0 0", KEY_POINTS, r"must be 0 \(not labeled\), 1 \(hidden\) or 2, got 3"),
        ("0 .5 .5 .4 .5 .5 .5 2 1.5 0 1 0 0 0", KEY_POINTS, "relative to the image, from 0 to 1, got 1.5"),
        ("", "kpt_shape: [3, 3]\nflip_idx: [0, 0, 1]\n", r"flip_idx must have each of 0\.\.2 once"),
        ("", "kpt_shape: [3, 3]\nkpt_names: [a]\n", r"kpt_names must be 3 names \(kpt_shape\)"),
        ("", "task: pose\n", r"task pose needs kpt_shape"),
        ("0 .5 .5 .4 .5", "task: obb\n", r"four corners x1 y1 \.\.\. x4 y4 of a rotated box \(task obb\), 9 numbers"),
    ],
)
def test_rows_that_cannot_be_read(tmp_path: Path, row: str, more: str, message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        read(tmp_path, row, more)


def pose_rows(each: int, count: int = 3) -> str:
    """Return rows of boxes with four keypoints, all labeled, of `each` numbers."""
    rng, rows = np.random.default_rng(4), []
    for _ in range(count):
        sides = rng.uniform(0.1, 0.4, 2)
        middle = rng.uniform(sides / 2, 1 - sides / 2)
        points = middle + sides * [[-0.4, -0.3], [0.4, -0.2], [0.3, 0.4], [0.1, 0.1]]
        numbers = [*middle, *sides, *np.hstack([points, np.ones((4, 1))])[:, :each].ravel()]
        rows.append(" ".join(["0", *(f"{number:.6f}" for number in numbers)]))
    return "\n".join(rows)


@pytest.mark.parametrize("each", [2, 3])
def test_key_points_without_kpt_shape_are_no_outlines(tmp_path: Path, each: int) -> None:
    rows = f"{pose_rows(each)}\n1 0.5 0.5 0.2 0.2\n"
    message = f"all 3 rows that are not boxes have {5 + 4 * each} numbers and look like boxes with keypoints; write "
    with pytest.raises(ConversionError, match=re.escape(f"{message}kpt_shape: [4, {each}] into the data.yaml")):
        read(tmp_path, rows)
    assert len(read(tmp_path, rows, task="segment")["annotations"]) == 4
    assert len(read(tmp_path, rows, f"kpt_shape: [4, {each}]\n")["annotations"][0]["keypoints"]) == 12
    outline = "1 0.1 0.1 0.4 0.1 0.4 0.2\n"  # a row of another length, or too few rows to tell
    for more in (rows + outline, pose_rows(each, 2)):
        assert "segmentation" in read(tmp_path, more)["annotations"][0]


def test_a_visibility_of_2_without_kpt_shape_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="got 2, which may be the visibility of a keypoint; write kpt_shape"):
        read(tmp_path, "0 0.5 0.5 0.4 0.5 0.4 0.5 2 0.6 0.25 1")


def test_outlines_stay_beside_the_box(tmp_path: Path) -> None:
    row = "0 " + " ".join(str(value / (80 if at % 2 else 100)) for at, value in enumerate(OUTLINE))
    (found,) = read(tmp_path, row)["annotations"]
    assert (found["segmentation"], found["bbox"], found["area"]) == ([OUTLINE], [20, 10, 40, 40], 1200)


def test_an_outline_past_the_edge_by_rounding_ends_there(tmp_path: Path) -> None:
    (found,) = read(tmp_path, "0 0.5 0.5 1.0000001 0.5 1.005 1 0.5 1")["annotations"]
    assert (found["segmentation"], found["bbox"]) == ([[50, 40, 100, 40, 100, 80, 50, 80]], [50, 40, 50, 40])


@pytest.mark.parametrize("how", ["option", "yaml"])
def test_four_corners_are_a_rotated_box_where_the_task_says_so(tmp_path: Path, how: str) -> None:
    row, corners = "0 0.5 0.125 0.7 0.375 0.6 0.5 0.4 0.25", [[50, 10], [70, 30], [60, 40], [40, 20]]
    (outline,) = read(tmp_path / "a", row)["annotations"]
    assert "corners" not in outline
    options = ({"task": "obb"}, "") if how == "option" else ({}, "task: obb\n")
    (found,) = read(tmp_path / "b", row, options[1], **options[0])["annotations"]
    assert (found["corners"], found["bbox"], found["area"]) == (corners, [40, 10, 30, 30], 400)
    assert found["segmentation"] == outline["segmentation"] == [np.ravel(corners).tolist()]


# ----------------------------------------------------------------------------------------------------------
# From COCO


@pytest.mark.parametrize(
    ("task", "rows", "more"),
    [
        ("pose", "1 0.5 0.5 0.4 0.5 0.4 0.5 2 0.6 0.25 1 0 0 0\n0 0.5 0.5 0.2 0.5 0 0 0 0 0 0 0 0 0\n", KEY_POINTS),
        ("segment", "1 0.2 0.125 0.6 0.125 0.6 0.375 0.412345 0.625\n", ""),
        ("obb", "0 0.5 0.125 0.7 0.375 0.6 0.5 0.4 0.25\n", ""),
        ("detect", "0 0.5 0.5 0.2 0.512\n", ""),
    ],
)
def test_yolo_to_coco_to_yolo(tmp_path: Path, task: Any, rows: str, more: str) -> None:
    content = read(tmp_path, rows, more, task=task)
    (tmp_path / "again").mkdir()
    texts, _ = written(tmp_path / "again", content, task=task)
    assert len(texts["a"].split()) == len(rows.split())
    numbers = [[float(word) for word in text.split()] for text in (texts["a"], rows)]
    np.testing.assert_allclose(*numbers, atol=0.0006 / 80)  # three decimals of a pixel
    if more:
        assert "kpt_shape: [3, 3]\nflip_idx: [1, 0, 2]\nkpt_names:\n" in texts["data"]
    assert ("task" in texts["data"]) == (task != "detect")


def test_discs_are_found_again_after_coco_yolo_coco(tmp_path: Path) -> None:
    discs = paint_discs(6)
    path = write_discs(tmp_path, discs)
    assert detaug(
        "convert-coco-to-yolo", path, tmp_path / "yolo", "--images", tmp_path, "--with-images", "link", "--task", "pose"
    ).code == 0  # fmt: skip
    assert detaug("convert-yolo", tmp_path / "yolo", "-o", tmp_path / "again.json").code == 0
    before, after = (json.loads(each.read_text()) for each in (path, tmp_path / "again.json"))
    for old, new in zip(before["annotations"], after["annotations"], strict=True):
        np.testing.assert_allclose(new["keypoints"], old["keypoints"], atol=1e-3)
        np.testing.assert_allclose(new["bbox"], old["bbox"], atol=1e-3)
    assert after["categories"][0]["keypoints"] == before["categories"][0]["keypoints"]
    assert after["categories"][0]["flip_idx"] == [1, 0, 2]
    reader = da.CocoReader(tmp_path / "yolo/images/train", tmp_path / "again.json", keypoints=True)
    for p in (0.0, 1.0):
        assert discs_at_key_points(da.Loader(reader, [da.RandomHorizontalFlip(p), da.Resize((300, 340))], 3), p) >= 15


def discs_at_key_points(loader: da.Loader, mirrored: float) -> int:
    """Compare the visible keypoints of batches with the discs there. Return how many discs are whole."""
    compared = 0
    for batch in loader:
        images = batch.images.permute(0, 2, 3, 1).cpu().numpy()
        for image, points in zip(images, batch.keypoints.cpu().double().numpy(), strict=True):
            for slot, x, y in ((slot, x, y) for own in points for slot, (x, y, v) in enumerate(own) if v):
                color = color_at(image, x, y)
                assert color == ([1, 0, 2] if mirrored else [0, 1, 2])[slot]
                if found := find_disc(image, x, y, color):
                    assert np.abs(np.array(found) - (x, y)).max() < 0.1
                    compared += 1
    return compared


def painted(outlines: list[list[float]]) -> NDArray[np.bool_]:
    """Paint polygons with Pillow, each point in the middle of its pixel."""
    image = Image.new("1", (100, 80))
    for outline in outlines:
        ImageDraw.Draw(image).polygon(list(map(float, outline)), fill=1)
    return np.asarray(image)


def iou(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    return float((one & other).sum() / (one | other).sum())


def ring_of(text: str) -> list[float]:
    return (np.array(text.split()[1:], float).reshape(-1, 2) * (100, 80)).ravel().tolist()


def decoded(segmentation: Any) -> NDArray[np.bool_]:
    """Return the mask that pycocotools makes of a segmentation."""
    runs = coco_mask.frPyObjects(segmentation, 80, 100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pycocotools is older than NumPy 2
        return np.asarray(coco_mask.decode(coco_mask.merge(runs)), bool)


def test_several_rings_become_one(tmp_path: Path) -> None:
    rings = [[10, 10, 30, 10, 30, 30, 10, 30], [50, 40, 70, 40, 60, 60], [40, 5, 48, 5, 44, 20]]
    texts, kinds = written(tmp_path, with_keys(segmentation=rings, bbox=[10, 5, 60, 55]), task="segment")
    assert kinds == {"rings-joined": 1}
    assert iou(decoded([ring_of(texts["a"])]), decoded(rings)) > 0.99
    assert iou(painted([ring_of(texts["a"])]), painted(rings)) > 0.9  # Pillow paints the bridges, too


@pytest.mark.parametrize("compressed", [True, False])
def test_masks_are_traced_with_their_holes(tmp_path: Path, compressed: bool) -> None:
    mask = painted([OUTLINE]) ^ painted([[30, 15, 45, 15, 45, 30, 30, 30]])
    segmentation: Any = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    segmentation["counts"] = segmentation["counts"].decode()
    if not compressed:
        flat = mask.ravel(order="F")
        ends = [0] * bool(flat[0]) + [*(np.flatnonzero(np.diff(flat)) + 1), flat.size]
        segmentation = {"size": [80, 100], "counts": np.diff(ends, prepend=0).tolist()}
    texts, kinds = written(tmp_path, with_keys(segmentation=segmentation, bbox=[20, 10, 41, 41]), task="segment")
    assert kinds["mask-traced"] == 1
    assert iou(decoded([ring_of(texts["a"])]), mask) > 0.98


def test_what_has_no_outline_gets_that_of_its_box(tmp_path: Path) -> None:
    content = document()
    content["annotations"] = content["annotations"][:2]
    content["annotations"][0]["segmentation"] = [OUTLINE]
    texts, kinds = written(tmp_path, content, task="segment")
    assert texts["a"].splitlines()[1] == "0 0.4 0.125 0.6 0.125 0.6 0.5 0.4 0.5"
    assert kinds == {"outline-missing": 1}


def test_outlines_are_cut_at_the_edges(tmp_path: Path) -> None:
    texts, kinds = written(tmp_path, with_keys(segmentation=[[80, 60, 120, 60, 120, 100, 80, 100]]), task="segment")
    assert sorted(zip(*[iter(ring_of(texts["a"]))] * 2, strict=True)) == [(80, 60), (80, 80), (100, 60), (100, 80)]
    assert kinds == {"outline-cut": 1}


def test_rotated_boxes_from_corners_and_from_outlines(tmp_path: Path) -> None:
    corners = [[50, 10], [70, 30], [60, 40], [40, 20]]
    for at, keys in enumerate(
        (
            {"corners": corners, "segmentation": [OUTLINE]},
            {"segmentation": [np.ravel(corners).tolist()]},
            {"segmentation": [[50, 10, 55, 15, 70, 30, 60, 40, 45, 25, 40, 20]]},
        )
    ):
        folder = tmp_path / str(at)
        folder.mkdir()
        texts, _ = written(folder, with_keys(**keys), task="obb")
        found = np.array(ring_of(texts["a"])).reshape(4, 2)
        np.testing.assert_allclose(sorted(found.tolist()), sorted(corners), atol=1e-6)
    assert "task: obb\n" in texts["data"]


def test_key_points_outside_become_not_labelled(tmp_path: Path) -> None:
    content = with_keys(keypoints=[9.5, 9.5, 2, 120, 9, 2])
    texts, kinds = written(tmp_path, content, task="pose")
    assert texts["a"] == "1 0.2 0.3125 0.2 0.375 0.1 0.125 2 0 0 0\n"
    assert kinds == {"point-outside": 1, "flips-unknown": 1}
    assert "flip_idx" not in texts["data"]


def test_flip_idx_comes_from_the_names(tmp_path: Path) -> None:
    content = with_keys(keypoints=[9, 9, 2, 20, 9, 2])
    content["categories"][1] |= {"keypoints": ["left_ear", "right_ear"], "skeleton": [[1, 2]]}
    texts, kinds = written(tmp_path, content, task="pose")
    lines = 'task: pose\nkpt_shape: [2, 3]\nflip_idx: [1, 0]\nkpt_names:\n  1: ["left_ear", "right_ear"]\n'
    assert texts["data"].endswith(lines)
    assert kinds == {}
    content["categories"][0] |= {"flip_idx": [0, 1]}
    with pytest.raises(ConversionError, match="'cat' and 'dog' swap places in other ways; split the JSON file"):
        written(tmp_path, content, task="pose")
    content["categories"][0] = {"id": 1, "name": "cat"}
    content["categories"][1]["keypoints"] = ["left_ear", "nose"]
    (tmp_path / "other").mkdir()
    assert written(tmp_path / "other", content, task="pose")[1] == {"flips-unknown": 1}


@pytest.mark.parametrize(
    ("task", "key"), [("pose", "keypoints"), ("segment", "segmentation"), ("obb", "corners, and no segmentation")]
)
def test_a_json_without_what_the_task_needs(tmp_path: Path, task: str, key: str) -> None:
    error = usage_error(
        "convert-coco-to-yolo", write(tmp_path / "a.json", document()), tmp_path / "yolo", "--task", task
    )
    assert f"no annotation has {key}; --task detect writes the boxes" in error
    assert not (tmp_path / "yolo").exists()
    assert detaug("convert-coco-to-yolo", tmp_path / "a.json", tmp_path / "yolo", "--task", "detect").code == 0


@pytest.mark.parametrize(
    ("task", "keys", "message"),
    [
        ("pose", {"keypoints": [1, 2]}, "keypoints must have 3 numbers for each, got 2 numbers"),
        ("segment", {"segmentation": [[1, 2, "3"]]}, "a ring of the segmentation must be a list of x, y"),
        ("obb", {"corners": [1, 2]}, r"corners must be four pairs \[x, y\], got \[1, 2\]"),
    ],
)
def test_wrong_shapes_stop_or_are_skipped(tmp_path: Path, task: Any, keys: Any, message: str) -> None:
    content = document()
    good = {"keypoints": [5, 5, 2], "segmentation": [OUTLINE]}
    for row in content["annotations"]:
        row |= good
    content["annotations"][0] |= keys
    with pytest.raises(ConversionError, match=f"{message}.*--clean NEW.json leaves them out"):
        written(tmp_path, content, task=task)
    texts, kinds = written(tmp_path, content, task=task, on_error="skip")
    assert kinds["entry-invalid"] == 1
    assert len(texts["a"].splitlines()) == 1


@pytest.mark.parametrize("task", ["detect", "segment", "obb", "pose"])
def test_an_entry_that_is_invalid_is_named_for_every_task(tmp_path: Path, task: Any) -> None:
    """Not "no annotation has segmentation", where the only one that has it has no bbox."""
    content = document()
    points = {"keypoints": [1, 2, 2, 30, 40, 2], "num_keypoints": 2}
    content["annotations"][0] |= points if task == "pose" else {"segmentation": [[10, 10, 30, 10, 30, 30]]}
    del content["annotations"][0]["bbox"]
    source = write(tmp_path / "a.json", content)
    with pytest.raises(ConversionError, match=r"--clean NEW.json repairs it \(box-missing\)"):
        coco_to_yolo(source, tmp_path / "yolo", task=task)


@pytest.mark.parametrize(
    ("task", "shape", "message"),
    [
        ("segment", {"segmentation": {"size": [1, 2], "counts": [2]}}, "the size of the RLE is"),
        ("obb", {"corners": [[1, 2]]}, "corners must be four pairs"),
        ("pose", {"keypoints": [1, 2]}, "keypoints must have 3 numbers for each"),
    ],
)
def test_a_shape_that_is_invalid_is_named(tmp_path: Path, task: Any, shape: Any, message: str) -> None:
    content = document()
    content["annotations"][0] |= shape
    source = write(tmp_path / "a.json", content)
    with pytest.raises(ConversionError, match=message):
        coco_to_yolo(source, tmp_path / "yolo", task=task)
    with pytest.raises(ConversionError, match='; task="detect" writes the boxes'):
        coco_to_yolo(source, tmp_path / "yolo", task=task, on_error="skip")
