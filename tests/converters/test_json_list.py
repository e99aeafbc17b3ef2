"""Lists of images in a JSON file larger than the memory: the same items as json.loads, and its faults."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from detaug.converters.records import json_list
from detaug.converters.records.json_list import items_of_json, members_of_json
from detaug.errors import InputError

ITEMS: list[Any] = [{"a": [1, {"b": "]},["}]}, 12.5, -1e-3, 'é"\\ \U0001f600', None, True, [], {}, [[1], "x" * 90], 7]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("characters", [1, 2, 3, 7, 1 << 20])
def test_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, characters: int, encoding: str) -> None:
    monkeypatch.setattr(json_list, "_CHARACTERS", characters)
    file = tmp_path / "a.json"
    for ensure_ascii, indent in ((True, None), (False, 1)):
        file.write_bytes(json.dumps(ITEMS, ensure_ascii=ensure_ascii, indent=indent).encode(encoding))
        assert [*items_of_json(str(file), "a list")] == ITEMS
    file.write_bytes(" [ \n ] ".encode(encoding))
    assert [*items_of_json(str(file), "a list")] == []


@pytest.mark.parametrize("characters", [1, 2, 3, 7, 1 << 20])
def test_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, characters: int) -> None:
    monkeypatch.setattr(json_list, "_CHARACTERS", characters)
    file, inner = tmp_path / "a.json", {str(at): item for at, item in enumerate(ITEMS)}
    for indent in (None, 1):
        file.write_text(json.dumps({"a": 1, "images": inner, "b": {"images": {"c": 2}}, "": []}, indent=indent))
        expected = [*(("images", key, value) for key, value in inner.items()), ("", "b", {"images": {"c": 2}})]
        assert [*members_of_json(str(file), "an object", ("images",))] == [("", "a", 1), *expected, ("", "", [])]
    file.write_text(" { } ")
    assert [*members_of_json(str(file), "an object", ("images",))] == []
    file.write_text('{"images": [1], "images": {}}')
    assert [*members_of_json(str(file), "an object", ("images",))] == [("", "images", [1])]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1', "does not parse as JSON: expecting }: character 7"),
        ('{"a" 1}', "does not parse as JSON: expecting :: character 5"),
        ("{a: 1}", 'does not parse as JSON: expecting ": character 1'),
        ('{"a": 1,}', 'does not parse as JSON: expecting ": character 8'),
        ('{"a": 1} x', "does not parse as JSON: expecting the end: character 9"),
        ('{"images": {"a": 1], "b": 2}', "does not parse as JSON: expecting }: character 18"),
        ("[1]", r"a list must be an object \{...\}"),
    ],
)
def test_faults_of_members(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=message):
        [*members_of_json(str(tmp_path / "a.json"), "a list", ("images",))]


def test_faults_are_those_of_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_list, "_CHARACTERS", 5)
    file, chance, text = tmp_path / "a.json", random.Random(0), json.dumps(ITEMS)
    faults = 0
    for _ in range(300):
        at = chance.randrange(1, len(text))
        damaged = text[:at] + chance.choice(("", ",", "]", "[", '"', "x", "1", " ")) + text[at + chance.randrange(3) :]
        file.write_text(damaged, encoding="utf-8")
        try:
            expected = json.loads(damaged)
        except ValueError:
            faults += 1
            with pytest.raises(InputError, match="does not parse as JSON: "):
                [*items_of_json(str(file), "a list")]
        else:
            assert [*items_of_json(str(file), "a list")] == expected
    assert faults > 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2", "does not parse as JSON: expecting ]: character 5"),
        ("[1 2]", "does not parse as JSON: expecting ]: character 3"),
        ("[1] x", "does not parse as JSON: expecting the end: character 4"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"a": 1}', "a list must be a list"),
    ],
)
def test_messages(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=message):
        [*items_of_json(str(tmp_path / "a.json"), "a list")]


@pytest.mark.parametrize("is_list", [True, False])
def test_one_item_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_list: bool) -> None:
    monkeypatch.setattr(json_list, "_CHARACTERS", 1 << 16)
    file, items = tmp_path / "a.json", [{"a": ["x" * 10] * 500}] * 600
    file.write_text(json.dumps(items if is_list else {"images": {str(at): item for at, item in enumerate(items)}}))
    path = str(file)
    tracemalloc.start()
    found = items_of_json(path, "a list") if is_list else members_of_json(path, "an object", ("images",))
    count = sum(1 for _ in found)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 600
    assert peak < file.stat().st_size / 4
