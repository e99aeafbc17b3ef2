"""Splitting a COCO JSON file: every row once and unchanged, classes in the same parts, videos whole."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import Document, document, write, write_images
from command import detaug, usage_error
from full_disk import disk_for_files_of
from hypothesis import strategies as st
from properties import check_examples, few_or_many

import detaug as da
from detaug.coco.split import stratify
from detaug.converters import split_coco

NAMES = ("a.json", "b.json", "c.json")


def split(folder: Path, content: Document, *ratios: float, seed: int = 0) -> list[Document]:
    source, outputs = write(folder / "all.json", content), [folder / name for name in NAMES[: len(ratios)]]
    summary = split_coco(source, outputs, ratios, seed=seed)
    parts = [json.loads(path.read_bytes()) for path in outputs]
    assert list(summary.images) == [len(part["images"]) for part in parts]
    assert list(summary.boxes) == [len(part["annotations"]) for part in parts]
    assert [*map(sum, zip(*summary.class_counts.values(), strict=True))] == list(summary.boxes)
    return parts


def of_classes(*classes: list[int]) -> Document:
    """Return a JSON file with an image for each list, which has a box of each class in it."""
    boxes = [(image, number) for image, numbers in enumerate(classes) for number in numbers]
    return {
        "images": [{"id": 3 * at + 5, "file_name": f"{at}.jpg", "width": 9, "height": 8} for at in range(len(classes))],
        "annotations": [
            {"id": 7 * n + 2, "image_id": 3 * image + 5, "category_id": number, "bbox": [1, 1, 5, 5]}
            for n, (image, number) in enumerate(boxes)
        ],
        "categories": [{"id": number, "name": f"class {number}"} for number in (9, 4, 1, 0)],
    }


def assert_every_row_once(parts: list[Document], content: Document) -> None:
    for key, rows in content.items():
        if key in ("images", "annotations", "videos"):
            found = [part[key] for part in parts]
            assert sorted((row for each in found for row in each), key=lambda row: row["id"]) == rows
            assert all(one["id"] < two["id"] for each in found for one, two in pairwise(each))
        else:
            assert all(part[key] == rows for part in parts)
    for part in parts:
        assert {row["image_id"] for row in part["annotations"]} <= {row["id"] for row in part["images"]}
        assert list(part) == list(content)


classes = st.lists(st.lists(st.sampled_from([0, 1, 4, 9]), max_size=3), min_size=1, max_size=20)


@few_or_many(500)
def test_every_row_is_in_one_file_unchanged(examples: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    def check(labels: list[list[int]], ratios: list[int]) -> None:
        folder, content = tmp_path_factory.mktemp("split"), of_classes(*labels)
        try:
            assert_every_row_once(split(folder, content, *ratios), content)
        except da.InputError as error:
            fewer = "give fewer outputs" if len(labels) < len(ratios) else "would get none of the images"
            assert fewer in str(error)  # noqa: PT017
            assert [*folder.iterdir()] == [folder / "all.json"]

    check_examples(examples, check, classes, st.lists(st.integers(1, 5), min_size=2, max_size=3))


@pytest.mark.parametrize(("ratios", "images"), [((5, 1), [5, 1]), ((1, 5), [1, 5])])
def test_few_images_of_many_classes_fill_each_file(
    ratios: tuple[float, ...], images: list[int], tmp_path: Path
) -> None:
    """Each class's few images want to go to the largest part."""
    content = of_classes([1, 4, 9], [0], [1, 4], [1], [9], [0, 4])
    parts = split(tmp_path, content, *ratios)
    assert_every_row_once(parts, content)
    assert [len(part["images"]) for part in parts] == images
    largest = parts[images.index(max(images))]
    assert {row["category_id"] for row in largest["annotations"]} == {0, 1, 4, 9}
    assert all(part["annotations"] for part in parts)


def test_all_keys_stay(tmp_path: Path) -> None:
    content = document()
    content["images"][1]["camera"] = {"name": "left"}
    content["annotations"][2]["attributes"] = [1.5, None]
    parts = split(tmp_path, content, 1, 1)
    assert_every_row_once(parts, content)


