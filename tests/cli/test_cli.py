"""The command line: what it prints where, its exit codes, and what it does not import."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from coco_files import document, write, write_images
from command import detaug, usage_error
from places import REPOSITORY
from voc_files import box_xml, devkit, voc_xml

import detaug as da
from detaug.cli.main import cli, main
from detaug.cli.meant_commands import ELSEWHERE
from detaug.converters import ConversionError, coco_to_yolo, split_coco
from detaug.errors import InputError
from detaug.named_options import on_command_line, option
from detaug.sheets.preview import preset_ops

RUN_AND_LIST = """if True:
    import json, sys
    from detaug.cli.main import main
    for arguments in json.loads(sys.argv[1]):
        assert main(arguments) == 0
    print([name for name in ("torch", "nvidia") if name in sys.modules])"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a dataset of two images, which tests only read."""
    xmls = {"a": voc_xml(box_xml(1, 1, 9, 9)), "b": voc_xml(box_xml(90, 1, 120, 9, name="dog"))}
    return devkit(tmp_path_factory.mktemp("cli") / "voc", xmls, splits={"train": "a\n"})


def test_convert_voc_prints_the_summary(root: Path, tmp_path: Path) -> None:
    output, report = tmp_path / "out.json", tmp_path / "report.json"
    result = detaug("convert-voc", root, "-o", output, "--report", report)
    assert (result.code, result.err) == (0, "")
    for text in ("2 images (0 without boxes), 2 boxes in 2 classes", "cat", "box-clipped", str(output), str(report)):
        assert text in result.out
    assert result.out.splitlines()[-1] == f'load it: da.CocoReader("{root / "JPEGImages"}", "{output}")'
    assert len(json.loads(output.read_bytes())["annotations"]) == 2


def test_every_option_reaches_the_function(root: Path, tmp_path: Path) -> None:
    classes, output = tmp_path / "classes.txt", tmp_path / "out.json"
    classes.write_text("\ufeffdog\r\n\r\ncat\r\n")
    options = ["--split", "train", "--classes", classes, "--origin", "zero", "--difficult", "crowd"]
    options += ["--unlabeled", "skip", "--on-error", "skip", "--jobs", "2", "--quiet"]
    options += ["--images", root / "JPEGImages", "--annotations", root / "Annotations"]
    assert detaug("convert-voc", root, "-o", output, *options) == (0, "", "")
    content = json.loads(output.read_bytes())
    assert [category["name"] for category in content["categories"]] == ["dog", "cat"]
    assert [row["bbox"] for row in content["annotations"]] == [[1, 1, 8, 8]]
    assert content["info"]["difficult"] == "crowd"


def test_classes_as_a_list(root: Path, tmp_path: Path) -> None:
    assert detaug("convert-voc", root, "-o", tmp_path / "out.json", "--classes", "dog, cat", "-q").code == 0
    content = json.loads((tmp_path / "out.json").read_bytes())
    assert [category["name"] for category in content["categories"]] == ["dog", "cat"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert-voc"], "Missing argument 'ROOT'."),
        (["convert-voc", "{root}"], "Missing option '-o'"),
        (["convert-voc", "nowhere", "-o", "x.json"], "nowhere is not a folder"),
        (["convert-voc", "{root}", "-o", "{root}/no/x.json"], "no does not exist"),
        (["convert-voc", "{root}", "-o", "x.json", "--split", "val"], "there are train"),
        (["convert-voc", "{root}", "-o", "x.json", "--origin", "two"], "'two' is not one of 'one', 'zero'."),
        (["convert-voc", "{root}", "-o", "x.json", "--jobs", "0"], "0 is not in the range x>=1"),
        (
            ["convert-voc", "{root}", "-o", "x.json", "--classes", "no.txt"],
            "classes file no.txt does not exist",
        ),
        (["convert-voc", "{root}", "-o", "x.json", "--classes", ","], "classes must name at least one class"),
        (["no-such-command"], "No such command 'no-such-command'; detaug --help lists the commands"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(root: Path, arguments: list[str], message: str) -> None:
    assert message in usage_error(*[argument.format(root=root) for argument in arguments])


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("val", "detaug evaluate"),
        ("detect", "detaug predict"),
        ("augment", "detaug preview"),
        ("data convert x", "detaug convert or detaug check"),
        ("trian", "detaug train"),
        ("Evaluate", "detaug evaluate"),
        ("convert_voc x", "detaug convert-voc"),
        ("tfrecord", "detaug convert-tfrecord"),
        ("labelme", "detaug convert-coco-to-labelme"),
        ("benchmrk", "detaug bench"),
    ],
)
def test_a_command_of_another_tool_or_misspelled(word: str, meant: str) -> None:
    assert usage_error(*word.split()) == f"detaug: No such command '{word.split()[0]}'; did you mean {meant}?\n"


