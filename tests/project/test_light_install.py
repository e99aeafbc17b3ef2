"""The light install: what works without torch, DALI and Numba, and what the other commands say there.

A quick test hides the packages from this Python; a slow one, which `.ci/run` runs, makes such an environment.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from places import REPOSITORY

import detaug as da
from detaug.cli.main import cli
from detaug.packages import LEFT_OUT, PACKAGES, require

if sys.version_info >= (3, 11):
    import tomllib

REQUIREMENTS = REPOSITORY / "requirements/light.txt"
EVERYTHING = "torch, nvidia-dali-cuda120, numba"

LIGHT = """
convert-coco-to-voc train.json voc --split train --images images --with-images link
convert-coco-to-yolo train.json yolo --images images --with-images copy
convert-coco-to-yolo train.json segments --task segment
convert-coco-to-dota train.json dota --images images
convert-coco-to-labelme train.json labelme --images images --with-images link
convert-coco-to-cvat train.json cvat --images images --with-images link
convert-coco-to-label-studio train.json studio --images images
convert-coco-to-csv train.json table --images images
convert-voc voc -o voc.json --split train --jobs 2
convert-yolo yolo/data.yaml -o yolo.json
convert-dota dota/labelTxt images -o dota.json
convert-mot MOT -o mot.json
convert voc -o any.json --split train
convert labelme -o any-labelme.json
convert cvat -o any-cvat.json
convert studio/tasks.json -o any-studio.json --images images
convert table -o any-table.json --images images
formats
merge voc.json yolo.json -o merged.json --images voc/JPEGImages --images yolo/images/train
split train.json --ratios 50,50 -o a.json -o b.json
split train.json --ratios 50,50 -o c.json -o d.json --images images
check train.json images --clean clean.json --report report.json --html check.html
check mot.json MOT --html mot.html
check train.json images --near
"""
"""Commands that need nothing else."""

HEAVY = {
    "convert-tfrecord x.tfrecord -o x.json": ("reading or writing shards", "google-crc32c", "google-crc32c"),
    "convert-webdataset x.tar -o x.json": ("reading or writing shards", "google-crc32c", "google-crc32c"),
    "pack train.json images -o shards": ("reading or writing shards", "google-crc32c", "google-crc32c"),
    "check train.json images --decode": (
        "decoding every image (--decode)",
        "torch, nvidia-dali-cuda120",
        "detaug",
    ),
    "tile train.json images -o tiles --size 32": ("detaug tile", "torch, numba", "detaug"),
    "preview train.json images -o sheet.png": ("detaug preview", EVERYTHING, "detaug"),
    "import-recipe train.py:ops -o recipe.yaml": ("detaug import-recipe", "torch, nvidia-dali-cuda120", "detaug"),
    "train voc -o run": ("detaug train", f"{EVERYTHING}, torchvision", "'detaug[train]'"),
    "train train.json images -o run": ("detaug train", f"{EVERYTHING}, torchvision", "'detaug[train]'"),
    "evaluate train.json images --detections found.json": (
        "detaug evaluate",
        "torch, nvidia-dali-cuda120",
        "detaug",
    ),
    "predict found.json images": ("detaug predict", f"{EVERYTHING}, torchvision", "'detaug[train]'"),
    "export found.json -o model.onnx": (
        "detaug export",
        f"{EVERYTHING}, torchvision, onnx",
        "'detaug[train,export]'",
    ),
    "demo": ("detaug demo", EVERYTHING, "detaug"),
    "bench train.json images": ("detaug bench", EVERYTHING, "detaug"),
    "tune train.json images": ("detaug tune", EVERYTHING, "detaug"),
}
"""By the other commands: who needs which packages, and what pip is to install."""

DRIVER = """
import contextlib, io, json, sys

commands, hidden = json.load(sys.stdin)
sys.modules |= dict.fromkeys(hidden)  # None: an import fails, and find_spec finds nothing
tried = []

def watch(event, arguments):
    if event == "import" and arguments[0] in ("torch", "nvidia.dali", "numba", "torchvision"):
        tried.append(arguments[0])

sys.addaudithook(watch)
from detaug.cli.main import main

results = []
for command in commands:
    tried.clear()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            code = main(command.split())
        except Exception as error:
            code = repr(error)
    results.append([code, errors.getvalue(), [*tried]])
try:
    import detaug as da
    da.Loader
except da.InputError as error:
    results.append([isinstance(error, ImportError), str(error), []])
