"""The commands of the site's first page lead from a folder of labels to a detector, as written."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from documents import block_commands, blocks, prose, run_command, run_python
from places import REPOSITORY

from detaug import converters
from detaug.cli.main import main

LANDING = REPOSITORY / "docs/site/landing.md"
IMAGES = "demo/VOC/JPEGImages"

pytestmark = pytest.mark.slow


def tabs() -> dict[str, str]:
    found = re.split(r"^::::\{tab-item\} (.*)\n", LANDING.read_text().partition(":::::\n\n")[0], flags=re.M)
    return dict(zip(found[1::2], found[2::2], strict=True))


def yolo() -> None:
    for split in ("train", "val"):
        export = ["convert-coco-to-yolo", f"{split}.json", "dataset", "--split", split]
        assert main([*export, "--images", IMAGES, "--with-images", "link", "--quiet"]) == 0


def labelme() -> None:
    assert main(["convert-coco-to-labelme", "all.json", "export", "--quiet"]) == 0


def cvat() -> None:
    assert main(["convert-coco-to-cvat", "all.json", "export", "--quiet"]) == 0


def voc() -> None:
    shutil.copytree("demo/VOC", "VOCdevkit/VOC2012")


FOLDERS: dict[str, tuple[str, Callable[[], object]]] = {
    "YOLO": ("YOLO", yolo),
    "CVAT": ("CVAT, LabelMe", cvat),
    "LabelMe": ("CVAT, LabelMe", labelme),
    "VOC": ("VOC", voc),
    "COCO": ("COCO", lambda: None),
    "Python": ("Python", lambda: None),
}
"""By a format: its tab, and what makes its folder."""

FEW = {"train": 8, "val": 4}
"""Images of each split: one step of training, and one evaluation."""


@pytest.fixture
def folder(demo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A few images of the demo, their JSON files and a folder of them; this process is in it."""
    shutil.copytree(demo_folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    classes = [row["name"] for row in json.loads(Path("train.json").read_text())["categories"]]
    for split, count in FEW.items():
        path = Path(f"demo/VOC/ImageSets/Main/{split}.txt")
        stems = path.read_text().split()[:count]
        path.write_text("".join(f"{stem}\n" for stem in stems))
        for stem in stems:
            shutil.copy2(f"{IMAGES}/{stem}.jpg", "images")
        converters.voc_to_coco("demo/VOC", f"{split}.json", split=split, classes=classes)
    converters.merge_coco(["train.json", "val.json"], "all.json")
    return tmp_path


def test_every_tab_is_tested() -> None:
    assert {tab for tab, _ in FOLDERS.values()} == set(tabs())


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("name", FOLDERS)
def test_the_commands_of_a_tab_lead_to_a_detector(name: str, folder: Path) -> None:
    """The training is made smaller: an epoch of few images, and a small model."""
    tab, make = FOLDERS[name]
    make()
    for block in blocks(tabs()[tab]):
        if block.kind == "python":
            run_python(block, LANDING, {})
            return
        for command in block_commands(block):
            run_or_skip(command)
    assert (folder / "run/check.html").is_file()
    for command in (each for block in blocks(LANDING.read_text()) for each in block_commands(block)):
        if command.startswith("detaug predict"):
            run_or_skip(command)
    assert (folder / "predictions/predictions.json").is_file()
    assert list((folder / "predictions").glob("*.jpg"))


def run_or_skip(command: str) -> None:
    """Run a command. What trains needs torchvision, and skips without; what does not has run before it."""
    if command.startswith(("detaug train ", "detaug predict ")):
        pytest.importorskip("torchvision", reason="no torchvision")
        command = re.sub(r"^detaug train ", "detaug train --model ssdlite320_mobilenet_v3_large ", command)
    run_command(command)


def test_lines_of_prose_have_at_most_120_characters() -> None:
    assert [line for line in prose(LANDING.read_text()).splitlines() if len(line) > 120] == []
