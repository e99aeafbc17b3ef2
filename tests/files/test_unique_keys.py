"""A key that occurs twice in an object of JSON or YAML is refused: a parser keeps the last one and loses the first."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from coco_files import document, write
from command import usage_error
from format_files import data_set, refused
from shard_files import jpeg, write_wds
from voc_files import write_files

import detaug as da
from detaug.converters import webdataset_to_coco
from detaug.files.text import parse_yaml

RULE = "key {!r} must occur once in an object; a parser keeps only the last one"


@pytest.mark.parametrize("key", ["bbox", "annotations"])
def test_json_files(tmp_path: Path, key: str) -> None:
    path = write(tmp_path / "a.json", document())
    path.write_text(path.read_text().replace(f'"{key}":', f'"{key}": [], "{key}":', 1))
    with pytest.raises(da.AnnotationError) as raised:
        da.CocoReader(tmp_path, path)
    assert str(raised.value) == f"{path}: not readable as JSON ({RULE.format(key)})"


def row(*cells: object) -> str:
    file = io.StringIO()
    csv.writer(file).writerow(cells)
    return file.getvalue()


@pytest.mark.parametrize("column", [2, 5, 6])
def test_cells_of_a_table_of_via(tmp_path: Path, column: int) -> None:
    head = ("#filename", "file_size", "file_attributes", "region_count", "region_id", "region_shape_attributes")
    shape = {"name": "rect", "x": 1, "y": 2, "width": 30, "height": 40}
    cells: list[object] = ["a.jpg", 99, '{"sky": "blue"}', 1, 0, json.dumps(shape), '{"type": "cat"}']
    text = str(cells[column])
    key = text.split('"')[1]
    cells[column] = text.replace("{", f'{{"{key}": "dog", ', 1)
    files = {"a.csv": row(*head, "region_attributes") + row(*cells)}
    assert RULE.format(key) in refused(data_set(tmp_path / "set", files, "a.jpg"))


def test_cells_of_a_metadata_csv(tmp_path: Path) -> None:
    objects = '{"bbox": [[5, 5, 9, 9]], "bbox": [[10, 10, 20, 20]], "categories": ["cat"]}'
    files = {"metadata.csv": row("file_name", "objects") + row("a.jpg", objects)}
    assert RULE.format("bbox") in refused(data_set(tmp_path / "set", files, "a.jpg"))


def test_samples_of_webdataset(tmp_path: Path) -> None:
    twice = b'{"annotations": [], "annotations": [{"bbox": [1, 2, 3, 4], "category": "cat"}]}'
    shard = write_wds(tmp_path / "a.tar", {"a": {"jpg": jpeg("a"), "json": twice}})
    with pytest.raises(da.InputError) as raised:
        webdataset_to_coco([shard], tmp_path / "out.json")
    assert RULE.format("annotations") in str(raised.value)


def test_yolo(tmp_path: Path) -> None:
    text = "train: images\nval: images\nnames:\n  0: cat\n  0: dog\n"
    write_files(tmp_path, {"data.yaml": text, "images/a.txt": ""})
    assert RULE.format("0") in usage_error("convert-yolo", tmp_path, "-o", tmp_path / "out.json")


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.yaml", "- Resize: {size: 8, size: 9}"), ("a.json", '[{"Resize": {"size": 8, "size": 9}}]')],
)
def test_recipes(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(da.InputError) as raised:
        da.load_recipe(tmp_path / name)
    assert str(raised.value) == f"{tmp_path / name}: {RULE.format('size')}"


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_saved_pipelines(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"transform": {}, "transform": {"__class_fullname__": "Compose"}}')
    assert RULE.format("transform") in usage_error("import-recipe", tmp_path / name, "-o", tmp_path / "b.yaml")


def test_merged_mappings_of_yaml_may_have_a_key_again() -> None:
    text = "a: &a {b: 1, c: 2}\nd: &d\n  <<: *a\n  b: 3\ne:\n  <<: *d\n  d: 4\n"
    content = parse_yaml(text)
    assert content == yaml.safe_load(text)
    assert content["d"] == {"b": 3, "c": 2}


def test_names_of_options(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    twice = ("--set", "train=True", "--set", "train=False")
    message = usage_error("import-recipe", tmp_path / "a.py", "-o", tmp_path / "b.yaml", *twice)
    assert message == "detaug: Invalid value for '--set': must have each NAME once, got train 2 times\n"
    twice = ("--feature", "image=a", "--feature", "image=b")
    message = usage_error("convert-tfrecord", tmp_path / "a.tfrecord", "-o", tmp_path / "b.json", *twice)
    assert message == "detaug: Invalid value for '--feature': must have each KEY once, got image 2 times\n"
