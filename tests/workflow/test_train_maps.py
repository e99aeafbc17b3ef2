"""`detaug train PATH` with maps of classes: found by their folders, of splits, named by --map; what is refused."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from command import detaug, error_line
from PIL import Image
from semantic_files import NAMES, list_images, paint_folder, tiny_semantic

import detaug.training.loop as loop
from detaug.converters.formats import recognise as recognise_module
from detaug.demo.shapes import make_voc
from detaug.training import predict as predict_module
from detaug.workflow import FolderOptions
from detaug.workflow.prepare import DataOptions, find_dataset
from detaug.workflow.steps import Steps
from detaug.workflow.train_folder import _prepared

pytest.importorskip("torchvision")

pytestmark = pytest.mark.slow

SHORT = ("--epochs", "2", "--batch-size", "4", "--size", "32", "--device", "cpu")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Train a tiny model in the place of torchvision's, in a folder of the test."""
    monkeypatch.setitem(loop.train.__kwdefaults__, "make_model", tiny_semantic)
    monkeypatch.setattr(predict_module, "make_detector", tiny_semantic)
    monkeypatch.chdir(tmp_path)


def commands(printed: str) -> list[list[str]]:
    return [shlex.split(line[2:]) for line in printed.splitlines() if line.startswith("$ ")]


FILES = {
    *("README.txt", "best.pt", "check.html", "checkpoint.pt", "curves.html", "data/all.json", "data/prepared.json"),
    *("data/train.json", "data/val.json", "data/class_names.txt", "evaluation.html", "metrics.jsonl", "model.pt"),
    *("predictions.jpg", "train_batch.jpg"),
}


def test_a_folder_of_maps_to_a_model(tmp_path: Path) -> None:
    """Without a model named, since there is nothing else to learn; each command does the same alone."""
    paint_folder(tmp_path / "data", 10)
    (tmp_path / "data/class_names.txt").write_text("\n".join(NAMES))
    result = detaug("train", "data", "-o", "run", *SHORT)
    assert (result.code, result.err) == (0, "")
    files = {path.relative_to("run").as_posix() for path in Path("run").rglob("*") if path.is_file()}
    assert files - {".lock", ".detaug-run"} == FILES
    printed = commands(result.out)
    assert [words[1] for words in printed] == ["convert", "check", "split", "train", "evaluate"]
    readme = Path("run/README.txt").read_text()
    assert all(name in readme for name in FILES - {"README.txt", "data/all.json", "data/prepared.json"})
    assert Path("run/data/class_names.txt").read_text().split() == [*NAMES]
    content = torch.load("run/model.pt", weights_only=True)
    assert (content["name"], tuple(content["class_names"])) == ("lraspp_mobilenet_v3_large", NAMES)
    for words in printed:
        if words[1] in ("check", "evaluate"):
            alone = [re.sub(r"^run/(?=\w+\.(html|jpg)$)", "alone-", word) for word in words[1:]]
            assert detaug(*alone).code == 0
    for name in ("check.html", "evaluation.html"):
        assert Path(f"alone-{name}").read_text() == Path("run", name).read_text()
    assert Path("alone-predictions.jpg").read_bytes() == Path("run/predictions.jpg").read_bytes()
    code = readme[readme.index("import detaug as da") : readme.index("\n\nTrain on from")]
    exec(compile(code, "README.txt", "exec"), {})
    assert Path("found.jpg").is_file()
    (line,) = (line for line in readme.splitlines() if "--weights" in line)
    assert detaug(*shlex.split(line)[1:]).code == 0
    assert Path("run-2/model.pt").is_file()
    again = detaug("train", "data", "-o", "run", *SHORT, "--resume")
    assert [words[1] for words in commands(again.out)] == ["train", "evaluate"]


