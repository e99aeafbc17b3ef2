"""`detaug demo` from end to end, with fewer images than usual."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import detaug as da
import detaug.demo.demo
from detaug.cli.main import main
from detaug.converters import voc_to_coco
from detaug.demo import make_voc
from detaug.demo.demo import GO_ON, Speed, demo, time_loader
from detaug.demo.detector import learn_by_heart

FILES = [".made-by-detaug-demo", "MOT", "VOC", "clips.json", "masks.json", "people", "people.json", "prediction.png"]
FILES += ["shapes.png", "sheet.png", "ships", "ships.json", "train.json"]


def quick_demo(out: Path, images: int = 6, **options: object) -> list[str]:
    """Run the demo with few images and one measured epoch; return the lines that it says."""
    lines: list[str] = []
    assert demo(out, images=images, seconds=0, steps=2, say=lines.append, **options) == out  # type: ignore[arg-type]
    return lines


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command, which has no options for it, draw six images and measure one epoch."""
    monkeypatch.setattr(detaug.demo.demo, "demo", partial(demo, seconds=0, images=6, steps=2))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    out = tmp_path_factory.mktemp("made") / "demo"
    return out, quick_demo(out, device="cpu")


def test_the_files_of_the_demo(made: tuple[Path, list[str]]) -> None:
    out, _ = made
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert len(list((out / "VOC/JPEGImages").iterdir())) == len(list((out / "VOC/Annotations").iterdir())) == 6
    document = json.loads((out / "train.json").read_bytes())
    assert len(document["images"]) == 5
    assert all((out / "VOC/JPEGImages" / image["file_name"]).is_file() for image in document["images"])
    with Image.open(out / "sheet.png") as sheet:
        assert sheet.width > 1500
        assert sheet.height > 1000
    assert [path.name for path in out.parent.iterdir()] == ["demo"]


def test_the_lines_of_the_demo(made: tuple[Path, list[str]]) -> None:
    out, lines = made
    text = "\n".join(lines)
    document = json.loads((out / "train.json").read_bytes())
    assert f"5 images, {len(document['annotations'])} boxes" in text
    assert "0 errors, " in text
    assert f"detaug check {out / 'train.json'} {out / 'VOC/JPEGImages'}" in text
    assert re.search(r"[\d,]+ images per second: 5 in [\d.]+ s, 1 epoch, after one to warm up", text)
    assert "presets.ssd300() on the CPU (" in text
    for name in ("VOC", "train.json", "sheet.png"):
        assert str(out / name) in text
    assert text.endswith(GO_ON)


