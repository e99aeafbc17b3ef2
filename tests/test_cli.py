"""The command line: what it prints where, its exit codes, and what it does not import."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from voc_files import box_xml, devkit, voc_xml

from detaug.cli.main import cli, main

REPOSITORY = Path(__file__).parents[1]
RUN_AND_LIST = """if True:
    import sys
    from detaug.cli.main import main
    main(sys.argv[1:])
    print([name for name in ("torch", "nvidia") if name in sys.modules])"""


def detaug(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "detaug.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    xmls = {"a": voc_xml(box_xml(1, 1, 9, 9)), "b": voc_xml(box_xml(90, 1, 120, 9, name="dog"))}
    return devkit(tmp_path / "voc", xmls, splits={"train": "a\n"})


def test_convert_voc_prints_the_summary(root: Path, tmp_path: Path) -> None:
    output, report = tmp_path / "out.json", tmp_path / "report.json"
    result = detaug("convert-voc", root, "-o", output, "--report", report)
    assert (result.returncode, result.stderr) == (0, "")
    for text in (
        "2 images (0 without boxes), 2 boxes in 2 classes",
        "cat",
        "box-clipped",
        str(output),
        str(report),
    ):
        assert text in result.stdout
    assert result.stdout.splitlines()[-1] == f'load it: da.CocoReader("{root / "JPEGImages"}", "{output}")'
    assert len(json.loads(output.read_bytes())["annotations"]) == 2


def test_every_option_reaches_the_function(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "classes.txt").write_text("\ufeffdog\r\n\r\ncat\r\n")
    options = [
        "--split",
        "train",
        "--classes",
        str(tmp_path / "classes.txt"),
        "--origin",
        "zero",
        "--difficult",
        "crowd",
    ]
    options += ["--unlabelled", "skip", "--on-error", "skip", "--jobs", "2", "--quiet"]
    options += ["--images", str(root / "JPEGImages"), "--annotations", str(root / "Annotations")]
    assert main(["convert-voc", str(root), "-o", str(tmp_path / "out.json"), *options]) == 0
    document = json.loads((tmp_path / "out.json").read_bytes())
    assert [category["name"] for category in document["categories"]] == ["dog", "cat"]
    assert [row["bbox"] for row in document["annotations"]] == [[1, 1, 8, 8]]
    assert document["info"]["difficult"] == "crowd"
    assert capsys.readouterr() == ("", "")


def test_classes_as_a_list(root: Path, tmp_path: Path) -> None:
    assert main(["convert-voc", str(root), "-o", str(tmp_path / "out.json"), "--classes", "dog, cat", "-q"]) == 0
    document = json.loads((tmp_path / "out.json").read_bytes())
    assert [category["name"] for category in document["categories"]] == ["dog", "cat"]


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
        (["no-such-command"], "No such command 'no-such-command'."),
        (["--no-such-option"], "No such option"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(root: Path, arguments: list[str], message: str) -> None:
    result = detaug(*[argument.format(root=root) for argument in arguments])
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("detaug: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_several_bad_files_are_one_line_each(root: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (root / f"Annotations/{name}.xml").write_text("<annotation>\n<object>")
    result = detaug("convert-voc", root, "-o", tmp_path / "out.json")
    lines = result.stderr.splitlines()
    assert (result.returncode, len(lines)) == (2, 3)
    assert "Annotations/a.xml:2: " in lines[0]
    assert "Annotations/b.xml:2: " in lines[1]
    assert "--on-error skip" in lines[2]
    assert not (tmp_path / "out.json").exists()


def test_a_folder_that_cannot_be_read_is_one_line(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/voc/Annotations")

    monkeypatch.setattr(os, "scandir", refuse)
    assert main(["convert-voc", str(root), "-o", str(root / "x.json")]) == 2
    assert capsys.readouterr().err == "detaug: /voc/Annotations: Permission denied\n"


def test_interrupting_says_so(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    assert main(["convert-voc", str(root), "-o", str(root / "x.json")]) == 130
    assert capsys.readouterr().err.strip() == "detaug: interrupted"
    assert not [path for path in root.iterdir() if path.is_file()]


def test_the_progress_bar_is_for_terminals_only(root: Path, tmp_path: Path) -> None:
    def stderr_of(*options: str) -> str:
        ours, theirs = pty.openpty()
        command = [
            sys.executable,
            "-m",
            "detaug.cli.main",
            "convert-voc",
            str(root),
            "-o",
            str(tmp_path / "out.json"),
            *options,
        ]
        subprocess.run(command, stderr=theirs, stdout=subprocess.DEVNULL, cwd=REPOSITORY, check=True)
        os.write(theirs, b"end")
        os.close(theirs)
        with open(ours, "rb", buffering=0) as file:
            return file.read(10_000).decode()

    assert "100%" in stderr_of()
    assert stderr_of("--quiet") == "end"


def test_the_name_alone_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("Usage: detaug ")


def test_help_is_quick_and_loads_neither_torch_nor_dali() -> None:
    for arguments in (["--help"], ["--version"], ["convert-voc", "--help"]):
        start = time.perf_counter()
        command = [sys.executable, "-c", RUN_AND_LIST, *arguments]
        result = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
        assert time.perf_counter() - start < 0.5
        assert result.stdout.splitlines()[-1] == "[]"


def test_convert_voc_loads_neither_torch_nor_dali(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN_AND_LIST, "convert-voc", str(root), "-o", str(tmp_path / "out.json")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_has_help_with_an_example(name: str) -> None:
    command = cli.commands[name]
    assert command.help is not None
    assert f"detaug {name}" in command.help
    assert all(option.help for option in command.params if isinstance(option, click.Option))
