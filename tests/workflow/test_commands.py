"""Steps as commands of a shell, the command that trains alone, and the defaults of `detaug train PATH`."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from coco_files import document, write

from detaug.training import TrainOptions
from detaug.workflow import prepare
from detaug.workflow.prepare import DataFile, DataOptions, Prepared
from detaug.workflow.steps import Steps, command_text
from detaug.workflow.train_folder import FolderOptions, _train_words

NAMES = ["plain", "a b", "it's", "-dash", "a\nb", "tab\there's", "back\\new\n", "ü", os.fsdecode(b"\xff\xfe")]


def test_a_step_is_a_command_that_a_shell_takes() -> None:
    """bash itself reads the words back, also those with line breaks and bytes that are not UTF-8."""
    paths = [Path(name) for name in NAMES]
    text = command_text("check", *paths, None, 0, "")
    words = subprocess.run(
        ["bash", "-c", 'detaug() { printf "%s\\0" "$@"; }; ' + text], capture_output=True, check=True
    ).stdout.split(b"\0")[:-1]
    expected = ["check", *("./-dash" if name == "-dash" else name for name in NAMES), "0", ""]
    assert [os.fsdecode(word) for word in words] == expected


def test_steps_are_printed_with_their_time_and_kept() -> None:
    lines: list[str] = []
    steps = Steps(lines.append)
    with steps.step("check", Path("a b")):
        steps.report("two\nlines")
    assert lines[:2] == ["\n$ detaug check 'a b'", "  two\n  lines"]
    assert lines[2].endswith(" s")
    assert steps.commands == ["detaug check 'a b'"]


def test_the_command_that_trains_alone() -> None:
    prepared = Prepared(DataFile(Path("train.json"), Path("images")), DataFile(Path("val.json"), Path("other")))
    options = TrainOptions(
        Path("train.json"), Path("images"), Path("run"), val=Path("val.json"), val_images=Path("other"),
        model="keypointrcnn_resnet50_fpn", size=(320, 480), time=90.0, flip_pairs=[(0, 1), (2, 3)], epochs=7,
        amp=False, tensorboard=True,
    )  # fmt: skip
    words = shlex.split(command_text(*_train_words(options, prepared)))
    assert words[:6] == ["detaug", "train", "train.json", "images", "-o", "run"]
    flags = ("--no-amp", "--tensorboard")
    assert all(flag in words for flag in flags)
    words = [word for word in words if word not in flags]
    given = dict(zip(words[6::2], words[7::2], strict=True))
    assert given["--val"] == "val.json"
    assert given["--val-images"] == "other"
    assert given["--size"] == "320x480"
    assert given["--time"] == "1.5m"
    assert given["--flip-pairs"] == "0:1,2:3"
    assert given["--epochs"] == "7"
    options = TrainOptions(Path("a"), Path("b"), Path("c"), model="keypointrcnn_resnet50_fpn", flip_pairs=[])
    assert "--flip-pairs none" in command_text(*_train_words(options, prepared))


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, {"model": "ssdlite320_mobilenet_v3_large", "lr": 0.001, "optimizer": "adamw", "epochs": 60}),
        ({"optimizer": "sgd"}, {"model": "ssdlite320_mobilenet_v3_large", "lr": None, "optimizer": "sgd"}),
        ({"model": "fcos_resnet50_fpn"}, {"model": "fcos_resnet50_fpn", "lr": None, "epochs": 60}),
        ({"epochs": 3, "lr": 0.5}, {"epochs": 3, "lr": 0.5, "batch_size": 8}),
    ],
)
def test_defaults_are_those_of_the_device_and_the_optimizer(training: dict[str, Any], expected: dict[str, Any]) -> None:
    options = FolderOptions(DataOptions(Path("data")), Path("run"), {"device": "cpu"} | training)
    chosen = options.train_options(DataFile(Path("train.json"), Path("images")))
    assert {name: getattr(chosen, name) for name in expected} == expected


@pytest.mark.parametrize(("images", "ratios"), [(1, (1, 1)), (2, (1, 1)), (9, (8, 1)), (10, (80, 20)), (11, (80, 20))])
def test_a_fifth_is_for_the_validation(
    images: int, ratios: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = document()
    content["images"] = [
        content["images"][0] | {"id": number, "file_name": f"{number}.jpg"} for number in range(images)
    ]
    file = DataFile(write(tmp_path / "all.json", content), tmp_path)
    taken: list[Any] = []
    monkeypatch.setattr(prepare, "split_coco", lambda path, outputs, ratios, **_: taken.append(ratios))
    prepare._split(file, tmp_path, Steps(lambda line: None))
    assert taken == [ratios]
