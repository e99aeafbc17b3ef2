"""TFRecord to COCO JSON: TensorFlow's features, positions of images, checksums, what is refused."""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import detaug, usage_error
from hypothesis import strategies as st
from properties import check_examples, few_or_many
from shard_damage import damages, images_left
from shard_files import (
    Document,
    boxes,
    classes,
    contents,
    converted,
    detection,
    example,
    example_class,
    jpeg,
    masked_crc,
    record,
    write_tfrecord,
)
from voc_files import image_bytes, rotated_jpeg

from detaug.converters import ConversionError, InputError, Summary, tfrecord_to_coco
from detaug.converters.shards.example import WireError, parse_example, parse_feature
from detaug.converters.shards.samples import ShardError
from detaug.converters.shards.tfrecord import read_records

BOXES = [(10, 10, 30, 40), (40.5, 10.25, 60, 40)]


def convert(shards: Any, **options: Any) -> tuple[Document, Summary]:
    return converted(tfrecord_to_coco, shards, **options)


def one(folder: Path, features: Any, **options: Any) -> tuple[Document, Summary]:
    return convert(write_tfrecord(folder / "one.tfrecord", [features]), **options)


def three(folder: Path) -> list[Path]:
    """Write two shards in two folders, of five images."""
    first = [detection(f"{name}.jpg", BOXES[:count], [1, 2][:count]) for count, name in enumerate("abc")]
    more = {"image/object/class/text": ["cat", "dog"]}
    second = [{**detection(f"{name}.jpg", BOXES, [1, 2]), **more} for name in "de"]
    return [write_tfrecord(folder / "x/1.tfrecord", first), write_tfrecord(folder / "y/2.tfrecord", second)]


# ----------------------------------------------------------------------------------------------------------
# What is read


def test_the_checksum_of_the_tests_is_the_standards() -> None:
    assert masked_crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_records_of_the_object_detection_api(tmp_path: Path) -> None:
    shards = three(tmp_path)
    document, summary = convert(shards, output=tmp_path / "out.json")
    assert [image["file_name"] for image in document["images"]] == ["a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"]
    assert [image["shard"] for image in document["images"]] == ["x/1.tfrecord"] * 3 + ["y/2.tfrecord"] * 2
    assert contents(document, tmp_path) == {f"{name}.jpg": jpeg(f"{name}.jpg") for name in "abcde"}
    assert np.allclose(boxes(document)[:3], [[10, 10, 20, 30], [10, 10, 20, 30], [40.5, 10.25, 19.5, 29.75]], atol=1e-3)
    assert [row["image_id"] for row in document["annotations"]] == [2, 3, 3, 4, 4, 5, 5]
    assert [row["category_id"] for row in document["annotations"]] == [1, 1, 2, 1, 2, 1, 2]
    assert classes(document) == {1: "cat", 2: "dog"}
    assert (summary.image_folder, summary.images_without_boxes, summary.findings) == (tmp_path, 1, ())


@pytest.mark.slow
def test_the_same_bytes_again_with_any_number_of_jobs(tmp_path: Path) -> None:
    shards = three(tmp_path)
    written = []
    for jobs in (1, 2, 3, None):
        convert(shards, output=tmp_path / "out.json", jobs=jobs)
        written.append((tmp_path / "out.json").read_bytes())
    assert len(set(written)) == 1


def test_attributes_stay(tmp_path: Path) -> None:
    features = detection("a.jpg", BOXES, [1, 1], image__object__difficult=[0, 1], image__object__truncated=[1, 0])
    crowd = {"image/object/is_crowd": [1, 0], "image/object/area": [500.5, 120.0], "image/source_id": ["77"]}
    document, _ = one(tmp_path, {**features, **crowd})
    keys = ("iscrowd", "area", "difficult", "truncated")
    rows = [[row[key] for key in keys] for row in document["annotations"]]
    assert rows == [[1, 500.5, 0, 1], [0, 120, 1, 0]]
    assert [image["id"] for image in document["images"]] == [77]


