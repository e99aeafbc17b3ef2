"""`detaug train`: a training that is killed resumes exactly, alone and under torchrun."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import pty
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from command import PYTHON_WITH_USUAL_SIGNALS, detaug
from painted_files import Folder, paint_files
from PIL import Image
from places import HELPERS, REPOSITORY
from train_run import Tiny, options, tiny, train_plain

import detaug as da
from detaug.cli.main import main
from detaug.errors import InputError
from detaug.scoring import evaluate_model
from detaug.training import Detector, TrainOptions, load_model, train
from detaug.training.detectors import make_detector
from detaug.training.loaders import evaluation_resize, train_recipe
from detaug.training.model_table import MODELS
from detaug.training.optimization import make_optimizer, make_schedule
from detaug.training.torch_files import read_torch_file, write_torch_file
from detaug.training.weights import load_weights

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")},
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": f"{REPOSITORY}:{HELPERS}",
}


slow = pytest.mark.slow


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """21 painted images and their JSON file."""
    return paint_files(tmp_path_factory.mktemp("painted"))


@pytest.fixture
def folder(painted: Folder, tmp_path: Path) -> tuple[Folder, Path]:
    return painted, tmp_path


class Trained(NamedTuple):
    """A training that has ended: its output folder, the result, and the lines of its progress."""

    output: Path
    result: dict[str, Any]
    said: list[str]


@pytest.fixture(scope="module")
def trained(painted: Folder, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Train the tiny model for three epochs. Do not write into the folder."""
    output, said = tmp_path_factory.mktemp("trained") / "run", list[str]()
    result = train(options(*painted, output), make_model=tiny(), say=said.append)
    return Trained(output, result, said)


def run(painted: Folder, output: Path, **others: Any) -> dict[str, Any]:
    return train(options(*painted, output, **others), make_model=tiny(), say=lambda _: None)