@pytest.mark.parametrize("ratios", [(80, 20), (0.8, 0.2), (5, 3, 2)])
def test_a_class_an_image_is_shared_out_exactly(tmp_path: Path, ratios: tuple[float, ...]) -> None:
    """Images without boxes, too."""
    numbers = {0: 500, 1: 50, 4: 10, 9: 20, None: 30}
    content = of_classes(*([number] if number is not None else [] for number, n in numbers.items() for _ in range(n)))
    for part, share in zip(split(tmp_path, content, *ratios), ratios, strict=True):
        counts: Counter[int | None] = Counter(row["category_id"] for row in part["annotations"])
        counts[None] = len(part["images"]) - counts.total()
        assert counts == {number: round(n * share / sum(ratios)) for number, n in numbers.items()}


def test_several_classes_an_image_are_shared_out_better_than_at_random() -> None:
    """40 classes, from 15 to 900 of 3,000 images: at most 0.3 of the error of a random split, at any seed."""
    rng, parts = np.random.default_rng(1), np.array([0.7, 0.2, 0.1])
    labels = rng.random((3000, 40)) < np.geomspace(0.005, 0.3, 40)

    def error(part: Any) -> float:
        counts = np.stack([labels[part == at].sum(0) for at in range(3)])
        return float(np.abs(counts / labels.sum(0) - parts[:, None]).mean())

    for seed in range(5):
        draws = np.random.default_rng(seed)
        assert error(stratify(labels, parts.tolist(), draws)) < 0.3 * error(draws.choice(3, 3000, p=parts))


def test_the_seed_decides(tmp_path: Path) -> None:
    content = of_classes(*([at % 4 % 3 and 4] for at in range(40)))
    one, again, other = (split(tmp_path, content, 3, 1, seed=seed) for seed in (0, 0, 1))
    assert one == again
    assert one != other