def test_source_ids_that_are_no_numbers_stay_as_texts(tmp_path: Path) -> None:
    records = [{**detection(f"{at}.jpg"), "image/source_id": [text]} for at, text in enumerate(["7", "x", "2.jpg"])]
    document, summary = convert(write_tfrecord(tmp_path / "a.tfrecord", records))
    assert [(image["id"], image.get("source_id")) for image in document["images"]] == [(1, None), (2, "x"), (3, None)]
    assert summary.kind_counts == {"ids-changed": 1}


@pytest.mark.parametrize(
    ("features", "expected", "names"),
    [
        ({"image/class/label": [3]}, 3, {3: "class 3"}),
        ({"image/class/label": [3], "image/class/text": ["fish"]}, 3, {3: "fish"}),
        ({"image/class/text": ["fish"]}, 1, {1: "fish"}),
    ],
)
def test_classification(tmp_path: Path, features: Any, expected: int, names: dict[int, str]) -> None:
    document, summary = one(tmp_path, {"image/encoded": [jpeg("a")], **features})
    assert (document["images"][0]["category_id"], classes(document)) == (expected, names)
    assert (document["annotations"], summary.image_class_counts) == ([], {names[expected]: 1})
    assert "1 image with a class" in str(summary)
    assert document["images"][0]["file_name"] == "one-000001.jpg"


def test_boxes_without_a_class_have_that_of_their_image(tmp_path: Path) -> None:
    features = {**detection("a.jpg", BOXES), "image/class/label": [5]}
    document, _ = one(tmp_path, features)
    assert [row["category_id"] for row in document["annotations"]] == [5, 5]


def test_classes_by_name_are_sorted(tmp_path: Path) -> None:
    features = {**detection("a.jpg", BOXES), "image/object/class/text": ["dog", "cat"]}
    document, _ = one(tmp_path, features)
    assert classes(document) == {1: "cat", 2: "dog"}
    assert [row["category_id"] for row in document["annotations"]] == [2, 1]
    document, summary = one(tmp_path, features, classes=["dog", "cat", "eel"])
    assert classes(document) == {1: "dog", 2: "cat", 3: "eel"}
    assert summary.kind_counts == {"class-unused": 1}


def test_classes_that_count_from_0(tmp_path: Path) -> None:
    features = detection("a.jpg", BOXES, [0, 1])
    with pytest.raises(ConversionError, match=r"must be at least 1, got 0; .* --first-label 0"):
        one(tmp_path, features)
    document, _ = one(tmp_path, features, first_label=0, classes=["cat", "dog"])
    assert [row["category_id"] for row in document["annotations"]] == [1, 2]


def test_other_names_for_features(tmp_path: Path) -> None:
    features = {"jpeg": [jpeg("a")], "file": ["a.jpg"], "y": [2]}
    path = write_tfrecord(tmp_path / "a.tfrecord", [features])
    names = ["image=jpeg", "filename=file", "class_label=y"]
    output = tmp_path / "a.json"
    result = detaug("convert-tfrecord", path, "-o", output, *(word for name in names for word in ("--feature", name)))
    assert (result.code, result.err) == (0, "")
    assert contents(json.loads(output.read_bytes()), tmp_path) == {"a.jpg": jpeg("a")}
    error = usage_error("convert-tfrecord", path, "-o", output, "--feature", "image")
    assert "must be KEY=NAME, such as image=jpeg, got 'image'" in error
    assert "--feature must be among image," in usage_error("convert-tfrecord", path, "-o", output, "--feature", "pic=x")


def test_the_files_size_is_the_truth(tmp_path: Path) -> None:
    features = {**detection("a.jpg", BOXES, [1, 1]), "image/encoded": [rotated_jpeg(6)]}
    document, summary = one(tmp_path, features)
    assert (document["images"][0]["width"], document["images"][0]["height"]) == (80, 100)
    assert summary.kind_counts == {"size-recorded": 1}
    assert np.allclose(boxes(document)[0], [8, 12.5, 16, 37.5], atol=1e-3)


def test_file_names_are_safe_and_unique(tmp_path: Path) -> None:
    names = ["a.jpg", "a.jpg", "a-2.jpg", "/etc/a.jpg", "../b.jpg", "x\ny", ""]
    path = write_tfrecord(tmp_path / "a.tfrecord", [detection(name) for name in names])
    document, summary = convert(path)
    found = [image["file_name"] for image in document["images"]]
    assert found == ["a.jpg", "a-3.jpg", "a-2.jpg", "a-4.jpg", "b.jpg", "a-000006.jpg", "a-000007.jpg"]
    assert summary.kind_counts == {"file-name-changed": 6}
    assert list(contents(document, tmp_path).values()) == list(map(jpeg, names))


