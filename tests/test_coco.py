"""Writing COCO json."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from detaug.converters.coco.writer import whole, write_coco
from detaug.converters.files import atomic
from detaug.converters.files.atomic import replacing, write_atomically, write_json


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


def test_the_file_is_there_only_when_it_is_whole(tmp_path: Path) -> None:
    def pieces() -> Iterator[str]:
        yield "x" * 10_000_000
        assert not (tmp_path / "a.json").exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a.json", pieces())
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_an_error_that_names_the_file_and_the_old_content_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, full = tmp_path / "a.json", tmp_path / "full"
    target.write_text("old")
    full.symlink_to("/dev/full")
    monkeypatch.setattr(atomic, "temporary_path", lambda _: full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        write_json(target, ["x" * 10_000])
    assert raised.value.filename == str(target)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_an_error_names_the_file_to_write_not_the_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder, message in (("no", "No such file"), ("file", "Not a directory")):
        with pytest.raises(OSError, match=message) as raised:
            write_atomically(tmp_path / folder / "a.json", ["new"])
        assert raised.value.filename == str(tmp_path / folder / "a.json")


def test_an_error_about_another_file_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised, replacing(tmp_path / "copy.jpg") as temporary:
        shutil.copyfile(tmp_path / "no.jpg", temporary)
    assert raised.value.filename == str(tmp_path / "no.jpg")
    assert not list(tmp_path.iterdir())


def test_text_and_bytes_are_written_through_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / f"{'n' * 251}.txt", tmp_path / "link"
    link.symlink_to(target)
    write_atomically(link, ["é\n", b"\0", memoryview(b"\xff"), "\udcff"])
    assert target.read_bytes() == b"\xc3\xa9\n\0\xff\\udcff"
    assert link.is_symlink()


@pytest.mark.parametrize(("value", "text"), [(12.0, "12"), (12.5, "12.5"), (-0.0, "0"), (1e15, "1000000000000000")])
def test_whole_numbers(value: float, text: str) -> None:
    assert json.dumps(whole(value)) == text