def test_the_commands_that_are_named_exist() -> None:
    assert {name for names in ELSEWHERE.values() for name in names} <= {*cli.commands}
    assert not {*ELSEWHERE} & {*cli.commands}


def test_several_bad_files_are_one_line_each(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", dict.fromkeys("ab", "<annotation>\n<object>"))
    result = detaug("convert-voc", root, "-o", tmp_path / "out.json")
    lines = result.err.splitlines()
    assert (result.code, len(lines)) == (2, 3)
    assert "Annotations/a.xml:2: " in lines[0]
    assert "Annotations/b.xml:2: " in lines[1]
    assert "--on-error skip" in lines[2]
    assert not (tmp_path / "out.json").exists()


TO_IMAGES = "a command takes FILE.json IMAGES, Python da.CocoReader(images=IMAGES, annotations=FILE)"
TO_A_FOLDER = "a command takes FILE.json OUT_FOLDER, Python (annotations=FILE, output=OUT_FOLDER)"


@pytest.mark.parametrize(
    ("command", "order"),
    [
        *((name, TO_IMAGES) for name in ("check", "preview -o x.png", "bench", "tune", "train -o run")),
        *((name, TO_A_FOLDER) for name in ("convert-coco-to-voc", "convert-coco-to-yolo")),
    ],
)
def test_swapped_arguments_are_named_in_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, order: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "images")
    write(tmp_path / "train.json", document())
    expected = f"detaug: images is a folder in the place of the JSON file; {order}\n"
    assert usage_error(*command.split(), "images", "train.json") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "train.json"]


def test_swapped_arguments_are_named_in_python_and_names_help(tmp_path: Path) -> None:
    images, path = write_images(tmp_path / "images"), write(tmp_path / "train.json", document())
    with pytest.raises(da.AnnotationError, match=f"train.json is a file in the place of the folder; {TO_IMAGES[:9]}"):
        da.CocoReader(path, tmp_path / "other.json")
    assert len(da.CocoReader(annotations=path, images=images)) == 3
    in_order_of_commands = da.CocoReader(path, images)
    assert (in_order_of_commands.images, in_order_of_commands.annotations) == (images, path)


