"""The quick way to open a COCO JSON file: it gives what the ordinary one gives, or leaves the file to that one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import document

from detaug.coco import annotations
from detaug.coco.annotations import Annotations, read_annotations
from detaug.coco.typed import examine_typed
from detaug.errors import InputError

Document = dict[str, Any]


def drawn(seed: int = 0, images: int = 40) -> Document:
    """A file as public ones are: shuffled ids, ints beside floats, keys that only some entries have, unsorted rows."""
    rng = np.random.default_rng(seed)
    ids, numbers = rng.permutation(10 * images)[:images].tolist(), rng.permutation(9 * images).tolist()
    rows: list[Document] = [
        {
            "license": 1,
            "file_name": f"folder/{'ü' if n % 7 == 0 else 'a'} {n}.jpg",
            "height": 480,
            "width": 640,
            "id": id_,
        }
        for n, id_ in enumerate(ids)
    ]
    boxes: list[Document] = []
    for n in range(3 * images):
        x, y, w, h = (rng.uniform((0, 0, 1, 1), (500, 300, 140, 180))).round(int(rng.integers(0, 3))).tolist()
        box = [int(x), y, w, int(h) + 1]
        own = {"image_id": ids[int(rng.integers(images))], "category_id": int(rng.integers(1, 4)) * 5}
        ring = [x, y, x + w, y, x + w, y + h]
        boxes.append({"segmentation": [ring], "area": w * h, "iscrowd": int(n % 11 == 0), **own, "bbox": box})
        boxes[-1]["id"] = numbers[n]
        if n % 5 == 0:
            boxes[-1]["attributes"] = {"occluded": True, "tags": [{"a": 1}]}
        if n % 13 == 0:
            del boxes[-1]["iscrowd"]
        if n % 17 == 0:
            boxes[-1]["iscrowd"] = None
    categories = [{"id": 5 * k, "name": f"class {k}", "supercategory": "none"} for k in (3, 1, 2)]
    return {"info": {"year": 2026}, "images": rows, "annotations": boxes, "categories": categories, "licenses": []}


def result_of(path: Path) -> list[Any] | str:
    """All columns, or the error."""
    try:
        read: Annotations = read_annotations(path, cache=False)
    except InputError as error:
        return str(error)
    return [
        (name, repr(value.tolist()), str(value.dtype)) if isinstance(value, np.ndarray) else (name, repr(value))
        for name, value in vars(read).items()
    ]


def assert_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any] | str:
    quick = result_of(path)
    with monkeypatch.context() as patch:
        patch.setattr(annotations, "examine_typed", lambda path: None)
        assert quick == result_of(path)
    return quick


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", [{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}], ids=str)
def test_columns_are_those_of_the_ordinary_way(
    seed: int, options: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(drawn(seed), **options), encoding="utf-8")
    assert examine_typed(path) is not None
    assert isinstance(assert_same(path, monkeypatch), list)


def test_numbers_are_read_to_the_last_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    content = drawn(1, 400)
    for row in content["annotations"]:
        row["bbox"] = rng.uniform((0, 0, 1, 1), (500, 300, 140, 180)).tolist()
    content["annotations"][0]["bbox"] = [0.1, 1e-7, 5e-1, 123.45678901234567890]
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert examine_typed(tmp_path / "a.json") is not None
    assert_same(tmp_path / "a.json", monkeypatch)


def test_what_else_a_reader_needs_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Categories of images, places in shards, and keys of categories."""
    content = drawn()
    for number, row in enumerate(content["images"]):
        row |= {"category_id": 5 * (number % 3 + 1), "shard": "a.tar", "offset": 512 * number, "length": 100 + number}
    content["categories"][0] |= {"keypoints": ["left_eye", "right_eye"], "skeleton": [[1, 2]]}
    (tmp_path / "a.json").write_text(json.dumps(content))
    table = examine_typed(tmp_path / "a.json")
    assert table is not None
    assert set(table.image_categories.tolist()) == {5, 10, 15}
    assert table.places[3].tolist() == [0, 1536, 103]
    assert_same(tmp_path / "a.json", monkeypatch)


