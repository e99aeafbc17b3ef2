"""The site has an image of every op and an entry for every public name, loads nothing from other hosts, and finds."""

from __future__ import annotations

import doctest
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import pytest
from places import HELPERS, REPOSITORY

import detaug as da

MODULES = {"converters", "fn", "presets", "targets", "testing"}
"""Public names that are modules: their functions have the entries."""
BASES = {"GeometricOp", "Op", "PixelOp"}
WITHOUT_PICTURES = {"OpticalFlow"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, with warnings as errors."""
    pytest.importorskip("furo", reason="the site's generator is not installed: the extra docs has it")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, REPOSITORY / "docs/site/build.py", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


class Tags(HTMLParser):
    """The tags of a page, each with its attributes."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))


def loaded_by(page: Path) -> list[str]:
    """Return what a browser loads for a page: not the links that people click."""
    attributes = [each for tag, each in Tags(page).found if tag != "a"]
    return [value for each in attributes for name, value in each.items() if name in {"src", "srcset", "href", "data"}]


def loaded_by_style(style: Path) -> list[str]:
    """Return what a style sheet loads: `url(...)` and `@import "..."`."""
    return re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')]+)", style.read_text(encoding="utf-8"))


def ops() -> set[str]:
    every = {name: getattr(da, name) for name in da.__all__}
    return {name for name, each in every.items() if isinstance(each, type) and issubclass(each, da.Op)} - BASES


@pytest.mark.parametrize("script", ["api", "gallery"])
def test_the_examples_of_the_scripts_run(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "docs/site"))
    result = doctest.testmod(import_module(script))
    assert result.attempted
    assert not result.failed


WITHOUT_DRAWS = {"CenterCrop", "Normalize", "Pad", "PadToMultiple", "Resize", "SanitizeBoundingBoxes"}
"""Ops that draw nothing: one image of their result."""


def test_the_gallery_shows_every_op_as_source_and_three_draws_or_one_result(site: Path) -> None:
    pictures = [each["src"] for tag, each in Tags(site / "docs/gallery.html").found if tag == "img"]
    names = [match[1] for path in pictures if (match := re.fullmatch(r".*/(\w+)-[123]\.webp", path))]
    assert len(ops()) > 40
    shown = ops() - WITHOUT_PICTURES
    expected = dict.fromkeys(shown, 3) | dict.fromkeys(WITHOUT_DRAWS, 1)
    assert {name: names.count(name) for name in shown} == expected
    assert sum(path.endswith("source.webp") for path in pictures) == len(shown)
    assert {"people", "ships"} <= {Path(path).stem for path in pictures}
    assert all((site / "docs" / path).resolve().is_file() for path in pictures)


def test_the_reference_has_every_public_name(site: Path) -> None:
    ids = {each["id"] for page in site.glob("api/*.html") for _, each in Tags(page).found if "id" in each}
    assert {name for name in da.__all__ if f"detaug.{name}" not in ids} <= MODULES
    assert all(any(each.startswith(f"detaug.{name}.") for each in ids) for name in MODULES)


def test_the_reference_shows_the_arguments_of_ops(site: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in site.glob("api/*.html"))
    assert "max_ratio" in pages.partition('id="detaug.RandomZoomOut"')[2].partition("</dt>")[0]
    assert "*_" not in re.sub("<[^>]*>", "", pages)


def test_the_reference_shows_of_views_what_ops_need(site: Path) -> None:
    ids = {each["id"] for _, each in Tags(site / "api/op.html").found if "id" in each}
    shown = {each.removeprefix("detaug.Views.") for each in ids if each.startswith("detaug.Views.")}
    assert {"boxes", "labels", "size", "crop_to", "warp", "clip", "keep"} <= shown
    assert not shown & {"slot", "replace_at", "packed"}


def test_every_document_is_a_page(site: Path) -> None:
    documents = [path for path in REPOSITORY.glob("docs/**/*.md") if "site" not in path.parts]
    assert [
        path for path in documents if not (site / path.relative_to(REPOSITORY).with_suffix(".html")).is_file()
    ] == []


