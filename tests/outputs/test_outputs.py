"""No output of any command overwrites an input: a table of all commands and all their outputs."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import click
import pytest
from command import Result, detaug, usage_error
from PIL import Image
from voc_files import box_xml, devkit, voc_xml

from detaug import converters
from detaug.cli.main import cli
from detaug.converters import coco_to_dota, coco_to_yolo, pack_coco, voc_to_coco
from detaug.demo.videos import make_mot

INPUTS = {
    "annotations", "images", "labels", "root", "data", "shards", "file", "against", "recipe", "val", "val_images",
    "weights", "path", "model", "detections", "predictions", "image_folder", "verify",
}  # fmt: skip
"""Parameters that are files and folders to read."""

# command -> its other arguments, and for each parameter that names a file or folder to write, the option
OUTPUTS: dict[str, tuple[str, dict[str, str]]] = {
    "demo": ("", {"out": "--out"}),
    "convert": ("voc --from voc", {"output": "-o", "report": "--report"}),
    "convert-voc": ("voc", {"output": "-o", "report": "--report"}),
    "convert-yolo": ("yolo/data.yaml", {"output": "-o", "report": "--report"}),
    "convert-dota": ("dota/labelTxt dota/images", {"output": "-o", "report": "--report"}),
    "convert-mot": ("mot", {"output": "-o", "report": "--report"}),
    "convert-tfrecord": ("tfrecord/a-00000.tfrecord", {"output": "-o", "report": "--report", "extract": "--extract"}),
    "convert-webdataset": ("tars/a-00000.tar", {"output": "-o", "report": "--report", "extract": "--extract"}),
    "merge": (
        "a.json b.json --images voc/JPEGImages --images other/JPEGImages",
        {"output": "-o", "report": "--report"},
    ),
    "split": ("a.json --ratios 50,50 -o new-part.json", {"outputs": "-o"}),
    "tile": ("a.json voc/JPEGImages", {"output": "-o"}),
    "check": ("a.json voc/JPEGImages --against b.json", {"clean": "--clean", "report": "--report", "html": "--html"}),
    "preview": ("a.json voc/JPEGImages --recipe recipe.yaml", {"output": "-o"}),
    "import-recipe": ("albumentations.json", {"output": "-o"}),
    "train": (
        "a.json voc/JPEGImages --val b.json --val-images other/JPEGImages --recipe recipe.yaml --weights model.pt",
        {"output": "-o"},
    ),
    "evaluate": (
        "a.json voc/JPEGImages --detections found.json",
        {"output": "-o", "report": "--report", "html": "--html", "sheet": "--sheet", "label_errors": "--label-errors"},
    ),
    "export": ("model.pt --verify a.json voc/JPEGImages", {"output": "-o", "triton": "--triton"}),
    "predict": (
        "model.pt voc/JPEGImages",
        {"output": "-o", "drawings": "--drawings", "pre_labels": "--pre-labels labelme"},
    ),
    "bench": ("a.json voc/JPEGImages --seconds 0.1 --only nothing", {"json_file": "--json", "chart": "--chart"}),
    "tune": ("a.json voc/JPEGImages", {"output": "-o"}),
    "convert-coco-to-voc": ("a.json --images voc/JPEGImages", {"output": "", "report": "--report"}),
    "convert-coco-to-yolo": ("a.json --images voc/JPEGImages", {"output": "", "report": "--report"}),
    "convert-coco-to-dota": ("a.json --images voc/JPEGImages", {"output": "", "report": "--report"}),
    "convert-coco-to-labelme": ("a.json --images voc/JPEGImages", {"output": "", "report": "--report"}),
    "convert-coco-to-cvat": ("a.json --images voc/JPEGImages", {"output": "", "report": "--report"}),
    "convert-coco-to-label-studio": ("a.json --images voc/JPEGImages", {"output": "", "report": "--report"}),
    "convert-coco-to-csv": ("a.json --images voc/JPEGImages", {"output": "", "report": "--report"}),
    "pack": ("a.json voc/JPEGImages", {"output": "-o", "report": "--report"}),
}

NEEDED = {"-o": "new.json", "--out": "new-demo"}
"""What commands get for an output that is not the one tested."""

FOLDERS = [(command, name) for command, name in (
    ("demo", "out"), ("convert-tfrecord", "extract"), ("convert-webdataset", "extract"), ("train", "output"),
    ("predict", "drawings"), ("predict", "pre_labels"),
    ("convert-coco-to-voc", "output"), ("convert-coco-to-yolo", "output"), ("convert-coco-to-dota", "output"),
    ("convert-coco-to-labelme", "output"), ("convert-coco-to-cvat", "output"), ("convert-coco-to-csv", "output"),
    ("convert-coco-to-label-studio", "output"),
    ("pack", "output"), ("tile", "output"), ("export", "triton"),
)]  # fmt: skip

FILES = [(command, name) for command, (_, names) in OUTPUTS.items() for name in names if (command, name) not in FOLDERS]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with datasets in all formats, and in every folder of theirs files of someone else."""
    top = tmp_path_factory.mktemp("sandbox")
    for name, objects in (("voc", ("1", "2")), ("other", ("3", "4"))):
        devkit(top / name, {each: voc_xml(box_xml(1, 1, 9, 9)) for each in objects})
    for name, root in (("a", "voc"), ("b", "other")):
        voc_to_coco(top / root, top / f"{name}.json")
    (top / "albumentations.json").write_text('{"transform": {"__class_fullname__": "Compose", "transforms": []}}')
    (top / "recipe.yaml").write_text("- RandomHorizontalFlip\n")
    (top / "model.pt").write_bytes(b"weights")
    (top / "found.json").write_text("[]")
    coco_to_yolo(top / "a.json", top / "yolo", images=top / "voc/JPEGImages", with_images="copy")
    coco_to_dota(top / "a.json", top / "dota", images=top / "voc/JPEGImages", with_images="copy")
    for folder, shard_format in (("tars", "webdataset"), ("tfrecord", "tfrecord")):
        pack_coco(top / "a.json", top / "voc/JPEGImages", top / folder, format=shard_format)  # type: ignore[arg-type]
    make_mot(top / "mot")
    for folder in [top, *(path for path in top.rglob("*") if path.is_dir())]:
        add_foreign_files(folder)
    return top