def test_a_folder_that_cannot_be_read_is_one_line(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/voc/Annotations")

    monkeypatch.setattr(os, "scandir", refuse)
    assert usage_error("convert-voc", root, "-o", root / "x.json") == "detaug: /voc/Annotations: Permission denied\n"


def test_interrupting_says_so(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    result = detaug("convert-voc", root, "-o", tmp_path / "x.json")
    assert (result.code, result.err.strip()) == (130, "detaug: interrupted")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("options", "shown"), [((), True), (("--quiet",), False)])
def test_the_progress_bar_is_for_terminals_only(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], shown: bool
) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.setenv("COLUMNS", "80")
    with open(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert main(["convert-voc", str(root), "-o", str(tmp_path / "out.json"), *options]) == 0
        terminal.write("end")
    with open(ours, "rb", buffering=0) as file:
        screen = file.read(10_000)
        while not screen.endswith(b"end"):  # the system hands it over in pieces
            screen += file.read(10_000)
    text = screen.decode()
    assert re.fullmatch(r"\r\[#{30}\]  reading  100% *\r\nend", text) if shown else text == "end"


def test_the_name_alone_shows_the_help() -> None:
    result = detaug()
    assert result.code == 0
    assert result.out.startswith("Usage: detaug ")


def test_the_version_is_printed() -> None:
    result = detaug("--version")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("detaug")


@pytest.mark.parametrize("device", ["gpu", "cuda:", "CPU"])
def test_other_devices_are_refused(device: str) -> None:
    error = usage_error("bench", "train.json", "images", "--device", device)
    assert f"must be cpu, cuda or cuda:N, got {device!r}" in error


def test_commands_on_json_load_neither_torch_nor_dali(root: Path, tmp_path: Path) -> None:
    images, content = write_images(tmp_path / "images"), write(tmp_path / "train.json", document())
    lines = [
        *(["--help"], ["--version"], ["convert-voc", "--help"]),
        ["convert-voc", str(root), "-o", str(tmp_path / "out.json")],
        ["check", str(content), str(images)],
    ]
    command = [sys.executable, "-c", RUN_AND_LIST, json.dumps(lines)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_the_module_is_the_command(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "detaug", "convert-voc", str(root), "-o", str(tmp_path / "out.json")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert (done.stdout.splitlines()[0], done.stderr) == ("2 images (0 without boxes), 2 boxes in 2 classes", "")
    failed = subprocess.run([*command, "--split", "no"], capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("detaug: split 'no' is not in ")


def test_the_installed_command() -> None:
    script = Path(sys.executable).with_name("detaug")
    if not script.is_file():
        pytest.skip("detaug is not installed beside this Python")
    result = subprocess.run([script, "no-such-command"], capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "detaug: No such command 'no-such-command'; detaug --help lists the commands\n"


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_has_help_with_an_example_in_80_columns(name: str) -> None:
    command = cli.commands[name]
    assert command.help is not None
    assert f"detaug {name}" in command.help
    assert all(option.help for option in command.params if isinstance(option, click.Option))
    assert max(map(len, detaug(name, "--help").out.splitlines())) <= 80


def test_the_help_lists_all_commands_in_sections_with_whole_summaries() -> None:
    sections = [text.splitlines() for text in detaug("--help").out.split("\n\n")[-4:]]
    assert {lines[0]: [line.split()[0] for line in lines[1:]] for lines in sections} == {
        "Data:": [
            *("convert", "formats", "convert-voc", "convert-yolo", "convert-dota", "convert-mot", "convert-tfrecord"),
            *("convert-webdataset", "merge", "split", "tile", "check"),
        ],
        "Train:": ["preview", "import-recipe", "train", "evaluate", "predict"],
        "Export:": [
            *("export", "convert-coco-to-voc", "convert-coco-to-yolo", "convert-coco-to-dota"),
            "convert-coco-to-labelme",
            *("convert-coco-to-cvat", "convert-coco-to-label-studio", "convert-coco-to-csv", "pack"),
        ],
        "Tools:": ["demo", "bench", "tune"],
    }
    for line in (line for lines in sections for line in lines[1:]):
        name, summary = line.split(maxsplit=1)
        assert len(summary) <= 45
        assert (cli.commands[name].help or "").startswith(summary)
        assert summary.endswith(".")
        assert not summary.endswith("...")


def test_the_help_lists_all_models_and_presets() -> None:
    from detaug.training.model_table import MODELS

    unwrapped = re.sub(r"-\n +", "-", detaug("train", "--help").out)  # click also breaks lines after hyphens
    words = unwrapped.replace(",", " ").replace(".", " ").split()
    assert set(MODELS) <= set(words)
    for name in ("preview", "bench", "tune"):
        assert "--preset [ssd300|retinanet|yolo640]" in detaug(name, "--help").out
    with pytest.raises(da.InputError, match=r"preset must be one of ssd300, retinanet, yolo640, .*, got 'no'"):
        preset_ops("no")


@pytest.mark.parametrize(
    ("words", "found"), [("detaug tr", {"train"}), ("detaug train a.json b --model fcos_re", {"fcos_resnet50_fpn"})]
)
def test_the_shell_completes_commands_and_models(words: str, found: set[str]) -> None:
    variables = {"_DETAUG_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-m", "detaug"]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, cwd=REPOSITORY)
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == found


@pytest.mark.parametrize("error", [ValueError, TypeError, KeyError])
def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    @click.command()
    def fail() -> None:
        raise error("a bug")

    monkeypatch.setitem(cli.commands, "fail", fail)
    with pytest.raises(error, match="a bug"):
        main(["fail"])


def test_wrong_input_is_one_error_class() -> None:
    for error in (da.AnnotationError, da.DataError, ConversionError):
        assert issubclass(error, da.InputError)
    with pytest.raises(da.InputError, match="max_ratio must be at least 1"):
        da.RandomZoomOut(max_ratio=0.5)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("preview a.json images -o a.png --crowded --smallest", "--smallest and --crowded show different images"),
        ("preview a.json images -o a.png --suspicious --crowded", "--crowded and --suspicious show different images"),
        ("preview a.json images -o a.png --stride 2", "--stride is for clips: give --frames, too"),
        ("evaluate a.json images --model model.pt --overlap 0.5", "--overlap is for tiles: give --tile, too"),
        ("tile a.json images -o tiles --quality 80", "format must be 'jpeg' with quality=80"),
        ("tile a.json images -o tiles --quality 80 --format png", "format must be 'jpeg' with quality=80"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(command: str, message: str) -> None:
    assert message in usage_error(*command.split())


DIGITS = "9" * 5000


@pytest.mark.parametrize(
    "order",
    [
        f"import-recipe p.json -o r.yaml --size {DIGITS}",
        f"import-recipe p.json -o r.yaml --size {DIGITS}x8",
        "import-recipe p.json -o r.yaml --set a==",
        "import-recipe p.json -o r.yaml --set a=[",
        "import-recipe p.json -o r.yaml --set a=2024-13-13",
        f"import-recipe p.json -o r.yaml --set a={DIGITS}",
        f"preview a.json images -o s.png --bands {DIGITS}",
        f"preview a.json images -o s.png --bands 0,{DIGITS}",
        f"train a.json images -o run --size {DIGITS}",
        f"bench a.json images --device cuda:{DIGITS}",
    ],
)
def test_a_value_that_no_parser_takes_is_a_usage_error(order: str) -> None:
    result = detaug(*order.split())
    assert (result.code, result.err.count("\n")) == (2, 1), result.err


def test_messages_name_arguments_as_the_user_gave_them(tmp_path: Path) -> None:
    """An option of a command, an argument in Python, of one fault."""
    path = write(tmp_path / "a.json", document())
    message = usage_error("convert-coco-to-yolo", path, tmp_path / "yolo", "--task", "pose")
    assert message.endswith("no annotation has keypoints; --task detect writes the boxes\n")
    with pytest.raises(InputError, match=r'no annotation has keypoints; task="detect" writes the boxes$'):
        coco_to_yolo(path, tmp_path / "yolo", task="pose")
    ratios = ("split", path, "-o", tmp_path / "b.json", "-o", tmp_path / "c.json", "--ratios", "0,0")
    assert usage_error(*ratios).startswith("detaug: --ratios must be")
    with pytest.raises(InputError, match=r"^ratios must be"):
        split_coco(path, [tmp_path / "b.json", tmp_path / "c.json"], [0, 0])
    assert option("on_error", "skip") == 'on_error="skip"', "the commands before have ended"
    with on_command_line():
        assert option("format", "voc", command="from") == "--from voc"
        assert option("with_images") == "--with-images"
    assert (option("size", "8x9", python="(8, 9)"), option("size")) == ("size=(8, 9)", "size")