def changed(where: str, key: str, value: Any, row: int = 1) -> Callable[[Document], None]:
    def change(content: Document) -> None:
        content[where][row][key] = value

    return change


def every(key: str, value: Any) -> Callable[[Document], None]:
    def change(content: Document) -> None:
        for row in content["annotations"]:
            row[key] = value

    return change


ENTRIES: dict[str, Callable[[Document], None]] = {
    "an id that is a float": changed("images", "id", 7.0),
    "an id in text": changed("annotations", "id", "7"),
    "an id that is true": changed("annotations", "category_id", True),
    "a negative id": changed("annotations", "id", -1),
    "an id of 2^63": changed("images", "id", 1 << 63),
    "an id of 80 bits": changed("annotations", "id", 1 << 80),
    "an id twice": changed("annotations", "id", 3, 2),
    "another image": changed("annotations", "image_id", 99),
    "another class": changed("annotations", "category_id", 99),
    "no box": changed("annotations", "bbox", None),
    "three numbers": changed("annotations", "bbox", [1, 2, 3]),
    "no numbers": changed("annotations", "bbox", []),
    "numbers in text": changed("annotations", "bbox", ["1", "2", "3", "4"]),
    "a box outside": changed("annotations", "bbox", [600, 400, 100, 100]),
    "a box half a pixel outside": changed("annotations", "bbox", [600, 400, 40.5, 80.5]),
    "an infinite box": changed("annotations", "bbox", [1, 2, float("inf"), 3]),
    "NaN in a key that is not read": changed("annotations", "score", float("nan")),
    "NaN in a category": changed("categories", "score", float("nan")),
    "a crowd of 2": changed("annotations", "iscrowd", 2),
    "a crowd of true": changed("annotations", "iscrowd", True),
    "a crowd in text": changed("annotations", "iscrowd", "1"),
    "a height in text": changed("images", "height", "480"),
    "a height that is a float": changed("images", "height", 480.0),
    "no height": changed("images", "height", None),
    "a height of 0": changed("images", "height", 0),
    "a name twice": changed("images", "file_name", "folder/a 2.jpg"),
    "a name outside": changed("images", "file_name", "../a.jpg"),
    "no name": changed("images", "file_name", ""),
    "a GIF": changed("images", "file_name", "a.gif"),
    "half a surrogate": changed("images", "file_name", "\ud800.jpg"),
    "a name with quotes and a colon": changed("images", "file_name", 'a":b.jpg'),
    "text with quotes and a colon": changed("annotations", "note", 'a": 1'),
    "a class without a name": changed("categories", "name", ""),
    "a class name twice": changed("categories", "name", "class 3", 2),
    "a flat polygon": changed("annotations", "segmentation", [1, 2, 30, 2, 30, 40]),
    "RLE": changed("annotations", "segmentation", {"size": [480, 640], "counts": [5, 6, 307189]}),
    "segments": changed("annotations", "segments_info", [], 0),
    "corners": changed("annotations", "corners", [[1, 2], [30, 2], [30, 40], [1, 40]]),
    "keypoints": changed("annotations", "keypoints", [1, 2, 2]),
    "polygons in 0..1": every("segmentation", [[0.1, 0.2, 0.3, 0.2, 0.3, 0.4]]),
    "flat polygons in 0..1": every("segmentation", [0.1, 0.2, 0.3, 0.2, 0.3, 0.4]),
    "corners in 0..1": every("corners", [[0.1, 0.2], [0.3, 0.2], [0.3, 0.4], [0.1, 0.4]]),
    "keypoints in 0..1": every("keypoints", [0.1, 0.2, 2, 0.3, 0.4, 2]),
    "boxes in 0..1": every("bbox", [0.1, 0.2, 0.3, 0.4]),
    "corners for boxes": every("bbox", [100, 120, 500, 400]),
    "an image that is text": lambda content: content["images"].append("a.jpg"),
    "no images": lambda content: content.update(images=[], annotations=[]),
    "no annotations": lambda content: content.update(annotations=[]),
    "no categories": lambda content: content.update(categories=[]),
    "categories in a dict": lambda content: content.update(categories={"5": "a"}),
    "videos": lambda content: content.update(videos=[{"id": 1, "name": "a"}]),
    "another list": lambda content: content.update(tracks=[{"id": 1}]),
    "many keys": lambda content: content["annotations"][0].update({f"key {n}": n for n in range(150)}),
    "keys of any text": lambda content: content["annotations"][0].update({"` - at `$": 1, "": 2, "über": 3, "a.b": 4}),
}  # fmt: skip