def with_videos() -> Document:
    content = of_classes(*([number] for number in [4] * 12 + [9] * 12))
    content["videos"] = [{"id": 40 - at, "name": f"v{at}"} for at in range(9)]  # the last has no image
    content["videos"].sort(key=lambda row: int(row["id"]))
    for at, row in enumerate(content["images"]):
        row |= {"video_id": 40 - at // 3, "frame_id": at % 3}
    return content


def test_a_videos_frames_stay_together(tmp_path: Path) -> None:
    content = with_videos()
    parts = split(tmp_path, content, 3, 1)
    assert_every_row_once(parts, content)
    for part in parts:
        ids = {row["id"] for row in part["videos"]}
        assert {row["video_id"] for row in part["images"]} <= ids
        assert {row["category_id"] for row in part["annotations"]} == {4, 9}
    assert [len(part["videos"]) for part in parts] in ([7, 2], [6, 3])


def test_classes_of_whole_images_are_shared_out(tmp_path: Path) -> None:
    content = of_classes(*([] for _ in range(40)))
    for at, row in enumerate(content["images"]):
        row["category_id"] = 9 if at % 4 else 1
    for part, share in zip(split(tmp_path, content, 4, 1), (0.8, 0.2), strict=True):
        assert Counter(row["category_id"] for row in part["images"]) == {9: 30 * share, 1: 10 * share}


def test_a_loader_reads_each_part(demo_folder: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / "train.json", tmp_path / "val.json"]
    summary = split_coco(demo_folder / "train.json", outputs, (3, 1))
    readers = [da.CocoReader(demo_folder / "demo/VOC/JPEGImages", path) for path in outputs]
    assert tuple(map(len, readers)) == summary.images
    assert readers[0].class_names == readers[1].class_names


WRONG: list[tuple[tuple[str, ...], str]] = [
    (("-o", "a.json"), "give two outputs or more, and a ratio for each, got 1 and 2"),
    (("-o", "a.json", "-o", "b.json", "-o", "c.json"), "a ratio for each, got 3 and 2"),
    (("-o", "a.json", "-o", "a.json"), "output 2 must be another file than output 1, got a.json for both"),
    (("-o", "a.json", "-o", "all.json"), "output 2 must be another file than all.json, which is an input"),
    (("-o", "a.json", "-o", "none/b.json"), "output 2 folder none does not exist"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_outputs(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("all.json"), document())
    assert message in usage_error("split", "all.json", *arguments, "--ratios", "1,1")
    assert [*Path().iterdir()] == [Path("all.json")]


def test_images_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the files their copies are not found, and would be in both parts."""
    monkeypatch.chdir(tmp_path)
    write(Path("all.json"), document())
    images = write_images(tmp_path / "images")
    words = ("split", "all.json", "-o", "a.json", "-o", "b.json", "--ratios", "1,1", "--images")
    assert "images no is not a folder; give the folder that file_name is relative to" in usage_error(*words, "no")
    name = document()["images"][1]["file_name"]
    (images / name).unlink()
    message = f"images images must have all images, got it without 1 of 3 images of all.json, such as '{name}'"
    assert message in usage_error(*words, "images")
    assert not Path("a.json").exists()


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_outputs_that_are_one_file(link: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("all.json"), document())
    write(Path("a.json"), document())
    link("a.json", "b.json")
    before = Path("a.json").read_bytes()
    message = usage_error("split", "all.json", "-o", "a.json", "-o", "b.json", "--ratios", "1,1")
    assert message == "detaug: output 2 must be another file than output 1, got b.json, another name of a.json\n"
    assert Path("a.json").read_bytes() == before


@pytest.mark.parametrize(
    ("ratios", "message"),
    [
        ("1,a", "must be numbers, such as 80,20, got '1,a'"),
        ("1,", "must be numbers"),
        ("1,0", "ratios must be positive numbers, such as 80 and 20, got 1.0, 0.0"),
        ("1,-1", "ratios must be positive numbers"),
        ("1,nan", "ratios must be positive numbers"),
        ("1,inf", "ratios must be positive numbers"),
        ("1,0.0001", "b.json would get none of the images of all.json; give it a larger ratio"),
    ],
)
def test_wrong_ratios(ratios: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("all.json"), document())
    assert message in usage_error("split", "all.json", "-o", "a.json", "-o", "b.json", "--ratios", ratios)
    assert [*Path().iterdir()] == [Path("all.json")]


def test_a_json_with_errors_is_refused(tmp_path: Path) -> None:
    content = document()
    content["annotations"][0]["image_id"] = 99
    source = write(tmp_path / "all.json", content)
    with pytest.raises(da.AnnotationError, match=r"image_id 99 is not the id of an image(.|\n)*--clean"):
        split_coco(source, [tmp_path / "a.json", tmp_path / "b.json"], (1, 1))


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    source = write(tmp_path / "all.json", of_classes(*([4] for _ in range(400))))
    outputs = [tmp_path / "small.json", tmp_path / "large.json"]
    for path in outputs:
        path.write_text("as before")
    arguments = ["-o", outputs[0], "-o", outputs[1], "--ratios", "1,9"]
    with disk_for_files_of(20_000):
        result = detaug("split", source, *arguments)
    assert result.code == 2
    assert "large.json: File too large" in result.err
    assert [path.read_text() for path in outputs] == ["as before"] * 2
    assert len([*tmp_path.iterdir()]) == 3
    assert detaug("split", source, *arguments).code == 0


def test_shapes_and_the_names_of_key_points_stay(tmp_path: Path) -> None:
    content = document()
    shapes = {"keypoints": [10, 10, 2], "num_keypoints": 1, "corners": [[1, 2], [9, 2], [9, 8], [1, 8]]}
    for row in content["annotations"]:
        row |= shapes
    content["categories"][0] |= {"keypoints": ["nose"], "skeleton": [], "flip_idx": [0]}
    for part in split(tmp_path, content, 2, 1):
        assert part["categories"] == content["categories"]
        assert all(row in content["annotations"] for row in part["annotations"])
