"""Files are written whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from detaug.files import atomic
from detaug.files.atomic import remove_leftovers, replacing, write_atomically, write_json


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


def test_leftovers_of_killed_processes_are_removed_and_nothing_else(tmp_path: Path) -> None:
    others = {"a[1].pt", ".b.pt.0123.partial", ".a1.pt.0123.partial"}
    for name in {*others, ".a[1].pt.0123.partial", ".a[1].pt.4567.partial"}:
        (tmp_path / name).write_text("")
    remove_leftovers(tmp_path / "a[1].pt")
    assert {path.name for path in tmp_path.iterdir()} == others