@pytest.mark.parametrize(
    ("box", "expected", "kind"),
    [
        ((-0.5, 10, 30, 40), [0, 10, 30, 30], "box-clipped"),
        ((10, 10, 115.28, 40), [10, 10, 90, 30], "box-clipped"),
        ((30, 40, 10, 10), [10, 10, 20, 30], "box-reversed"),
        ((10, 10, 10, 40), None, "box-empty"),
    ],
)
def test_boxes_are_cut_and_repaired(tmp_path: Path, box: Any, expected: Any, kind: str) -> None:
    document, summary = one(tmp_path, detection("a.jpg", [box, (2, 3, 9, 9)], [1, 1]))
    assert np.allclose(boxes(document), [*([expected] if expected else []), [2, 3, 7, 6]], atol=1e-3)
    assert summary.kind_counts == {kind: 1}


# ----------------------------------------------------------------------------------------------------------
# What is refused


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"image/object/class/label": [1]}, "class/label must have a value for each of the 2 objects, got 1"),
        ({"image/object/bbox/xmin": [0.1]}, "bbox/xmin must have a value for each of the 2 objects, got 1"),
        ({"image/object/difficult": [1]}, "difficult must have a value for each of the 2 objects, got 1"),
        ({"image/object/class/label": []}, "has boxes and no image/object/class/label"),
        ({"image/object/class/label": [1.5, 2.5]}, "class/label must be a list of int, got float"),
        ({"image/object/class/text": [b"\xff", b"x"]}, "class/text is not UTF-8 text"),
        ({"image/object/is_crowd": [2, 0]}, "is_crowd must be 0 or 1, got 2"),
        (
            {"image/object/bbox/xmin": [10.0, 20.0]},
            "bbox/xmin must be relative to the image, floats from 0 to 1, got 10;",
        ),
        (
            {"image/object/bbox/ymax": [0.3, 1.26]},
            "bbox/ymax must be relative to the image, floats from 0 to 1, got 1.26 [",
        ),
        (
            {"image/object/bbox/xmax": [40, 50]},
            "xmax must be relative to the image, floats from 0 to 1, got whole numb",
        ),
        (
            {"image/object/bbox/xmin": [float("nan"), 0.1]},
            "bbox/xmin must be relative to the image, floats from 0 to 1",
        ),
        ({"image/class/label": [1, 2]}, "an image must have one class, got 2"),
        ({"image/encoded": []}, "has no feature image/encoded; it has image/encoded, image/filename"),
        ({"image/encoded": [b"GIF89a"]}, "is not an image that can be read"),
        ({"image/encoded": [b""]}, "is empty"),
        ({"image/encoded": [image_bytes(), b"x"]}, "image/encoded must be one image, got 2"),
        ({"image/coco": ["[]"]}, "its JSON file must be an object"),
    ],
)
def test_records_that_cannot_be_used_are_named(tmp_path: Path, more: Any, message: str) -> None:
    good = detection("b.jpg", BOXES, [1, 2])
    path = write_tfrecord(tmp_path / "a.tfrecord", [good, {**detection("a.jpg", BOXES, [1, 2]), **more}])
    with pytest.raises(ConversionError) as raised:
        convert(path)
    line, last = str(raised.value).splitlines()
    assert line.startswith("a.tfrecord record 2: ")
    assert message in line
    assert 'on_error="skip"' in last
    assert not (tmp_path / "out.json").exists()
    document, summary = convert(path, on_error="skip")
    assert (list(contents(document, tmp_path)), len(summary.findings)) == (["b.jpg"], 1)


