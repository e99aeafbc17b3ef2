"""Render one image on the CPU: with the CPU kernels alone, or in a DALI pipeline where an op has none."""

from __future__ import annotations

import os
from threading import Lock

import torch
from torch import Tensor

from detaug.compose.images import Pixels
from detaug.loading.array_pipeline import ArrayPipeline
from detaug.ops.cpu_kernels import run_kernels
from detaug.ops.recipe import Plan, Recipe


class ImageRenderer:
    """Renders one image after the other. It takes as long as its kernels do, or the 1 ms more that DALI takes."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._pipeline: ArrayPipeline | None = None
        self._process = 0
        self._lock = Lock()

    def render(self, pixels: Pixels, plan: Plan) -> Tensor:
        """Return an image (H, W, 3) after the recipe, (3, H, W)."""
        kernels = self._recipe.cpu_kernels
        if kernels is None:
            return self._in_pipeline(pixels, plan)
        fed = [(kernel, {name: plan.inputs[feed][0] for name, feed in inputs.items()}) for kernel, inputs in kernels]
        return run_kernels(pixels, fed, as_is="output" in self._recipe.stages)

    def _in_pipeline(self, pixels: Pixels, plan: Plan) -> Tensor:
        """Use one pipeline for all images. A forked process makes its own: it has none of the parent's threads."""
        with self._lock:
            if self._process != os.getpid():
                self._pipeline, self._process = ArrayPipeline(self._recipe, 1, torch.device("cpu")), os.getpid()
            assert self._pipeline
            (rendered,) = self._pipeline.run([pixels], plan.inputs)
        image = torch.from_numpy(rendered)
        channels_first = "output" in self._recipe.stages and not self._recipe.channels_last
        return image if channels_first else image.permute(2, 0, 1)