@pytest.mark.filterwarnings("ignore:batch_size=8 takes 8 images per step, train.json has 5")
def test_the_printed_code_runs_in_the_folder(
    made: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, lines = made
    code = lines[-1][lines[-1].index("import detaug") :]
    monkeypatch.chdir(out)
    exec(code, {})
    assert capsys.readouterr().out.startswith("torch.Size([8, 3, 300, 300]) [")


@pytest.mark.gpu
def test_it_runs_on_a_gpu(tmp_path: Path) -> None:
    assert "cuda:0" in "\n".join(quick_demo(tmp_path / "demo", device="cuda"))


@pytest.mark.slow
def test_a_second_run_writes_the_same_files_and_leaves_others(made: tuple[Path, list[str]], tmp_path: Path) -> None:
    out = shutil.copytree(made[0], tmp_path / "demo")
    first = {path: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    (out / "train.py").write_text("mine")
    (out / "VOC/JPEGImages/mine.jpg").write_text("mine")
    (out / "sheet.png").unlink()
    quick_demo(out, device="cpu")
    assert {path: path.read_bytes() for path in first} == first
    assert (out / "train.py").read_text() == (out / "VOC/JPEGImages/mine.jpg").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


@pytest.mark.slow
@pytest.mark.slow
def test_a_folder_in_the_place_of_a_file_is_refused_before_any_file_is_moved(tmp_path: Path) -> None:
    new, out = tmp_path / "new", tmp_path / "demo"
    for folder in (new, out):
        (folder / "VOC").mkdir(parents=True)
        (folder / "a.json").write_text(folder.name)
    (new / "z.png").touch()
    (out / "z.png").mkdir()
    with pytest.raises(da.InputError, match=r"z\.png is a folder, and detaug demo makes a file of this name; nothing"):
        detaug.demo.demo._merge(new, out)
    (out / "z.png").rmdir()
    (out / "VOC").rmdir()
    (out / "VOC").touch()
    with pytest.raises(da.InputError, match=r"VOC is a file, and detaug demo makes a folder of this name; nothing"):
        detaug.demo.demo._merge(new, out)
    assert (out / "a.json").read_text() == "demo"


@pytest.mark.slow
def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    quick_demo(tmp_path / "demo", images=2)
    assert (tmp_path / "demo/sheet.png").is_file()


def test_an_interrupted_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(detaug.demo.demo, "draws_sheet", interrupt)
    with pytest.raises(KeyboardInterrupt):
        quick_demo(tmp_path / "demo")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [{"seconds": float("inf")}, {"steps": 0}, {"images": 2.5}, {"images": 0}])
def test_wrong_numbers_are_refused_before_anything_is_drawn(tmp_path: Path, wrong: dict[str, Any]) -> None:
    said: list[str] = []
    with pytest.raises(da.InputError, match=f"{next(iter(wrong))} must be"):
        demo(tmp_path / "demo", device="cpu", say=said.append, **wrong)
    assert (said, [*tmp_path.iterdir()]) == ([], [])


def test_the_first_epoch_is_not_measured() -> None:
    class Epochs:
        device, begun = torch.device("cpu"), 0

        def __iter__(self) -> Iterator[str]:
            self.begun += 1
            return iter(("four", "six"))

    epochs = Epochs()
    speed = time_loader(epochs, seconds=0)  # type: ignore[arg-type]
    assert (speed.images, speed.epochs, epochs.begun) == (7, 1, 2)


def test_the_rate_is_images_by_seconds() -> None:
    assert str(Speed(3000, 1.5, 10)) == "2,000 images per second: 3,000 in 1.50 s, 10 epochs, after one to warm up"


# ---------------------------------------------------------------- the command


@pytest.mark.slow
def test_the_command_and_another_seed(
    tmp_path: Path,
    few_images: None,
    made: tuple[Path, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--seed", "1"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.rstrip().endswith(GO_ON.rstrip())
    for name in ("train.json", "sheet.png", "VOC/JPEGImages/000001.jpg"):
        assert (tmp_path / "demo" / name).read_bytes() != (made[0] / name).read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--out {folder}/theirs", "theirs exists and was not made by detaug demo; nothing was written"),
        ("--out {folder}/file", "file"),
        ("--out {folder}/broken", "broken exists and was not made by detaug demo"),
        ("--out .", "was not made by detaug demo"),
        ("--out /", "was not made by detaug demo"),
        ("--out {folder}/no/demo", "no does not exist; make it first"),
        ("--out {folder}/new --device cuda:99", "cuda:99"),
        ("--out {folder}/new --device gpu", "must be cpu, cuda or cuda:N, got 'gpu'"),
        ("--out {folder}/new --seed -1", "-1 is not in the range x>=0"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(
    tmp_path: Path, options: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/thesis.tex").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "broken").symlink_to("nowhere")
    before = sorted(tmp_path.rglob("*"))
    assert main(["demo", *options.format(folder=tmp_path).split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("detaug: ")
    assert message in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_the_detector_learns_its_pictures(tmp_path: Path) -> None:
    images = make_voc(tmp_path / "VOC", images=8) / "JPEGImages"
    voc_to_coco(tmp_path / "VOC", tmp_path / "train.json")
    reader = da.CocoReader(images, tmp_path / "train.json")
    found = learn_by_heart(reader, 120, torch.device("cpu"), 0)
    entries = [
        {"image_id": int(each.image_id), "category_id": label, "bbox": [x, y, right - x, low - y], "score": score}
        for each in found
        for (x, y, right, low), label, score in zip(each.boxes.tolist(), each.labels, each.scores, strict=True)
    ]
    (tmp_path / "found.json").write_text(json.dumps(entries))
    evaluator = da.CocoEvaluator(reader)
    evaluator.load(tmp_path / "found.json")
    assert evaluator.compute().AP50 > 0.9
