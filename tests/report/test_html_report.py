"""detaug check --html: one page that loads nothing, escapes every name, and has an image of each finding."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from coco_files import document, write, write_images
from PIL import Image

from detaug.cli.main import main
from detaug.drawing import class_color
from detaug.drawing.points import SIDES
from detaug.report.html import MOST_IMAGES

HOSTILE = '<script>document.title="taken"</script>猫"\''


Color = tuple[int, int, int]


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
    content["annotations"] += [content["annotations"][1] | {"id": 100 + n} for n in range(MOST_IMAGES + 5)]
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
    assert len(page.pictures("jpeg")) == 1 + MOST_IMAGES
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


def test_boxes_that_contradict_each_other_are_drawn_together(tmp_path: Path) -> None:
    content = document()
    first, other = content["categories"]
    box = {"image_id": 1, "bbox": [10, 10, 80, 60]}
    content["annotations"] = [
        {**box, "id": 1, "category_id": first["id"]},
        {**box, "id": 2, "category_id": other["id"], "bbox": [11, 11, 79, 59]},
    ]
    images = write_images(tmp_path / "images")
    Image.new("RGB", (100, 80)).save(images / "a.jpg")
    path = tmp_path / "report.html"
    main(["check", str(write(tmp_path / "t.json", content)), str(images), "--html", str(path), "-q"])
    (picture,) = Page(path.read_text(encoding="utf-8")).pictures("jpeg")
    pixels = np.asarray(picture.convert("RGB"), int)
    for each in (first, other):
        assert (np.abs(pixels - class_color(each["name"])).sum(2) < 120).sum() > 400


def test_the_page_fits_a_phone(page_file: Path) -> None:
    text = page_file.read_text(encoding="utf-8")
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert re.search(r"figure \{[^}]*max-width: 100%", text)
    for width, height, viewbox in re.findall(r'<svg width="(\d+)" height="(\d+)" viewBox="([^"]*)"', text):
        assert viewbox == f"0 0 {width} {height}"


def test_the_advice_fits_the_finding(tmp_path: Path) -> None:
    content, path = document(), tmp_path / "report.html"
    content["annotations"].append(content["annotations"][0] | {"id": 9})
    images = write_images(tmp_path / "images")
    Image.new("RGB", (40, 30)).save(images / "new.png")
    main(["check", str(write(tmp_path / "t.json", content)), str(images), "--html", str(path), "-q"])
    advice = dict(re.findall(r'<h2 id="([\w-]+)"><span.*?<b>What to do:</b> (.*?)</p>', path.read_text(), re.S))
    assert "--against OTHER.json" in advice["image-unreferenced"]
    assert "delete one of the two boxes" in advice["box-repeated"]


def test_sizes_are_in_pixels(tmp_path: Path) -> None:
    page = page_of(tmp_path, [[0, 0, 500, 500]])
    assert set(charts(page)) >= {
        "Box size",
        "Box size when images are 640 x 640",
    }
    assert "32 to 64" not in charts(page)["Box size"]
    assert "<title>64 to 128: 1</title>" in charts(page)["Box size when images are 640 x 640"]
    assert "fraction of the image" not in page


def test_a_data_set_without_a_fault(tmp_path: Path) -> None:
    images, path = write_images(tmp_path / "images"), tmp_path / "report.html"
    assert main(["check", str(write(tmp_path / "t.json", document())), str(images), "--html", str(path), "-q"]) == 0
    assert "ready for training" in Page(path.read_text(encoding="utf-8")).text


def test_a_count_of_one_is_singular(tmp_path: Path) -> None:
    content = document()
    content["categories"], content["annotations"] = content["categories"][1:], content["annotations"][:1]
    content["images"][2]["file_name"] = "none.jpg"
    images, path = write_images(tmp_path / "images"), tmp_path / "report.html"
    assert main(["check", str(write(tmp_path / "t.json", content)), str(images), "--html", str(path), "-q"]) == 1
    text = Page(path.read_text(encoding="utf-8")).text
    assert "t.json: 1 error, 1 warning\n" in text
    assert "1 box in 1 class." in text


@pytest.mark.parametrize("name", ["report.json", "t.html/x.html", "report"])
def test_wrong_paths_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = write_images(tmp_path / "images")
    path = tmp_path / name
    assert main(["check", str(write(tmp_path / "t.json", document())), str(images), "--html", str(path)]) == 2
    assert "html" in capsys.readouterr().err
    assert not path.exists()


def test_a_real_browser_shows_it(page_file: Path, browser: Callable[..., str]) -> None:
    """The browser's own document has our heading, all charts, and a title that no name took over."""
    shown = browser("--dump-dom", page_file.as_uri())
    assert re.search(r"<title>t\.json: 2 errors", shown)
    assert Page(shown).tags.count("svg") >= 4