def test_every_page_is_within_two_clicks_of_the_first(site: Path) -> None:
    near = {site / "index.html"} | linked_from(site / "index.html")
    reached = near.union(*map(linked_from, near))
    pages = {path for path in site.rglob("*.html") if "_" not in path.relative_to(site).parts[0]}
    assert len(pages) > 60
    assert {path.name for path in pages - reached} == {"genindex.html", "search.html"}


def linked_from(page: Path) -> set[Path]:
    links = [each["href"].partition("#")[0] for tag, each in Tags(page).found if tag == "a" and "href" in each]
    return {(page.parent / link).resolve() for link in links if link.endswith(".html")}


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loaded = {path: loaded_by(path) for path in site.rglob("*.html")}
    loaded |= {path: loaded_by_style(path) for path in site.rglob("*.css")}
    assert sum(map(len, loaded.values())) > 1000
    assert {path: each for path, urls in loaded.items() for each in urls if re.match(r"(https?:)?//", each)} == {}


def test_notebooks_are_pages_with_their_outputs(site: Path) -> None:
    notebooks = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
    for path in notebooks:
        tags = Tags(site / "notebooks" / f"{path.stem}.html").found
        outputs = [output for cell in json.loads(path.read_text())["cells"] for output in cell.get("outputs", [])]
        pictures = [output for output in outputs if {"image/png", "image/jpeg"} & output.get("data", {}).keys()]
        shown = [each["src"] for tag, each in tags if tag == "img" and "_images/" in each["src"]]
        assert len(shown) >= len(pictures) > 0
        assert all((site / "notebooks" / name).resolve().is_file() for name in shown)
    links = {value for tag, each in Tags(site / "index.html").found for value in each.values() if tag == "a"}
    assert {f"notebooks/{path.stem}.html" for path in notebooks} <= links


SEARCHES = {
    "bounding box augmentation GPU": "docs/ops",
    "COCO keypoint flip": "docs/points",
    "OBB augmentation": "docs/points",
    "SAHI slicing training": "docs/large-pictures",
    "instance segmentation copy paste": "docs/masks",
    "convert LabelMe to COCO": "docs/data-formats",
    "CVAT to YOLO": "docs/data-formats",
    "class imbalance copy-paste": "docs/which-recipe",
    "resume training mid epoch": "docs/distributed-and-resume",
    "RF-DETR data loading": "docs/trainers/rf_detr",
}
"""By what people type, the page that they need."""


def hits_of(site: Path, *queries: str) -> list[list[dict[str, str]]]:
    """Return the hits of the site's own search, best first."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on the PATH: it runs the search's JavaScript")
    command = [node, HELPERS / "search_site.js", site, *queries]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [list(each) for each in json.loads(done.stdout)]


def test_the_search_finds_the_right_page_first(site: Path) -> None:
    hits = hits_of(site, *SEARCHES)
    assert {query: each[0]["page"] if each else "" for query, each in zip(SEARCHES, hits, strict=True)} == SEARCHES


def test_the_search_shows_public_names_and_puts_logs_last(site: Path) -> None:
    names, words = hits_of(site, "CopyPaste", "images")
    assert any(each["page"] == "api/mixing-ops" for each in names[:3])
    pages = [each["page"] for each in words]
    logs = [page for page in pages if page.startswith(("docs/history/", "CHANGELOG"))]
    assert pages.index(logs[0]) > max(pages.index(page) for page in {*SEARCHES.values()} & {*pages})


NARROW = """<!doctype html><iframe id="page" style="border: 0; width: 390px; height: 800px" src="index.html"></iframe>
<script>
page.onload = () => document.title = `width ${page.contentDocument.documentElement.scrollWidth}`;
</script>"""


def test_the_first_page_fits_on_a_phone(site: Path, browser: Callable[..., str]) -> None:
    frame = site / "narrow.html"
    frame.write_text(NARROW)
    options = ["--hide-scrollbars", "--allow-file-access-from-files", "--virtual-time-budget=5000"]
    try:
        shown = browser(*options, "--dump-dom", frame.as_uri())
    finally:
        frame.unlink()
    assert "<title>width 390</title>" in shown


def test_the_first_page_has_a_figure_of_the_data_flow(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    assert page.count('<svg class="flow"') == 1
    shown = [page.index(text) for text in ("sheet.jpg", "sd-tab-set", '<svg class="flow"', 'id="guides"')]
    assert shown == sorted(shown)
