"""The data of `detaug train PATH`: converted, checked, split; what stops it and what goes on."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import document, write, write_images
from command import detaug
from PIL import Image
from voc_files import with_segment, write_files

from detaug.errors import InputError
from detaug.workflow.prepare import DataFile, DataOptions, Prepared, prepare
from detaug.workflow.steps import Steps

pytestmark = pytest.mark.slow


def image(number: int) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (80, 100, 3), np.uint8)
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


def table(names: list[str], classes: str = "cat") -> str:
    rows = [f"{name},{classes},10,10,60,50" for name in names]
    return "\n".join(["filename,class,xmin,ymin,xmax,ymax", *rows]) + "\n"


def dataset(folder: Path, names: list[str], **files: str | bytes) -> Path:
    contents: dict[str, str | bytes] = {f"images/{name}": image(number) for number, name in enumerate(names)}
    write_files(folder, contents | {"boxes.csv": table(names)} | files)
    return folder


def run(path: Path, output: Path, **options: Any) -> tuple[Prepared, list[str], list[str]]:
    """Return the data, the commands and the lines."""
    lines: list[str] = []
    steps = Steps(lines.append)
    return prepare(DataOptions(path, **options), output, steps), steps.commands, lines


def names_of(file: DataFile) -> list[str]:
    return [row["file_name"] for row in json.loads(file.annotations.read_text())["images"]]


def test_a_dataset_without_splits_is_split(tmp_path: Path) -> None:
    names = [f"{number}.jpg" for number in range(10)]
    prepared, commands, lines = run(dataset(tmp_path / "data", names), tmp_path / "run")
    assert [file.annotations for file in prepared] == [tmp_path / f"run/data/{name}.json" for name in ("train", "val")]
    train, val = names_of(prepared.train), names_of(prepared.val)
    assert (len(train), len(val)) == (8, 2)
    assert sorted([*train, *val]) == sorted(names)
    assert all((prepared.val.images / name).is_file() for name in val)
    assert (tmp_path / "run/check.html").read_text().startswith("<!doctype html>")
    assert [command.split()[1] for command in commands] == ["convert", "check", "split"]
    assert sum(line.endswith(" s") for line in lines) == 3
    # Each printed command does the same alone.
    again = tmp_path / "again"
    again.mkdir()
    (again / "data").mkdir()
    for command in commands:
        words = [word.replace(str(tmp_path / "run"), str(again)) for word in shlex.split(command)[1:]]
        assert detaug(*words).code == 0
    for name in ("train", "val"):
        assert (again / f"data/{name}.json").read_text() == (tmp_path / f"run/data/{name}.json").read_text()


def test_copies_of_an_image_and_roboflows_variants_stay_together(tmp_path: Path) -> None:
    names = [f"{number}.jpg" for number in range(10)]
    folder = dataset(tmp_path / "copies", names)
    for number in range(1, 10, 2):  # of five different images
        (folder / f"images/{number}.jpg").write_bytes((folder / f"images/{number - 1}.jpg").read_bytes())
    prepared, _, _ = run(folder, tmp_path / "run")
    pairs = {int(Path(name).stem) // 2 for name in names_of(prepared.train)}
    assert pairs.isdisjoint(int(Path(name).stem) // 2 for name in names_of(prepared.val))
    assert len(names_of(prepared.val)) == 2

    names = [f"street-{number // 3}_jpg.rf.{number:032x}.jpg" for number in range(15)]
    prepared, commands, _ = run(dataset(tmp_path / "roboflow", names), tmp_path / "run2")
    stems = {name.split(".")[0] for name in names_of(prepared.train)}
    assert stems.isdisjoint(name.split(".")[0] for name in names_of(prepared.val))
    assert len(names_of(prepared.val)) == 3
    assert "--group-name" in commands[-1]


def test_own_splits_win_and_get_the_same_classes(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "train_labels.csv": table(["a.jpg", "b.jpg"], "dog"), "test_labels.csv": table(["c.jpg"], "cat"),
    }  # fmt: skip
    write_files(tmp_path / "data", files | {f"images/{name}.jpg": image(at) for at, name in enumerate("abc")})
    prepared, commands, _ = run(tmp_path / "data", tmp_path / "run")
    assert (names_of(prepared.train), names_of(prepared.val)) == (["a.jpg", "b.jpg"], ["c.jpg"])
    for file in prepared:
        categories = json.loads(file.annotations.read_text())["categories"]
        assert [(row["id"], row["name"]) for row in categories] == [(1, "dog"), (2, "cat")]
    assert [command.split()[1] for command in commands] == ["convert", "convert", "merge", "merge", "check", "check"]


def test_the_split_test_is_named(tmp_path: Path) -> None:
    names = {"train": "ab", "val": "c", "test": "d"}
    files = {f"{split}.csv": table([f"{name}.jpg" for name in own]) for split, own in names.items()}
    write_files(tmp_path / "data", {**files, **{f"images/{name}.jpg": image(at) for at, name in enumerate("abcd")}})
    prepared, _, lines = run(tmp_path / "data", tmp_path / "run")
    assert names_of(prepared.val) == ["c.jpg"]
    assert "  the split test is left alone: detaug convert and detaug evaluate --model score it" in lines
    (tmp_path / "data/val.csv").unlink()
    (tmp_path / "data/images/c.jpg").unlink()
    prepared, _, lines = run(tmp_path / "data", tmp_path / "run2")
    assert names_of(prepared.val) == ["d.jpg"]
    assert "  without a split val it is evaluated on the split test" in lines


def test_an_image_that_cannot_be_read_is_left_out_with_clean(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "data", [f"{number}.jpg" for number in range(5)])
    (folder / "images/0.jpg").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"(?s)0\.jpg.*or leave these files out: --clean$") as error:
        run(folder, tmp_path / "run")
    assert "--on-error" not in str(error.value)
    prepared, commands, _ = run(folder, tmp_path / "run", clean=True)
    assert sum(len(names_of(file)) for file in prepared) == 4
    assert commands[0].endswith("--on-error skip")


@pytest.mark.parametrize("val", ["images/val", "../valid/images", "val.txt"])
def test_a_val_that_is_listed_and_not_there_is_named(val: str, tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"images/train/{number}.jpg": image(number) for number in range(5)}
    files |= {f"labels/train/{number}.txt": "0 0.5 0.5 0.4 0.4\n" for number in range(5)}
    write_files(tmp_path / "data", files | {"data.yaml": f"names: [cat]\ntrain: images/train\nval: {val}\n"})
    prepared, _, lines = run(tmp_path / "data", tmp_path / "run")
    assert [len(names_of(file)) for file in prepared] == [4, 1]
    (line,) = (line for line in lines if "no images" in line)
    assert line.startswith(f"  {tmp_path / 'data/data.yaml'} has val: {val}, where no images are; if there should")


def test_a_coco_json_is_taken_with_its_images(tmp_path: Path) -> None:
    images = write_images(tmp_path / "data/pictures")
    write(tmp_path / "data/all.json", document())
    prepared, commands, lines = run(tmp_path / "data/all.json", tmp_path / "run")
    assert prepared.train.images == prepared.val.images == images
    assert sorted(names_of(prepared.train) + names_of(prepared.val)) == ["a.jpg", "b.jpg", "sub/c.png"]
    assert json.loads((tmp_path / "run/data/all.json").read_text()) == document()
    assert any("is a COCO JSON file, with its images in" in line for line in lines)
    assert [command.split()[1] for command in commands] == ["check", "split"]
    (images / "a.jpg").rename(tmp_path / "a.jpg")
    with pytest.raises(InputError, match=r"has images such as 'a\.jpg', and no folder near it has them; .*--images"):
        run(tmp_path / "data/all.json", tmp_path / "run2")


def test_errors_stop_with_the_remedy_and_clean_applies_it(tmp_path: Path) -> None:
    names = [f"{number}.jpg" for number in range(6)]
    folder = dataset(tmp_path / "data", names)
    content = coco_of(names)
    content["annotations"][5]["bbox"] = [70, 10, -50, 40]
    write(folder / "all.json", content)
    (folder / "boxes.csv").unlink()
    with pytest.raises(InputError, match=r"all\.json has 1 error, see .*check\.html: .*; --clean leaves them out"):
        run(folder, tmp_path / "run")
    prepared, commands, _ = run(folder, tmp_path / "run", clean=True)
    rows = [row for file in prepared for row in json.loads(file.annotations.read_text())["annotations"]]
    assert {row["id"]: row["bbox"] for row in rows}[5] == [20, 10, 50, 40]
    assert "--clean" in commands[0]


def coco_of(names: list[str]) -> dict[str, Any]:
    return {
        "images": [{"id": at, "file_name": name, "width": 100, "height": 80} for at, name in enumerate(names)],
        "annotations": [
            {"id": at, "image_id": at, "category_id": 1, "bbox": [10, 10, 50, 40], "area": 2000, "iscrowd": 0}
            for at in range(len(names))
        ],
        "categories": [{"id": 1, "name": "cat"}],
    }


def test_what_is_unclear_is_one_error_and_leaves_nothing(tmp_path: Path) -> None:
    write_files(tmp_path / "data", {"a.json": json.dumps(document()), "b.json": json.dumps(document())})
    with pytest.raises(InputError, match=r"has 2 COCO JSON files, .*a\.json, .*b\.json: give one of them, or join"):
        run(tmp_path / "data", tmp_path / "run")
    with pytest.raises(InputError, match="does not exist"):
        run(tmp_path / "nothing", tmp_path / "run")
    with pytest.raises(InputError, match="no box is left to write"):
        run(dataset(tmp_path / "cats", ["a.jpg"]), tmp_path / "run", classes=("dog",))
    assert not (tmp_path / "run").exists()


def test_identical_images_are_found_by_their_bytes(tmp_path: Path) -> None:
    """The same pixels with other bytes are no copies; equal beginnings are none either."""
    names = [f"{number}.jpg" for number in range(4)]
    folder = dataset(tmp_path / "data", names)
    for name in names:
        (folder / "images" / name).write_bytes(with_segment(image(0), name.encode(), 0xFE))
    prepared, _, _ = run(folder, tmp_path / "run")
    assert (len(names_of(prepared.train)), len(names_of(prepared.val))) == (3, 1)