@pytest.mark.parametrize(
    ("scheme", "paper", "bar"), [(1, (255, 255, 255), (0, 114, 178)), (0, (22, 24, 28), (86, 180, 233))]
)
def test_a_real_browser_paints_it_light_or_dark(
    page_file: Path, browser: Callable[..., str], scheme: int, paper: Color, bar: Color
) -> None:
    picture = page_file.with_suffix(".png")
    options = [f"--blink-settings=preferredColorScheme={scheme}", "--window-size=1200,1200", "--hide-scrollbars"]
    browser(*options, f"--screenshot={picture}", page_file.as_uri())
    pixels = np.asarray(Image.open(picture).convert("RGB"), int)
    assert ((np.abs(pixels - paper)).max(2) <= 1).mean() > 0.6
    assert ((np.abs(pixels - bar)).max(2) <= 1).sum() > 5_000


# ---------------------------------------------------------------- charts


def page_of(tmp_path: Path, boxes: list[list[float]]) -> str:
    """The page of one image of 5,000 x 5,000 pixels with these boxes."""
    image = {"id": 1, "file_name": "a.png", "width": 5000, "height": 5000}
    rows = [{"id": at, "image_id": 1, "category_id": 1, "bbox": box} for at, box in enumerate(boxes, 1)]
    content = {"images": [image], "annotations": rows, "categories": [{"id": 1, "name": "cat"}]}
    (folder := tmp_path / "images").mkdir()
    Image.new("1", (5000, 5000)).save(folder / "a.png")
    path = tmp_path / "t.html"
    main(["check", str(write(tmp_path / "t.json", content)), str(folder), "--html", str(path), "-q"])
    return path.read_text(encoding="utf-8")


def charts(page: str) -> dict[str, str]:
    return dict(re.findall(r'<svg [^>]*aria-label="([^"]*)">(.*?)</svg>', page, re.S))


@pytest.mark.parametrize("longest", [3, 300, 5000])
def test_the_labels_of_an_axis_do_not_touch_and_name_the_square(tmp_path: Path, longest: int) -> None:
    page = page_of(tmp_path, [[0, 0, 3, longest], [0, 0, longest, 3], [0, 0, longest, longest], [9, 9, 2, 2]])
    found = charts(page)
    assert len(found) == 4
    for content in found.values():
        texts = re.findall(r'<text x="([\d.]+)" y="162" text-anchor="middle">([^<]*)<', content)
        ends = [(float(x) - 3.6 * len(text), float(x) + 3.6 * len(text)) for x, text in texts]
        assert all(before[1] + 4 < after[0] for before, after in pairwise(ends))
        assert ends[0][0] >= 0
        assert ends[-1][1] <= 340
    assert re.search(r'text-anchor="middle">1<', found["Box shape"])


def test_charts_know_width_from_height(tmp_path: Path) -> None:
    """Three boxes of 400 x 100 pixels at the right, in the upper quarter of an image of 5,000 x 5,000."""
    page = page_of(tmp_path, [[4600, 50 * at, 400, 100] for at in range(3)])
    columns = dict(re.findall(r"<title>([^<]*): ([\d,]+)</title>", charts(page)["Box shape"]))
    assert columns == {"4 to 5.7": "3"}
    (picture,) = [each for each in Page(page).pictures("png") if each.width == each.height]
    darkness = 255 - np.asarray(picture.convert("L"), float)
    dark = darkness > darkness.min()
    rows, columns_of_map = (np.flatnonzero(dark.any(axis)) / len(dark) for axis in (1, 0))
    assert rows.max() < 0.25
    assert columns_of_map.min() >= 0.9
    assert columns_of_map.max() == (len(dark) - 1) / len(dark)


def test_the_map_of_boxes_is_dark_where_they_are(tmp_path: Path) -> None:
    """One box in the middle of an image of 5,000 x 5,000 pixels."""
    (picture,) = [
        each for each in Page(page_of(tmp_path, [[1500, 2000, 500, 1000]])).pictures("png") if each.width == each.height
    ]
    darkness = 255 - np.asarray(picture.convert("L"), float)
    dark = darkness > darkness.min()
    rows, columns = (np.flatnonzero(dark.any(axis)) / len(dark) for axis in (1, 0))
    assert (rows.min(), columns.min()) == pytest.approx((0.4, 0.3), abs=0.03)
    assert (rows.max(), columns.max()) == pytest.approx((0.6, 0.4), abs=0.03)


