"""read_annotations: columns of a valid JSON, and one AnnotationError with file, entry and remedy for any other."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import BOXES, Document, document, write
from hypothesis import strategies as st
from properties import check_examples, few_or_many

from detaug.check.clean import Cleaned, write_clean
from detaug.coco.annotations import AnnotationError, Annotations, read_annotations
from detaug.coco.examine import examine
from detaug.coco.table import load_coco


def test_columns(tmp_path: Path) -> None:
    content = document()
    content["annotations"].reverse()
    content["annotations"][0]["iscrowd"] = 1
    read = read_annotations(write(tmp_path / "a.json", content))
    assert read.path == tmp_path / "a.json"
    assert read.image_ids.tolist() == [1, 2, 3]
    assert read.file_names == ("a.jpg", "b.jpg", "sub/c.png")
    assert read.sizes.tolist() == [[80, 100]] * 3
    assert read.first.tolist() == [0, 2, 5, 5]
    corners = [[x, y, x + width, y + height] for x, y, width, height in BOXES]
    assert read.boxes.tolist() == [corners[at] for at in (1, 0, 4, 3, 2)]
    assert read.category_ids.tolist() == [1, 2, 2, 1, 2]
    assert read.crowd.tolist() == [False, False, True, False, False]
    assert read.categories == {1: "cat", 2: "dog"}


def test_categories_come_in_the_order_of_their_ids(tmp_path: Path) -> None:
    content = document()
    content["categories"].reverse()
    assert list(read_annotations(write(tmp_path / "a.json", content)).categories.items()) == [(1, "cat"), (2, "dog")]


@pytest.mark.parametrize("number", [0, 2**31, 2**63 - 1])
def test_ids_up_to_int64(tmp_path: Path, number: int) -> None:
    content = document()
    content["images"][0]["id"] = content["annotations"][0]["image_id"] = content["annotations"][1]["image_id"] = number
    content["categories"][1]["id"] = content["annotations"][0]["category_id"] = number
    for row in content["annotations"][2::2]:
        row["category_id"] = number
    read = read_annotations(write(tmp_path / "a.json", content))
    assert read.image_ids[0] == number
    assert number in read.category_ids
    assert read.categories[number] == "dog"
    assert read.first.tolist() == [0, 2, 5, 5]


@pytest.mark.parametrize(
    ("box", "inside"),
    [
        ([-1, -1, 50, 50], [0, 0, 49, 49]),
        ([90, 70, 11, 11], [90, 70, 100, 80]),
        ([0, 0, 100.4, 80.4], [0, 0, 100, 80]),
        ([99.5, 79.5, 0.5, 0.5], [99.5, 79.5, 100, 80]),
    ],
)
def test_up_to_a_pixel_outside_is_cut(tmp_path: Path, box: list[float], inside: list[float]) -> None:
    content = document()
    content["annotations"][0]["bbox"] = box
    assert read_annotations(write(tmp_path / "a.json", content)).boxes[0].tolist() == inside


def test_sizes_with_a_point_are_whole(tmp_path: Path) -> None:
    content = document()
    content["images"][0] |= {"width": 100.0, "height": 80.0}
    assert read_annotations(write(tmp_path / "a.json", content)).sizes[0].tolist() == [80, 100]


def test_no_annotations(tmp_path: Path) -> None:
    read = read_annotations(write(tmp_path / "a.json", document() | {"annotations": []}))
    assert (read.boxes.shape, read.first.tolist()) == ((0, 4), [0, 0, 0, 0])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    content = document()
    content["categories"][0]["name"] = "猫"
    (tmp_path / "a.json").write_bytes(json.dumps(content, ensure_ascii=False).encode(encoding))
    assert read_annotations(tmp_path / "a.json").categories[1] == "猫"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not readable as JSON"),
        ('{"images": [', "not readable as JSON"),
        ("[1, 2]", "a COCO JSON file is an object"),
        ("null", "a COCO JSON file is an object"),
        ('{"images": [], "annotations": []}', '"categories" must be a list of objects'),
        ('{"images": {}, "annotations": [], "categories": []}', '"images" must be a list of objects'),
        ('{"images": null, "annotations": [], "categories": []}', '"images" must be a list of objects'),
        ("[" * 100_000, "not readable as JSON"),
        ("9" * 5000, "not readable as JSON"),
        ("\udcff\udcfe", "not readable as JSON"),
    ],
)
def test_not_a_coco_json(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(AnnotationError, match=message) as raised:
        read_annotations(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("key", ["images", "annotations", "categories"])
def test_a_list_that_occurs_twice_is_refused(tmp_path: Path, key: str, encoding: str) -> None:
    text = json.dumps(document())
    (tmp_path / "a.json").write_bytes(f'{{"{key}": [], {text[1:]}'.encode(encoding))
    with pytest.raises(AnnotationError, match=rf"\(key '{key}' must occur once in an object"):
        read_annotations(tmp_path / "a.json")


def test_the_name_of_a_list_may_occur_elsewhere(tmp_path: Path) -> None:
    content = document() | {"info": {"images": 3, "annotations": {"images": 3}}}
    content["categories"][0]["name"] = "images"
    assert read_annotations(write(tmp_path / "a.json", content)).categories[1] == "images"


def test_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(AnnotationError, match=r"no such file; detaug convert-voc"):
        read_annotations(tmp_path / "no.json")
    with pytest.raises(AnnotationError, match=r"not readable as JSON \(Is a directory\)"):
        read_annotations(tmp_path)


def test_the_message_names_file_entry_value_and_remedy(tmp_path: Path) -> None:
    content = document()
    content["annotations"][3]["bbox"] = [90, 0, 20, 10]
    with pytest.raises(AnnotationError) as raised:
        read_annotations(write(tmp_path / "a.json", content))
    assert str(raised.value) == (
        f"{tmp_path}/a.json:\n"
        "  annotations[3] (id 4, b.jpg): bbox [90, 0, 20, 10] reaches 10 pixels outside its image of 100 x 80\n"
        f"  detaug check {tmp_path}/a.json IMAGES lists them all; --clean NEW.json repairs them or leaves them out"
    )


def test_many_problems_are_counted_and_five_of_them_shown(tmp_path: Path) -> None:
    content = document()
    content["annotations"] = [content["annotations"][0] | {"id": n, "bbox": None} for n in range(1, 1001)]
    content["images"][1]["width"] = 0
    with pytest.raises(AnnotationError) as raised:
        read_annotations(write(tmp_path / "a.json", content))
    lines = str(raised.value).splitlines()
    assert lines[1] == "  images[1] (id 2, b.jpg): width must be a whole number from 1 to 16,777,216, got 0"
    assert [line.split(":")[0] for line in lines[2:4]] == [f"  annotations[{n}] (id {n + 1}, a.jpg)" for n in (0, 1)]
    assert lines[-2] == "  and 998 more"


def test_cleaning_does_not_join_images_of_one_file_and_two_sizes(tmp_path: Path) -> None:
    content = document()
    content["images"].append(content["images"][0] | {"id": 9, "width": 200})
    content["annotations"][1] |= {"image_id": 9, "bbox": [150, 0, 40, 40]}
    table = examine(load_coco(write(tmp_path / "a.json", content)))
    cleaned = write_clean(table, table.findings, tmp_path / "clean.json")
    assert (cleaned.images, cleaned.annotations, cleaned.joined) == (1, 1, 0)
    assert read_annotations(tmp_path / "clean.json").first.tolist() == [0, 1, 4, 4]


# ----------------------------------------------------------------------------------------------------------
# Any JSON file

numbers = st.one_of(
    st.integers(-3, 120),
    st.floats(),
    st.sampled_from([0, 1, 1.0, 2, 3, True, None, "1", 2**63, 2**63 - 1, 10**400, 1e308, -1e308, 80.0]),
)
texts = st.one_of(
    st.sampled_from(
        ["a.jpg", "./a.jpg", "b.jpg", "../a.jpg", "/a", "a.GIF", "a\0", "\ud800", "\udc80", "é" * 200, "a/" * 3000]
    ),
    st.text(max_size=5),
)
values = st.recursive(
    st.one_of(numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=6,
)
boxes = st.lists(numbers, min_size=3, max_size=5)
keys = st.sampled_from(
    ["id", "file_name", "width", "height", "image_id", "category_id", "bbox", "iscrowd", "name", "area"]
)
changes = st.one_of(
    st.tuples(st.just("set"), keys, st.one_of(values, boxes, texts, numbers)),
    st.tuples(st.just("copy"), keys, st.none()),
    st.tuples(st.just("drop"), keys, st.none()),
    st.tuples(st.just("row"), keys, values),
)
edits = st.lists(
    st.tuples(st.sampled_from(["images", "annotations", "categories"]), st.integers(0, 9), changes), max_size=6
)


def edited(content: Document, all_edits: list[Any]) -> Document:
    """Return the document after some edits, each of one value of one row."""
    for where, at, (what, key, value) in all_edits:
        rows = content[where]
        if not rows:
            continue
        at %= len(rows)
        if what == "row":
            rows[at] = value
        elif what == "copy":
            rows.append(rows[at])
        elif isinstance(rows[at], dict):
            rows[at] = {name: old for name, old in rows[at].items() if name != key}
            rows[at] |= {key: value} if what == "set" else {}
    return content


def assert_usable(read: Annotations) -> None:
    """Check what readers rely on."""
    height, width = read.sizes[np.repeat(np.arange(len(read.image_ids)), np.diff(read.first))].T
    assert len(set(read.image_ids.tolist())) == len(set(read.file_names)) == len(read.image_ids) > 0
    assert read.first[0] == 0
    assert read.first[-1] == len(read.boxes) == len(read.category_ids) == len(read.crowd)
    assert (read.boxes[:, :2] >= 0).all()
    assert (read.boxes[:, 2:] - read.boxes[:, :2] > 0).all()
    assert (read.boxes[:, 2:] <= np.stack([width, height], axis=1)).all()
    assert set(read.category_ids.tolist()) <= set(read.categories)


@few_or_many(300)
def test_any_json_is_read_right_or_refused(examples: int) -> None:
    def check(all_edits: list[Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder) / "a.json", edited(document(), all_edits))
            table = examine(load_coco(path))
            for found in table.findings:
                assert all(table.entry(found.where, row) + found.describe(row) for row in found.rows.tolist())
            if any(found.severity == "error" for found in table.findings):
                with pytest.raises(AnnotationError):
                    read_annotations(path)
            else:
                assert_usable(read_annotations(path))

    check_examples(examples, check, edits)


@few_or_many(300)
def test_any_json_is_cleaned_or_nothing_is_left(examples: int) -> None:
    def check(all_edits: list[Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path, clean = write(Path(folder) / "a.json", edited(document(), all_edits)), Path(folder) / "clean.json"
            table = examine(load_coco(path))
            result = write_clean(table, table.findings, clean)
            assert clean.exists() == isinstance(result, Cleaned)
            if clean.exists():
                assert_usable(read_annotations(clean))
                assert json.loads(clean.read_bytes())["info"] == table.coco.document["info"]

    check_examples(examples, check, edits)


@few_or_many(300)
def test_any_value_is_refused(examples: int) -> None:
    def check(content: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder) / "a.json", content)
            with pytest.raises(AnnotationError):
                read_annotations(path)

    check_examples(examples, check, values)


@few_or_many(300)
def test_any_bytes_are_refused(examples: int) -> None:
    def check(tail: bytes, length: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.json"
            path.write_bytes(json.dumps(document()).encode()[:length] + tail)
            with pytest.raises(AnnotationError):
                read_annotations(path)

    check_examples(examples, check, st.binary(max_size=80), st.integers(0, 900))
