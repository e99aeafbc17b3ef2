"""detaug check --html: one page that loads nothing, escapes every name, and shows each finding."""

from __future__ import annotations

import base64
import io
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from coco_files import document, write, write_images
from PIL import Image

from detaug.cli import main
from detaug.preview import class_color
from detaug.report import MOST_PICTURES

HOSTILE = '<script>document.title="taken"</script>猫"\''


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data

    def pictures(self, kind: str) -> list[Image.Image]:
        start = f"data:image/{kind};base64,"
        sources = [value for name, value in self.attributes if name == "src" and value and value.startswith(start)]
        return [Image.open(io.BytesIO(base64.b64decode(each[len(start) :]))) for each in sources]


@pytest.fixture
def page_file(tmp_path: Path) -> Path:
    content = document()
    content["categories"][0]["name"] = HOSTILE
    content["images"].append({"id": 9, "file_name": "<img src=x onerror=alert(2)>.jpg", "width": 9, "height": 9})
    content["annotations"][0]["bbox"] = [90, 10, 30, 30]
    content["annotations"] += [content["annotations"][1] | {"id": 100 + n} for n in range(MOST_PICTURES + 5)]
    images, path = write_images(tmp_path / "images"), tmp_path / "report.html"
    assert main(["check", str(write(tmp_path / "t.json", content)), str(images), "--html", str(path), "-q"]) == 1
    return path


def test_the_page_is_whole_and_loads_nothing(page_file: Path) -> None:
    page = Page(page_file.read_text(encoding="utf-8"))
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    links = [value or "" for name, value in page.attributes if name in ("src", "href")]
    assert links
    assert all(link.startswith(("data:image/", "#")) for link in links)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    anchors = {value for name, value in page.attributes if name == "id"}
    assert {link[1:] for link in links if link.startswith("#")} <= anchors


def test_names_are_shown_as_they_are(page_file: Path) -> None:
    text = Page(page_file.read_text(encoding="utf-8")).text
    assert HOSTILE in text
    assert "<img src=x onerror=alert(2)>.jpg" in text


def test_pictures_are_small_and_few(page_file: Path) -> None:
    page = Page(page_file.read_text(encoding="utf-8"))
    assert "(17)" in page.text  # boxes repeated
    assert "and 5 more" in page.text
    assert len(page.pictures("jpeg")) == 1 + MOST_PICTURES
    assert all(max(picture.size) <= 240 for picture in page.pictures("jpeg"))
    assert page_file.stat().st_size < 500_000


def test_the_box_is_drawn_where_the_json_has_it(tmp_path: Path) -> None:
    content = document()
    content["annotations"][0]["bbox"] = [50, 20, 70, 40]
    images = write_images(tmp_path / "images")
    Image.new("RGB", (100, 80)).save(images / "a.jpg")
    path = tmp_path / "report.html"
    main(["check", str(write(tmp_path / "t.json", content)), str(images), "--html", str(path), "-q"])
    (picture,) = Page(path.read_text(encoding="utf-8")).pictures("jpeg")
    assert picture.size == (240, 192)
    name = next(row["name"] for row in content["categories"] if row["id"] == content["annotations"][0]["category_id"])
    painted = np.abs(np.asarray(picture, int) - class_color(name)).sum(2) < 120
    rows, columns = np.flatnonzero(painted[:, 180:].mean(1) > 0.5), np.flatnonzero(painted[60:140].mean(0) > 0.9)
    assert abs(columns.min() - 120) <= 2
    assert abs(rows.max() - 60 * 2.4) <= 3


def test_a_data_set_without_a_fault(tmp_path: Path) -> None:
    images, path = write_images(tmp_path / "images"), tmp_path / "report.html"
    assert main(["check", str(write(tmp_path / "t.json", document())), str(images), "--html", str(path), "-q"]) == 0
    assert "ready for training" in Page(path.read_text(encoding="utf-8")).text


@pytest.mark.parametrize("name", ["report.json", "t.html/x.html", "report"])
def test_places_that_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = write_images(tmp_path / "images")
    path = tmp_path / name
    assert main(["check", str(write(tmp_path / "t.json", document())), str(images), "--html", str(path)]) == 2
    assert "html" in capsys.readouterr().err
    assert not path.exists()


def test_a_real_browser_shows_it(page_file: Path) -> None:
    """The browser's own document has our heading, all charts, and a title that no name took over."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no chromium or google-chrome on the PATH")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page_file.as_uri()]
    command.insert(1, f"--user-data-dir={page_file.parent / 'profile'}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert re.search(r"<title>t\.json: 2 errors", done.stdout)
    assert Page(done.stdout).tags.count("svg") >= 4
