"""Checkpoints of `train`: from one, a training goes on as if it had never ended."""

from __future__ import annotations

import io
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist

from detaug.loading.pipeline import rank_and_world
from detaug.training.detectors import read_torch_file

if TYPE_CHECKING:
    from detaug.training.train import Training


def save_checkpoint(run: Training) -> None:
    """Write checkpoint.pt; every rank must call it. A run that is killed meanwhile leaves the one before."""
    run.write_losses()
    own = {"loader": run.loader.state_dict(), "random": _random_state(run.device)}
    ranks: list[Any] = [own]
    if dist.is_initialized():
        ranks = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, own)
    if run.is_first:
        content = {
            "run": run.options.must_match(),
            "class_names": list(run.loader.class_names),
            "step": run.step,
            "evaluation": run.evaluation,
            "clock": asdict(run.clock),
            "model": run.model.state_dict(),
            "mean": run.detector.mean,
            "std": run.detector.std,
            "optimizer": run.optimizer.state_dict(),
            "scaler": run.scaler.state_dict(),
            "ranks": ranks,
        }
        write_torch_file(content, run.options.output / "checkpoint.pt")


def load_checkpoint(run: Training) -> None:
    """Go to where checkpoint.pt was written. Raises ValueError if it is of another training."""
    path = run.options.output / "checkpoint.pt"
    content = read_torch_file(path)
    _check(path, content, run)
    own = content["ranks"][rank_and_world()[0]]
    run.loader.load_state_dict(own["loader"])
    run.model.load_state_dict(content["model"])
    run.optimizer.load_state_dict(content["optimizer"])
    if content["scaler"]:  # none where it was computed in bfloat16 or float32
        run.scaler.load_state_dict(content["scaler"])
    run.step, run.evaluation = content["step"], content["evaluation"]
    run.clock = replace(run.clock, **content["clock"])
    _set_random_state(own["random"], run.device)


def write_torch_file(content: dict[str, Any], path: Path) -> None:
    """All of it or nothing. Raises OSError with the path, of a full disk too, of which torch.save does not speak."""
    partial, encoded = path.with_name(f".{path.name}.{os.getpid()}.partial"), io.BytesIO()
    torch.save(content, encoded)
    try:
        partial.write_bytes(encoded.getbuffer())
        partial.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        partial.unlink(missing_ok=True)


def _check(path: Path, content: dict[str, Any], run: Training) -> None:
    if "run" not in content:
        raise ValueError(f"{path} is not a checkpoint of detaug train; choose another --output")
    here = {**run.options.must_match(), "class_names": list(run.loader.class_names)}
    then = {**content["run"], "class_names": content["class_names"]}
    for name, value in here.items():
        if then.get(name) != value:
            raise ValueError(
                f"{path} was made with {name} {then.get(name)!r}, this run has {value!r}; "
                "make them equal, or choose another --output"
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
