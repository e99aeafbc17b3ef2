"""Compute the optical flow of finished clips, with the GPU's engine for it."""

from __future__ import annotations

import torch
from nvidia.dali import fn, types
from torch import Tensor

from detaug.ops.normalize import Normalize
from detaug.ops.optical_flow import OpticalFlow
from detaug.pipelines.graph import Node
from detaug.pipelines.internals import to_torch
from detaug.pipelines.worker import PipelineWorker
from detaug.recipes.recipe import Recipe


class FlowPipeline:
    """A DALI pipeline for batches of at most `clips` clips of `frames` frames, made when it is first needed."""

    def __init__(self, op: OpticalFlow, recipe: Recipe, clips: int, frames: int, device: torch.device) -> None:
        self._op, self._clips, self._frames, self._device = op, clips, frames, device
        last = recipe.ops[-1]
        self._normalize = last if isinstance(last, Normalize) else None
        self._worker: PipelineWorker | None = None

    def __call__(self, images: Tensor) -> Tensor:
        """Return (N, F - 1, 2, h, w) float32, (x, y) pixels, for (N * F, 3, H, W) frames after the recipe.

        Of two frames, DALI has the motion from the second one to the first, where the second one's pixels are. So it
        gets the clips backwards.
        """
        frames = frames_of(images, self._normalize)
        frames = frames.reshape(-1, self._frames, *frames.shape[1:]).flip(1)
        self._worker = self._worker or PipelineWorker(self._graph, self._clips, 1, self._device)
        self._worker.start({"frames": list(frames)})
        (flow,) = self._worker.finish()
        return to_torch(flow.as_tensor(), self._device).flip(1).permute(0, 1, 4, 2, 3).contiguous()

    def close(self) -> None:
        """End the pipeline."""
        if self._worker:
            self._worker.close()
        self._worker = None

    def _graph(self) -> list[Node]:
        frames = fn.external_source(name="frames", device="gpu", layout="FHWC", dtype=types.UINT8, ndim=4)
        return [fn.optical_flow(frames, preset=self._op.preset, output_grid=self._op.grid)]


def make_flow(recipe: Recipe, clips: int, frames: int, device: torch.device) -> FlowPipeline | None:
    """Return the pipeline for the recipe's `OpticalFlow`, if it has one."""
    op = recipe.optical_flow
    return FlowPipeline(op, recipe, clips, frames, device) if op else None


def frames_of(images: Tensor, normalize: Normalize | None) -> Tensor:
    """Return images (n, 3, H, W) after `Normalize` as (n, H, W, 3) uint8 in 0..255."""
    images = images.permute(0, 2, 3, 1)
    if normalize is None or images.dtype == torch.uint8:
        return images.contiguous()
    mean, std = (torch.tensor(values, dtype=torch.float32, device=images.device) for values in normalize.of_values())
    return (images.float() * std + mean).round().clamp(0, 255).to(torch.uint8).contiguous()
