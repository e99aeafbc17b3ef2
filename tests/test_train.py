"""`detaug train`: a training that is killed goes on as if nothing had happened, alone and under torchrun."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import random
import re
import shlex
import signal
import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from painted_files import Folder
from PIL import Image
from train_run import Tiny, options, tiny, train_plain

from detaug.cli.main import main
from detaug.training.detectors import DETECTORS, Detector, load_weights, make_detector
from detaug.training.train import TrainOptions, schedule, train, train_recipe

HERE = Path(__file__).parent
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")},
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": f"{HERE.parent}:{HERE}",
}


@pytest.fixture
def folder(painted: Folder, tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, Path]:
    return painted, tmp_path_factory.mktemp("runs")


def run(painted: Folder, output: Path, **others: Any) -> dict[str, Any]:
    return train(options(*painted, output, **others), make_model=tiny(), say=lambda _: None)


def lines(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def losses(output: Path) -> list[tuple[int, float, float]]:
    return [(line["step"], line["lr"], line["loss"]) for line in lines(output) if "loss" in line]


# ---------------------------------------------------------------- what it writes


def test_what_a_training_leaves(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    said: list[str] = []
    result = train(options(*painted, out / "run", eval_every=2), make_model=tiny(), say=said.append)
    assert result["steps"] == 18  # 21 images, 4 at a time, 3 epochs
    assert result["images"] == 72
    assert 0 < result["wait"] < result["train"]
    assert [step for step, _, _ in losses(out / "run")] == list(range(1, 19))
    evaluations = [line for line in lines(out / "run") if "evaluation" in line]
    assert [line["epoch"] for line in evaluations] == [2, 3]
    assert evaluations[-1]["evaluation"] == result["evaluation"]
    assert result["evaluation"]["images"] == 21
    model = torch.load(out / "run/model.pt", weights_only=True)
    assert set(model) == {"model", "mean", "std", "class_names"}
    with Image.open(out / "run/predictions.png") as picture:
        assert picture.width > 1000
    assert said[0].startswith("epoch 1/3  step 3/18  loss ")
    assert sorted(path.name for path in (out / "run").iterdir()) == [
        *("checkpoint.pt", "metrics.jsonl", "model.pt", "predictions.png")
    ]


def test_each_line_has_all_losses_and_they_add_up(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    run(painted, out / "run", epochs=1)
    for line in lines(out / "run"):
        if "loss" in line:
            assert line["loss"] == pytest.approx(line["classification"] + line["bbox_regression"])


def test_the_first_step_too_has_a_share_of_waiting_and_a_rate(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    run(painted, out / "run", epochs=1, log_every=1)
    first, *_ = lines(out / "run")
    assert 0 < first["waiting"] < 1
    assert 0 < first["images_per_second"] < 1e5


def test_it_learns(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    run(painted, out / "run", epochs=8)
    values = [loss for _, _, loss in losses(out / "run")]
    assert sum(values[-6:]) < 0.9 * sum(values[:6])


# ---------------------------------------------------------------- killed, and on again


def test_a_training_that_is_killed_goes_on_as_if_nothing_had_happened(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    whole = run(painted, out / "whole")
    step = random.randrange(4, 18)
    command = [sys.executable, HERE / "train_run.py", *painted, out / "killed", step]
    done = subprocess.run([str(part) for part in command], env=ENVIRONMENT, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (out / "killed/checkpoint.pt").is_file()
    assert not (out / "killed/model.pt").exists()
    resumed = run(painted, out / "killed", resume=True)
    assert losses(out / "killed") == losses(out / "whole"), f"killed at step {step}"
    assert resumed["evaluation"] == whole["evaluation"]
    one, other = (torch.load(out / name / "model.pt", weights_only=True)["model"] for name in ("whole", "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("steps", [6, 7])
def test_a_training_that_is_interrupted_after_an_epochs_end_goes_on(folder: tuple[Folder, Path], steps: int) -> None:
    """At once, or a step later, which then stands in the metrics file and is done again."""
    painted, out = folder

    class Interrupted(Tiny):
        def forward(self, images: Any, targets: Any = None) -> Any:
            if targets is not None and self.calls == steps:
                raise KeyboardInterrupt
            return super().forward(images, targets)

    settings = options(*painted, out / "run", log_every=1)
    with pytest.raises(KeyboardInterrupt):
        train(settings, make_model=lambda _, classes: Detector(Interrupted(classes)), say=lambda _: None)
    assert torch.load(out / "run/checkpoint.pt", weights_only=True)["step"] == 6
    assert len(losses(out / "run")) == steps
    run(painted, out / "run", resume=True)
    run(painted, out / "whole")
    assert losses(out / "run") == losses(out / "whole")


def test_a_checkpoint_of_another_training_is_refused(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    run(painted, out / "run", epochs=1)
    with pytest.raises(ValueError, match=r"holds a training; --resume goes on with it"):
        run(painted, out / "run", epochs=1)
    with pytest.raises(ValueError, match=r"made with model 'retinanet_resnet50_fpn_v2', this run has 'fcos_resnet50"):
        run(painted, out / "run", epochs=1, model="fcos_resnet50_fpn", resume=True)
    with pytest.raises(ValueError, match=r"made with lr 0\.05, this run has 0\.1; make them equal"):
        run(painted, out / "run", epochs=1, lr=0.1, resume=True)
    with pytest.raises(ValueError, match=r"this state has seed 0, this loader 1"):
        run(painted, out / "run", epochs=1, seed=1, resume=True)
    (out / "run/checkpoint.pt").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"checkpoint\.pt is not a file of torch\.save"):
        run(painted, out / "run", epochs=1, resume=True)


@pytest.mark.parametrize(
    ("name", "step"), [("checkpoint.pt", 6), ("metrics.jsonl", 6), ("predictions.png", 16), ("model.pt", 18)]
)
def test_a_full_disk_is_one_error_and_the_checkpoint_before_it_is_whole(
    folder: tuple[Folder, Path], name: str, step: int
) -> None:
    """From the seventh step on, /dev/full stands in the place of what is to be written."""
    painted, out = folder
    path, metrics = out / "run" / name, out / "run/metrics.jsonl"
    partial = path if path == metrics else path.with_name(f".{name}.{os.getpid()}.partial")
    kept: list[str] = []

    class Full(Tiny):
        def forward(self, images: Any, targets: Any = None) -> Any:
            if self.training and self.calls == 6:
                kept.append(metrics.read_text())
                partial.unlink(missing_ok=True)
                partial.symlink_to("/dev/full")
            return super().forward(images, targets)

    with pytest.raises(OSError, match="No space left on device") as raised:
        train(options(*painted, out / "run"), make_model=lambda _, classes: Detector(Full(classes)), say=lambda _: None)
    assert raised.value.filename == str(path)
    assert not list((out / "run").glob(".*"))
    assert torch.load(out / "run/checkpoint.pt", weights_only=True)["step"] == step
    if path == metrics:
        metrics.unlink()
        metrics.write_text(kept[0] + '{"step": 7, "lr')  # what a full disk leaves
    resumed, whole = run(painted, out / "run", resume=True), run(painted, out / "whole")
    assert losses(out / "run") == losses(out / "whole")
    assert resumed["evaluation"] == whole["evaluation"]


class Overflowing(Tiny):
    """At its tenth step, float16 does not hold the gradient. Keeps its weights of each step, and stops at `end`."""

    def __init__(self, num_classes: int, end: int = 0) -> None:
        super().__init__(num_classes)
        self.end, self.seen = end, list[torch.Tensor]()

    def forward(self, images: Any, targets: Any = None) -> Any:
        if targets is not None:
            self.seen.append(self.head.weight.detach().clone())
        if self.end and self.calls == self.end:
            raise KeyboardInterrupt
        found = super().forward(images, targets)
        overflows = targets is not None and self.calls == 10
        return {name: loss * 1e6 for name, loss in found.items()} if overflows else found


def test_float16_leaves_out_a_step_that_overflows_and_goes_on(folder: tuple[Folder, Path], monkeypatch: Any) -> None:
    """As on a GPU without bfloat16: the scale of the loss is halved, and is in the checkpoint."""
    painted, out = folder
    monkeypatch.setattr("detaug.training.train.amp_type", lambda _: torch.float16)
    models = {name: Overflowing(4, end) for name, end in (("whole", 0), ("broken off", 14), ("resumed", 0))}

    def go(name: str, output: Path, **others: Any) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            model = lambda *_: Detector(models[name])  # noqa: E731
            train(options(*painted, output, **others), make_model=model, say=lambda _: None)

    for model in models.values():
        model.load_state_dict(models["whole"].state_dict())
    go("whole", out / "whole")
    go("broken off", out / "run")
    go("resumed", out / "run", resume=True)
    weights = models["whole"].seen
    moved = [not torch.equal(one, other) for one, other in pairwise(weights)]
    assert not moved[9]
    assert all(moved[10:])
    assert losses(out / "run") == losses(out / "whole")
    assert len(losses(out / "run")) == 18
    whole, run = (torch.load(out / name / "checkpoint.pt", weights_only=True) for name in ("whole", "run"))
    assert whole["scaler"] == run["scaler"]
    assert whole["scaler"]["scale"] == 2.0 ** (16 - moved.count(False))


def test_a_checkpoint_without_a_scale_goes_on_in_float16(folder: tuple[Folder, Path], monkeypatch: Any) -> None:
    """One of a GPU with bfloat16, on another one."""
    painted, out = folder
    run(painted, out / "run", epochs=1)
    (out / "run/model.pt").unlink()
    monkeypatch.setattr("detaug.training.train.amp_type", lambda _: torch.float16)
    run(painted, out / "run", epochs=1, resume=True)
    assert (out / "run/model.pt").is_file()


def torchrun(painted: Folder, output: Path, mode: str) -> str:
    """What two processes print."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [str(part) for part in (*launcher, HERE / "train_run.py", *painted, output, mode)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_processes(folder: tuple[Folder, Path]) -> None:
    """Under torchrun, with gloo: equal steps, one metrics file, every image evaluated once."""
    painted, out = folder
    assert torchrun(painted, out / "two", "0").count("(9, 9, 'epoch 3/3  step 9/9  loss ") == 1
    assert [step for step, _, _ in losses(out / "two")] == list(range(1, 10))  # 21 images, 8 a step, 3 epochs
    (evaluation,) = [line["evaluation"] for line in lines(out / "two") if "evaluation" in line]
    assert (evaluation["images"], evaluation["repeated"]) == (21, 0)
    state = torch.load(out / "two/checkpoint.pt", weights_only=True)
    assert [each["loader"]["shard"] for each in state["ranks"]] == [[0, 2], [1, 2]]
    with pytest.raises(ValueError, match="made with world_size 2, this run has 1"):
        run(painted, out / "two", resume=True)


