"""Names in files that hold control characters, line breaks or 100,000 letters: messages stay short and harmless."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from command import detaug
from PIL import Image

import detaug as da
from detaug.converters import ConversionError
from detaug.errors import printable

LONG = "L" * 100_000
CLASSES = ["cat\n\x1b[31mred", "\x1b]0;title\x07", "a\u202eb", LONG]
IMAGES = ["a\nb\x1b[2J.jpg", "c\rd\x07.jpg"]
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal obeys, beside line breaks."""


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, Path]:
    """A JSON and its images."""
    folder = tmp_path / "images"
    folder.mkdir()
    for name in IMAGES:
        Image.new("RGB", (80, 60), "white").save(folder / name)
    return write(tmp_path / "a.json", CLASSES), folder


def write(path: Path, classes: list[str]) -> Path:
    document = {
        "images": [{"id": at, "file_name": name, "width": 80, "height": 60} for at, name in enumerate(IMAGES)],
        "categories": [{"id": at, "name": name} for at, name in enumerate(classes, 1)],
        "annotations": [
            {"id": at, "image_id": at % 2, "category_id": at, "bbox": [5, 5, 30, 20], "area": 600, "iscrowd": 0}
            for at in range(1, len(classes) + 1)
        ],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.mark.slow
def test_no_command_prints_what_a_terminal_obeys(
    data: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("click._compat.should_strip_ansi", lambda *_: False)  # as on a terminal
    found = tmp_path / "found.json"
    found.write_text(json.dumps([{"image_id": 0, "category_id": 2, "bbox": [5, 5, 30, 20], "score": 0.5}]))
    orders: list[tuple[int, list[Any]]] = [
        (0, ["check", *data]),
        (0, ["evaluate", *data, "--detections", found]),
        (2, ["merge", data[0], "-o", tmp_path / "merged.json", "--classes", "bus"]),
        (0, ["pack", *data, "-o", tmp_path / "shards"]),
        (2, ["convert-coco-to-voc", data[0], tmp_path / "voc"]),
        (2, ["preview", tmp_path / "\x1b[2Jno.json", data[1], "-o", tmp_path / "sheet.jpg"]),
    ]
    for code, order in orders:
        result = detaug(*order)
        printed = result.out + result.err
        assert result.code == code, printed[:1000]
        assert not OBEYED.search(printed), (order, printed[:1000])
        assert max(map(len, printed.splitlines())) < 1500, order
        if code == 2:
            assert len(printed.splitlines()) == 1


@pytest.mark.parametrize("kind", [da.InputError, ConversionError, da.AnnotationError, da.DataError])
def test_every_error_is_harmless_and_bounded(kind: type[da.InputError]) -> None:
    error = kind(f"first \x1b[31m {LONG}; remedy\nsecond \u202e\udcff")
    first, second = str(error).split("\n")
    assert first.startswith("first \\x1b[31m LLL")
    assert first.endswith("LLL; remedy")
    assert len(first) < 4000
    assert second == "second \\u202e\\udcff"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_broken_image_is_named_on_one_line(data: tuple[Path, Path], tmp_path: Path) -> None:
    (data[1] / IMAGES[0]).write_bytes(b"no JPEG")
    reader = da.CocoReader(data[1], write(tmp_path / "b.json", ["cat"]))
    loader = da.Loader(reader, [da.Resize((32, 32))], 2, device="cpu", train=False)
    with pytest.raises(da.DataError, match=re.escape("a\\nb\\x1b[2J.jpg: does not decode")) as raised:
        next(iter(loader))
    assert "\n" not in str(raised.value)


def test_readable_text_stays() -> None:
    text = "Straße 東京 ñandú\nline"
    assert printable(text) == text