def test_classes_that_contradict_each_other(tmp_path: Path) -> None:
    names = ("image/object/class/text", "cat", "dog")
    records = [{**detection(f"{name}.jpg", BOXES[:1], [1]), names[0]: [name]} for name in names[1:]]
    path = write_tfrecord(tmp_path / "a.tfrecord", records)
    with pytest.raises(ConversionError, match="category id 1 is both 'cat' and 'dog'"):
        convert(path)
    with pytest.raises(ConversionError, match="category id 1 is both 'eel' and 'cat'"):
        convert(path, classes=["eel"])
    with pytest.raises(ConversionError, match="have category id 2, classes has 1 names"):
        one(tmp_path, detection("a.jpg", BOXES, [1, 2]), classes=["eel"])


def test_records_without_labels_name_their_features(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="there are image/encoded, y; convert-tfrecord --feature KEY=NAME"):
        one(tmp_path, {"image/encoded": [jpeg("a")], "y": [1]})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"x" * 100, mtime=0), "a.tfrecord: is compressed with GZIP; decompress it first: gunzip"),
        (zlib.compress(b"x" * 100), "a.tfrecord: is compressed with ZLIB; write it again without compression"),
        (b"hello, world!", "a.tfrecord: is not a TFRecord file: its first checksum is wrong"),
        (b"", "a.tfrecord: no image is left to write"),
        (b"short", "a.tfrecord: is cut off in record 1"),
    ],
)
def test_files_that_are_no_tfrecord(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    result = detaug("convert-tfrecord", path, "-o", tmp_path / "a.json")
    assert result.code == 2
    assert message in result.err
    assert os.listdir(tmp_path) == ["a.tfrecord"]


def test_arguments_that_are_no_shards(tmp_path: Path) -> None:
    shard = write_tfrecord(tmp_path / "a.tfrecord", [detection("a.jpg")])
    output = tmp_path / "out.json"
    for shards, message in (
        ([tmp_path], "is a folder; give its files"),
        ([tmp_path / "no"], "no does not exist"),
        ([shard, tmp_path / "../" / tmp_path.name / "a.tfrecord"], "must be different files, got"),
        ([], "at least one file"),
        (shard, "at least one file"),
    ):
        with pytest.raises(InputError, match=message):
            tfrecord_to_coco(shards, output)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="output must be another file than"):
        tfrecord_to_coco([shard], shard)
    for options, message in (({"jobs": 0}, "jobs"), ({"classes": []}, "classes"), ({"first_label": 2}, "first_label")):
        with pytest.raises(InputError, match=f"{message} must"):
            tfrecord_to_coco([shard], output, **options)  # type: ignore[arg-type]


def test_without_the_package_for_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tfrecord(tmp_path / "a.tfrecord", [detection("a.jpg")])
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    error = usage_error("convert-tfrecord", path, "-o", tmp_path / "a.json")
    assert "google-crc32c: pip install 'detaug[shards]'" in error


# ----------------------------------------------------------------------------------------------------------
# Damage


def small_shard() -> bytes:
    """Return three records of images of 2 x 2 pixels."""
    records = []
    for name in "abc":
        image = image_bytes(size=(2, 2), kind="PNG") + name.encode()
        records.append({"image/encoded": [image], "image/filename": [f"{name}.png"], "image/class/label": [1]})
    return b"".join(record(example(features)) for features in records)


def check_damages(path: Path, step: int) -> None:
    """Cut a small shard at every position, and flip bits of every byte; what is left must be whole records."""
    good = small_shard()
    path.write_bytes(good)
    whole, _ = images_left(tfrecord_to_coco, path)
    ends = [0] + [place + len(record_) for place, record_ in zip(*_records(good), strict=True)]
    assert len(whole) == 3
    for position, is_cut in damages(path, good, range(1, len(good), step)):
        found, kinds = images_left(tfrecord_to_coco, path)
        if is_cut:
            count = sum(end <= position for end in ends[1:])
            assert found == dict(list(whole.items())[:count])
            assert kinds == ([] if position in ends else ["shard-broken"])
        else:
            assert len(found) < 3
            assert found.items() <= whole.items()
            assert kinds in (["record-broken"], ["shard-broken"], ["shard-unreadable"])


def _records(data: bytes) -> tuple[list[int], list[bytes]]:
    places, records = [], []
    position = 0
    while position < len(data):
        length = int.from_bytes(data[position : position + 8], "little") + 16
        places.append(position)
        records.append(data[position : position + length])
        position += length
    return places, records


def test_a_damaged_shard_never_gives_other_bytes(tmp_path: Path) -> None:
    check_damages(tmp_path / "a.tfrecord", step=11)