def test_one_box_is_seen_beside_thousands(tmp_path: Path) -> None:
    boxes = [[50 * (at % 60), 50 * (at // 60), 40, 40] for at in range(3000)]
    chart = charts(page_of(tmp_path, [*boxes, [0, 0, 2, 2]]))["Box size"]
    heights = {title: float(height) for height, title in re.findall(r'height="([\d.]+)"><title>([^<]*)<', chart)}
    assert heights == {"2 to 4: 1": 2, "4 to 8: 0": 0, "8 to 16: 0": 0, "16 to 32: 0": 0, "32 to 64: 3,000": 90}


@pytest.mark.parametrize(("boxes", "numbers"), [(1, "0 1"), (5, "0 3 6"), (52, "0 30 60"), (3000, "0 2,000 4,000")])
def test_an_axis_has_numbers_that_the_columns_reach(tmp_path: Path, boxes: int, numbers: str) -> None:
    page = page_of(tmp_path, [[50 * (at % 60), 50 * (at // 60), 40, 40] for at in range(boxes)])
    chart = charts(page)["Box size"]
    ticks = {text: float(y) - 4 for y, text in re.findall(r'y="([\d.]+)" text-anchor="end">([^<]*)<', chart)}
    assert " ".join(ticks) == numbers
    (top,) = re.findall(r'<rect x="[\d.]+" y="([\d.]+)"', chart)
    first, last = (ticks[text] for text in (numbers.split()[0], numbers.split()[-1]))
    highest = int(numbers.split()[-1].replace(",", ""))
    assert float(top) == pytest.approx(first + (last - first) * boxes / highest, abs=0.06)
    assert ">boxes</text>" in chart


def test_a_column_of_several_numbers_names_its_range(tmp_path: Path) -> None:
    chart = charts(page_of(tmp_path, [[50 * at, 0, 40, 40] for at in range(45)]))["Boxes per image"]
    assert "<title>45 to 47: 1</title>" in chart


def test_an_image_that_the_json_does_not_name_has_a_picture(tmp_path: Path) -> None:
    images, path = write_images(tmp_path / "images"), tmp_path / "report.html"
    Image.new("RGB", (40, 30), (200, 40, 90)).save(images / "left out.png")
    main(["check", str(write(tmp_path / "t.json", document())), str(images), "--html", str(path), "-q"])
    (picture,) = Page(path.read_text(encoding="utf-8")).pictures("jpeg")
    assert np.abs(np.asarray(picture.convert("RGB"), int) - (200, 40, 90)).max() < 12


def marked(tmp_path: Path, **keys: object) -> list[set[Color]]:
    """Return the colors of marks in the image of each finding, on black; the first annotation has these keys."""
    content = document()
    content["categories"][1] |= {"keypoints": ["left_ear", "right_ear", "tail"], "skeleton": [[1, 3], [2, 3], [0, 9]]}
    content["annotations"][0] |= keys
    images, path = write_images(tmp_path / "images"), tmp_path / "report.html"
    Image.new("RGB", (100, 80)).save(images / "a.jpg")
    main(["check", str(write(tmp_path / "t.json", content)), str(images), "--html", str(path), "-q"])
    pictures = Page(path.read_text(encoding="utf-8")).pictures("jpeg")
    return [{color for color in FEATURED if any(near(pixel, color) for pixel in pixels(each))} for each in pictures]


FEATURED: list[Color] = [SIDES["left"], SIDES["right"], SIDES[""]]


def pixels(picture: Image.Image) -> list[Color]:
    return [color for _, color in picture.convert("RGB").getcolors(1 << 20) or []]  # type: ignore[misc]


def near(one: Color, other: Color) -> bool:
    """Return whether two colors are one in a JPEG."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) < 40


@pytest.mark.parametrize(
    ("keys", "colors"),
    [
        ({"keypoints": [12, 12, 2, 25, 15, 2, 18, 36, 3]}, set(FEATURED)),
        ({"keypoints": [12, 12, 2, 25, 15, 2, 18, 36, 0], "num_keypoints": 3}, {SIDES["left"], SIDES["right"]}),
        ({"corners": [[10, 10], [30, 40], [30, 10], [10, 40]]}, {SIDES[""]}),
        ({"keypoints": [12, 12, 2, "25"]}, set()),
        ({"corners": [[10, 10], [30, 40], [30, 10]]}, set()),
    ],
    ids=["visibility", "count", "crossed", "no numbers", "three corners"],
)
def test_the_picture_of_a_finding_has_its_points(tmp_path: Path, keys: dict[str, object], colors: set[Color]) -> None:
    assert colors in marked(tmp_path, **keys)
    if not colors:
        assert set().union(*marked(tmp_path / "again", **keys)) == set()
