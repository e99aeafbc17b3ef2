"""Several processes: shards of ranks, inside DistributedDataParallel, and a process that is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from command import PYTHON_WITH_USUAL_SIGNALS
from painted_files import Folder
from places import HELPERS, REPOSITORY
from semantic_files import paint_folder

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")},
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": f"{REPOSITORY}:{HELPERS}:{os.environ.get('PYTHONPATH', '')}",
}


Launch = Callable[..., subprocess.CompletedProcess[str]]


def torchrun_command(processes: int, program: str, *arguments: object) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [*launcher, str(HELPERS / program), *map(str, arguments)]


def torchrun(processes: int, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_alone(torchrun_command(processes, program, *arguments))


def forked_ranks(processes: int, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """As `torchrun`, in half the time: for what does not depend on the launcher."""
    command = [sys.executable, HELPERS / "forked_ranks.py", processes, HELPERS / program, *arguments]
    return run_alone([*map(str, command)])


def run_alone(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(("launch", "processes", "kill"), [(torchrun, 2, ["kill"]), (forked_ranks, 4, [])])
def test_processes_of_a_launcher(
    painted: Folder, tmp_path_factory: pytest.TempPathFactory, launch: Launch, processes: int, kill: list[str]
) -> None:
    out = tmp_path_factory.mktemp("out")
    run = launch(processes, "distributed_run.py", *painted, out, *kill)
    assert (run.returncode != 0) == bool(kill), run.stderr
    ranks = [json.loads((out / f"{rank}.json").read_text()) for rank in range(processes)]
    assert [each["shard"] for each in ranks] == [[rank, processes] for rank in range(processes)]
    check_training([each["train"] for each in ranks])
    ids = [i for each in ranks for batch in each["evaluation"] for i in batch]
    assert sorted(ids) == list(range(10, 31))
    assert all(batch for each in ranks for batch in each["evaluation"])
    assert all("after init_process_group" in each["too early"] for each in ranks)
    assert processes_of(out) == []


def check_training(ranks: list[list[list[dict]]]) -> None:
    """Equal steps and full batches on all ranks, all images in every epoch, the same gradients everywhere."""
    for epochs in zip(*ranks, strict=True):
        for steps in zip(*epochs, strict=True):
            assert {len(step["ids"]) for step in steps} == {2}
            assert all(step["gradient"] == steps[0]["gradient"] for step in steps)
            assert any(steps[0]["gradient"])
        assert {i for steps in epochs for step in steps for i in step["ids"]} == set(range(10, 31))


def processes_of(out: Path) -> list[str]:
    """Command lines of processes that were started for `out` and are still there."""
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.is_file()]
    return [command.decode() for command in commands if os.fsencode(out) in command]


INTERRUPTED = """
import sys
import detaug as da

# Python ignores a Ctrl-C that meets a finalizer, and the end of an epoch runs some: the epochs are long.
reader = da.ConcatReader([da.CocoReader(*sys.argv[1:3])] * 300)
loader = da.Loader(reader, [da.Resize((16, 16))], 4, device="cpu", pipelines=3)
while True:
    for batch in loader:
        print(len(batch), flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_ends_the_process(painted: Folder) -> None:
    command = [*PYTHON_WITH_USUAL_SIGNALS, "-c", INTERRUPTED, *map(str, painted)]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "4\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.slow
def test_lightning_goes_on_from_the_middle_and_the_end_of_an_epoch(painted: Folder, tmp_path: Path) -> None:
    """Also where the optimizer asks for the number of steps, and Lightning makes the loader too early.

    And where Lightning ends its epochs after four of six batches: the next one begins with the loader's next epoch.
    """
    if find_spec("lightning") is None:
        pytest.skip("Lightning is not installed")
    command = [sys.executable, str(HELPERS / "lightning_run.py"), *map(str, painted), str(tmp_path)]
    run = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=True)
    runs = json.loads(run.stdout.splitlines()[-1])
    assert [len(ids["whole"]) for ids in runs] == [18, 18, 12]
    for ids in runs:
        for step, rest in ids["rest"].items():
            assert rest == ids["whole"][int(step) :], step


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["statistics", "statistics-ema"])
def test_all_ranks_evaluate_the_model_that_is_saved(
    painted: Folder, tmp_path_factory: pytest.TempPathFactory, mode: str
) -> None:
    """On a CPU each rank has the statistics of its own images, and the first one's are saved."""
    out = tmp_path_factory.mktemp("out")
    run = forked_ranks(2, "train_run.py", *painted, out / "run", mode)
    assert run.returncode == 0, run.stderr
    first, second = ((out / f"{rank}.txt").read_text().splitlines() for rank in range(2))
    assert len(first) == 3 * 3  # batches of four of eleven images, three evaluations
    assert set(first) == set(second)
    saved = torch.load(out / "run/model.pt", weights_only=True)["model"]
    assert first[-1].endswith(f"{saved['features.1.running_mean'].tolist()} {saved['features.1.running_var'].tolist()}")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["retinanet_resnet50_fpn_v2", "rt-detr-v2-r18"])
