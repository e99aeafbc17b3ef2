"""The cache of a JSON file's columns: used while it is valid, and never otherwise."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from detaug.coco import annotation_cache, annotations
from detaug.coco.annotations import AnnotationError, Annotations, read_annotations


@pytest.fixture
def coco(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a JSON file that counts as large, with cache folders of its own."""
    monkeypatch.setattr(annotation_cache, "SMALLEST", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return write(tmp_path / "data" / "train.json", width=100)


def write(path: Path, width: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    images = [{"id": n, "file_name": f"é\n{n}.jpg", "width": width, "height": 80} for n in (7, 3)]
    boxes = [{"id": 1, "image_id": 3, "category_id": 5, "bbox": [1.5, 2, 30, 40]}]
    boxes.append({"id": 2, "image_id": 7, "category_id": 2, "bbox": [0, 0, 9, 9], "iscrowd": 1})
    classes = [{"id": 5, "name": "cat, 猫"}, {"id": 2, "name": "dog"}]
    path.write_text(json.dumps({"images": images, "annotations": boxes, "categories": classes}))
    return path


def cached(path: Path) -> list[Path]:
    """Return the cache files of all JSON files in the folder of this one, the oldest first."""
    folder = path.parent.with_name("home") / "detaug" / "annotations"
    return sorted(folder.glob("*"), key=lambda path: path.stat().st_mtime_ns)


def assert_same(one: Annotations, other: Annotations) -> None:
    for name, value in vars(one).items():
        if isinstance(value, np.ndarray):
            assert value.dtype == getattr(other, name).dtype
            np.testing.assert_array_equal(value, getattr(other, name))
        else:
            assert value == getattr(other, name)


def refuse_to_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(path: Path, columns: object, outlines: bool) -> Annotations:
        raise AssertionError("the JSON file is parsed again")

    monkeypatch.setattr(annotations, "_checked", parse)


def test_the_second_read_parses_nothing_and_gives_the_same(coco: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = read_annotations(coco, cache=False)
    assert cached(coco) == []
    assert_same(read_annotations(coco), plain)
    os.utime(coco, (0, 0))  # the content counts, not the date
    refuse_to_parse(monkeypatch)
    assert_same(read_annotations(coco), plain)
    assert list(read_annotations(coco).categories.items()) == [(2, "dog"), (5, "cat, 猫")]


def test_no_file_is_left_but_the_cache_in_the_users_folder(coco: Path) -> None:
    read_annotations(coco)
    assert list(coco.parent.iterdir()) == [coco]
    assert [path.suffix for path in cached(coco)] == [".npz"]


def test_the_path_is_part_of_the_key(coco: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = coco.with_name("val.json")
    other.write_bytes(coco.read_bytes())
    read_annotations(other)
    monkeypatch.chdir(coco.parent)
    for path in (coco, Path("train.json"), Path("../data/train.json")):
        assert read_annotations(path).path == path
    assert len(cached(coco)) == 2


def test_what_was_not_used_for_longest_is_removed(coco: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [write(coco.with_name(f"{n}.json"), width=100) for n in range(4)]
    for n, path in enumerate(paths[:3]):
        read_annotations(path)
        os.utime(cached(coco)[-1], (n, n))
    first, second, third = cached(coco)
    read_annotations(paths[0])
    monkeypatch.setattr(annotation_cache, "MOST", 3 * first.stat().st_size)
    read_annotations(paths[3])
    assert second not in cached(coco)
    assert cached(coco)[:2] == [third, first]
    assert len(cached(coco)) == 3


@pytest.mark.parametrize("folder", ["relative", ""])
def test_the_cache_folder_is_below_the_home_unless_it_is_absolute(
    coco: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(coco.parent)
    monkeypatch.setenv("HOME", str(coco.parent.parent / "me"))
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    read_annotations(coco)
    assert len(list((coco.parent.parent / "me/.cache/detaug/annotations").iterdir())) == 1
    assert list(coco.parent.iterdir()) == [coco]


def test_another_content_of_the_same_length_and_date_is_read_anew(coco: Path) -> None:
    read_annotations(coco)
    before = coco.stat()
    write(coco, width=200)
    os.utime(coco, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert coco.stat().st_size == before.st_size
    assert read_annotations(coco).sizes.tolist() == [[80, 200]] * 2


def test_other_rules_read_anew(coco: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_annotations(coco)
    monkeypatch.setattr(annotations, "_rules", lambda: b"newer")
    refuse_to_parse(monkeypatch)
    with pytest.raises(AssertionError, match="parsed again"):
        read_annotations(coco)


@pytest.mark.parametrize("damage", ["empty", "cut", "noise", "one byte", "a text file", "a folder", "other arrays"])
def test_a_damaged_cache_is_as_good_as_none(coco: Path, damage: str) -> None:
    plain = read_annotations(coco)
    (cache,) = cached(coco)
    content = bytearray(cache.read_bytes())
    cache.unlink()
    if damage == "a folder":
        cache.mkdir()
    elif damage == "other arrays":
        np.savez(cache, boxes=np.zeros(3))
    else:
        at = content.index(plain.boxes.tobytes())
        flipped = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        half = content[: len(content) // 2]
        texts = {"empty": b"", "cut": half, "noise": os.urandom(999), "one byte": flipped, "a text file": b"[1, 2]"}
        cache.write_bytes(texts[damage])
    assert_same(read_annotations(coco), plain)
    assert_same(read_annotations(coco), plain)


@pytest.mark.parametrize("home", ["/dev/null", "/proc", "~"])
def test_no_folder_to_write_in_is_no_error(coco: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.chdir(coco.parent)
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("XDG_CACHE_HOME")
    for _ in range(2):
        assert len(read_annotations(coco).boxes) == 2
    assert list(coco.parent.iterdir()) == [coco]


def test_a_json_with_errors_is_refused_each_time(coco: Path) -> None:
    write(coco, width=10)
    for _ in range(2):
        with pytest.raises(AnnotationError, match="reaches"):
            read_annotations(coco)
    assert cached(coco) == []


def test_a_small_json_gets_no_cache(coco: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    read_annotations(coco)
    assert cached(coco) == []
