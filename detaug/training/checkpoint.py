"""Checkpoints of `train`, from which a training resumes exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from detaug.errors import InputError
from detaug.loading.devices import rank_and_world
from detaug.named_options import option
from detaug.outputs.folder import checkpoint_path
from detaug.training.processes import is_first_rank
from detaug.training.state import Training
from detaug.training.torch_files import read_torch_file, versions, write_torch_file


def save_checkpoint(training: Training) -> None:
    """Write checkpoint.pt; every rank must call it. If it is interrupted, the checkpoint before stays."""
    training.write_losses()
    own = {"loader": training.loader.state_dict(), "random": _random_state(training.device)}
    ranks: list[Any] = [own]
    if dist.is_initialized():
        ranks = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, own)
    if is_first_rank():
        content = {
            "run": training.options.must_match(),
            "class_names": list(training.class_names),
            "step": training.step,
            "epochs": training.epochs,
            "evaluation": training.evaluation,
            "evaluated": training.evaluated,
            "best": training.best,
            "not_better": training.not_better,
            "evaluated_on": training.evaluated_on,
            "clock": training.timer.state_dict(),
            **training.optimization.state_dict(),
            "mean": training.detector.mean,
            "std": training.detector.std,
            "ranks": ranks,
            "versions": versions(),
        }
        write_torch_file(content, checkpoint_path(training.options.output))


def load_checkpoint(training: Training) -> float | None:
    """Go to the position of checkpoint.pt, of any number of processes. Raises InputError if it is of another training.

    Each process takes the loader's state and torch's random state of one of the processes before. Returns the best AP
    of the checkpoint where it is forgotten, since it is of other evaluation data.
    """
    path = checkpoint_path(training.options.output)
    content = read_torch_file(path)
    _check(path, content, training)
    ranks = content["ranks"]
    own = ranks[rank_and_world()[0] % len(ranks)]
    training.loader.load_state_dict(own["loader"])
    training.optimization.load_state_dict(content)
    training.timer.load_state_dict(content["clock"])
    training.step = content["step"]
    if training.options.time:
        training.set_epochs(content["epochs"])
    training.evaluation, training.evaluated = content["evaluation"], content["evaluated"]
    _set_random_state(own["random"], training.device)
    then, best = content.get("evaluated_on"), float(content["best"])  # then: not in checkpoints of 0.2.0 and before
    if then and training.evaluated_on and then != training.evaluated_on:
        return best
    training.best, training.not_better = best, content["not_better"]
    return None


def _check(path: Path, content: dict[str, Any], training: Training) -> None:
    if "run" not in content:
        raise InputError(f"{path} is not a checkpoint of detaug train; choose another {option('output')}")
    here = {**training.options.must_match(), "class_names": list(training.class_names)}
    then = {**content["run"], "class_names": content["class_names"]}
    if "warm_up" in then:  # as detaug 0.2 wrote it
        then["warmup_steps"] = then.pop("warm_up")
    for name, value in here.items():
        if then.get(name) != value:
            raise InputError(
                f"{path} was made with {name} {then.get(name)!r}, this training has {value!r}; make them equal, or "
                f"train on from its weights: {option('weights', str(path))} and another {option('output')}"
            )


def _random_state(device: torch.device) -> dict[str, Any]:
    state: dict[str, Any] = {"torch": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def _set_random_state(state: dict[str, Any], device: torch.device) -> None:
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