print(json.dumps(results))
"""


def write_dataset(folder: Path) -> None:
    """Write train.json, images, MOT with one sequence, and an empty found.json."""
    frames = folder / "MOT/one/img1"
    frames.mkdir(parents=True)
    (folder / "images").mkdir()
    entries: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(1, 5):
        image = Image.new("RGB", (64, 48), (50 * number, 90, 40))
        image.save(folder / f"images/{number:06}.jpg")
        image.save(frames / f"{number:06}.jpg")
        entries.append({"id": number, "file_name": f"{number:06}.jpg", "width": 64, "height": 48})
        ring = [4, 6, 24, 6, 24, 30, 4, 30]
        box = {"bbox": [4, 6, 20, 24], "area": 480, "segmentation": [ring], "iscrowd": 0}
        annotations.append({"id": number, "image_id": number, "category_id": 1 + number % 2, **box})
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    dataset = {"images": entries, "annotations": annotations, "categories": categories}
    (folder / "train.json").write_text(json.dumps(dataset))
    (folder / "found.json").write_text("[]")
    (folder / "MOT/one/gt").mkdir()
    (folder / "MOT/one/gt/gt.txt").write_text("".join(f"{frame},1,5,7,20,24,1,1,1\n" for frame in range(1, 5)))
    (folder / "MOT/one/seqinfo.ini").write_text(
        "[Sequence]\nname=one\nimDir=img1\nframeRate=25\nseqLength=4\nimWidth=64\nimHeight=48\nimExt=.jpg\n"
    )


def drive(python: str, folder: Path, hidden: Sequence[str], **variables: str) -> list[list[Any]]:
    """Return (exit code, text on stderr, heavy modules that were asked for) of each command in one process."""
    write_dataset(folder)
    commands = [*LIGHT.strip().split("\n"), *HEAVY]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(
        [python, "-c", DRIVER],
        input=json.dumps([commands, hidden]),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def check_results(results: list[list[Any]], folder: Path) -> None:
    light = LIGHT.strip().split("\n")
    for command, (code, error, tried) in zip(light, results, strict=False):
        assert (code, error, tried) == (0, "", []), command
    for (command, (what, names, installs)), (code, error, _) in zip(HEAVY.items(), results[len(light) :], strict=False):
        packages = "packages" if ", " in names else "package"
        line = f"detaug: {what} needs the {packages} {names}: pip install {installs}\n"
        assert (code, error) == (2, line), command
    assert results[-1] == [True, "da.Loader needs the package torch: pip install detaug", []]
    written = {path.name for path in folder.iterdir()}
    assert written.isdisjoint({"shards", "tiles", "run", "predictions", "demo"}), "nothing is half-written"
    assert {"check.html", "merged.json", "clean.json"} <= written


def test_every_command_is_tried() -> None:
    assert {line.split()[0] for line in (*LIGHT.strip().split("\n"), *HEAVY)} == {*cli.commands}


def test_light_commands_run_where_the_packages_are_hidden(tmp_path: Path) -> None:
    names = {*map(name_of, light_requirements())}
    hidden = [module for module, package in PACKAGES.items() if package.name not in names]
    assert {*LEFT_OUT, "torchvision", "onnx", "google_crc32c"} <= {*hidden}
    results = drive(sys.executable, tmp_path, hidden, PYTHONPATH=str(REPOSITORY))
    check_results(results, tmp_path)


@pytest.mark.slow
def test_light_commands_run_in_a_light_environment(tmp_path: Path) -> None:
    """The documented install. detaug is installed from a copy: a build leaves files beside the source."""
    venv, source, folder = tmp_path / "venv", tmp_path / "source", tmp_path / "work"
    python = str(venv / "bin/python")
    source.mkdir()
    for name in ("detaug", "converters"):
        shutil.copytree(REPOSITORY / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(REPOSITORY / name, source / name)
    make, install = [sys.executable, "-m", "venv", str(venv)], [python, "-m", "pip", "install", "-q"]
    if uv := shutil.which("uv"):
        make = [uv, "venv", "-q", "--python", sys.executable, str(venv)]
        install = [uv, "pip", "install", "-q", "--python", python]
    for command in (make, [*install, "--no-deps", str(source)], [*install, "-r", str(REQUIREMENTS)]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    folder.mkdir()
    check_results(drive(python, folder, ()), folder)


def project() -> dict[str, Any]:
    if sys.version_info < (3, 11):
        pytest.skip("tomllib is of Python 3.11")
    return dict(tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"])


def light_requirements() -> list[str]:
    return [line for line in REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]


def name_of(requirement: str) -> str:
    return re.split(r"[<>=;\[ ]", requirement)[0]


def test_the_light_requirements_are_those_of_the_project() -> None:
    left_out = {PACKAGES[module].name for module in LEFT_OUT}
    assert light_requirements() == [each for each in project()["dependencies"] if name_of(each) not in left_out]


def test_packages_are_in_the_extra_that_the_error_names() -> None:
    rows = project()
    extras = {"": rows["dependencies"], **rows["optional-dependencies"]}
    named = {(package.name, package.extra) for package in PACKAGES.values() if package.extra is not None}
    assert named <= {(name_of(row), extra) for extra, requirements in extras.items() for row in requirements}
    assert {name for name, extra in named if not extra} == {name_of(row) for row in rows["dependencies"]}


def test_what_is_missing_is_named_once_with_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchvision", "onnx", "tensorboard", "numba"):
        monkeypatch.setitem(sys.modules, name, None)
    require("this", "torch", "numpy")
    for modules, names, installs in (
        (("torchvision",), "package torchvision", "torchvision"),
        (("torch", "numba"), "package numba", "detaug"),
        (("numba", "torchvision", "onnx"), "packages numba, torchvision, onnx", "'detaug[train,export]'"),
        (("tensorboard",), "package tensorboard", "tensorboard"),
    ):
        with pytest.raises(da.InputError) as raised:
            require("this", *modules)
        assert str(raised.value) == f"this needs the {names}: pip install {installs}"
    monkeypatch.delitem(sys.modules, "numba")
    with pytest.raises(ModuleNotFoundError, match=r"^this needs .*: pip install 'detaug\[train\]', or that$"):
        require("this", "torchvision", otherwise="that")
