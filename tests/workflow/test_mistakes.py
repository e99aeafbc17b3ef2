"""`detaug train PATH` on folders that users have by mistake, or with names that shells and tools stumble over."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from command import detaug, error_line
from test_prepare import dataset, image, names_of, run
from voc_files import write_files

from detaug.workflow.prepare import DataFile
from detaug.workflow.steps import command_text

pytest.importorskip("torchvision")

pytestmark = pytest.mark.slow

NAMES = [f"{number}.jpg" for number in range(5)]


class TrainedError(Exception):
    """The training would begin now."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise TrainedError

    monkeypatch.setattr(import_module("detaug.workflow.train_folder"), "train", stop)
    monkeypatch.chdir(tmp_path)


def error_of(*words: object) -> str:
    return error_line(detaug("train", *words, "--device", "cpu"))


def prepares(*words: object) -> None:
    with pytest.raises(TrainedError):
        detaug("train", *words, "--device", "cpu")


def coco(folder: Path, images: str, names: list[str] = NAMES, objects: bool = True) -> None:
    rows = [{"id": at, "file_name": name, "width": 100, "height": 80} for at, name in enumerate(names, 1)]
    boxes = [
        {"id": at, "image_id": at, "category_id": 1, "bbox": [10, 10, 50, 40], "area": 2000, "iscrowd": 0}
        for at in range(1, len(names) + 1)
    ]
    content = {"images": rows, "annotations": boxes * objects, "categories": [{"id": 1, "name": "cat"}]}
    files: dict[str, str | bytes] = {f"{images}{name}": image(number) for number, name in enumerate(names)}
    write_files(folder, files | {"a.json": json.dumps(content)})


def yolo(folder: Path, yaml: str = "train: images/train\nval: images/val\n") -> None:
    files: dict[str, str | bytes] = {"data.yaml": f"path: .\n{yaml}names: [cat]\n"}
    for split, first in (("train", 0), ("val", 9)):
        for number in range(first, first + 3):
            files[f"images/{split}/{number}.jpg"] = image(number)
            files[f"labels/{split}/{number}.txt"] = "0 0.5 0.5 0.3 0.4\n"
    write_files(folder, files)


def test_the_output_may_be_the_folder_of_a_dataset() -> None:
    """Then a later run on the folder above still has its images."""
    coco(Path("a/b"), "images/")
    prepares("a/b/a.json", "-o", "a/b", "--images", "a/b/images")
    assert not list(Path("a").rglob(".detaug-run"))
    dataset(Path("c/d"), NAMES)
    prepares("c/d", "-o", "c/d")
    prepares("c", "-o", "run")
    assert len(names_of(DataFile(Path("run/data/train.json"), Path("c")))) == 4


@pytest.mark.parametrize("images", ["", "images/"])
def test_a_run_in_the_folder_of_the_dataset_is_no_part_of_it(images: str) -> None:
    """A second run reads what the first one read."""
    coco(Path("a"), images)
    prepares("a", "-o", "a/run")
    Path("a/run/train_batch.jpg").write_bytes(image(77))  # as the training draws it
    prepares("a", "-o", "a/run2")
    for name in ("train", "val"):
        one, other = (Path(f"a/{run}/data/{name}.json").read_bytes() for run in ("run", "run2"))
        assert one == other
    assert detaug("check", "a/a.json", "a").out.count("image-unreferenced") == 0
    assert "0 errors, 0 warnings" in detaug("check", "a/a.json", Path("a") / images).out


def test_images_of_a_run_are_not_background_of_a_folder_of_labels() -> None:
    """All images below a folder without data.yaml are images, also those without labels."""
    files: dict[str, str | bytes] = {name: image(at) for at, name in enumerate(NAMES)}
    write_files(Path("a"), files | {f"{name[:-4]}.txt": "0 0.5 0.5 0.3 0.4\n" for name in NAMES})
    write_files(Path("a"), {"classes.txt": "cat\n"})
    prepares("a", "-o", "a/run")
    Path("a/run/train_batch.jpg").write_bytes(image(77))
    prepared, _, _ = run(Path("a"), Path("b"))
    assert sorted(names_of(prepared.train) + names_of(prepared.val)) == NAMES


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.mp4": b"\0\0\0 ftypisom"}, "a has 1 video, and no annotations in a format that is known; label some"),
        ({name: image(0) for name in NAMES}, "a has 5 images, and no annotations in a format that is known; label"),
        ({"1.jpg": image(0), "1.txt": "", "2.mov": ""}, "a has 1 image and 1 video, and no annotations"),
        ({"x": ""}, "a has no annotations in a format that is known; detaug formats lists them"),
    ],
)
def test_a_folder_without_annotations(files: dict[str, str | bytes], message: str) -> None:
    write_files(Path("a"), files)
    assert message in error_of("a", "-o", "run")
    assert message in error_line(detaug("convert", "a", "-o", "a.json"))
    assert not Path("run").exists()


