"""`detaug train PATH`: every file of a run, the printed commands, resuming, and what is refused before it begins."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from command import detaug, error_line, usage_error
from PIL import Image
from test_prepare import dataset

from detaug.cli.train import train
from detaug.workflow.prepare import DataFile, DataOptions
from detaug.workflow.train_folder import DEFAULTS, SMALL_DATA, FolderOptions

pytest.importorskip("torchvision")

pytestmark = pytest.mark.slow


def error_of(*words: str) -> str:
    """Return the one line of an error, which may come after lines of progress."""
    return error_line(detaug(*words))


FILES = {
    *("README.txt", "best.pt", "check.html", "checkpoint.pt", "curves.html", "data/all.json", "data/prepared.json"),
    *("data/train.json", "data/val.json", "evaluation.html", "metrics.jsonl", "model.pt", "predictions.jpg"),
    "train_batch.jpg",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder of a run of two steps, and what was printed."""
    root = tmp_path_factory.mktemp("trained")
    dataset(root / "data", [f"{number}.jpg" for number in range(5)])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        result = detaug("train", "data", "-o", "run", "--epochs", "1", "--batch-size", "2", "--device", "cpu")
    assert (result.code, result.err) == (0, "")
    return root, result.out


def test_every_file_is_there_and_named_in_the_readme(trained: tuple[Path, str]) -> None:
    root, _ = trained
    files = {path.relative_to(root / "run").as_posix() for path in (root / "run").rglob("*") if path.is_file()}
    assert files - {".lock", ".detaug-run"} == FILES
    readme = (root / "run/README.txt").read_text()
    assert all(name in readme for name in FILES - {"README.txt", "data/all.json", "data/prepared.json"})
    for name in ("train_batch.jpg", "predictions.jpg"):
        with Image.open(root / "run" / name) as image:
            assert min(image.size) > 100


