"""Images that belong together stay together in splits, are found in two of them, and keep their ids of each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import detaug, usage_error
from PIL import Image

import detaug as da
from detaug.check.check import check_coco
from detaug.converters import merge_coco, pack_coco, split_coco, webdataset_to_coco
from detaug.errors import ConversionError


def write_photographs(folder: Path, count: int = 6, first: int = 0) -> Path:
    """Write images of noise, two boxes in each; return the JSON file."""
    (folder / "images").mkdir(parents=True)
    rng = np.random.default_rng(first)
    rows, boxes = [], []
    for at in range(count):
        name = f"p{first + at}.png"
        Image.fromarray(rng.integers(0, 256, (120, 160, 3), dtype=np.uint8)).save(folder / "images" / name)
        rows.append({"id": at + 1, "file_name": name, "width": 160, "height": 120})
        boxes += [[at + 1, 10, 10, 30, 30], [at + 1, 100, 60, 40, 40]]
    annotations = [
        {"id": n, "image_id": image, "category_id": 1, "bbox": box} for n, (image, *box) in enumerate(boxes, 1)
    ]
    content = {"images": rows, "annotations": annotations, "categories": [{"id": 1, "name": "ball"}]}
    return write(folder / "all.json", content)


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def tiled(folder: Path, **options: Any) -> tuple[Path, Path]:
    """Cut tiles of images; return their JSON file and folder."""
    da.tile_coco(folder / "all.json", folder / "images", folder / "tiles", size=80, empty=1.0, **options)
    return folder / "tiles/all.json", folder / "tiles/images"


def origins(path: Path) -> set[str]:
    return {row["tile_of"]["file_name"] for row in read(path)["images"]}


def split(path: Path, **options: Any) -> tuple[Path, Path]:
    parts = path.with_name("train.json"), path.with_name("val.json")
    split_coco(path, parts, (50, 50), **options)
    return parts


@pytest.mark.parametrize("whole", [None, 60])
def test_tiles_of_an_image_go_to_one_split(tmp_path: Path, whole: int | None) -> None:
    write_photographs(tmp_path)
    path, images = tiled(tmp_path, whole=whole)
    train, val = split(path)
    assert not origins(train) & origins(val)
    assert len(origins(train)) == 3
    assert "group-leaked" not in check_coco(train, images, against=[val]).kind_counts


def test_check_finds_tiles_of_an_image_in_two_splits(tmp_path: Path) -> None:
    write_photographs(tmp_path)
    path, images = tiled(tmp_path)
    content = read(path)
    last = content["images"].pop()
    content["annotations"] = [row for row in content["annotations"] if row["image_id"] != last["id"]]
    train = write(path.with_name("train.json"), content)
    val = write(path.with_name("val.json"), {**content, "images": [last], "annotations": []})
    result = detaug("check", train, images, "--against", val)
    assert result.code == 1
    count = len([row for row in content["images"] if row["tile_of"]["file_name"] == "p5.png"])
    assert check_coco(train, images, against=[val]).kind_counts["group-leaked"] == count > 1
    assert "tiles of the image 'p5.png' are in" in result.out
    clean = tmp_path / "clean.json"
    check_coco(train, images, against=[val], clean=clean)
    assert check_coco(clean, images, against=[val]).kind_counts.get("group-leaked") is None
    assert "p5.png" not in origins(clean)


def test_tiles_beside_their_own_whole_image(tmp_path: Path) -> None:
    """The image itself is of the group: in one JSON file, and in two splits."""
    write_photographs(tmp_path)
    path, images = tiled(tmp_path)
    for file in (tmp_path / "images").iterdir():
        file.rename(images / file.name)
    merge_coco([path, tmp_path / "all.json"], tmp_path / "both.json")
    train, val = split(tmp_path / "both.json")
    names = [
        {row.get("tile_of", {}).get("file_name", row["file_name"]) for row in read(part)["images"]}
        for part in (train, val)
    ]
    assert not names[0] & names[1]
    assert check_coco(path, images, against=[tmp_path / "all.json"]).kind_counts["group-leaked"] > 6


def test_tiles_of_tiles_are_of_the_whole_image(tmp_path: Path) -> None:
    write_photographs(tmp_path)
    path, images = tiled(tmp_path)
    da.tile_coco(path, images, tmp_path / "again", size=50, empty=1.0)
    train, val = split(tmp_path / "again/all.json")
    roots = [{row["tile_of"]["tile_of"]["file_name"] for row in read(part)["images"]} for part in (train, val)]
    assert roots[0] | roots[1] == {f"p{at}.png" for at in range(6)}
    assert not roots[0] & roots[1]
    folders = [tmp_path / "again/images", tmp_path / "tiles/images"]
    merge_coco([tmp_path / "again/all.json", path], tmp_path / "both.json", images=folders)
    row = next(row for row in read(tmp_path / "both.json")["images"] if "tile_of" in row["tile_of"])
    assert row["tile_of"]["tile_of"]["file_name"] == f"again/images/{row['file_name'].split('/')[-1][:2]}.png"


def test_one_name_in_two_folders_is_a_warning(tmp_path: Path) -> None:
    """Each split with a folder of its own often has 000001.jpg."""
    jsons = []
    for name in ("one", "two"):
        write_photographs(tmp_path / name)
        for file in (tmp_path / name / "images").iterdir():
            Image.new("RGB", (160, 120), (len(jsons) * 90, int(file.stem[1:]) * 9, 7)).save(file)
        jsons.append(tiled(tmp_path / name))
    (train, images), (val, others) = jsons
    val = val.rename(others / "val.json")
    kinds = check_coco(train, images, against=[val]).kind_counts
    assert kinds["group-name-shared"] == len(read(train)["images"])
    assert "group-leaked" not in kinds
    kinds = check_coco(train, images, against=[val], group_name=r"^p\d").kind_counts  # a group of yours is meant so
    assert kinds["group-leaked"] == len(read(train)["images"])


def test_groups_by_a_key_and_by_a_part_of_the_name(tmp_path: Path) -> None:
    path = write_photographs(tmp_path, 12)
    content = read(path)
    for at, row in enumerate(content["images"]):
        row |= {"patient": at // 3, "file_name": f"scan{at // 3}_{at}.png"}
    write(path, content)
    for at in range(12):
        (tmp_path / f"images/p{at}.png").rename(tmp_path / f"images/scan{at // 3}_{at}.png")
    for option, value in (("group_key", "patient"), ("group_name", "^[^_]+"), ("group_name", r"scan(\d+)_")):
        parts = split(path, **{option: value})
        patients = [{row["patient"] for row in read(part)["images"]} for part in parts]
        assert [len(part) for part in patients] == [2, 2]
        assert not patients[0] & patients[1]
    mixed = split_coco(path, parts, (50, 50))
    assert mixed.images == (6, 6)
    images = tmp_path / "images"
    assert check_coco(parts[0], images, against=[parts[1]]).errors == 0
    for option, value in (("--group-key", "patient"), ("--group-name", "^[^_]+")):
        result = detaug("check", parts[0], images, "--against", parts[1], option, value)
        assert (result.code, "group-leaked" in result.out) == (1, True)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--group-key", "patient", "--group-key must be a key of every image"),
        ("--group-name", "^x", "--group-name must be a pattern in every file name, got '^x': 6 names"),
        ("--group-name", "(", "--group-name must be a regular expression"),
        ("--group-key", "", "--group-key must be a key of every image"),
    ],
)
def test_groups_that_are_not_there(tmp_path: Path, option: str, value: str, message: str) -> None:
    path = write_photographs(tmp_path)
    outputs = ("-o", tmp_path / "a.json", "-o", tmp_path / "b.json", "--ratios", "50,50")
    assert message in usage_error("split", path, *outputs, option, value)
    other = write(tmp_path / "other.json", read(path))
    assert message in usage_error("check", path, tmp_path / "images", "--against", other, option, value)
    assert "give --against" in usage_error("check", path, tmp_path / "images", option, value)


@pytest.mark.parametrize("pattern", ["", "^(x?)", r"\.png$"])
def test_a_pattern_that_makes_one_group_is_named(tmp_path: Path, pattern: str) -> None:
    path = write_photographs(tmp_path)
    outputs = ("-o", tmp_path / "a.json", "-o", tmp_path / "b.json", "--ratios", "50,50")
    error = usage_error("split", path, *outputs, "--group-name", pattern)
    assert "has 1 group of images for 2 outputs; give fewer outputs, or a --group-key or --group-name that" in error


def test_frames_of_one_video_in_two_splits_are_found(tmp_path: Path) -> None:
    path = write_photographs(tmp_path)
    content = read(path)
    content["videos"] = [{"id": 1, "name": "street"}]
    for at, row in enumerate(content["images"]):
        row |= {"video_id": 1, "frame_id": at}
    halves = []
    for name, own in (("a", content["images"][:3]), ("b", content["images"][3:])):
        ids = {row["id"] for row in own}
        boxes = [row for row in content["annotations"] if row["image_id"] in ids]
        halves.append(write(tmp_path / f"{name}.json", {**content, "images": own, "annotations": boxes}))
    summary = check_coco(halves[0], tmp_path / "images", against=[halves[1]])
    assert summary.kind_counts["group-leaked"] == 3
    assert "frames of the video 'street' are in" in str(summary)


def test_merged_tiles_keep_their_images_apart_and_are_scored(tmp_path: Path) -> None:
    """Images of both files have the ids 1 and 2; the merged ones 1 to 4."""
    for at, name in enumerate("ab"):
        write_photographs(tmp_path / name, 2, first=2 * at)
        tiled(tmp_path / name)
    tiles, whole = tmp_path / "tiles.json", tmp_path / "whole.json"
    merge_coco([tmp_path / f"{name}/tiles/all.json" for name in "ba"], tiles)  # in another order
    merge_coco([tmp_path / f"{name}/all.json" for name in "ab"], whole)
    by_id: dict[int, set[str]] = {}
    for row in read(tiles)["images"]:
        by_id.setdefault(row["tile_of"]["id"], set()).add(row["tile_of"]["file_name"])
    assert sorted(map(len, by_id.values())) == [1, 1, 1, 1]
    kinds = evaluated(whole, tiles)
    assert kinds == {row["id"]: row["file_name"] for row in read(whole)["images"]}


def evaluated(whole: Path, tiles: Path) -> dict[int, str]:
    """Return the name of the image that tiles of each image id were cut from, as the evaluator matches them."""
    found = da.CocoEvaluator(whole, tiles=tiles)._tiles
    assert found is not None
    names = [row["tile_of"]["file_name"] for row in read(tiles)["images"]]
    return dict(zip(found.source_ids, names, strict=True))


def test_an_image_without_tiles_is_an_error_and_so_are_tiles_of_others(tmp_path: Path) -> None:
    for at, name in enumerate("ab"):
        write_photographs(tmp_path / name, 2, first=2 * at)
        tiled(tmp_path / name)
    merge_coco([tmp_path / f"{name}/all.json" for name in "ab"], tmp_path / "whole.json")
    with pytest.raises(da.InputError, match=r"has no tiles of 2 of 4 images of .* never be scored"):
        da.CocoEvaluator(tmp_path / "whole.json", tiles=tmp_path / "a/tiles/all.json")
    with pytest.raises(da.InputError, match=r"tiles of an image 'p2\.png' that .*: merge the JSON files"):
        da.CocoEvaluator(tmp_path / "a/all.json", tiles=tmp_path / "b/tiles/all.json")


def test_ids_inside_rows_are_new_after_merging(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 2)):
        content = read(write_photographs(tmp_path / name, 2, first=first))
        content["categories"] = [{"id": 5, "name": f"class of {name}"}]
        for row in content["annotations"]:
            row |= {"id": row["id"] + 10, "category_id": 5, "track_id": 3}
            row |= {"parent_annotation_id": 11, "other_category_ids": [5], "patient_id": 1}
        content["images"][1] |= {"prev_image_id": 1, "near_image_ids": [1, 2], "source_image_id": 77}
        write(tmp_path / f"{name}.json", content)
    summary = merge_coco([tmp_path / "a.json", tmp_path / "b.json"], tmp_path / "out.json")
    merged = read(tmp_path / "out.json")
    ids = [
        (row.get("prev_image_id"), row.get("near_image_ids"), row.get("source_image_id")) for row in merged["images"]
    ]
    assert ids == [(None, None, None), (1, [1, 2], 77), (None, None, None), (3, [3, 4], 77)]
    assert [row["parent_annotation_id"] for row in merged["annotations"]] == [1] * 4 + [5] * 4
    assert [row["other_category_ids"] for row in merged["annotations"]] == [[1]] * 4 + [[2]] * 4
    assert {(row["track_id"], row["patient_id"]) for row in merged["annotations"]} == {(3, 1)}
    assert {each.kind for each in summary.findings} == {"ids-inside"}


@pytest.mark.parametrize("key", ["video_id", "tile_of", "prev_image_id"])
def test_shards_of_several_packs_with_ids_inside_are_refused(tmp_path: Path, key: str) -> None:
    for name, first in (("a", 0), ("b", 2)):
        path = write_photographs(tmp_path / name, 2, first=first)
        content = read(path)
        for at, row in enumerate(content["images"]):
            row[key] = {"id": 1, "file_name": "whole.png"} if key == "tile_of" else 1
            row["frame_id"] = at
        if key == "video_id":
            content["videos"] = [{"id": 1, "name": "street"}]
        pack_coco(write(path, content), tmp_path / name / "images", tmp_path / f"shards_{name}")
    shards = sorted(tmp_path.glob("shards_*/*.tar"))
    for shard, name in zip(shards, "ab", strict=True):
        webdataset_to_coco([shard], tmp_path / f"{name}.json")
        assert read(tmp_path / f"{name}.json")["images"][0][key]
    with pytest.raises(ConversionError, match="convert those of each pack on their own and merge"):
        webdataset_to_coco(shards, tmp_path / "out.json")


def test_the_table_counts_crowds_apart(tmp_path: Path) -> None:
    path = write_photographs(tmp_path)
    content = read(path)
    for row in content["annotations"][::2]:
        row["iscrowd"] = 1
    summary = split_coco(write(path, content), [tmp_path / "a.json", tmp_path / "b.json"], (50, 50))
    assert sum(summary.boxes) == sum(summary.crowds) == sum(summary.class_counts["ball"]) == 6
    assert str(summary).splitlines()[-1].split() == ["crowds", "3", "3"]
