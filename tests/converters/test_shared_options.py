"""The options that every format has: jobs, part, classes, images, on_error."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import load_script
from command import detaug
from format_files import modules_of_other_formats
from PIL import Image
from seeds import slow
from shard_files import detection, write_tfrecord

from detaug.converters import ConversionError, InputError, Summary, convert_to_coco, merge_coco
from detaug.converters.formats.recognise import recognise
from detaug.converters.records import reading
from detaug.files.image_headers import IMAGE_EXTENSIONS

SCRIPT = load_script("convert_speed")
COUNT = 13
MAPS = {"gtFine", "masks", "panoptic", "SegmentationClass", "SegmentationObject"}
"""Folders of annotations that are images."""
SHARDS = ("tfrecord", "webdataset")
"""Their images lie in them, so they have neither images nor parts."""


def labelme_web(root: Path) -> None:
    SCRIPT.write_images(root / "images", COUNT)
    for number in range(COUNT):
        objects = "".join(
            f"<object><name>{box.name}</name><type>bounding_box</type><polygon><pt><x>{box.x}</x><y>{box.y}</y></pt>"
            f"<pt><x>{box.x + box.w}</x><y>{box.y + box.h}</y></pt></polygon></object>"
            for box in SCRIPT.boxes_of(number)
        )
        text = f"<annotation><filename>{number:06}.jpg</filename>{objects}</annotation>"
        (root / "images" / f"{number:06}.xml").write_text(text)


def segment_anything(root: Path) -> None:
    SCRIPT.write_images(root / "images", COUNT)
    for number in range(COUNT):
        image = {"image_id": number, "width": SCRIPT.WIDTH, "height": SCRIPT.HEIGHT, "file_name": f"{number:06}.jpg"}
        rings = [[value for point in SCRIPT.corners(box) for value in point] for box in SCRIPT.boxes_of(number)]
        annotations = [{"id": at, "segmentation": [ring]} for at, ring in enumerate(rings)]
        (root / f"images/{number:06}.json").write_text(json.dumps({"image": image, "annotations": annotations}))


def sequences(root: Path) -> None:
    """Write five videos of 2 to 4 frames; objects of the second have no track, and a class of its own."""
    for at, count in enumerate((3, 2, 4, 2, 2)):
        SCRIPT.write_set(root / f"video{at}", "mot", count)
    truth = root / "video1/gt/gt.txt"
    rows = [line.split(",") for line in truth.read_text().splitlines()]
    truth.write_text("\n".join(",".join([row[0], "-1", *row[2:7], "12", "1"]) for row in rows))


def coco_panoptic(root: Path) -> None:
    """Write images with three segments each: their numbers are 1, 2 and 3."""
    SCRIPT.write_images(root / "images", COUNT)
    images, annotations = [], []
    for number in range(COUNT):
        name = f"{number:06}"
        images.append({"id": number, "file_name": f"{name}.jpg", "width": SCRIPT.WIDTH, "height": SCRIPT.HEIGHT})
        segments = [{"id": value, "category_id": 1 + value % 2, "iscrowd": 0} for value in (1, 2, 3)]
        annotations.append({"image_id": number, "file_name": f"{name}.png", "segments_info": segments})
        write_map(root / f"panoptic/{name}.png", number, [(value, 0, 0) for value in range(4)])
    categories = [{"id": number, "name": name, "isthing": 1} for number, name in ((1, "cat"), (2, "dog"))]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "panoptic.json").write_text(json.dumps(content))


def voc_masks(root: Path) -> None:
    SCRIPT.write_images(root / "JPEGImages", COUNT)
    (root / "ImageSets/Segmentation").mkdir(parents=True)
    for number in range(COUNT):
        write_map(root / f"SegmentationObject/{number:06}.png", number, [0, 1, 2, 3])
        write_map(root / f"SegmentationClass/{number:06}.png", number, [0, 15, 7, 15])


def cityscapes(root: Path) -> None:
    for number in range(COUNT):
        city, stem = ("aachen", "bochum")[number % 2], f"{number:06}_000019"
        path = root / f"leftImg8bit/train/{city}/{stem}_leftImg8bit.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (SCRIPT.WIDTH, SCRIPT.HEIGHT), (number, 0, 0)).save(path)
        write_map(root / f"gtFine/train/{city}/{stem}_gtFine_instanceIds.png", number, [7, 26000, 24000, 24001])


def semantic(root: Path) -> None:
    SCRIPT.write_images(root / "images", COUNT)
    for number in range(COUNT):
        write_map(root / f"masks/{number:06}.png", number, [0, 1, 2, 255])


def write_map(path: Path, number: int, values: list[Any]) -> None:
    """Write a PNG of the size of the images: three rectangles, which move with the number, and what is around them."""
    parts = np.zeros((SCRIPT.HEIGHT, SCRIPT.WIDTH), np.int64)
    for value in (1, 2, 3):
        parts[20 * value : 20 * value + 9, 30 + number : 90 - number] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    dtype = np.uint8 if np.max(values) < 256 else np.uint16
    Image.fromarray(np.array(values, dtype)[parts]).save(path)


OWN: dict[str, Callable[[Path], None]] = {
    "labelme-web": labelme_web,
    "segment-anything": segment_anything,
    "mot": sequences,
    "coco-panoptic": coco_panoptic,
    "voc-masks": voc_masks,
    "cityscapes": cityscapes,
    "semantic": semantic,
}
LISTED = {"coco", *SHARDS, *OWN, *(form.split("/")[0] for form in SCRIPT.WRITERS)}
OWN |= {name: partial(module.write_set, count=COUNT) for name, module in modules_of_other_formats(LISTED)}
FORMS = sorted({*SCRIPT.WRITERS, *OWN})


def written(tmp_path: Path, form: str) -> Path:
    root = tmp_path / "set"
    if form in OWN:
        root.mkdir()
        OWN[form](root)
    else:
        SCRIPT.write_set(root, form, COUNT)
    return root


def images_of(root: Path) -> list[Path]:
    paths = [path for path in sorted(root.rglob("*")) if path.suffix in IMAGE_EXTENSIONS]
    return [path for path in paths if not MAPS & {*path.relative_to(root).parts}]


def converted(root: Path, form: str, **options: Any) -> tuple[dict[str, Any], bytes, Summary]:
    output = root.parent / "out.json"
    summary = convert_to_coco(root, output, format=form.split("/")[0], **options)
    return json.loads(output.read_bytes()), output.read_bytes(), summary


@pytest.mark.parametrize("form", FORMS)
def test_the_format_is_recognised(tmp_path: Path, form: str) -> None:
    assert recognise(written(tmp_path, form)).format.name == form.split("/")[0]


# It starts six processes. Records, rows of a table, a stream of frames and maps of ids are each read in another way.
QUICK = ("voc", "csv", "mot", "coco-panoptic")


@pytest.mark.parametrize("form", [*QUICK, *slow(*(form for form in FORMS if form not in QUICK))])
def test_jobs_and_parts_write_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    root = written(tmp_path, form)
    _, content, summary = converted(root, form)
    assert summary.images == COUNT
    monkeypatch.setattr(reading, "_RECORDS_AT_ONCE", 2)  # so that each process has some
    _, of_jobs, same = converted(root, form, jobs=3)
    assert of_jobs == content
    assert [*map(str, same.findings)] == [*map(str, summary.findings)]
    parts = [tmp_path / f"part{number}.json" for number in (1, 2, 3)]
    for number, part in enumerate(parts, 1):
        jobs = 2 if number == 2 else 1  # each job is a process, and starting one takes most of the time
        convert_to_coco(root, part, format=form.split("/")[0], part=(number, 3), jobs=jobs)
    merge_coco(parts[::-1], tmp_path / "merged.json")
    assert (tmp_path / "merged.json").read_bytes() == content


def test_classes_of_maps(tmp_path: Path) -> None:
    """The classes are the names of the numbers in the maps."""
    content, _, _ = converted(written(tmp_path, "semantic"), "semantic", classes=["sky", "cat", "dog"])
    assert [row["name"] for row in content["categories"]] == ["sky", "cat", "dog"]
    message = "classes must name the 3 classes of the maps, from 0 on, got 2; add class 2$"
    with pytest.raises(ConversionError, match=message):
        converted(tmp_path / "set", "semantic", classes=["sky", "cat"])


@pytest.mark.parametrize("form", [form for form in FORMS if form != "semantic"])
def test_classes(tmp_path: Path, form: str) -> None:
    root = written(tmp_path, form)
    whole, _, _ = converted(root, form)
    names = {row["id"]: row["name"] for row in whole["categories"]}
    counts = Counter(names[row["category_id"]] for row in whole["annotations"])
    chosen = sorted(counts, reverse=True)[: max(1, len(counts) // 2)]
    content, _, summary = converted(root, form, classes=chosen)
    assert [row["name"] for row in content["categories"]] == chosen
    assert summary.class_counts == {name: counts[name] for name in chosen}
    assert len(content["images"]) == COUNT
    left_out = summary.kind_counts.get("class-not-listed", 0)
    assert left_out == counts.total() - summary.boxes
    with pytest.raises(ConversionError, match="classes lists nobody"):
        converted(root, form, classes=["nobody"])


@pytest.mark.parametrize("form", FORMS)
def test_images_elsewhere(tmp_path: Path, form: str) -> None:
    root = written(tmp_path, form)
    whole, _, _ = converted(root, form)
    elsewhere = tmp_path / "elsewhere"
    for path in images_of(root):
        target = elsewhere / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
    images = elsewhere / "JPEGImages" if form == "voc" else elsewhere
    content, _, summary = converted(root, form, images=images)
    assert content == whole
    assert summary.image_folder.is_relative_to(elsewhere)
    assert all((summary.image_folder / row["file_name"]).is_file() for row in content["images"])
    with pytest.raises(InputError, match="nowhere is not a folder"):
        converted(root, form, images=tmp_path / "nowhere")


@pytest.mark.parametrize("form", FORMS)
def test_an_image_that_cannot_be_read(tmp_path: Path, form: str) -> None:
    root = written(tmp_path, form)
    whole, _, _ = converted(root, form)
    paths = images_of(root)
    paths[1].unlink()  # the files are links to one
    paths[1].write_bytes(b"no image")
    with pytest.raises(ConversionError, match=paths[1].name):
        converted(root, form)
    content, _, summary = converted(root, form, on_error="skip", jobs=2)
    assert len(content["images"]) == len(whole["images"]) - 1
    assert len(content["annotations"]) == len(whole["annotations"]) * (COUNT - 1) / COUNT
    assert {finding.file.rpartition("/")[2] for finding in summary.findings if finding.effect == "error"} == {
        paths[1].name
    }


def test_shards(tmp_path: Path) -> None:
    for number in range(3):
        records = [{**detection(f"{number}{at}.jpg", [(1, 1, 9, 9)], [at])} for at in (1, 2)]
        write_tfrecord(tmp_path / f"set/{number}.tfrecord", records)
    root = tmp_path / "set"
    _, content, _ = converted(root, "tfrecord")
    assert converted(root, "tfrecord", jobs=2)[1] == content
    assert [row["name"] for row in converted(root, "tfrecord", classes=["cat", "dog"])[0]["categories"]] == [
        "cat",
        "dog",
    ]
    for option in ({"part": (1, 2)}, {"images": root}, {"split": "train"}):
        with pytest.raises(InputError, match=f"TFRecord is converted without {next(iter(option))}; "):
            converted(root, "tfrecord", **option)


@pytest.mark.parametrize("command", ["convert", "convert-voc", "convert-yolo", "convert-mot", "convert-dota"])
def test_each_command_has_the_options(command: str) -> None:
    text = detaug(command, "--help").out
    assert {"--jobs", "--part", "--classes", "--on-error"} <= {*text.replace(",", " ").split()}
    assert "--images" in text or "LABELS IMAGES" in text


def test_no_jobs(tmp_path: Path) -> None:
    root = written(tmp_path, "yolo")
    with pytest.raises(InputError, match="jobs must be at least 1, got 0"):
        converted(root, "yolo", jobs=0)
