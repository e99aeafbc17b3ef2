"""Render arrays: in a DALI pipeline, or one image with the CPU kernels alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from nvidia.dali import fn
from torch import Tensor

from detaug.ops.cpu_kernels import run_kernels
from detaug.ops.op import Arrays, Node
from detaug.ops.pipeline_worker import PipelineWorker
from detaug.ops.recipe import Plan, Recipe
from detaug.samples.images import Pixels


class ArrayPipeline:
    """A pipeline on one thread that runs a recipe on batches of `batch_size` images."""

    def __init__(self, recipe: Recipe, batch_size: int, device: torch.device) -> None:
        self._recipe, self._device = recipe, device
        self._worker = PipelineWorker(self._graph, batch_size, 1, device)

    def run(self, images: Sequence[NDArray[np.uint8]], inputs: Arrays) -> list[NDArray[Any]]:
        """Return images (H, W, 3) after the recipe. `inputs`: those of `Plan`."""
        self._worker.start({"image": list(images), **inputs})
        on_cpu = self._worker.finish()[0].as_cpu()
        return [np.array(on_cpu.at(at)) for at in range(len(images))]

    def close(self) -> None:
        """End the pipeline."""
        self._worker.close()

    def _graph(self) -> list[Node]:
        image = fn.external_source(name="image", layout="HWC")
        return [self._recipe.dali_graph(image.gpu() if self._device.type == "cuda" else image)]


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