def test_a_folder_is_recognized_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Listing a large folder takes long: on the first of several processes, and not where --resume goes on."""
    paint_folder(tmp_path / "data", 6)
    (tmp_path / "data/class_names.txt").write_text("\n".join(NAMES))
    listed, list_files = list[str](), recognise_module.list_files
    monkeypatch.setattr(
        recognise_module, "list_files", lambda *args, **more: (listed.append(""), list_files(*args, **more))[1]
    )
    options = FolderOptions(DataOptions(Path("data")), Path("run"), {"device": "cpu"})
    find_dataset(options.data)
    once, listed[:] = len(listed), []
    for resume in (False, True):
        options = FolderOptions(options.data, Path("run"), {"device": "cpu", "resume": resume})
        steps = Steps(lambda line: None)
        prepared = _prepared(options, steps)
        assert options.train_options(*prepared).model == "lraspp_mobilenet_v3_large"
        assert len(listed) == (0 if resume else once), "again"
        listed.clear()


def test_splits_of_folders_have_maps_of_their_own(tmp_path: Path) -> None:
    paint_folder(tmp_path / "data", 6, "images/train", "masks/train")
    paint_folder(tmp_path / "data", 3, "images/val", "masks/val", first=6)
    (tmp_path / "data/class_names.txt").write_text("\n".join(NAMES))
    result = detaug("train", "data", "-o", "run", *SHORT)
    assert (result.code, result.err) == (0, "")
    by_name = {words[1]: words for words in commands(result.out)}
    train = by_name["train"]
    assert train[train.index("--map") + 1].startswith("semantic=data/masks/train,classes=")
    assert train[train.index("--val-map") + 1].startswith("semantic=data/masks/val,classes=")
    assert [len(json.loads(Path(f"run/data/{name}.json").read_text())["images"]) for name in ("train", "val")] == [6, 3]
    assert Path("run/check-val.html").is_file()
    for words in commands(result.out)[:2]:
        assert words[1] == "convert"
        assert detaug(*(word.replace("run/data/", "") for word in words[1:])).code == 0
    for name in ("train", "val"):
        assert Path(f"{name}.json").read_text() == Path(f"run/data/{name}.json").read_text()


def test_maps_beside_the_annotations_of_voc(tmp_path: Path) -> None:
    make_voc(tmp_path / "VOC", images=10)
    (tmp_path / "VOC/ImageSets/Segmentation").mkdir()
    for name, numbers in {"train": range(1, 7), "val": range(7, 10)}.items():
        (tmp_path / f"VOC/ImageSets/Segmentation/{name}.txt").write_text("".join(f"{at:06}\n" for at in numbers))
    result = detaug("train", "VOC", "-o", "run", "--model", "lraspp_mobilenet_v3_large", *SHORT)
    assert (result.code, result.err) == (0, "")
    assert "--from semantic" in result.out
    assert [len(json.loads(Path(f"run/data/{name}.json").read_text())["images"]) for name in ("train", "val")] == [6, 3]
    names = torch.load("run/model.pt", weights_only=True)["class_names"]
    assert [*names] == ["background", "ball", "car", "fish", "house", "mug", "tree"]


def test_a_map_that_is_named(tmp_path: Path) -> None:
    """Beside a COCO JSON file, in a folder that no format knows, whose numbers a table makes classes."""
    paint_folder(tmp_path / "data", 6, maps="classes_of_pixels")
    list_images(tmp_path / "data")
    table = {"0": 0, "1": 1, "2": 1, "255": 255}
    Path("table.json").write_text(json.dumps(table))
    text = "semantic=data/classes_of_pixels,table=table.json,classes=ground,thing"
    result = detaug("train", "data/all.json", "-o", "run", "--images", "data/images", "--map", text, *SHORT)
    assert (result.code, result.err) == (0, "")
    assert [*torch.load("run/model.pt", weights_only=True)["class_names"]] == ["ground", "thing"]
    assert all(text in words for words in commands(result.out) if words[1] in ("check", "train", "evaluate"))


def test_what_is_refused(tmp_path: Path) -> None:
    paint_folder(tmp_path / "data", 4)
    make_voc(tmp_path / "VOC", images=3)
    shutil.rmtree("VOC/SegmentationClass")
    model = ("--model", "lraspp_mobilenet_v3_large")
    message = error_line(detaug("train", "VOC", "-o", "run", *model))
    assert "VOC has no folder that is known for maps of classes" in message
    assert "--map semantic=FOLDER,classes=background,car" in message
    message = error_line(detaug("train", "data", "-o", "run", "--classes", "red"))
    assert "--classes chooses those of boxes" in message
    message = error_line(detaug("train", "data", "-o", "run", "--map", "depth=data/masks"))
    assert "map must be semantic=FOLDER, a map of classes, which alone can be learned" in message
    message = error_line(detaug("train", "VOC", "-o", "run", "--map", "semantic=data/masks"))
    assert "give the folder of the maps and the names of their classes" in message
    assert not Path("run").exists()
    result = detaug("train", "data", "-o", "run", "--model", "fcos_resnet50_fpn", *SHORT)
    assert result.code == 2
    assert "or a --model of maps, lraspp_mobilenet_v3_large, and --map" in result.err


def test_a_map_with_a_value_of_no_class_stops_before_the_training(tmp_path: Path) -> None:
    paint_folder(tmp_path / "data", 5)
    (tmp_path / "data/class_names.txt").write_text("\n".join(NAMES))
    path = Path("data/masks/3.png")
    Image.open(path).point(lambda value: 9 if value == 2 else value).save(path)
    result = detaug("train", "data", "-o", "run", *SHORT)
    assert result.code == 2
    assert "run/data/all.json has 1 error, see run/check.html" in result.err
    assert "3.png has the value 9, where its ClassMap has 3 classes" in result.out