def test_a_folder_is_prepared_once_and_trained_on_by_all(painted: Folder, tmp_path: Path, model: str) -> None:
    if model.startswith("rt") and find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    path = labels_beside(painted, tmp_path / "data")
    run = forked_ranks(2, "folder_run.py", path, tmp_path / "run", model)
    assert run.returncode == 0, run.stderr
    commands = [line.split()[2] for line in run.stdout.splitlines() if line.startswith("$ ")]
    assert commands == ["convert", "check", "split", "train", "evaluate"]
    for name in ("README.txt", "check.html", "evaluation.html", "predictions.jpg", "model.pt", "curves.html"):
        assert (tmp_path / "run" / name).is_file()
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    steps = -(-len(json.loads((tmp_path / "run/data/train.json").read_text())["images"]) // 4)  # of two ranks
    assert [line["step"] for line in lines if "loss" in line] == [*range(1, 2 * steps + 1)]
    assert len(lines) == 2 * steps + 2


@pytest.mark.slow
def test_maps_are_scored_by_all_ranks_together(tmp_path: Path) -> None:
    """As one process scores them; of five images, two processes of two each count one twice."""
    path = paint_folder(tmp_path / "data", 25)
    run = torchrun(2, "folder_run.py", path, tmp_path / "run", "lraspp_mobilenet_v3_large")
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    best = max(line["evaluation"]["semantic"]["mIoU"] for line in lines if "evaluation" in line)
    printed = run.stdout[run.stdout.index("$ detaug evaluate") :]
    assert f"mIoU {best:.3f}  accuracy" in printed
    assert len({line["evaluation"]["semantic"]["pixels"] for line in lines if "evaluation" in line}) == 1
    images = json.loads((tmp_path / "run/data/val.json").read_text())["images"]
    assert len(images) == 5
    known = sum(row["height"] * (row["width"] - 3) for row in images)  # three columns are ignored
    assert lines[-1]["evaluation"]["semantic"]["pixels"] == known


@pytest.mark.slow
def test_an_error_of_the_preparation_ends_all_ranks(painted: Folder, tmp_path: Path) -> None:
    path = labels_beside(painted, tmp_path / "data")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoint.pt").touch()
    run = forked_ranks(2, "folder_run.py", path, tmp_path / "run", "retinanet_resnet50_fpn_v2")
    assert run.returncode != 0
    assert_one_error(run, f"detaug: {tmp_path / 'run'} holds a training; --resume continues it, or choose another")
    shutil.rmtree(tmp_path / "run")
    (path / "00.png").write_bytes(b"no image")
    run = torchrun(2, "folder_run.py", path, tmp_path / "run", "retinanet_resnet50_fpn_v2")
    assert run.returncode != 0
    assert_one_error(run, "detaug: 00.png: is not an image that can be read")


def assert_one_error(run: subprocess.CompletedProcess[str], message: str) -> None:
    """Each rank that the launcher did not end before prints the same line, and none a traceback of its own."""
    lines = [line for line in run.stderr.splitlines() if line.startswith("detaug: ")]
    assert lines
    assert all(line.startswith(message) for line in lines)
    assert "detaug/workflow" not in run.stderr


def labels_beside(painted: Folder, folder: Path) -> Path:
    """Write a table of the boxes of painted images beside copies of these."""
    images, annotations = painted
    shutil.copytree(images, folder, ignore=shutil.ignore_patterns("*.json"))
    content = json.loads(Path(annotations).read_text())
    names = {row["id"]: row["file_name"] for row in content["images"]}
    lines = ["filename,class,xmin,ymin,xmax,ymax"]
    for row in content["annotations"]:
        x, y, width, height = row["bbox"]
        lines.append(f"{names[row['image_id']]},{row['category_id']},{x},{y},{x + width},{y + height}")
    (folder / "boxes.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["lightning", "accelerate"])
def test_a_framework_leaves_the_shards_alone(
    painted: Folder, tmp_path_factory: pytest.TempPathFactory, framework: str
) -> None:
    """Two processes, no shim; Lightning with `use_distributed_sampler` on and off."""
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    out = tmp_path_factory.mktemp("out")
    run = torchrun(2, "frameworks_run.py", framework, *painted, out)
    assert run.returncode == 0, run.stderr
    one, other = (json.loads((out / f"{rank}.json").read_text()) for rank in range(2))
    assert [len(ids) for ids in one] == [len(ids) for ids in other] == [4] * 6
    for epoch in (slice(0, 3), slice(3, 6)):
        assert {i for ids in [*one[epoch], *other[epoch]] for i in ids} == set(range(10, 31))
        assert sum(map(len, one[epoch] + other[epoch])) == 24  # 21, and three that come twice


@pytest.mark.slow
def test_ctrl_c_ends_all_processes_of_torchrun(painted: Folder, tmp_path_factory: pytest.TempPathFactory) -> None:
    """In the middle of an epoch of `train`; its last checkpoint stays."""
    out = tmp_path_factory.mktemp("out")
    command = torchrun_command(2, "train_run.py", *painted, out / "run", "endless")
    process = subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    assert process.stdout
    assert any(line.startswith("epoch 1/") for line in process.stdout)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    process.communicate(timeout=300)
    assert process.returncode != 0
    assert processes_of(out) == []
    assert (out / "run/checkpoint.pt").is_file()
