"""`detaug evaluate`: numbers, page and report of the detections of any detector; of a model, those of its training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import document, write, write_images
from PIL import Image
from test_html_report import Page
from test_train_reports import Page as Lines
from test_train_reports import drawn

from detaug.cli.main import main

HOSTILE = '<script>document.title="taken"</script>猫"\''


@pytest.fixture
def data(tmp_path: Path) -> tuple[str, str]:
    content = document()
    content["categories"][0]["name"] = HOSTILE
    return str(write(tmp_path / "val.json", content)), str(write_images(tmp_path / "images"))


def save_detections(path: Path, annotations: str, **changes: Any) -> str:
    """Write the objects as detections."""
    objects = json.loads(Path(annotations).read_bytes())["annotations"]
    keys = ("image_id", "category_id", "bbox")
    rows = [{**{key: each[key] for key in keys}, "score": 0.9, **changes} for each in objects]
    path.write_text(json.dumps(rows))
    return str(path)


def test_what_is_perfect(data: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, again = save_detections(tmp_path / "found.json", data[0]), tmp_path / "again.json"
    page, report = tmp_path / "page.html", tmp_path / "report.json"
    written = ("--html", str(page), "--report", str(report), "-o", str(again))
    assert main(["evaluate", *data, "--detections", found, *written]) == 0
    printed = capsys.readouterr().out
    assert "AP 1.000" in printed
    assert "localization 0, classification 0, both 0, duplicate 0, background 0, missed 0" in printed
    assert all(f"written: {path}" in printed for path in (page, report, again))
    content = json.loads(report.read_bytes())
    assert content["metrics"]["bbox"]["AP"] == 1
    assert sum(sum(row) for row in content["confusion"]) == len(json.loads(again.read_bytes()))
    assert set(content["errors_of_image"].values()) == {0}
    assert content["right"] == content["detections"] == content["objects"]
    assert sum(content["objects"]) == len(json.loads(again.read_bytes()))
    assert main(["evaluate", *data, "--detections", str(again), "-q"]) == 0
    assert not capsys.readouterr().out


def test_the_page_is_whole_and_loads_nothing(data: tuple[str, str], tmp_path: Path) -> None:
    other = json.loads(Path(data[0]).read_bytes())["categories"][1]["id"]
    found = save_detections(tmp_path / "found.json", data[0], category_id=other)
    path = tmp_path / "page.html"
    assert main(["evaluate", *data, "--detections", found, "--html", str(path), "-q"]) == 0
    page = Page(path.read_text(encoding="utf-8"))
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert all((value or "").startswith("data:image/") for name, value in page.attributes if name in ("src", "href"))
    assert HOSTILE in page.text
    assert "a.jpg: " in page.text  # of the images with the most errors
    assert len(page.pictures("jpeg")) == 1


def test_the_sheet_has_the_detections_beside_the_annotations(data: tuple[str, str], tmp_path: Path) -> None:
    sheets = {}
    for name, score in (("all", 0.9), ("none", 0.3)):  # of them those of 0.4 or more are drawn
        found, path = save_detections(tmp_path / f"{name}.json", data[0], score=score), tmp_path / f"{name}.png"
        assert main(["evaluate", *data, "--detections", found, "--sheet", str(path), "-q"]) == 0
        sheets[name] = np.asarray(Image.open(path).convert("RGB"), int)
    sheet, empty = sheets.values()
    differs = np.flatnonzero((sheet != empty).any((0, 2)))
    same = np.flatnonzero((sheet == empty).all((0, 2)))
    assert differs.size
    assert (same < differs[0]).any()  # the title, the annotations at the left


def test_recall_is_to_the_right_and_precision_up(data: tuple[str, str], tmp_path: Path) -> None:
    """Two of five objects are found, the first with a better score than a detection of nothing."""
    rows = json.loads(Path(save_detections(tmp_path / "found.json", data[0])).read_bytes())[:2]
    rows[1]["score"] = 0.7
    rows.append({**rows[0], "bbox": [70, 70, 9, 9], "score": 0.8})
    (tmp_path / "found.json").write_text(json.dumps(rows))
    order = ("--detections", str(tmp_path / "found.json"), "--html", str(tmp_path / "page.html"), "-q")
    assert main(["evaluate", *data, *order]) == 0
    lines = Lines((tmp_path / "page.html").read_text(encoding="utf-8")).lines
    recall, precision, scores = [0.2, 0.2, 0.4], [1, 1 / 2, 2 / 3], [0.9, 0.8, 0.7]
    of_all, by_score = lines[-4], lines[-3:]
    assert of_all == pytest.approx(drawn(precision, 1, 1, recall), abs=0.051)
    f1 = [2 * p * r / (p + r) for p, r in zip(precision, recall, strict=True)]
    for line, values in zip(by_score, (precision, recall, f1), strict=True):
        assert line == pytest.approx(drawn(values, 1, 1, scores), abs=0.051)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --model MODEL.pt or --detections FILE.json"),
        (["--model", "m.pt", "--detections", "{found}"], "give --model MODEL.pt or --detections FILE.json"),
        (["--detections", "{found}", "-o", "{found}"], "output must be another file than"),
        (["--detections", "{found}", "--html", "page.json"], "must end in .html"),
        (["--detections", "{found}", "--sheet", "page.html"], "--sheet page.html must end in .png"),
        (["--detections", "nothing.json"], "nothing.json"),
        (["--detections", "{found}", "--min-score", "2"], "min-score"),
        (["--detections", "{found}", "--max-detections", "9" * 20], "max-detections"),
        (
            ["--detections", "{found}", "--batch-size", "8"],
            "--batch-size is for --model: --detections are",
        ),
        (["--detections", "{found}", "--device", "cpu"], "--device is for --model: --detections are there"),
        (["--detections", "{found}", "--tile", "100"], "--tile is for --model: merge other detections with da.merge"),
        (["--model", "m.pt", "--overlap", "0.2"], "--overlap is for tiles: give --tile, too"),
    ],
)
def test_wrong_arguments(
    data: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    found = save_detections(tmp_path / "found.json", data[0])
    assert main(["evaluate", *data, *(each.format(found=found) for each in arguments)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_errors_have_the_lowest_score_that_is_asked_for(
    data: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = save_detections(tmp_path / "found.json", data[0], score=0.5)
    objects = len(json.loads(Path(data[0]).read_bytes())["annotations"])
    for score, missed in (("0.5", 0), ("0.51", objects)):
        main(["evaluate", *data, "--detections", found, "--min-score", score])
        assert f"a score of {score} or more: " in (printed := capsys.readouterr().out)
        assert f"missed {missed}\n" in printed
