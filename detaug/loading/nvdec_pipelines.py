"""Decode frames of videos to the memory of a GPU: with NVDEC, or on the CPU what NVDEC does not decode."""

from __future__ import annotations

from queue import SimpleQueue

import numpy as np
import torch
from nvidia.dali import fn, types
from torch import Tensor

from detaug.arrays import Bytes, Ints
from detaug.gpu.nvdec import engines_for
from detaug.loading.pipeline import DALI_ERRORS, PipelineWorker
from detaug.ops.dali_internals import is_of_device, to_torch
from detaug.ops.op import Node
from detaug.sources.stretches import Stretches, VideoPart
from detaug.sources.video_decoding import decode_frames
from detaug.sources.video_files import VideoError
from detaug.sources.video_packets import cut


class NvdecPipelines:
    """DALI pipelines that decode one part of a video at a time each, called by `pipelines` threads at most."""

    def __init__(self, stretches: Stretches, device: torch.device, pipelines: int) -> None:
        self._stretches, self._device = stretches, device
        self._workers: SimpleQueue[_Worker] = SimpleQueue()
        for _ in range(pipelines):
            self._workers.put(_Worker(device))
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def decode(self, frames: Ints) -> Tensor:
        """Return frames of one video, as positions in the source: (F, H, W, 3) uint8 RGB, upright, on the GPU.

        No stream needs to wait for them. Raises VideoError, an OSError, where they do not decode.
        """
        part = self._stretches.part(frames)
        if engines_for(part.frames, self._device):
            try:
                return self._with_nvdec(part)
            except DALI_ERRORS as error:
                if is_of_device(error):
                    raise
        decoded = np.stack(decode_frames(*part))
        return self._complete(torch.from_numpy(decoded))

    def close(self) -> None:
        """End the pipelines."""
        while not self._workers.empty():
            self._workers.get().close()

    def _with_nvdec(self, part: VideoPart) -> Tensor:
        content, at = cut(*part)
        worker = self._workers.get()
        try:
            frames = worker.decode(content, at)
        finally:
            self._workers.put(worker)
        upright = self._complete(frames, part.frames.coding.turns)
        if upright.shape[1:3] != part.frames.size:
            (height, width), (h, w) = upright.shape[1:3], part.frames.size
            raise VideoError(f"changes its size: it has frames of {width} x {height} pixels, the first has {w} x {h}")
        return upright

    def _complete(self, frames: Tensor, turns: int = 0) -> Tensor:
        """Return a copy in torch's memory, when it is complete. One stream makes all: it can then reuse memory."""
        with torch.cuda.stream(self._stream):
            upright = torch.rot90(frames, turns, (1, 2))
            copy = torch.empty(upright.shape, dtype=torch.uint8, device=self._device).copy_(upright)
            done = self._stream.record_event()
        done.synchronize()
        return copy


class _Worker:
    """A pipeline, made when it is needed first, and again after an error, which ends it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pipeline: PipelineWorker | None = None
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def decode(self, content: Bytes, at: Ints) -> Tensor:
        """Return frames of a video file that is in memory, when they are complete. They are DALI's."""
        self._pipeline = self._pipeline or PipelineWorker(_graph, 1, 1, self._device)
        try:
            with torch.cuda.stream(self._stream):
                self._pipeline.start({"video": [content], "frames": [at.astype(np.int32)]})
                (frames,) = self._pipeline.finish()
            self._stream.synchronize()
            return to_torch(frames[0], self._device)
        except DALI_ERRORS:
            self.close()
            raise

    def close(self) -> None:
        if self._pipeline:
            self._pipeline.close()
        self._pipeline = None


def _graph() -> list[Node]:
    content = fn.external_source(name="video", no_copy=True, dtype=types.UINT8, ndim=1)
    at = fn.external_source(name="frames", dtype=types.INT32, ndim=1)
    return [fn.decoders.video(content, device="mixed", frames=at, affine=False)]
