"""Run a recipe on arrays in a DALI pipeline: no files, no loader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from nvidia.dali import fn

from detaug.loading.pipeline import PipelineWorker
from detaug.ops.op import Arrays, Node
from detaug.ops.recipe import Recipe


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