def lines(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def losses(output: Path) -> list[tuple[int, float, float]]:
    return [(line["step"], line["lr"], line["loss"]) for line in lines(output) if "loss" in line]


def weights(output: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(output / "model.pt", weights_only=True)["model"]
    return found


# ---------------------------------------------------------------- files and lines


def test_the_files_of_a_training(trained: Trained) -> None:
    out, result, said = trained
    assert result["steps"] == 18  # 21 images, 4 at a time, 3 epochs
    assert result["images"] == 72
    assert 0 < result["wait"] < result["train"]
    assert [step for step, _, _ in losses(out)] == list(range(1, 19))
    (evaluation,) = [line for line in lines(out) if "evaluation" in line]
    assert evaluation["epoch"] == 3
    assert evaluation["evaluation"] == result["evaluation"]
    assert result["evaluation"]["images"] == 21
    model = torch.load(out / "model.pt", weights_only=True)
    assert set(model) == {"name", "size", "resize", "model", "mean", "std", "class_names", "versions", "unused_parents"}
    checkpoint = torch.load(out / "checkpoint.pt", weights_only=True)
    assert model["versions"] == checkpoint["versions"] == {"detaug": da.__version__, "torch": torch.__version__}
    with Image.open(out / "predictions.jpg") as picture:
        assert picture.width > 1000
    assert said[0] == "retinanet_resnet50_fpn_v2 on cpu: 21 images, 3 epochs of 6 steps per epoch, 4 images per step"
    assert said[1] == "making the pipelines and the first batch"
    assert said[2].startswith("epoch 1/3  step 3/18  loss ")
    assert said[-1].startswith(f"written: {out / 'model.pt'}. To predict with it:\n")
    assert sorted(path.name for path in out.iterdir()) == [
        *(
            ".detaug-run",
            "best.pt",
            "checkpoint.pt",
            "curves.html",
            "metrics.jsonl",
            "model.pt",
            "predictions.jpg",
            "train_batch.jpg",
        )
    ]


def test_each_line_has_all_losses_and_they_add_up(trained: Trained) -> None:
    for line in lines(trained.output):
        if "loss" in line:
            assert line["loss"] == pytest.approx(line["classification"] + line["bbox_regression"])


@slow
def test_evaluation_every_few_epochs_and_at_the_end(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    run(painted, out / "run", eval_every=2)
    assert [line["epoch"] for line in lines(out / "run") if "evaluation" in line] == [2, 3]


@slow
def test_the_first_step_too_has_a_share_of_waiting_and_a_rate(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    run(painted, out / "run", epochs=1, log_every=1)
    first, *_ = lines(out / "run")
    assert 0 < first["waiting"] < 1
    assert first["images_per_second"] > 0


@slow
def test_it_learns(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    run(painted, out / "run", epochs=8)
    values = [loss for _, _, loss in losses(out / "run")]
    assert sum(values[-6:]) < 0.9 * sum(values[:6])


# ---------------------------------------------------------------- resume


@slow
def test_a_training_that_is_killed_resumes_exactly(folder: tuple[Folder, Path], trained: Trained) -> None:
    painted, out = folder
    step = random.randrange(4, 18)
    command = [sys.executable, HELPERS / "train_run.py", *painted, out / "killed", step]
    done = subprocess.run([str(part) for part in command], env=ENVIRONMENT, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (out / "killed/checkpoint.pt").is_file()
    assert not (out / "killed/model.pt").exists()
    resumed = run(painted, out / "killed", resume=True)
    assert losses(out / "killed") == losses(trained.output), f"killed at step {step}"
    assert resumed["evaluation"] == trained.result["evaluation"]
    one, other = (weights(each) for each in (trained.output, out / "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@slow
@pytest.mark.parametrize(("where", "step"), [("wait-7", 7), ("wait-6", 6), ("wait-evaluation", 18)])
def test_ctrl_c_saves_a_checkpoint_and_names_resume(
    folder: tuple[Folder, Path], trained: Trained, where: str, step: int
) -> None:
    """In a step, in the last step of an epoch, in the evaluation: the training then resumes exactly."""
    painted, out = folder
    script = (HELPERS / "train_run.py", *painted, out / "run", where)
    command = [str(part) for part in (*PYTHON_WITH_USUAL_SIGNALS, *script)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENVIRONMENT}
    with subprocess.Popen(command, **pipes) as training:
        assert "waiting\n" in iter(training.stdout.readline, "")
        time.sleep(0.2)  # until it waits
        training.send_signal(signal.SIGINT)
        assert "stopping after this step; once more stops at once\n" in iter(training.stderr.readline, "")
        printed, errors = training.communicate(timeout=300)
    assert training.returncode == -signal.SIGINT, errors
    said = (
        f"stopped after step {step}, saved in {out / 'run/checkpoint.pt'}; the same command with resume=True continues"
    )
    assert printed.splitlines()[-1] == said
    assert not (out / "run/model.pt").exists()
    resumed = run(painted, out / "run", resume=True)
    assert losses(out / "run") == losses(trained.output)
    assert resumed["evaluation"] == trained.result["evaluation"]
    assert [line["epoch"] for line in lines(out / "run") if "evaluation" in line] == [3]


class Interrupting(Tiny):
    """Sends a signal in its third step, once or twice."""

    def __init__(self, num_classes: int, times: int, stop: signal.Signals) -> None:
        super().__init__(num_classes)
        self.times, self.stop = times, stop

    def forward(self, images: Any, targets: Any = None) -> Any:
        for _ in range(self.times if self.calls == 2 else 0):
            signal.raise_signal(self.stop)
        return super().forward(images, targets)


@pytest.fixture
def stop(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """Let a signal raise KeyboardInterrupt, as the command does."""
    before = signal.signal(request.param, signal.default_int_handler)
    yield request.param
    signal.signal(request.param, before)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM], indirect=True)
@pytest.mark.parametrize(("times", "step"), [(1, 3), (2, 2)])
def test_a_second_ctrl_c_stops_at_once(
    folder: tuple[Folder, Path], times: int, step: int, stop: signal.Signals
) -> None:
    painted, out = folder
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        train(
            options(*painted, out / "run", checkpoint_every=2),
            make_model=lambda _, classes: Detector(Interrupting(classes, times, stop)),
            say=said.append,
        )
    assert torch.load(out / "run/checkpoint.pt", weights_only=True)["step"] == step
    assert "the same command with resume=True continues" in said[-1]
    assert signal.getsignal(stop) is signal.default_int_handler


def test_a_checkpoint_is_on_the_disk(folder: tuple[Folder, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    painted, out = folder
    synced: list[Path] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    run(painted, out / "run", epochs=1)
    assert {path.name.split(".")[1] for path in synced if path.suffix == ".partial"} >= {"checkpoint", "model"}
    assert out / "run" in synced


@pytest.mark.parametrize("steps", [pytest.param(6, marks=slow), 7])
def test_a_training_interrupted_after_the_end_of_an_epoch_resumes(
    folder: tuple[Folder, Path], trained: Trained, steps: int
) -> None:
    """Interrupted a step after the checkpoint, the metrics file has a step that is done again."""
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
    assert losses(out / "run") == losses(trained.output)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.jsonl", b'{"epoch": 1, "loss": 0.5}\n', r"not written by detaug train, see its line 1"),
        ("metrics.jsonl", b'{"step": 5, "acc": 0.9}\n{"step": 6, "acc": 0.95}\n', r"see its line 1; move it away"),
        ("metrics.jsonl", b'{"step": 5, "lr": 0.9, "loss": 1}\n', r"not written by detaug train"),
        ("metrics.jsonl", b'{"step": 1, "lr": 1, "loss": 1, "images_per_second": 1}\n[1, 2]\n', r"see its line 2"),
        ("metrics.jsonl", b"\xff\xfe", r"see its line 1"),
        ("metrics.jsonl", b"7\n", r"see its line 1"),
        ("model.pt", b"mine", r"model\.pt exists without a checkpoint\.pt.*move it away, or choose another output"),
        ("best.pt", b"mine", r"best\.pt exists without a checkpoint\.pt"),
    ],
)
def test_files_of_another_program_stay(folder: tuple[Folder, Path], name: str, content: bytes, message: str) -> None:
    painted, out = folder
    (out / "run").mkdir(parents=True)
    (out / "run" / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        run(painted, out / "run")
    assert [(path.name, path.read_bytes()) for path in (out / "run").iterdir()] == [(name, content)]


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_biases_and_norms_have_no_weight_decay(folder: tuple[Folder, Path], optimizer: str) -> None:
    """Neither the default's nor a given one, as in torchvision's references for norms."""
    painted, out = folder
    settings = options(*painted, out / "run", optimizer=optimizer, weight_decay=0.5)
    model = Tiny(4)
    groups = make_optimizer(model, settings.as_authors).param_groups
    decays = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    found = {name: decays[id(parameter)] for name, parameter in model.named_parameters()}
    assert found == {
        "features.0.weight": 0.5, "features.0.bias": 0, "features.1.weight": 0, "features.1.bias": 0,
        "head.weight": 0.5, "head.bias": 0,
    }  # fmt: skip


def test_a_folder_has_one_training_at_a_time(folder: tuple[Folder, Path]) -> None:
    """The second one begins while the first is in its first step."""
    painted, out = folder
    errors: list[str] = []

    class Meets(Tiny):
        def forward(self, images: Any, targets: Any = None) -> Any:
            if self.training and self.calls == 1:
                with pytest.raises(InputError) as error:
                    run(painted, out / "run")
                errors.append(str(error.value))
            return super().forward(images, targets)

    train(options(*painted, out / "run"), make_model=lambda _, classes: Detector(Meets(classes)), say=lambda _: None)
    assert errors == [f"another process is writing to {out / 'run'}; choose another folder"]
    assert len(losses(out / "run")) == 18
    run(painted, out / "run", resume=True)


def test_an_error_keeps_no_view_of_what_was_not_written(tmp_path: Path) -> None:
    """CPython 3.12.0 and 3.12.1 die of SIGSEGV when they collect one of BytesIO that an error refers to."""
    (tmp_path / "model.pt").mkdir()
    with pytest.raises(OSError, match="model") as error:
        write_torch_file({"a": torch.zeros(9)}, tmp_path / "model.pt")
    frames = [frame for frame, _ in traceback.walk_tb(error.value.__traceback__)]
    kept = [value for frame in frames for value in [*frame.f_locals.values(), *frame.f_locals.get("chunks", ())]]
    views = [value for value in kept if isinstance(value, memoryview)]
    assert views
    for view in views:
        with pytest.raises(ValueError, match="released"):
            view.tobytes()


def test_a_checkpoint_of_another_training_is_refused(folder: tuple[Folder, Path], trained: Trained) -> None:
    painted, out = folder
    shutil.copytree(trained.output, out / "run")
    with pytest.raises(ValueError, match=r"holds a training; resume=True continues it"):
        run(painted, out / "run")
    with pytest.raises(
        ValueError, match=r"made with model 'retinanet_resnet50_fpn_v2', this training has 'fcos_resnet50"
    ):
        run(painted, out / "run", model="fcos_resnet50_fpn", resume=True)
    with pytest.raises(ValueError, match=r"made with lr 0\.05, this training has 0\.1; make them equal"):
        run(painted, out / "run", lr=0.1, resume=True)
    with pytest.raises(
        ValueError, match=r"epochs 3, this training has 9; .*weights=\"\S+checkpoint\.pt\" and another"
    ) as error:
        run(painted, out / "run", epochs=9, resume=True)
    (remedy,) = re.findall(r'weights="(\S+)"', str(error.value))
    run(painted, out / "longer", epochs=4, weights=Path(remedy))
    with pytest.raises(InputError, match=r"train_batch\.jpg is a file, so .*x cannot be made; give another folder"):
        run(painted, out / "run/train_batch.jpg/x")
    with pytest.raises(ValueError, match=r"this state has seed 0, this loader 1"):
        run(painted, out / "run", seed=1, resume=True)
    (out / "run/checkpoint.pt").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"checkpoint\.pt is not a file of torch\.save"):
        run(painted, out / "run", resume=True)


@slow
@pytest.mark.parametrize(
    ("name", "step"), [("checkpoint.pt", 6), ("metrics.jsonl", 6), ("predictions.jpg", 16), ("model.pt", 18)]
)
def test_a_full_disk_is_one_error_and_the_last_checkpoint_stays_whole(
    folder: tuple[Folder, Path], trained: Trained, name: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the seventh step on, the file to write, or its temporary file, is a link to /dev/full."""
    painted, out = folder
    path, metrics = out / "run" / name, out / "run/metrics.jsonl"
    hide = "detaug.files.atomic.temporary_path"
    monkeypatch.setattr(hide, lambda target: target.with_name(f".{target.name}.partial"))
    full = path if path == metrics else path.with_name(f".{name}.partial")
    before: list[str] = []

    class Full(Tiny):
        def forward(self, images: Any, targets: Any = None) -> Any:
            if self.training and self.calls == 6:
                before.append(metrics.read_text())
                full.unlink(missing_ok=True)
                full.symlink_to("/dev/full")
            return super().forward(images, targets)

    with pytest.raises(OSError, match="No space left on device") as raised:
        train(options(*painted, out / "run"), make_model=lambda _, classes: Detector(Full(classes)), say=lambda _: None)
    assert raised.value.filename == str(path)
    assert {path.name for path in (out / "run").glob(".*")} == {".detaug-run"}
    assert torch.load(out / "run/checkpoint.pt", weights_only=True)["step"] == step
    if path == metrics:
        metrics.unlink()
        metrics.write_text(before[0] + '{"step": 7, "lr')  # half a line, as a full disk leaves it
    resumed = run(painted, out / "run", resume=True)
    assert losses(out / "run") == losses(trained.output)
    assert resumed["evaluation"] == trained.result["evaluation"]


class Overflowing(Tiny):
    """Has a gradient too large for float16 at its tenth step. Records its weights of each step, and stops at `end`."""

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


@slow
def test_float16_skips_a_step_that_overflows(folder: tuple[Folder, Path], monkeypatch: Any) -> None:
    """As on a GPU without bfloat16: the scale of the loss is halved, and is in the checkpoint."""
    painted, out = folder
    monkeypatch.setattr("detaug.training.optimization.choose_amp_dtype", lambda _: torch.float16)
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
    moved = [not torch.equal(one, other) for one, other in pairwise(models["whole"].seen)]
    assert not moved[9]
    assert all(moved[10:])
    assert losses(out / "run") == losses(out / "whole")
    assert len(losses(out / "run")) == 18
    whole, run = (torch.load(out / name / "checkpoint.pt", weights_only=True) for name in ("whole", "run"))
    assert whole["scaler"] == run["scaler"]
    assert whole["scaler"]["scale"] == 2.0 ** (16 - moved.count(False))


def test_a_checkpoint_without_a_scale_resumes_in_float16(
    folder: tuple[Folder, Path], trained: Trained, monkeypatch: Any
) -> None:
    """A checkpoint of a GPU with bfloat16, on a GPU without."""
    painted, out = folder
    shutil.copytree(trained.output, out / "run")
    (out / "run/model.pt").unlink()
    monkeypatch.setattr("detaug.training.optimization.choose_amp_dtype", lambda _: torch.float16)
    run(painted, out / "run", resume=True)
    assert (out / "run/model.pt").is_file()


def in_two_processes(painted: Folder, output: Path, mode: str, *, killed: bool = False) -> str:
    """Return the output of two ranks."""
    script = HELPERS / "train_run.py"
    command = [str(part) for part in (sys.executable, HELPERS / "forked_ranks.py", 2, script, *painted, output, mode)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == killed, done.stderr
    return done.stdout


@slow
def test_two_processes(folder: tuple[Folder, Path]) -> None:
    """With gloo: equal steps, one metrics file, every image evaluated once."""
    painted, out = folder
    assert in_two_processes(painted, out / "two", "0").count("(9, 9, 'epoch 3/3  step 9/9  loss ") == 1
    assert [step for step, _, _ in losses(out / "two")] == list(range(1, 10))  # 21 images, 8 a step, 3 epochs
    (evaluation,) = [line["evaluation"] for line in lines(out / "two") if "evaluation" in line]
    assert (evaluation["images"], evaluation["repeated"]) == (21, 0)
    state = torch.load(out / "two/checkpoint.pt", weights_only=True)
    assert [each["loader"]["global_batch"] for each in state["ranks"]] == [8, 8]
    with pytest.raises(ValueError, match="made with batch_size x processes 8, this training has 4"):
        run(painted, out / "two", resume=True)


def in_one_process(painted: Folder, output: Path, mode: str) -> int:
    """Return the exit code of a process without a launcher."""
    command = [str(part) for part in (sys.executable, HELPERS / "train_run.py", *painted, output, mode)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=False).returncode


@pytest.fixture(scope="module")
def whole(painted: Folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train without batch norm and dropout, 8 images per step, in this process. Do not write into the folder."""
    output = tmp_path_factory.mktemp("whole") / "run"
    train_plain(*painted, output, batch_size=8)
    return output


@slow
def test_two_processes_begin_and_one_goes_on(folder: tuple[Folder, Path], whole: Path) -> None:
    """Killed in step 6, in the middle of the second epoch, and resumed from the checkpoint after step 4."""
    painted, out = folder
    in_two_processes(painted, out / "moved", "plain-6", killed=True)
    train_plain(*painted, out / "moved", batch_size=8, resume=True)
    trained_alike(out / "moved", whole)


@slow
def test_one_process_begins_and_two_go_on(folder: tuple[Folder, Path], whole: Path) -> None:
    painted, out = folder
    assert in_one_process(painted, out / "moved", "plain-6") == -signal.SIGKILL
    in_two_processes(painted, out / "moved", "plain-resume")
    trained_alike(out / "moved", whole)


def trained_alike(moved: Path, whole: Path) -> None:
    """Check the losses of each step and the weights: the same images at each step, whichever process has them."""
    assert [step for step, _, _ in losses(moved)] == list(range(1, 10))
    assert losses(moved) == [pytest.approx(each, rel=1e-5) for each in losses(whole)]
    torch.testing.assert_close(weights(moved), weights(whole))


# ---------------------------------------------------------------- settings


def test_warm_up_and_cosine(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    lr = make_schedule(options(*painted, out, lr=1.0, warmup_steps=10), 110)
    assert [lr(step) for step in (0, 4, 9, 10, 60)] == pytest.approx([0.1, 0.5, 1.0, 1.0, 0.5])
    assert 0 < lr(109) < 0.001
    default = make_schedule(options(*painted, out, lr=None, batch_size=8), 100)
    assert max(map(default, range(100))) == pytest.approx(0.005)  # torchvision's 0.01 for 16 images per step


@pytest.mark.parametrize("model", [name for name, row in MODELS.items() if row.finds != "semantic"])
def test_the_default_recipe_and_the_evaluation_have_one_size(folder: tuple[Folder, Path], model: str) -> None:
    painted, out = folder
    settings = TrainOptions(painted[1], painted[0], out, model=model)
    recipe = train_recipe(settings, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    (resize,) = [op for op in recipe if type(op).__name__ == "Resize"]
    assert resize.size == MODELS[model].size
    assert resize.max_size == (None if isinstance(resize.size, tuple) else 1333)


@pytest.mark.parametrize("ending", [[], [da.Normalize()], [da.Normalize(dtype="uint8")]])
def test_a_recipe_of_a_file_gets_the_normalization_of_the_evaluation(folder: tuple[Folder, Path], ending: Any) -> None:
    painted, out = folder
    out.mkdir(exist_ok=True)
    mean, std, ops = (0.4, 0.5, 0.6), (0.1, 0.2, 0.3), [da.Resize((64, 64)), *ending]
    settings = options(*painted, out, recipe=out / "recipe.json")
    da.save_recipe(ops, out / "recipe.json")
    assert train_recipe(settings, mean, std) == [da.Resize((64, 64)), da.Normalize(mean, std)]
    da.save_recipe(da.Stages([(0, ops), (3, ops)]), out / "recipe.json")
    stages = train_recipe(settings, mean, std)
    assert isinstance(stages, da.Stages)
    assert [ops[-1] for _, ops in stages.stages] == [da.Normalize(mean, std)] * 2


RETINANET, SSD = "retinanet_resnet50_fpn_v2", "ssd300_vgg16"
BOXED = {"letterbox": "center", "fill": (9.0, 8.0, 7.0)}


@pytest.mark.parametrize(
    ("ops", "model", "size", "expected", "warning"),
    [
        ([da.Resize((64, 96))], RETINANET, None, da.Resize((64, 96)), None),
        ([da.Resize((64, 96), **BOXED)], RETINANET, None, da.Resize((64, 96), **BOXED), None),
        ([da.Resize(600, max_size=700)], RETINANET, None, da.Resize(600, max_size=700), None),
        ([da.Resize(600, decode="scaled")], RETINANET, None, da.Resize(600), None),
        ([da.Resize((64, 96), **BOXED)], RETINANET, (64, 96), da.Resize((64, 96), **BOXED), None),
        (
            [da.Resize(600)],
            RETINANET,
            (32, 32),
            da.Resize((32, 32)),
            "recipe resizes to 600, .* at 32x32: leave out size",
        ),
        ([da.Resize((300, 300), **BOXED)], SSD, None, da.Resize((300, 300), **BOXED), None),
        (
            [da.Resize((512, 512), **BOXED)],
            SSD,
            None,
            da.Resize((300, 300), **BOXED),
            "resizes to 512x512, .* at 300x300: change its Resize to 300x300",
        ),
        ([da.Resize([(64, 96), (96, 64)])], RETINANET, None, da.Resize(800, max_size=1333), None),
        ([da.Resize([(64, 96), (96, 64)], **BOXED)], SSD, None, da.Resize((300, 300), **BOXED), None),
        ([da.Resize(400), da.CenterCrop(320)], RETINANET, (320, 320), da.Resize((320, 320)), None),
        ([da.RandomShortestSize((600, 800), 1333)], RETINANET, None, da.Resize(800, max_size=1333), None),
    ],
)
@pytest.mark.parametrize("in_stages", [False, True])
def test_the_evaluation_resizes_as_the_end_of_the_recipe(
    folder: tuple[Folder, Path], ops: Any, model: str, size: Any, expected: da.Op, warning: str | None, in_stages: bool
) -> None:
    painted, out = folder
    out.mkdir(exist_ok=True)
    first = [da.Resize((16, 16)), da.Normalize()]
    ops = [*ops, da.RandomHorizontalFlip()]
    da.save_recipe(da.Stages([(0, first), (1, ops)]) if in_stages else ops, out / "recipe.json")
    settings = options(*painted, out, recipe=out / "recipe.json", model=model, size=size)
    with contextlib.nullcontext() if warning is None else pytest.warns(UserWarning, match=warning):
        assert evaluation_resize(settings) == expected


@pytest.mark.slow
def test_a_letterbox_of_the_recipe_is_evaluated_and_saved(folder: tuple[Folder, Path]) -> None:
    """The images are wider than high, and their boxes at other places when they are stretched."""
    painted, out = folder
    out.mkdir(exist_ok=True)
    resize = da.Resize((64, 64), **BOXED)  # type: ignore[arg-type]
    da.save_recipe([da.RandomHorizontalFlip(), resize], out / "recipe.json")
    seen = list[torch.Tensor]()

    class Sees(Tiny):
        def forward(self, images: torch.Tensor, targets: Any = None) -> Any:
            if not self.training:
                seen.append(images)
            return super().forward(images, targets)

    settings = options(*painted, out / "run", recipe=out / "recipe.json", epochs=1, size=None)
    train(settings, make_model=lambda _, count, **__: Detector(Sees(count)), say=lambda _: None)
    content = torch.load(out / "run" / "model.pt", weights_only=True)
    reader = da.CocoReader(*painted)
    normalize = da.Normalize(content["mean"], content["std"])
    loader = da.Loader(reader, [resize, normalize], 4, device="cpu", train=False)
    assert all(torch.equal(batch.images, images) for batch, images in zip(loader, seen, strict=True))
    assert content["resize"] == {"size": (64, 64), "max_size": None, **BOXED}
    weights = make_detector(RETINANET, 3).model.state_dict()
    torch.save({**content, "class_names": ("background", "a", "b"), "model": weights}, out / "model.pt")
    assert da.load_model(out / "model.pt", "cpu").ops[0] == resize


def test_without_unused_parents(painted: Folder, tmp_path: Path) -> None:
    """A training, its resumption and its evaluation have the classes that are left."""
    document = json.loads(painted[1].read_text())
    for each in document["categories"]:
        each["supercategory"] = "toy"
    root = min(each["id"] for each in document["categories"]) - 1
    document["categories"].insert(0, {"id": root, "name": "toy", "supercategory": "none"})
    annotations = tmp_path / "parents.json"
    annotations.write_text(json.dumps(document))
    names = da.CocoReader(*painted).class_names
    folder = painted[0], annotations
    settings = options(*folder, tmp_path / "run", epochs=1, unused_parents="drop")
    counts = list[int]()

    def make(_: Any, count: int, **__: Any) -> Detector:
        counts.append(count)
        return Detector(Tiny(count))

    train(settings, make_model=make, say=lambda _: None)
    train(replace(settings, resume=True), make_model=make, say=lambda _: None)
    assert counts == [len(names)] * 2
    content = torch.load(tmp_path / "run" / "model.pt", weights_only=True)
    assert (tuple(content["class_names"]), content["unused_parents"]) == (names, "drop")
    weights = make_detector(RETINANET, len(names)).model.state_dict()
    torch.save({**content, "model": weights}, tmp_path / "model.pt")
    scores = evaluate_model(tmp_path / "model.pt", annotations, painted[0], device="cpu").metrics
    assert scores.images == 21
    torch.save({**content, "class_names": ("background", *names[:0:-1]), "model": weights}, tmp_path / "model.pt")
    with pytest.raises(InputError, match=f"has {names[1]}, {names[2]}"):
        evaluate_model(tmp_path / "model.pt", annotations, painted[0], device="cpu")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"unused_parents": "all"}, "unused_parents must be 'drop' or 'keep', got 'all'"),
        ({"model": "yolo"}, r"model must be one of ssd300_vgg16, .*, got 'yolo'"),
        ({"epochs": 0}, r"epochs must be at least 1, got 0"),
        (
            {"model": "ssdlite320_mobilenet_v3_large", "size": None, "batch_size": 1},
            r"batch_size must be at least 2 with",
        ),
        ({"lr": -1.0}, r"lr must be finite and above 0, got -1\.0"),
        ({"lr": float("nan")}, r"lr must be finite and above 0, got nan"),
        ({"weight_decay": float("inf")}, "weight_decay must be finite, got inf"),
        ({"seed": 2**63}, f"seed must be at most {2**63 - 1}, got {2**63}"),
        ({"momentum": 1.0}, r"momentum must be at least 0 and below 1, got 1\.0"),
        ({"momentum": 0.5, "optimizer": "adamw"}, r"momentum must be left out without optimizer 'sgd', got 0\.5"),
        ({"patience": 2}, r"patience must be 0 without val to evaluate on, got 2"),
        ({"val_images": Path("x")}, r"val_images must be left out without val, the JSON file of these images, got 'x'"),
        ({"optimizer": "lion"}, r"optimizer must be 'sgd' or 'adamw', got 'lion'"),
        ({"model": "ssd300_vgg16", "size": (512, 512)}, r"size of ssd300_vgg16 must be \(300, 300\), got \(512, 512\)"),
    ],
)
def test_wrong_arguments(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options(tmp_path, tmp_path / "a.json", tmp_path, val=None, **wrong)


def test_a_loss_that_is_not_finite_is_an_error(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    with pytest.raises(ValueError, match=r"the loss is nan at step \d+; lower lr, or raise warmup_steps"):
        run(painted, out / "run", lr=1e30, clip_norm=0.0, warmup_steps=0)


def test_evaluation_with_other_classes_is_refused(folder: tuple[Folder, Path]) -> None:
    painted, out = folder
    document = json.loads(painted[1].read_text())
    document["categories"][0]["name"] = "other"
    (out / "val.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"val\.json has the classes other, "):
        run(painted, out / "run", val=out / "val.json")


@pytest.mark.parametrize("crowds", [False, True])
def test_data_without_objects_are_refused(painted: Folder, tmp_path: Path, crowds: bool) -> None:
    """Else the AP is -1 in each evaluation, and patience stops the training."""
    document = json.loads(painted[1].read_text())
    document["annotations"] = [{**each, "iscrowd": 1} for each in document["annotations"]] if crowds else []
    empty = tmp_path / "empty.json"
    empty.write_text(json.dumps(document))
    for jsons in ((painted[1], empty), (empty, painted[1]), (empty, None)):
        with pytest.raises(
            da.InputError, match=r"empty\.json has no objects beside crowds, .*; give a JSON file that has"
        ):
            train(options(painted[0], jsons[0], tmp_path / "run", val=jsons[1]), make_model=tiny())
    assert not (tmp_path / "run").exists()


def test_the_remedy_for_other_classes(trained: Trained, painted: Folder, tmp_path: Path) -> None:
    """The command of the error, with the names of the training, also those without objects."""
    document = json.loads(painted[1].read_text())
    lost = document["categories"].pop(0)
    document["annotations"] = [each for each in document["annotations"] if each["category_id"] != lost["id"]]
    document["images"] = document["images"][:4]
    images = {each["id"] for each in document["images"]}
    document["annotations"] = [each for each in document["annotations"] if each["image_id"] in images]
    val = tmp_path / "val.json"
    val.write_text(json.dumps(document))
    with pytest.raises(da.InputError, match="the classes of the training, in their order") as raised:
        run(painted, tmp_path / "run", val=val)
    command = str(raised.value).rpartition("detaug ")[2]
    names, same = ",".join(da.CocoReader(*painted).class_names[1:]), tmp_path / "same.json"
    for word, value in {"FILE.json": str(val), "OUT.json": str(same), "a,b,c": shlex.quote(names)}.items():
        command = command.replace(word, value)
    assert detaug(*shlex.split(command)).code == 0
    evaluation = run(painted, tmp_path / "run", val=same, epochs=1)["evaluation"]
    assert evaluation["images"] == 4
    assert [*evaluation["AP_by_class"]] == [*trained.result["evaluation"]["AP_by_class"]]


# ---------------------------------------------------------------- the best model


def scripted(monkeypatch: pytest.MonkeyPatch, scores: list[float]) -> list[dict[str, torch.Tensor]]:
    """Let evaluations have these AP. Returns the weights at each evaluation."""
    seen: list[dict[str, torch.Tensor]] = []

    def evaluate(training: Any, *_: Any) -> None:
        seen.append({name: each.clone() for name, each in training.optimization.model.state_dict().items()})
        training.evaluation = {"AP": scores[len(seen) - 1], "AP50": 1.0}

    monkeypatch.setattr("detaug.training.loop.evaluate", evaluate)
    return seen


def test_the_best_model_is_kept(folder: tuple[Folder, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    painted, out = folder
    seen = scripted(monkeypatch, [0.1, 0.5, 0.5, 0.3])
    run(painted, out / "run", epochs=4, eval_every=1)
    best, last = (torch.load(out / "run" / name, weights_only=True)["model"] for name in ("best.pt", "model.pt"))
    assert all(best[name].equal(seen[1][name]) for name in best)
    assert all(last[name].equal(seen[3][name]) for name in last)


def test_training_stops_without_a_better_model(folder: tuple[Folder, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after it was resumed in between."""
    painted, out = folder
    seen = scripted(monkeypatch, [0.2, 0.1, 0.2, 0.0, 0.9])
    said: list[str] = []
    settings = options(*painted, out / "run", epochs=9, eval_every=1, patience=3)
    train(settings, make_model=tiny(), say=said.append)
    assert len(seen) == 4
    assert "stopped: no better AP than 0.200 in 3 evaluations" in said
    assert torch.load(out / "run/checkpoint.pt", weights_only=True)["not_better"] == 3
    train(replace(settings, resume=True), make_model=tiny(), say=said.append)
    assert len(seen) == 4


def test_other_evaluation_data_begin_anew(folder: tuple[Folder, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The AP of one JSON file says nothing about that of another, so that best.pt would stay for ever."""
    painted, out = folder
    scripted(monkeypatch, [0.9, 0.1, 0.2, 0.3])
    document = json.loads(painted[1].read_text())
    document["annotations"][-1]["bbox"][2] -= 1
    (out / "other.json").write_text(json.dumps(document))
    settings = options(*painted, out / "run", epochs=4, eval_every=1, patience=2)

    class Stops(Tiny):
        def forward(self, images: Any, targets: Any = None) -> Any:
            if self.calls == 13:
                raise KeyboardInterrupt
            return super().forward(images, targets)

    with pytest.raises(KeyboardInterrupt):
        train(settings, make_model=lambda _, classes: Detector(Stops(classes)), say=lambda _: None)
    assert torch.load(out / "run/checkpoint.pt", weights_only=True)["not_better"] == 1
    shutil.copytree(out / "run", out / "same")
    said: list[str] = []
    train(replace(settings, resume=True, val=out / "other.json"), make_model=tiny(), say=said.append)
    assert any(line.startswith("best.pt has AP 0.900 on other evaluation data") for line in said)
    last = torch.load(out / "run/checkpoint.pt", weights_only=True)
    assert (last["best"], last["not_better"], last["step"]) == (0.3, 0, 24)
    scripted(monkeypatch, [0.2, 0.3])
    train(replace(settings, output=out / "same", resume=True), make_model=tiny(), say=said.append)
    last = torch.load(out / "same/checkpoint.pt", weights_only=True)
    assert (last["best"], last["not_better"], last["step"]) == (0.9, 2, 18)


def test_the_first_batch_is_drawn(trained: Trained) -> None:
    with Image.open(trained.output / "train_batch.jpg") as picture:
        colors = {color for _, color in picture.convert("RGB").getcolors(1 << 24)}
    assert len(colors) > 100


# ---------------------------------------------------------------- weights, of the tiny model


def test_weights_of_another_head(folder: tuple[Folder, Path]) -> None:
    _, out = folder
    torch.save(Tiny(9).state_dict(), out / "weights.pt")
    detector, made, _ = load_weights(Detector(Tiny(4), mean_of_weights=(1.0, 2.0, 3.0)), out / "weights.pt")
    assert made == ["head.weight", "head.bias"]
    assert detector.mean == (1.0, 2.0, 3.0)
    assert torch.equal(detector.model.features[0].weight, torch.load(out / "weights.pt")["features.0.weight"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("classes", "lost", "message"),
    [
        (7, "", r"of its 6 class_names: 2 weights missing or of another shape, the first is .*cls_logits"),
        (3, "bbox_reg", r"of its 2 class_names: 2 weights missing or of another shape, the first is .*bbox_reg"),
        (3, "cls_logits", r"train with this file as --weights"),
    ],
)
def test_a_model_is_loaded_whole_or_not_at_all(tmp_path: Path, classes: int, lost: str, message: str) -> None:
    """A head that the file does not have would be random, and find other objects at each start."""
    weights = make_detector(RETINANET, 3).model.state_dict()
    kept = {name: value for name, value in weights.items() if not lost or lost not in name}
    content = {"name": RETINANET, "size": (64, 64), "class_names": [str(at) for at in range(classes)], "model": kept}
    torch.save(content, tmp_path / "model.pt")
    with pytest.raises(InputError, match=message):
        da.load_model(tmp_path / "model.pt", "cpu")
    detector = make_detector(RETINANET, classes)
    assert load_weights(detector, tmp_path / "model.pt").missing  # to train from it is allowed


def test_a_head_of_other_classes_is_named(folder: tuple[Folder, Path], trained: Trained) -> None:
    painted, out = folder
    content = torch.load(trained.output / "model.pt", weights_only=True)
    out.mkdir(exist_ok=True)
    torch.save({**content, "class_names": ["background", "cat", "dog", "cow"]}, out / "weights.pt")
    said: list[str] = []
    settings = options(*painted, out / "run", epochs=1, weights=out / "weights.pt")
    train(settings, make_model=tiny(), say=said.append)
    names = ", ".join(content["class_names"][1:])
    assert f"{out / 'weights.pt'}: its head for the classes cat, dog, cow is kept, and trained on {names}" in said


@slow
def test_weights_of_an_earlier_training(folder: tuple[Folder, Path], trained: Trained) -> None:
    painted, out = folder
    said: list[str] = []
    settings = options(*painted, out / "second", epochs=1, weights=trained.output / "model.pt")
    train(settings, make_model=tiny(), say=said.append)
    assert not any("head" in line for line in said)
    assert losses(trained.output)[0][2] > losses(out / "second")[0][2]


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
    monkeypatch.setitem(sys.modules, "torchvision", None)
    output = tmp_path_factory.mktemp("out") / "run"
    assert main(["train", str(painted[1]), str(painted[0]), "-o", str(output), "--device", "cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install 'detaug[train]'" in line
    assert not output.exists()


def test_a_torchvision_of_another_index(painted: Folder, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    """detaug[train] would not replace it: pip calls the requirement satisfied."""
    stub = tmp_path / "stub/torchvision/models.py"
    stub.parent.mkdir(parents=True)
    (stub.parent / "__init__.py").write_text("")
    stub.write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(str(stub.parents[1]))
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    output = tmp_path / "run"
    assert main(["train", str(painted[1]), str(painted[0]), "-o", str(output), "--device", "cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "does not fit torch" in line
    assert "operator torchvision::nms does not exist" in line
    assert "pip install --force-reinstall torch torchvision" in line
    assert not output.exists()
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]  # the stub, which later tests would find


@pytest.fixture
def shown(painted: Folder, tmp_path_factory: Any, monkeypatch: Any) -> Any:
    """Return a function that runs the command with the tiny model and returns the text on a terminal and in a file."""
    out, (ours, theirs) = tmp_path_factory.mktemp("out"), pty.openpty()
    monkeypatch.setattr("detaug.training.train", partial(train, make_model=tiny()))
    monkeypatch.setattr("detaug.training.progress.BAR_EVERY", 0.0)
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


# as a busy machine shows them too
RATE = r"[\d,]*\d(\.\d+)?"
TIME = r"\d+ (s|min)"


@slow
def test_a_terminal_has_a_bar(shown: Any) -> None:
    on_screen = [line.split("\r") for line in shown("terminal", "terminal")["terminal"].split("\r\n")]
    kept, end = on_screen[3:9], on_screen[-2]
    bars = r"\[(?:{})\]  epoch {}  step {}  loss \d\.\d+  " + RATE + r" images/s  wait \d+%  " + TIME + " left *"
    half, whole = bars.format("(#{2}-{3}|#{5}-{5})", "1/2", "6/12"), bars.format("#{5}|#{10}", "2/2", "12/12")
    measured = [r"\[#+-*\]  epoch 2/2  step \d+/12  .*", "an epoch takes about .*"]  # after ten steps
    patterns = [half, "evaluation  AP .*", *measured, whole, "evaluation  AP .*"]
    for line, pattern in zip(kept, patterns, strict=True):
        assert re.fullmatch(pattern, line[-1])
    assert re.findall(r"step (\d)/", "".join(kept[0])) == [*"12344566"]
    assert {len(drawn) for line in (kept[0], kept[4]) for drawn in line[1:]} == {79}
    assert end == ["end"]


@slow
@pytest.mark.parametrize(("stdout", "stderr"), [("terminal", "file"), ("file", "terminal")])
def test_a_file_has_lines(shown: Any, stdout: str, stderr: str) -> None:
    found = shown(stdout, stderr)
    first = r"epoch 1/2  step 4/12  loss \S+  lr \S+  "
    pattern = first + RATE + r" images/s per process  data wait \d+\.\d%  " + TIME + r" left\r?\n"
    *start, line = found[stdout].splitlines(keepends=True)[:4]
    assert [each.split()[0] for each in start] == ["loading", "retinanet_resnet50_fpn_v2", "making"]
    assert re.match(pattern, line)
    assert found[stderr] in ("", "end\r\n")


def test_the_command_refuses_a_wrong_size(painted: Folder, tmp_path: Path, capsys: Any) -> None:
    assert main(["train", str(painted[1]), str(painted[0]), "-o", str(tmp_path / "run"), "--size", "big"]) == 2
    assert "must be HxW pixels or the shorter side" in capsys.readouterr().err


@pytest.mark.parametrize("renamed", [1, 21])
def test_evaluation_images_in_another_folder_need_val_images(painted: Folder, tmp_path: Path, renamed: int) -> None:
    """Whether all their names are unknown in the folder of the training images, or some are there by chance."""
    data = json.loads(painted[1].read_text())
    for image in data["images"][:renamed]:
        image["file_name"] = "val/" + image["file_name"]
    (tmp_path / "val.json").write_text(json.dumps(data))
    with pytest.raises(da.AnnotationError, match=f"{renamed} of 21 images are not in .*val_images") as raised:
        run(painted, tmp_path / "run", val=tmp_path / "val.json")
    assert ("--clean" in str(raised.value)) == (renamed < 21)
    with pytest.raises(da.AnnotationError) as raised:
        run(painted, tmp_path / "run", val=tmp_path / "val.json", val_images=painted[0])
    assert "val_images" not in str(raised.value)


def test_the_command_names_val_images(painted: Folder, tmp_path: Path) -> None:
    (tmp_path / "val.json").write_text(painted[1].read_text().replace(".png", ".jpg"))
    output = tmp_path / "run"
    result = detaug("train", painted[1], painted[0], "--val", tmp_path / "val.json", "-o", output, "--device", "cpu")
    assert result.code == 2
    assert result.err.endswith("the first is '00.jpg'; give their folder with --val-images FOLDER\n")
    assert not output.exists()


@pytest.fixture(scope="module", autouse=True)
def few_threads() -> Any:
    """Use one thread: sums have one order, and tests do not compete for the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def real(name: str, num_classes: int) -> Detector:
    try:
        return make_detector(name, num_classes)
    except ValueError as error:
        pytest.skip(str(error))


@slow
def test_a_detector_takes_batches_without_resizing_them(painted: Folder) -> None:
    """torchvision's detector on raw images finds the boxes that ours finds on normalized ones."""
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


@slow
def test_the_command_trains_a_detector_of_torchvision(
    painted: Folder, tmp_path_factory: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real("ssdlite320_mobilenet_v3_large", 4)
    out = tmp_path_factory.mktemp("out")
    images, annotations = painted
    command = f"train {annotations} {images} --val {annotations} -o {out / 'run'} --device cpu"
    settings = "--model ssdlite320_mobilenet_v3_large --batch-size 10 --epochs 1"
    assert main(shlex.split(f"{command} {settings}")) == 0, capsys.readouterr().err
    before, _, snippet = capsys.readouterr().out.partition("To predict with it:\n\n")
    assert before.endswith(f"written: {out / 'run/model.pt'}. ")
    monkeypatch.chdir(out)
    exec(compile(snippet, "what train prints", "exec"), {})
    assert (out / "detections.jpg").is_file()
    assert "tensor(" in capsys.readouterr().out
    assert len(losses(out / "run")) == 3
    assert (out / "run/predictions.jpg").is_file()
    predicts_what_evaluation_finds(out / "run/model.pt", da.CocoReader(images, annotations))
    score = f"evaluate {annotations} {images} --model run/model.pt --device cpu --report score.json --html score.html"
    assert main(shlex.split(score)) == 0, capsys.readouterr().err
    last = json.loads((out / "run/metrics.jsonl").read_text().splitlines()[-1])["evaluation"]
    found = json.loads((out / "score.json").read_bytes())["metrics"]["bbox"]
    assert found["AP_by_class"] == pytest.approx(last["AP_by_class"], abs=1e-3)
    assert found["AP"] == pytest.approx(last["AP"], abs=1e-3)


def predicts_what_evaluation_finds(path: Path, reader: da.CocoReader) -> None:
    """Compare with the loader's images and `Batch.to_source`, on files with boxes cut at the edges of the image."""
    trained = load_model(path, device="cpu")
    assert trained.class_names == reader.class_names
    arrays = [np.asarray(Image.open(reader.path(at))) for at in range(1, 21)]
    predicted = trained.predict([reader.path(0), *arrays], min_score=0)
    for at, batch in enumerate(da.Loader(reader, trained.ops, 1, train=False, device="cpu")):
        with torch.no_grad():
            (found,) = trained.model(batch.images)
        height, width = batch.source_size[0].tolist()
        (boxes,) = batch.to_source([found["boxes"]])
        inside = boxes.clamp(min=0).minimum(torch.tensor([width, height] * 2))
        assert len(inside) > 0
        assert torch.allclose(predicted[at]["boxes"], inside, atol=1e-2)
        assert torch.allclose(predicted[at]["scores"], found["scores"], atol=1e-4)


class Own(torch.nn.Linear):
    """A module of the user's."""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"model": Own(2, 2)},
            r"holds Python objects \(test_train\.Own\) beside tensors, and reading it could run code; ",
        ),
        ({"model": {}, "mean": np.float64(1)}, r"holds Python objects \(numpy\.\S*scalar\) beside tensors"),
        (b"", "is not a file of torch.save, or is damaged$"),
        (b"hello\n", "is not a file of torch.save, or is damaged$"),
        (pickle.dumps({"os": os.system}), "is not a file of torch.save, or is damaged$"),
    ],
    ids=["module", "numpy", "empty", "text", "pickle"],
)
def test_no_message_advises_to_run_the_code_of_a_file(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "other.pt"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(ValueError, match=message) as caught:
        load_model(path)
    assert "weights_only" not in str(caught.value)
    assert "trust" not in str(caught.value)


def test_the_weights_alone_are_read(tmp_path: Path) -> None:
    """What the message about Python objects advises."""
    torch.save(Own(2, 2).state_dict(), tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"lacks name, size, class_names; .*, give them to detaug train as --weights$"):
        load_model(tmp_path / "other.pt")


def test_a_file_that_is_no_trained_model_is_refused(tmp_path: Path) -> None:
    torch.save({"model": {}}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"other.pt is not a model\.pt of detaug train: it lacks name"):
        load_model(tmp_path / "other.pt")


def damaged_copies(content: bytes) -> Iterator[bytes]:
    """Yield copies of a file with one flipped bit, and copies that are cut off."""
    for at in range(0, len(content), len(content) // 60):
        copy = bytearray(content)
        copy[at] ^= 1 << at % 8
        yield bytes(copy)
    for length in (0, 1, 3, 4, 100, len(content) // 2, len(content) - 1):
        yield content[:length]


def values_of(content: Any) -> Any:
    """Return a content of torch.save in a form that == compares."""
    if isinstance(content, torch.Tensor):
        return content.numpy().tobytes()
    if isinstance(content, dict):
        return {name: values_of(each) for name, each in content.items()}
    return [values_of(each) for each in content] if isinstance(content, list | tuple) else content


@pytest.mark.parametrize("name", ["model.pt", "best.pt", "checkpoint.pt"])
def test_damaged_files_are_refused_or_the_same(trained: Trained, tmp_path: Path, name: str) -> None:
    """A bit may be one of the padding between records, which says nothing. torch.load would take all others, too."""
    content, copy = (trained.output / name).read_bytes(), tmp_path / name
    wanted = values_of(read_torch_file(trained.output / name))
    errors = []
    for damaged in damaged_copies(content):
        copy.write_bytes(damaged)
        try:
            found = read_torch_file(copy)
        except InputError as error:
            errors.append(str(error))
        else:
            assert values_of(found) == wanted
    assert len(errors) > 30
    assert all(error.startswith(f"{copy} is ") and "\n" not in error for error in errors)


@pytest.mark.parametrize("cut", [False, True])
def test_a_damaged_checkpoint_leaves_the_training_as_it_is(painted: Folder, tmp_path: Path, cut: bool) -> None:
    out = tmp_path / "run"
    run(painted, out, epochs=1)
    path = out / "checkpoint.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content[: len(content) // 2] if cut else content)
    before = {each: each.read_bytes() for each in out.iterdir()}
    with pytest.raises(InputError, match=r"checkpoint\.pt is damaged or cut off, .*; copy or download it again"):
        run(painted, out, epochs=1, resume=True)
    assert {each: each.read_bytes() for each in out.iterdir()} == before


@pytest.mark.skipif(not hasattr(torch.serialization, "set_crc32_options"), reason="before torch 2.6")
def test_a_file_without_checksums_is_refused_and_the_remedy_works(tmp_path: Path) -> None:
    path = tmp_path / "other.pt"
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.arange(9)}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    with pytest.raises(InputError, match=r"write it again where torch\.serialization\.set_crc32_options\(True\)"):
        read_torch_file(path)
    torch.save(torch.load(path, weights_only=True), path)
    assert read_torch_file(path)["a"].tolist() == [*range(9)]


def test_files_of_the_form_before_zip_are_read(tmp_path: Path) -> None:
    torch.save({"a": torch.arange(9)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert read_torch_file(tmp_path / "old.pt")["a"].tolist() == [*range(9)]


def test_a_checkpoint_is_not_taken_for_a_model(trained: Trained) -> None:
    with pytest.raises(ValueError, match=r"is a checkpoint for --resume, and the models are best\.pt and model\.pt"):
        load_model(trained.output / "checkpoint.pt")


@pytest.mark.parametrize("model", ["retinanet_resnet50_fpn_v2", "fcos_resnet50_fpn"])
def test_the_background_is_no_detection(model: str) -> None:
    detector: Any = make_detector(model, 3).model.eval()
    logits = detector.head.classification_head.cls_logits
    torch.nn.init.zeros_(logits.weight)
    logits.bias.data = torch.tensor([0.0, 1, -9]).repeat(len(logits.bias) // 3)
    with torch.inference_mode():
        (found,) = detector(torch.zeros(1, 3, 64, 64))
    assert set(found["labels"].tolist()) == {1}
    assert len(found["boxes"]) == len(found["scores"]) == len(found["labels"])