def add_foreign_files(folder: Path) -> None:
    Image.new("RGB", (20, 10)).save(folder / "photo.jpg")
    Image.new("RGB", (20, 10)).save(folder / "predictions.jpg")
    (folder / "page.html").write_text("<html>notes</html>")
    (folder / "instances.json").write_text(json.dumps({"images": [], "annotations": [], "categories": []}))
    (folder / "labelme.json").write_text(json.dumps({"version": "5.0", "shapes": []}, indent=2))
    (folder / "link.json").symlink_to("photo.jpg")


def contents(folder: Path) -> dict[str, str]:
    """Return a digest of each file, links followed."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def here(sandbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "here"
    shutil.copytree(sandbox, copy, symlinks=True)
    monkeypatch.chdir(copy)
    return copy


def path_parameters(command: click.Command) -> set[str]:
    types = {str(each.name): getattr(each.type, "types", [each.type]) for each in command.params}  # of tuples, each
    return {name for name, kinds in types.items() if any(isinstance(kind, click.Path) for kind in kinds)}


def test_the_table_has_every_output() -> None:
    for name, command in cli.commands.items():
        outputs = path_parameters(command) - INPUTS
        assert outputs == set(OUTPUTS.get(name, ("", {}))[1]), f"{name}: add its outputs to OUTPUTS, inputs to INPUTS"


def run(command: str, name: str, target: object) -> Result:
    arguments, options = OUTPUTS[command]
    required = {str(each.name) for each in cli.commands[command].params if each.required}
    words = arguments.split()
    for output, option in options.items():
        if output == name:
            words += [*option.split(), str(target)]
        elif output in required and output not in ("outputs",):
            words += [option, NEEDED[option]] if option else ["new-folder"]
    return detaug(command, *words)


def inputs_of(command: str) -> list[Path]:
    """Return the files and folders that the arguments name."""
    return [path for word in OUTPUTS[command][0].split() if (path := Path(word)).exists()]


def victims(command: str) -> Iterator[Path]:
    """Yield every input file, and every file in an input folder."""
    for path in inputs_of(command):
        yield from [path] if path.is_file() else (each for each in path.rglob("*") if each.is_file())
        if path.suffix == ".yaml" and command == "convert-yolo":
            yield from (each for each in path.parent.rglob("*") if each.is_file())
        yield from path.parent.glob("*.idx")


@pytest.mark.parametrize(("command", "name"), FILES)
def test_no_file_written_is_an_input(here: Path, command: str, name: str) -> None:
    before = contents(here)
    for victim in sorted(set(victims(command))):
        result = run(command, name, victim)
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), victim
        assert str(victim) in result.err
    changed = {path for path, digest in contents(here).items() if before.get(path) != digest}
    assert not changed


@pytest.mark.parametrize(("command", "name"), FOLDERS)
def test_no_folder_written_loses_a_file(here: Path, command: str, name: str) -> None:
    before = contents(here)
    folders = {path if path.is_dir() else path.parent for path in inputs_of(command)} | {here}
    for folder in sorted(folders):
        run(command, name, folder)
    after = contents(here)
    assert {path: after.get(path) for path in before} == before


def test_pictures_and_pages_of_someone_else_are_kept_anywhere(here: Path) -> None:
    for arguments in (
        "preview a.json voc/JPEGImages -o {}/photo.jpg",
        "check a.json voc/JPEGImages --html {}/page.html",
    ):
        error = usage_error(*arguments.format("mot").split())
        assert "exists and was not written by detaug; give a new name, or move it away" in error


def test_what_detaug_wrote_is_written_again(here: Path) -> None:
    commands = (
        *("convert-voc voc -o voc/v.json --report voc/r.json", "convert-mot mot -o mot/m.json"),
        "check a.json voc/JPEGImages --clean voc/JPEGImages/c.json --report voc/JPEGImages/r.json",
        "check voc/JPEGImages/c.json voc/JPEGImages --html voc/JPEGImages/p.html",
        *(f"preview a.json voc/JPEGImages -o voc/JPEGImages/x{end} --rows 1" for end in (".png", ".jpg", ".webp")),
        "preview mot-clips.json mot -o mot/x.gif --frames 2 --rows 1",
    )
    assert detaug("convert-mot", "mot", "-o", "mot-clips.json").code == 0
    for command in commands * 2:
        result = detaug(*command.split())
        assert (result.code in (0, 1), result.err) == (True, ""), command


@pytest.mark.parametrize(("command", "name"), FILES + FOLDERS)
def test_a_name_with_a_line_break_is_refused_on_one_line(here: Path, command: str, name: str) -> None:
    """The folder that the output would be in is a file; the message names it, and nothing is written."""
    Path("a\nfile").write_text("notes")
    before = contents(here)
    for target in ("a\nfile/x.json", "a\nfile"):
        result = run(command, name, target)
        assert (result.code, result.err.count("\n")) == (2, 1), result.err
    assert contents(here) == before


def test_a_link_does_not_hide_an_input(here: Path) -> None:
    Path("hidden.json").symlink_to("a.json")
    Path("hidden.png").symlink_to("voc/JPEGImages/photo.jpg")
    Path("hard.json").hardlink_to("a.json")
    before = contents(here)
    for name in ("hidden.json", "hard.json", "voc/../hard.json"):
        assert "which is an input" in usage_error("check", "a.json", "voc/JPEGImages", "--clean", name)
    assert "all different, got ['a.json', 'hard.json']" in usage_error("merge", "a.json", "hard.json", "-o", "new.json")
    Path("hard.tar").hardlink_to("tars/a-00000.tar")
    error = usage_error("convert-webdataset", "tars/a-00000.tar", "hard.tar", "-o", "new.json")
    assert "shards must be different files, got tars/a-00000.tar twice" in error
    Path("a").mkdir()
    Path("a/a.json").hardlink_to("a.json")
    assert "a/a.json is the input and would be replaced" in usage_error("pack", "a.json", "voc/JPEGImages", "-o", "a")
    before = contents(here)
    assert "not written by detaug" in usage_error("preview", "a.json", "voc/JPEGImages", "-o", "hidden.png")
    assert contents(here) == before


def test_a_list_of_classes_is_no_json_and_so_no_output(here: Path) -> None:
    Path("names.json").write_text("cat\n")
    error = usage_error("convert-voc", "voc", "-o", "names.json", "--classes", "names.json")
    assert "names.json is a JSON file; give a text file with one name on each line" in error


@pytest.mark.parametrize("with_images", ["copy", "link"])
@pytest.mark.parametrize("name", ["voc", "yolo", "dota", "labelme", "cvat", "csv", "label_studio"])
def test_an_interrupted_export_leaves_nothing(here: Path, name: str, with_images: str) -> None:
    """Its images without label files would be images without objects."""
    export = getattr(converters, f"coco_to_{name}")

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    images = {"images": "voc/JPEGImages", "with_images": with_images}
    for folder in ("new-folder", "started"):
        if folder == "started":
            Path("started/images").mkdir(parents=True)
            Path("started/notes.md").write_text("mine")
        before = {*here.rglob("*")}, contents(here)
        with pytest.raises(KeyboardInterrupt):
            export("a.json", folder, **images, progress=interrupt)
        assert ({*here.rglob("*")}, contents(here)) == before
    assert export("a.json", "started", **images).images == 2


def test_two_splits_written_at_once_are_both_in_the_data_yaml(here: Path) -> None:
    other = Thread(target=coco_to_yolo, args=("b.json", "out"), kwargs={"split": "val"})

    def start_other(*_: int) -> None:
        other.start()
        other.join(1)  # it ends here where nothing makes it wait

    coco_to_yolo("a.json", "out", progress=start_other)
    other.join()
    assert "train: images/train\nval: images/val\n" in Path("out/data.yaml").read_text()