def test_each_step_is_printed_as_a_command_that_runs_alone(
    trained: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, printed = trained
    monkeypatch.chdir(root)
    commands = [shlex.split(line[2:]) for line in printed.splitlines() if line.startswith("$ ")]
    assert [words[1] for words in commands] == ["convert", "check", "split", "train", "evaluate"]
    assert all(line in (root / "run/README.txt").read_text() for line in printed.splitlines() if line[:2] == "$ "[:1])
    for words in commands:
        if words[1] in ("check", "evaluate"):
            alone = [re.sub(r"^run/(?=\w+\.(html|jpg)$)", "alone-", word) for word in words[1:]]
            assert detaug(*alone).code == 0
    for name in ("check.html", "evaluation.html"):
        assert (root / f"alone-{name}").read_text() == (root / "run" / name).read_text()
    assert (root / "alone-predictions.jpg").read_bytes() == (root / "run/predictions.jpg").read_bytes()
    train = next(words for words in commands if words[1] == "train")
    assert train[2:6] == ["run/data/train.json", "data/images", "-o", "run"]
    assert train[train.index("--model") + 1] == "ssdlite320_mobilenet_v3_large"
    assert re.search(r"\n  \d+ s\n\n\$ detaug evaluate ", printed)


def test_the_readme_trains_on_with_the_same_options(trained: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    root, printed = trained
    monkeypatch.chdir(root)
    readme = (root / "run/README.txt").read_text().splitlines()
    assert f"What was done, in the folder {root}:" in readme
    (line,) = (line for line in readme if "--weights" in line)
    (train,) = (line[2:] for line in printed.splitlines() if line.startswith("$ detaug train "))
    assert line == f"{train.replace(' -o run ', ' -o run-2 ')} --weights run/best.pt"
    result = detaug(*shlex.split(line)[1:])
    assert (result.code, result.err) == (0, "")
    assert (root / "run-2/model.pt").is_file()


def test_resuming_does_no_step_again(trained: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    root, _ = trained
    monkeypatch.chdir(root)
    words = ("train", "data", "-o", "run", "--epochs", "1", "--batch-size", "2", "--device", "cpu")
    assert "run holds a training; --resume continues it" in error_of(*words)
    message = error_of(*words, "--resume", "--classes", "dog")
    assert "run was made with classes None, this command has ['dog']; make them equal" in message
    before = (root / "run/data/train.json").stat().st_mtime_ns
    result = detaug(*words, "--resume")
    commands = [shlex.split(line[2:])[1] for line in result.out.splitlines() if line.startswith("$ ")]
    assert commands == ["train", "evaluate"]
    assert (root / "run/data/train.json").stat().st_mtime_ns == before
    done = [line.split()[1] for line in (root / "run/README.txt").read_text().split("\n\n")[3].splitlines()]
    assert done == ["convert", "check", "split", "train", "evaluate"]


def test_the_help_names_the_defaults_of_the_code() -> None:
    """Of PATH, on a CPU and on a GPU; the others are those of FILE.json IMAGES."""
    helps = {option.name: str(getattr(option, "help", "")) for option in train.params}
    cpu, gpu = DEFAULTS["cpu"], DEFAULTS["cuda"]
    assert helps["model"].endswith(f"of PATH {gpu['model']}, on a CPU {cpu['model']}]")
    assert helps["lr"].endswith(f"of PATH on a CPU {cpu['lr']}]")
    assert helps["size"].endswith(f"of PATH on a GPU {gpu['size']}]")
    assert (cpu.keys(), gpu.keys()) == ({"model", "lr"}, {"model", "size"})
    for name, value in SMALL_DATA.items():
        assert helps[name].endswith(f"of PATH {value}]"), name
    options = FolderOptions(DataOptions(Path("a")), Path("run"), {"device": "cpu"})
    chosen = options.train_options(DataFile(Path("a.json"), Path("a")))
    assert {name: getattr(chosen, name) for name in SMALL_DATA} == SMALL_DATA
    assert (chosen.model, chosen.lr) == (DEFAULTS["cpu"]["model"], DEFAULTS["cpu"]["lr"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("data -o x --val a.json", "--val is for FILE.json IMAGES; the splits of PATH are found, or made"),
        ("data/a.json data/images -o x --from csv", "--from is for PATH alone; detaug convert and detaug check"),
        ("data/a.json data/images -o x --clean", "--clean is for PATH alone"),
        ("data -o x --time 5", "must be a number and a unit, such as 90s, 30m or 2h, got '5'"),
        ("data -o x --time 5m --epochs 3", "--time decides how many epochs there are; leave out --epochs"),
        ("data -o x --time 0s", "time must be seconds, above 0"),
        ("nowhere -o x", "nowhere does not exist; give a file or a folder of annotations"),
        ("data -o x --from no", "from must be one of"),
        ("data -o x --images nowhere", "images nowhere is not a folder"),
        ("data -o x --model keypointrcnn_resnet50_fpn", "keypoints"),
        ("data -o x --model maskrcnn_resnet50_fpn_v2", "segmentation"),
    ],
)
def test_what_does_not_fit_is_refused(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset(tmp_path / "data", ["0.jpg", "1.jpg"])
    (tmp_path / "data/a.json").write_text("{}") if "a.json" in words else None
    assert message in error_of("train", *words.split(), "--device", "cpu")
    assert not list(tmp_path.glob("x/*.pt"))


def test_a_mistake_that_needs_no_torch_is_said_before_it_is_loaded(
    trained: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained[0])
    Path("file").touch()
    for words, message in (
        (("data", "-o", "run"), "run holds a training; --resume continues it"),
        (("run/data/train.json", "data/images", "-o", "run"), "run holds a training; --resume continues it"),
        (("nowhere", "-o", "new"), "nowhere does not exist; give a file or a folder of annotations"),
        (("data", "-o", "file/run"), "file is a file, so file/run cannot be made"),
    ):
        assert message in usage_error("train", *words)  # nothing is printed before, as "loading torch" is


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("phase", "line"),
    [
        ("prepare.convert_to_coco", "stopped while preparing the data: the same command prepares them again"),
        ("prepare.check_to_html", "stopped while preparing the data: the same command prepares them again"),
        ("train_folder.evaluate_model", "stopped after the training: the same command with --resume evaluates"),
    ],
)
def test_ctrl_c_says_how_to_go_on(phase: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dataset(tmp_path / "data", [f"{number}.jpg" for number in range(4)])
    words = ["train", "data", "-o", "run", "--epochs", "1", "--batch-size", "2", "--device", "cpu"]
    with pytest.MonkeyPatch.context() as patch:
        module, _, name = phase.partition(".")
        patch.setattr(import_module(f"detaug.workflow.{module}"), name, interrupt)
        stopped = detaug(*words)
    assert (stopped.code, stopped.err.strip()) == (130, "detaug: interrupted")
    assert stopped.out.splitlines()[-1] == line
    again = detaug(*words, *(["--resume"] if "--resume" in line else []))
    assert (again.code, again.err) == (0, "")
    assert Path("run/evaluation.html").is_file()