def test_two_processes_train_as_one_with_the_doubled_batch(folder: tuple[Folder, Path]) -> None:
    """The same images at each step, half of them on each process: the same losses and the same weights."""
    painted, out = folder
    torchrun(painted, out / "two", "plain")
    train_plain(*painted, out / "one", batch_size=8)
    assert losses(out / "two") == [pytest.approx(each, rel=1e-5) for each in losses(out / "one")]
    one, two = (torch.load(out / name / "model.pt", weights_only=True)["model"] for name in ("one", "two"))
    torch.testing.assert_close(two, one)


# ---------------------------------------------------------------- settings


def test_warm_up_and_cosine(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    lr = schedule(options(*painted, out, lr=1.0, warm_up=10), 110)
    assert [lr(step) for step in (0, 4, 9, 10, 60)] == pytest.approx([0.1, 0.5, 1.0, 1.0, 0.5])
    assert 0 < lr(109) < 0.001
    default = schedule(options(*painted, out, lr=None, batch_size=8), 100)
    assert max(map(default, range(100))) == pytest.approx(0.005)  # torchvision's 0.01 for 16 images a step


@pytest.mark.parametrize("model", DETECTORS)
def test_the_default_recipe_and_the_evaluation_have_one_size(folder: tuple[Folder, Path], model: str) -> None:
    painted, out = folder
    settings = TrainOptions(painted[1], painted[0], out, model=model)
    recipe = train_recipe(settings, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    (resize,) = [op for op in recipe if type(op).__name__ == "Resize"]
    assert resize.size == DETECTORS[model].size
    assert resize.max_size == (None if "ssd" in model else 1333)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": "yolo"}, r"model must be one of ssd300_vgg16, .*, got 'yolo'"),
        ({"epochs": 0}, r"epochs must be at least 1, got 0"),
        ({"lr": -1.0}, r"lr must be above 0, got -1\.0"),
        ({"lr": float("nan")}, r"lr must be above 0, got nan"),
        ({"momentum": 1.0}, r"momentum must be at least 0 and below 1, got 1\.0"),
        ({"optimizer": "lion"}, r"optimizer must be 'sgd' or 'adamw', got 'lion'"),
        ({"model": "ssd300_vgg16", "size": (512, 512)}, r"ssd300_vgg16 takes \(300, 300\) alone, got size"),
    ],
)
def test_wrong_arguments(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options(tmp_path, tmp_path / "a.json", tmp_path, **wrong)


def test_a_loss_that_is_not_finite_ends_it(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    with pytest.raises(ValueError, match=r"the loss is nan at step \d+; lower --lr, or raise --warm-up"):
        run(painted, out / "run", lr=1e30, clip_norm=0.0, warm_up=0)


def test_evaluation_with_other_classes_is_refused(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    document = json.loads(painted[1].read_text())
    document["categories"][0]["name"] = "other"
    (out / "val.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"val\.json has the classes \('other', "):
        run(painted, out / "run", val=out / "val.json")


# ---------------------------------------------------------------- weights, of the tiny model


def test_weights_of_another_head(folder: tuple[Folder, Path]) -> None:
    _, out = folder
    torch.save(Tiny(9).state_dict(), out / "weights.pt")
    detector, made = load_weights(Detector(Tiny(4), mean_of_weights=(1.0, 2.0, 3.0)), out / "weights.pt")
    assert made == ["head.weight", "head.bias"]
    assert detector.mean == (1.0, 2.0, 3.0)
    assert torch.equal(detector.model.features[0].weight, torch.load(out / "weights.pt")["features.0.weight"])


def test_weights_of_an_earlier_training(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    run(painted, out / "first", epochs=1)
    said: list[str] = []
    settings = options(*painted, out / "second", epochs=1, weights=out / "first/model.pt")
    train(settings, make_model=tiny(), say=said.append)
    assert not any("head" in line for line in said)
    assert losses(out / "first")[0][2] > losses(out / "second")[0][2]


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    torch.save(torch.nn.Conv2d(3, 3, 3).state_dict(), tmp_path / "weights.pt")
    with pytest.raises(ValueError, match=r"weights\.pt does not fit the model: .* 'features\.0\.weight'"):
        load_weights(Detector(Tiny(4)), tmp_path / "weights.pt")
    torch.save({"model": {}}, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match=r"holds no state dict"):
        load_weights(Detector(Tiny(4)), tmp_path / "weights.pt")


# ---------------------------------------------------------------- the command, and torchvision


def test_without_torchvision_the_command_says_what_to_install(
    painted: Folder, tmp_path_factory: Any, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    output = tmp_path_factory.mktemp("out") / "run"
    assert main(["train", str(painted[1]), str(painted[0]), "-o", str(output), "--device", "cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install 'detaug[train]'" in line
    assert not output.exists()


@pytest.fixture
def shown(painted: Folder, tmp_path_factory: Any, monkeypatch: Any) -> Any:
    """Trains the tiny model by the command: what a terminal of 80 columns and a file then hold."""
    out, (ours, theirs) = tmp_path_factory.mktemp("out"), pty.openpty()
    monkeypatch.setattr("detaug.training.train.train", partial(train, make_model=tiny()))
    monkeypatch.setattr("detaug.training.train.BAR_EVERY", 0.0)
    monkeypatch.setenv("COLUMNS", "80")
    images, annotations = painted
    command = f"train {annotations} {images} --val {annotations} -o {out / 'run'} --device cpu --eval-every 1"
    settings = "--model retinanet_resnet50_fpn_v2 --size 32x32 --batch-size 4 --epochs 2 --log-every 4"

    def run(stdout: str, stderr: str) -> dict[str, str]:
        with open(theirs, "w") as terminal, open(out / "log", "w") as file, monkeypatch.context() as patch:
            to = {"terminal": terminal, "file": file}
            patch.setattr(sys, "stdout", to[stdout])
            patch.setattr(sys, "stderr", to[stderr])
            assert main(shlex.split(f"{command} {settings}")) == 0
            print("end", file=terminal)
        with open(ours, "rb", buffering=0) as screen:
            on_screen = screen.read(10_000)
            while not on_screen.endswith(b"end\r\n"):  # the system hands it over in pieces
                on_screen += screen.read(10_000)
        return {"terminal": on_screen.decode(), "file": (out / "log").read_text()}

    return run


def test_a_terminal_has_a_bar(shown: Any) -> None:
    *kept, end, _ = [line.split("\r") for line in shown("terminal", "terminal")["terminal"].split("\r\n")]
    bars = r"\[{}\]  epoch {}  step {}  loss \d\.\d+  \d+ images/s  waiting \d+\.\d% *"
    half, whole = bars.format("#{5}-{5}", "1/2", "6/12"), bars.format("#{10}", "2/2", "12/12")
    patterns = [half, "evaluation  AP .*", whole, "evaluation  AP .*"]
    for line, pattern in zip(kept, patterns, strict=True):
        assert re.fullmatch(pattern, line[-1])
    assert re.findall(r"step (\d)/", "".join(kept[0])) == [*"12344566"]
    assert {len(drawn) for line in kept[::2] for drawn in line[1:]} == {79}
    assert end == ["end"]


@pytest.mark.parametrize(("stdout", "stderr"), [("terminal", "file"), ("file", "terminal")])
def test_a_file_has_lines(shown: Any, stdout: str, stderr: str) -> None:
    found = shown(stdout, stderr)
    first = "epoch 1/2  step 4/12  loss "
    assert re.match(first + r"\S+  lr \S+  \d+ images/s a process  waiting \d+\.\d%\r?\n", found[stdout])
    assert found[stderr] in ("", "end\r\n")


def test_the_command_refuses_sizes_that_are_none(painted: Folder, tmp_path: Path, capsys: Any) -> None:
    assert main(["train", str(painted[1]), str(painted[0]), "-o", str(tmp_path / "run"), "--size", "big"]) == 2
    assert "must be HxW pixels or the shorter side" in capsys.readouterr().err


@pytest.fixture(scope="module", autouse=True)
def few_threads() -> Any:
    """Sums in one order, and no fight for the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def real(name: str, num_classes: int) -> Detector:
    try:
        return make_detector(name, num_classes)
    except ValueError as error:
        pytest.skip(str(error))


def test_a_detector_gets_batches_as_they_are(painted: Folder) -> None:
    """torchvision's own resizing and normalising, given the raw image, and ours, given what it would make of it."""
    ours = real("ssdlite320_mobilenet_v3_large", 4)
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    theirs = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4).eval()
    theirs.load_state_dict(ours.model.state_dict())
    images = torch.rand(2, 3, 320, 320)
    expected = theirs(list(images))[0]
    mean, std = (torch.tensor(each)[:, None, None] for each in (ours.mean_of_weights, ours.std_of_weights))
    found = ours.model.eval()((images - mean) / std)[0]
    assert len(found["boxes"]) > 10
    assert torch.allclose(found["boxes"], expected["boxes"], atol=1e-3)


def test_the_command_trains_a_detector_of_torchvision(painted: Folder, tmp_path_factory: Any, capsys: Any) -> None:
    real("ssdlite320_mobilenet_v3_large", 4)
    out = tmp_path_factory.mktemp("out")
    images, annotations = painted
    command = f"train {annotations} {images} --val {annotations} -o {out / 'run'} --device cpu"
    settings = "--model ssdlite320_mobilenet_v3_large --batch-size 10 --epochs 1"
    assert main(shlex.split(f"{command} {settings}")) == 0, capsys.readouterr().err
    assert len(losses(out / "run")) == 3
    assert (out / "run/predictions.png").is_file()
