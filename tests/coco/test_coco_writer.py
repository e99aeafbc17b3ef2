"""COCO JSON file as written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from detaug.coco.writer import whole, write_coco
from detaug.files.atomic import write_json


def rows(count: int) -> Iterator[dict[str, object]]:
    return ({"id": n, "bbox": [n, 0.5, 1e-7, 1e22], "name": '猫"\\\n'} for n in range(count))


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 2500])
def test_what_is_written_is_read_back(tmp_path: Path, count: int) -> None:
    write_coco(tmp_path / "a.json", rows(count), rows(2), rows(0), {"x": 1})
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    expected = {"info": {"x": 1}, "images": [*rows(count)], "annotations": [*rows(2)], "categories": []}
    assert json.loads(text) == expected
    assert '"id":0,"bbox":[0,0.5,1e-07,1e+22],"name":"猫' in text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinity_are_refused(tmp_path: Path, value: float) -> None:
    (tmp_path / "a.json").write_text("old")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_coco(tmp_path / "a.json", rows(1500), [{"bbox": [value]}], [])
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", [value])
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "old"


@pytest.mark.parametrize(("value", "text"), [(12.0, "12"), (12.5, "12.5"), (-0.0, "0"), (1e15, "1000000000000000")])
def test_whole_numbers(value: float, text: str) -> None:
    assert json.dumps(whole(value)) == text
