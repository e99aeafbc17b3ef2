"""Optimize a model: optimizer, schedule, mixed precision, and one step."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from detaug.loading.devices import rank_and_world
from detaug.training.detectors import inputs_for
from detaug.training.model_table import MODELS
from detaug.training.options import TrainOptions


class StepLosses(NamedTuple):
    """The learning rate and the losses of one step; "loss" is their sum."""

    lr: float
    losses: dict[str, Tensor]


class Optimization:
    """A model with its optimizer, learning rate schedule, the average of its weights and, for float16, a scaler."""

    def __init__(self, model: nn.Module, options: TrainOptions, device: torch.device, steps: int) -> None:
        authors = options.as_authors
        self.model = model
        self.device = device
        self.optimizer = make_optimizer(model, authors)
        self.schedule = make_schedule(options, steps)
        self.clip_norm = authors.clip_norm
        self.amp_dtype = choose_amp_dtype(device) if options.amp else None
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.amp_dtype == torch.float16)
        self.decay = authors.ema
        self._average = AveragedModel(model, use_buffers=True) if authors.ema else None
        self._parallel = _in_parallel(model, device)
        self._finds = MODELS[options.model].finds

    @property
    def best_model(self) -> nn.Module:
        """Return the model to evaluate and to save: the average if there is one."""
        return self.model if self._average is None else self._average.module

    def step(self, batch: Any, number: int) -> StepLosses:
        """Train on a batch: losses, gradients, one step of the optimizer. `number`: the step, from 0."""
        lr = self.schedule(number)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group.get("lr_factor", 1.0)  # 0.2 wrote checkpoints without it
        self.model.train()
        with torch.autocast(self.device.type, self.amp_dtype) if self.amp_dtype else nullcontext():
            losses: dict[str, Tensor] = self._parallel(*inputs_for(self.model, batch, self._finds))
            loss = torch.stack(list(losses.values())).sum()
        self._update(loss)
        self._update_average(number)
        return StepLosses(lr, {"loss": loss.detach(), **{name: value.detach() for name, value in losses.items()}})

    def _update(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        torch.autograd.backward(self.scaler.scale(loss))
        if self.clip_norm:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def _update_average(self, number: int) -> None:
        """Take the weights and statistics after a step into the average.

        The decay grows with the steps, as TensorFlow's ExponentialMovingAverage with `num_updates`: the weights that
        the training starts from would count too much in a short one.
        """
        if self._average is not None and self.decay:
            decay = min(self.decay, (1 + number) / (10 + number))
            of_decay: Any = get_ema_multi_avg_fn
            self._average.multi_avg_fn = of_decay(decay)
            self._average.update_parameters(self.model)

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "average": None if self._average is None else self._average.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:  # empty where the checkpoint was computed in bfloat16 or float32
            self.scaler.load_state_dict(state["scaler"])
        if self._average is not None:
            self._average.load_state_dict(state["average"])


def make_optimizer(model: nn.Module, options: TrainOptions) -> torch.optim.Optimizer:
    """Build SGD or AdamW. Only matrices and kernels have weight decay, not biases and the weights of norms.

    A model may have groups of its own, with learning rates by part. `options`: those of `TrainOptions.as_authors`.
    """
    decay = options.weight_decay
    if hasattr(model, "parameter_groups"):  # of `DetrDetector`
        groups: list[dict[str, Any]] = model.parameter_groups(decay)  # type: ignore[operator]
    else:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        groups = [
            {"params": [parameter for parameter in parameters if parameter.ndim > 1], "weight_decay": decay},
            {"params": [parameter for parameter in parameters if parameter.ndim <= 1], "weight_decay": 0.0},
        ]
    if options.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=1.0)
    return torch.optim.SGD(groups, lr=1.0, momentum=options.momentum)


def make_schedule(options: TrainOptions, steps: int) -> Callable[[int], float]:
    """Return a function from the step, from 0, to the learning rate: linear warm-up, then half a cosine down to 0."""
    top = options.lr or _authors_lr(options.as_authors, options.batch_size * rank_and_world()[1])
    warmup_steps = min(500, steps // 10) if options.warmup_steps is None else options.warmup_steps

    def lr(step: int) -> float:
        if step < warmup_steps:
            return top * (step + 1) / warmup_steps
        return top * (1 + math.cos(math.pi * (step - warmup_steps) / max(1, steps - warmup_steps))) / 2

    return lr


def _authors_lr(options: TrainOptions, images: int) -> float:
    """Return the learning rate of the model's authors for other images per step; 0.0003 for AdamW in place of SGD."""
    row = MODELS[options.model]
    if options.optimizer != row.optimizer:
        return 0.0003
    ratio = images / row.images
    return row.lr * (ratio if options.optimizer == "sgd" else math.sqrt(ratio))


def choose_amp_dtype(device: torch.device) -> torch.dtype | None:
    """Return bfloat16 where the GPU has it, float16 for older ones, None (float32) for the CPU."""
    if device.type != "cuda":
        return None
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


def _in_parallel(model: nn.Module, device: torch.device) -> nn.Module:
    """Wrap the model so that its gradients are means over the ranks, if there are several."""
    if not dist.is_initialized():
        return model
    # A DETR has parts for denoising that a batch without objects does not use.
    return nn.parallel.DistributedDataParallel(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        find_unused_parameters=hasattr(model, "parameter_groups"),
    )
