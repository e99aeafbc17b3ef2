"""Which keypoints swap when an image is flipped: from names, flip_idx and flip_pairs, or refused with the remedy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from command import detaug
from PIL import Image
from places import SHARED_DATA

import detaug as da
from detaug.check.check import check_coco

FLIP = [da.RandomHorizontalFlip(p=1), da.Resize((100, 100))]
SKELETONS = SHARED_DATA / "skeletons/skeletons.json"

# Names as public datasets and tools write them, and the position of each after a flip; None: the names do not tell.
TABLE: list[tuple[list[str], list[int] | None]] = [
    (["nose", "left_eye", "right_eye"], [0, 2, 1]),
    (["Head_Mid_Top", "Eye_Left", "Eye_Right"], [0, 2, 1]),
    (["L_F_Paw", "R_F_Paw", "TailBase"], [1, 0, 2]),
    (["eyeL", "forelegL1", "forelegL2", "eyeR", "forelegR1", "forelegR2"], [3, 4, 5, 0, 1, 2]),
    (["L1_toe", "R1_toe", "toe_r_2", "toe_l_2"], [1, 0, 3, 2]),
    (["lefteye", "righteye", "lknee", "Rknee", "rknee", "Lknee"], [1, 0, 4, 5, 2, 3]),
    (["L", "R"], [1, 0]),
    (["eyeleft", "eyeright", "kneel", "kneer", "nose"], [1, 0, 3, 2, 4]),
    (["r1", "r2", "l1", "l2"], [2, 3, 0, 1]),
    (["left_ear", "right_ear", "spine1", "spine2", "abdomen_1", "abdomen_2"], [1, 0, 2, 3, 4, 5]),
    (["middle"], [0]),
    (["left_eye", "right_eye", "face-0", "face-1"], None),
    (["L_Eye", "R_Eye", "Face_1", "Face_2", "Nose"], None),
    (["left_eye", "right_eye", "whisker_a", "whisker_b"], None),
    (["kpt-0", "kpt-1", "kpt-2"], None),
    (["wrist", "thumb1", "thumb2"], None),
    (["front", "rear"], [0, 1]),
    (["Nose", "TailBase", "spine_1", "spine_2"], [0, 1, 2, 3]),
    (["linkes Auge", "rechtes Auge"], None),
    (["Nearknee", "Offknee"], None),
    (["left_eye", "nose"], None),
    (["left_eye", "right_eye", "left_eye"], None),
    ([], None),
]


def content_of(names: Sequence[str], **keys: Any) -> dict[str, Any]:
    """Return a JSON file of one object, whose keypoint k is at x = 10 + 5 k, with the keys in its category."""
    count = len(names) or 2
    points = [number for at in range(count) for number in (10 + 5 * at, 20, 2)]
    category = {"id": 1, "name": "animal", **({"keypoints": list(names)} if names else {}), **keys}
    return {
        "images": [{"id": 1, "file_name": "a.png", "width": 400, "height": 100}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [5, 5, 390, 90], "keypoints": points}],
        "categories": [category],
    }


def write(folder: Path, content: dict[str, Any]) -> Path:
    Image.new("RGB", (400, 100)).save(folder / "a.png")
    (folder / "a.json").write_text(json.dumps(content))
    return folder / "a.json"


def shown_after_a_flip(reader: da.CocoReader) -> list[int]:
    """Return which point of the source is at each position in the flipped image: told from the places alone."""
    (batch,) = da.Loader(reader, FLIP, 1, device="cpu")
    x = 400 - batch.keypoints[0, 0, :, 0].double().numpy() * 4 - 0.5
    return [round(float(place)) for place in (x - 10) / 5]


@pytest.mark.parametrize(("names", "places"), TABLE, ids=lambda value: "-".join(map(str, value or [])))
def test_names_tell_which_points_swap_or_are_refused(
    tmp_path: Path, names: list[str], places: list[int] | None
) -> None:
    path = write(tmp_path, content_of(names))
    reader = da.CocoReader(tmp_path, path, keypoints=True)
    kinds = check_coco(path, tmp_path).kind_counts
    yolo = detaug("convert-coco-to-yolo", path, tmp_path / "yolo", "--task", "pose")
    assert yolo.code == 0
    data = yaml.safe_load((tmp_path / "yolo/data.yaml").read_text())
    if places is None:
        with pytest.raises(
            da.InputError,
            match=r"'animal'.*Give flip_pairs=\[\(1, 2\), \(3, 4\)\], or flip_pairs=\[\] if none do.*flip_idx",
        ):
            da.Loader(reader, FLIP, 1, device="cpu")
        assert kinds["keypoints-sides"] == 1
        assert "flips-unknown" in yolo.out
        assert "flip_idx" not in data
    else:
        assert shown_after_a_flip(reader) == places
        assert "keypoints-sides" not in kinds
        assert data["flip_idx"] == places


@pytest.mark.parametrize(("names", "places"), [row for row in TABLE if row[1] is None], ids=lambda value: str(value))
def test_each_remedy_works(tmp_path: Path, names: list[str], places: None) -> None:
    count = len(names) or 2
    swapped = [1, 0, *range(2, count)]
    path = write(tmp_path, content_of(names))
    for pairs, expected in (([(0, 1)], swapped), ([], [*range(count)])):
        assert shown_after_a_flip(da.CocoReader(tmp_path, path, keypoints=True, flip_pairs=pairs)) == expected
    for text, expected in (("0:1", swapped), ("none", [*range(count)])):
        out = tmp_path / text[0]
        assert detaug("convert-coco-to-yolo", path, out, "--task", "pose", "--flip-pairs", text).code == 0
        assert yaml.safe_load((out / "data.yaml").read_text())["flip_idx"] == expected
    path = write(tmp_path, content_of(names, flip_idx=swapped))
    assert shown_after_a_flip(da.CocoReader(tmp_path, path, keypoints=True)) == swapped
    assert "keypoints-sides" not in check_coco(path, tmp_path).kind_counts


def test_recipes_without_a_flip_need_no_sides(tmp_path: Path) -> None:
    path = write(tmp_path, content_of(["kpt-0", "kpt-1", "kpt-2"]))
    reader = da.CocoReader(tmp_path, path, keypoints=True)
    recipe = [da.RandomRotation(10), da.RandomHorizontalFlip(p=0), da.Resize((100, 100))]
    (batch,) = da.Loader(reader, recipe, 1, device="cpu")
    assert (batch.keypoints[0, 0, :, 2] == 2).all()
    joined = da.ConcatReader([reader, reader])
    for source in (joined, da.TileReader(reader, (100, 100))):
        da.Loader(source, [da.Resize((100, 100))], 1, device="cpu")
        for op in (FLIP[0], da.RandomVerticalFlip(), da.RandomApply([FLIP[0]])):
            with pytest.raises(da.InputError, match=r"'kpt-0'.*Give flip_pairs"):
                da.Loader(source, [op, FLIP[1]], 1, device="cpu")


def test_arrays_and_mirrors_of_ones_own_are_refused_where_the_points_are_asked_for() -> None:
    points = [[[10, 10, 2], [20, 10, 2]]]
    for names in ((), [["a", "b"]]):
        shapes = da.Shapes(keypoints=da.KeyPoints(points, names))
        samples = da.batch([np.zeros((50, 50, 3), np.uint8)], [[[5, 5, 45, 45]]], shapes=shapes)
        assert samples.then(da.CenterCrop((40, 40))).keypoints[0][0, :, 0].tolist() == [5, 15]
        with pytest.raises(da.InputError, match=r"Give swapped, such as \[\[0, 1\]\] if none do"):
            _ = samples.then(da.RandomHorizontalFlip(p=1)).keypoints
    shapes = da.Shapes(keypoints=da.KeyPoints(points, swapped=np.array([[0, 1]])))
    samples = da.batch([np.zeros((50, 50, 3), np.uint8)], [[[5, 5, 45, 45]]], shapes=shapes)
    assert samples.then(da.RandomHorizontalFlip(p=1)).keypoints[0][0, :, 0].tolist() == [40, 30]


def test_each_class_needs_sides_of_its_own_points(tmp_path: Path) -> None:
    """A class without names beside one with sides; the JSON file above names one class alone."""
    content = content_of(["left_eye", "right_eye"])
    content["categories"].append({"id": 2, "name": "cat"})
    path = write(tmp_path, content)
    assert shown_after_a_flip(da.CocoReader(tmp_path, path, keypoints=True)) == [1, 0]
    assert "keypoints-sides" not in check_coco(path, tmp_path).kind_counts
    more = {"id": 2, "image_id": 1, "category_id": 2, "bbox": [5, 5, 90, 90], "keypoints": [9, 9, 2, 19, 9, 2]}
    content["annotations"].append(more)
    path = write(tmp_path, content)
    with pytest.raises(da.InputError, match="category 'cat': the keypoints have no names"):
        da.Loader(da.CocoReader(tmp_path, path, keypoints=True), FLIP, 1, device="cpu")
    assert check_coco(path, tmp_path).kind_counts["keypoints-sides"] == 1
    assert "flips-unknown" in detaug("convert-coco-to-yolo", path, tmp_path / "yolo", "--task", "pose").out
    assert "flip_idx" not in (tmp_path / "yolo/data.yaml").read_text()
    more["keypoints"] = [9, 9, 2, 0, 0, 0]  # one point has nothing to swap with
    path = write(tmp_path, content)
    assert shown_after_a_flip(da.CocoReader(tmp_path, path, keypoints=True)) == [1, 0]


def test_flip_pairs_of_names_are_for_the_classes_that_have_them(tmp_path: Path) -> None:
    content = content_of(["eye_1", "eye_2"])
    content["categories"].append({"id": 2, "name": "cup", "keypoints": ["handle", "spout"]})
    path = write(tmp_path, content)
    pairs: Any = [("eye_1", "eye_2"), ("handle", "spout")]
    reader = da.CocoReader(tmp_path, path, keypoints=True, flip_pairs=pairs)
    assert reader.shapes.keypoints is not None
    assert reader.shapes.keypoints.swapped.tolist() == [[1, 0], [1, 0]]
    for wrong, message in (
        ([("eye_1", "nose")], "no keypoint 'nose'"),
        ([("eye_1", "handle")], "no keypoint 'handle'"),
        ([(0, 1), (1, 0)], "in one pair at most"),
        ([()], "must be pairs"),
    ):
        with pytest.raises(da.InputError, match=message):
            da.CocoReader(tmp_path, path, keypoints=True, flip_pairs=wrong)


@pytest.mark.parametrize("text", ["1", "1:2:3", "1:", "", "1:2,"])
def test_wrong_pairs_on_the_command_line(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, content_of(["a", "b"]))
    run = detaug("convert-coco-to-yolo", path, tmp_path / "yolo", "--task", "pose", "--flip-pairs", text)
    assert (run.code, "must be pairs of positions from 0 or names" in run.err) == (2, True)


def test_flip_pairs_are_for_keypoints(tmp_path: Path) -> None:
    path = write(tmp_path, content_of(["a", "b"]))
    run = detaug("convert-coco-to-yolo", path, tmp_path / "yolo", "--flip-pairs", "a:b")
    assert (run.code, "--flip-pairs must be left out without task 'pose'" in run.err) == (2, True)


def test_the_pairs_of_a_training(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    from detaug.training import TrainOptions
    from detaug.training.loaders import read_train

    path = write(tmp_path, content_of(["kpt-0", "kpt-1", "kpt-2"]))
    options = TrainOptions(path, tmp_path, tmp_path, model="keypointrcnn_resnet50_fpn", flip_pairs=[(0, 1)])
    keypoints = read_train(options).shapes.keypoints
    assert keypoints is not None
    assert (keypoints.swapped.tolist(), keypoints.flips_unknown) == ([[1, 0, 2]], "")
    with pytest.raises(da.InputError, match="flip_pairs must be left out for a model without keypoints"):
        TrainOptions(path, tmp_path, tmp_path, flip_pairs=[(0, 1)])


def test_a_preview_says_that_points_do_not_swap(tmp_path: Path) -> None:
    for names, said in ((["kpt-0", "kpt-1"], True), (["left_eye", "right_eye"], False)):
        path = write(tmp_path, content_of(names))
        result = detaug("preview", path, tmp_path, "-o", tmp_path / "sheet.png", "--rows", 1)
        assert (result.code, "keypoints do not swap in flipped images" in result.out) == (0, said)


def test_skeletons_of_public_datasets_are_right_or_refused(tmp_path: Path) -> None:
    if not SKELETONS.exists():
        pytest.skip(f"{SKELETONS} is not there: names of the keypoints of 49 public datasets")
    right = 0
    for name, skeleton in json.loads(SKELETONS.read_text()).items():
        names, places = skeleton["names"], skeleton["flip_idx"]
        points = da.KeyPoints(np.zeros((0, len(names), 3)), [names])
        assert points.flips_unknown or points.swapped.tolist() == [places], name
        right += not points.flips_unknown
    assert right >= 30
