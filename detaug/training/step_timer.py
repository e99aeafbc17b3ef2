"""Measure the time of training steps, and the part of it spent waiting for data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class StepTimer:
    """Seconds of the steps of this process, the part of them spent waiting for data, and the images trained on."""

    train: float = 0.0
    wait: float = 0.0
    images: int = 0
    start: float = field(default_factory=time.perf_counter)

    def batches(self, loader: Any, device: torch.device) -> Iterator[Any]:
        """Yield the batches of an epoch and measure the waiting; at the end, wait until the GPU has finished."""
        self.start = time.perf_counter()
        batches = iter(loader)
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            self.wait += time.perf_counter() - asked
            if batch is None:
                break
            yield batch
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self.add_step(0)

    def add_step(self, images: int) -> None:
        """Add the time since `start` as a step on `images` images, and start the next step."""
        now = time.perf_counter()
        self.train, self.start, self.images = self.train + now - self.start, now, self.images + images

    def rates(self) -> dict[str, float]:
        seconds = max(self.train, 1e-9)
        return {"images_per_second": float(f"{self.images / seconds:.4g}"), "waiting": round(self.wait / seconds, 4)}

    def state_dict(self) -> dict[str, Any]:
        return {"train": self.train, "wait": self.wait, "images": self.images}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.train, self.wait, self.images = state["train"], state["wait"], state["images"]
