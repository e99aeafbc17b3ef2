"""Render images that are arrays: with the CPU kernels alone, in a DALI pipeline, or with Triton's kernels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Lock

import numpy as np
import torch
from nvidia.dali import fn
from torch import Tensor

from detaug.arrays import Arrays, start_offsets
from detaug.ops.cpu_kernels import run_kernels
from detaug.pipelines.graph import Node
from detaug.pipelines.worker import PipelineWorker
from detaug.recipes.kernel_chain import KernelChain, chain_for
from detaug.recipes.recipe import Plan, Recipe, check_size
from detaug.samples.images import Pixels


class ArrayRenderer:
    """Renders `batch_size` images at a time after a recipe.

    On the CPU it calls the CPU kernels of the ops. If an op has none, a DALI pipeline renders, which takes 1 ms more.
    """

    def __init__(self, recipe: Recipe, batch_size: int = 1, device: torch.device | None = None) -> None:
        self._recipe, self._batch_size, self._device = recipe, batch_size, device or torch.device("cpu")
        self._channels_first = "output" in recipe.stages and not recipe.channels_last
        self._pipeline: PipelineWorker | None = None
        self._process = 0
        self._lock = Lock()

    def render(self, images: Sequence[Pixels], plan: Plan) -> list[Tensor]:
        """Return images (H, W, 3) after the recipe, (3, h, w) on the CPU. Raises OpError for a size that no op planned.

        Bytes 0..255; after `Normalize` its type.
        """
        sizes = plan.views.size.astype(int).tolist()
        if chain := chain_for(self._recipe, self._device):
            return _with_triton(chain, images, plan, self._device)
        on_cpu = self._device.type == "cpu" and self._recipe.cpu_kernels is not None
        rendered = (self._with_kernels if on_cpu else self._in_pipeline)(images, plan.inputs)
        for image, size in zip(rendered, sizes, strict=True):
            check_size(image.shape[1:], size)
        return rendered

    def close(self) -> None:
        """End the pipeline, if there is one."""
        if self._pipeline:
            self._pipeline.close()
        self._pipeline = None

    def _with_kernels(self, images: Sequence[Pixels], inputs: Arrays) -> list[Tensor]:
        kernels = self._recipe.cpu_kernels or ()
        planned = [
            [(kernel, {name: inputs[feed][index] for name, feed in names.items()}) for kernel, names in kernels]
            for index in range(len(images))
        ]
        as_is = "output" in self._recipe.stages
        return [run_kernels(image, fed, as_is=as_is) for image, fed in zip(images, planned, strict=True)]

    def _in_pipeline(self, images: Sequence[Pixels], inputs: Arrays) -> list[Tensor]:
        """Use one pipeline for all calls. A forked process makes its own: it has none of the parent's threads."""
        with self._lock:
            if self._pipeline is None or self._process != os.getpid():
                self._pipeline = PipelineWorker(self._graph, self._batch_size, 1, self._device)
                self._process = os.getpid()
            self._pipeline.start({"image": list(images), **inputs})
            on_cpu = self._pipeline.finish()[0].as_cpu()
        rendered = [torch.from_numpy(np.array(on_cpu.at(index))) for index in range(len(images))]
        return rendered if self._channels_first else [image.permute(2, 0, 1) for image in rendered]

    def _graph(self) -> list[Node]:
        image = fn.external_source(name="image", layout="HWC")
        return [self._recipe.dali_graph(image.gpu() if self._device.type == "cuda" else image)]


def _with_triton(chain: KernelChain, images: Sequence[Pixels], plan: Plan, device: torch.device) -> list[Tensor]:
    shapes, sizes = np.array([image.shape for image in images]), plan.views.size.astype(int)
    parameters = chain.parameters(plan.views, shapes[:, :2], plan.inputs)
    (on_gpu,) = chain.to_device([parameters], [start_offsets(shapes.prod(1))])
    height, width = sizes.max(0).tolist()
    memory = torch.from_numpy(np.concatenate([image.ravel() for image in images])).to(device)
    rendered = chain.render(memory, memory, on_gpu, (height, width)).cpu()
    return [image[:, :h, :w] for image, (h, w) in zip(rendered, sizes.tolist(), strict=True)]