def test_annotations_without_objects_or_images_leave_nothing() -> None:
    coco(Path("a"), "", objects=False)
    assert error_of("a", "-o", "run").startswith("detaug: a has no objects beside crowds, to train or to evaluate with")
    assert not Path("run").exists()
    dataset(Path("b"), NAMES)
    shutil.rmtree("b/images")
    assert "give the folder of the images: --images of convert, convert-voc and train" in error_of("b", "-o", "run")
    assert not Path("run").exists()
    write_files(Path("elsewhere"), {name: image(at) for at, name in enumerate(NAMES)})
    prepares("b", "-o", "run", "--images", "elsewhere")


def test_a_folder_that_cannot_be_written_to() -> None:
    dataset(Path("a"), NAMES)
    Path("file").touch()
    assert "file is a file, so file/run cannot be made; give another folder" in error_of("a", "-o", "file/run")
    assert "nowhere does not exist; make it first" in error_of("a", "-o", "nowhere/run")


@pytest.mark.parametrize("name", ["-dash", "a #b 100% ümläut'q"])
def test_printed_commands_run_with_any_name(name: str) -> None:
    dataset(Path(f"./{name}"), [f"{number}{name}.jpg" for number in range(5)])
    run_ = Path(f"./run{name}")
    prepares(f"./{name}", "-o", run_)
    commands = json.loads((run_ / "data/prepared.json").read_text())["commands"]
    assert len(commands) == 3
    for command in commands:
        again = command.replace("detaug", f"{sys.executable} -m detaug", 1)
        result = subprocess.run(["bash", "-c", again], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr


def test_a_line_break_in_a_name_is_written_for_the_shell() -> None:
    name = "a\nb'c\\é\x1b"
    command = command_text("check", Path(name), Path("-x"))
    assert command.isprintable()
    words = subprocess.run(
        ["bash", "-c", f'printf "%s\\0" {command}'], capture_output=True, text=True, check=True
    ).stdout.split("\0")
    assert words[:-1] == ["detaug", "check", name, "./-x"]


def test_symbolic_links_and_loops() -> None:
    dataset(Path("a"), NAMES)
    shutil.move("a/images", "real")
    Path("a/images").symlink_to(Path("real").absolute())
    Path("a/loop").symlink_to(Path("a").absolute())
    Path("real/self").symlink_to(".")
    Path("real/0.jpg").rename("zero.jpg")
    Path("real/0.jpg").symlink_to(Path("zero.jpg").absolute())
    prepared, _, _ = run(Path("a"), Path("run"))
    assert sorted(names_of(prepared.train) + names_of(prepared.val)) == NAMES


def test_a_data_yaml_that_lies_deeper() -> None:
    """As archives have it. Labels beside its folder are not left out in silence."""
    yolo(Path("a/dataset/dataset"))
    prepared, _, _ = run(Path("a"), Path("run"))
    assert (len(names_of(prepared.train)), len(names_of(prepared.val))) == (3, 3)
    write_files(Path("a"), {"labels/7.txt": "0 0.5 0.5 0.3 0.4\n", "images/7.jpg": image(7)})
    assert "a must hold a data.yaml, obj.names or classes.txt, there is none" in error_of("a", "-o", "run-2")


def test_a_data_yaml_whose_val_is_its_train() -> None:
    """As Ultralytics' coco128.yaml: it says so itself, so its images are no leak."""
    yolo(Path("a"), "train: images\nval: images\n")
    prepared, _, lines = run(Path("a"), Path("run"))
    assert prepared.train == prepared.val
    assert len(names_of(prepared.train)) == 6
    assert any("it is evaluated on the training images" in line for line in lines)