@pytest.mark.slow
def test_a_shard_damaged_anywhere_never_gives_other_bytes(tmp_path: Path) -> None:
    check_damages(tmp_path / "a.tfrecord", step=1)


def test_a_length_past_the_end_is_not_read(tmp_path: Path) -> None:
    head = (1 << 62).to_bytes(8, "little")
    (tmp_path / "a").write_bytes(head + masked_crc(head).to_bytes(4, "little") + b"x" * 100)
    with pytest.raises(ShardError, match="cut off in record 1"):
        list(read_records(tmp_path / "a"))


values = st.one_of(
    st.lists(st.binary(max_size=9), max_size=4),
    st.lists(st.floats(width=32, allow_nan=False), max_size=40),
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 300), max_size=40),
)


def parsed(data: bytes) -> dict[str, list[Any]]:
    found = {name: parse_feature(data, span) for name, span in parse_example(data).items()}
    return {
        name: [data[slice(*each)] if kind == "bytes" else each for each in values]
        for name, (kind, values) in found.items()
    }


def by_protobuf(data: bytes) -> dict[str, list[Any]]:
    features = example_class().FromString(data).features.feature
    return {name: list(getattr(each, each.WhichOneof("kind") or "list1").value) for name, each in features.items()}


@few_or_many(3000)
def test_examples_are_parsed_as_protobuf_parses_them(examples: int) -> None:
    def check(features: dict[str, Any], packed: bool, cut: int, flip: tuple[int, int]) -> None:
        data = example(features, packed=packed)
        assert parsed(data) == by_protobuf(data) == {name: list(each) for name, each in features.items()}
        changed = bytearray(data)
        if changed:
            changed[flip[0] % len(changed)] ^= flip[1]
        for other in (data[:cut], bytes(changed)):
            try:
                found, expected = parsed(other), by_protobuf(other)
            except (WireError, *decode_errors()):
                continue
            both = found.keys() & expected.keys()  # protobuf ignores entries that have an unknown field
            assert [repr(found[name]) for name in both] == [repr(expected[name]) for name in both]  # repr: NaN

    texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    flips = st.tuples(st.integers(0, 500), st.integers(1, 255))
    features = st.dictionaries(texts, values, max_size=5)
    check_examples(examples, check, features, st.booleans(), st.integers(0, 300), flips)


def decode_errors() -> tuple[type[Exception], ...]:
    from google.protobuf.message import DecodeError

    return (DecodeError,)


# ----------------------------------------------------------------------------------------------------------
# Plain files


def test_extract_writes_plain_files(tmp_path: Path) -> None:
    shards, folder = three(tmp_path), tmp_path / "images"
    for _ in range(2):
        document, summary = convert(shards, output=tmp_path / "out.json", extract=folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
            f"{n}.jpg": jpeg(f"{n}.jpg") for n in "abcde"
        }
        assert not any({"shard", "offset", "length", "crc32c"} & image.keys() for image in document["images"])
        assert summary.image_folder == folder
    (folder / "b.jpg").write_bytes(b"mine")
    (folder / "a.jpg").unlink()
    (tmp_path / "out.json").unlink()
    with pytest.raises(ConversionError, match=r"b.jpg exists with other content"):
        convert(shards, output=tmp_path / "out.json", extract=folder)
    assert sorted(os.listdir(folder)) == ["b.jpg", "c.jpg", "d.jpg", "e.jpg"]
    assert not (tmp_path / "out.json").exists()


def test_extract_never_leaves_its_folder(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "a.tfrecord", [detection("in/a.jpg"), detection("in/../../b.jpg")])
    convert(path, extract=tmp_path / "images")
    assert sorted(str(each.relative_to(tmp_path / "images")) for each in (tmp_path / "images").rglob("*.jpg")) == [
        "b.jpg",
        "in/a.jpg",
    ]
    other = tmp_path / "other"
    for folder in (other, tmp_path / "linked"):
        folder.mkdir()
    (tmp_path / "linked/in").symlink_to(other)
    with pytest.raises(ConversionError, match="leads outside of"):
        convert(path, extract=tmp_path / "linked")
    assert os.listdir(other) == []