@pytest.mark.parametrize("case", ENTRIES)
def test_any_other_entry_is_read_or_refused_as_ever(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = drawn()
    ENTRIES[case](content)
    (tmp_path / "a.json").write_text(json.dumps(content), encoding="utf-8")
    assert_same(tmp_path / "a.json", monkeypatch)


TEXTS: dict[str, Callable[[bytes], bytes]] = {
    "a box twice": lambda data: data.replace(b'"bbox"', b'"bbox": [1, 2, 3, 4], "bbox"', 1),
    "an id twice": lambda data: data.replace(b'"image_id"', b'"id": 1, "image_id"', 1),
    "an id twice, escaped": lambda data: data.replace(b'"image_id"', b'"\\u0069d": 1, "image_id"', 1),
    "a key that is not read, twice": lambda data: data.replace(b'"area"', b'"area": 5, "area"', 1),
    "a list twice": lambda data: data[:-1] + b', "annotations": []}',
    "a name of a category twice": lambda data: data.replace(b'"supercategory"', b'"name": "x", "supercategory"', 1),
    "spaces": lambda data: data.replace(b'":', b'" :'),
    "a BOM": lambda data: b"\xef\xbb\xbf" + data,
    "UTF-16": lambda data: data.decode().encode("utf-16"),
    "bytes that are not UTF-8": lambda data: data.replace(b'"year"', b'"y\xffar"', 1),
    "bytes that are not UTF-8 in a value": lambda data: data.replace(b'"none"', b'"n\xffne"', 1),
    "half a file": lambda data: data[: len(data) // 2],
    "an end too many": lambda data: data + b"}",
    "nothing": lambda data: b"",
    "a number too large": lambda data: data.replace(b'"year": 2026', b'"year": 1e400', 1),
    "many brackets": lambda data: data.replace(b'"year": 2026', b'"year": ' + b"[" * 900 + b"]" * 900, 1),
    "too many brackets": lambda data: data.replace(b'"year": 2026', b'"year": ' + b"[" * 99999 + b"]" * 99999, 1),
}


@pytest.mark.parametrize("case", TEXTS)
def test_any_other_text_is_read_or_refused_as_ever(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.dumps(drawn()).encode()
    assert TEXTS[case](data) != data
    (tmp_path / "a.json").write_bytes(TEXTS[case](data))
    assert_same(tmp_path / "a.json", monkeypatch)


def test_a_file_with_polygons_or_columns_wanted_is_read_in_the_ordinary_way(tmp_path: Path) -> None:
    content = drawn()
    (tmp_path / "a.json").write_text(json.dumps(content))
    read = read_annotations(tmp_path / "a.json", columns=["area"], outlines=True, cache=False)
    assert len(read.columns["area"]) == len(content["annotations"])
    assert read.outlines is not None


def test_a_small_file_of_the_other_tests_is_read_quickly(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(document()))
    assert examine_typed(tmp_path / "a.json") is not None
