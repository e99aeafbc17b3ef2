"""Get a pipeline's images from video files that the GPU decodes, stretch by stretch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from detaug.arrays import Ints
from detaug.gpu.nvdec import engines_for, pipelines_for
from detaug.loading.image_feeds import ImageFeed, in_memory_node, tensor_list_of
from detaug.loading.nvdec_pipelines import NvdecPipelines
from detaug.loading.stretches_ahead import StretchesAhead
from detaug.ops.op import Node
from detaug.sources.source import Source, Upcoming
from detaug.sources.stretches import Stretches
from detaug.sources.video_files import VideoIndex


class FrameFeed(ImageFeed):
    """Frames of clips that are decoded on the GPU, before they are asked for."""

    def __init__(self, source: Source, stretches: Stretches, device: torch.device, engines: int) -> None:
        super().__init__(source, device, 1.0, None)
        pipelines = pipelines_for(engines)
        self._decoder = NvdecPipelines(stretches, device, pipelines)
        self._ahead = StretchesAhead(stretches, self._decoder.decode, pipelines)

    def prefetch(self, upcoming: Iterator[Upcoming]) -> None:
        """Decode what will be asked for first."""
        self._ahead.start(upcoming)

    def free(self) -> None:
        """Give back the memory of all frames."""
        self._ahead.close()
        self._decoder.close()

    def node(self, window: Node | None = None) -> Node:
        """Return the DALI node of the (H, W, 3) uint8 RGB frames."""
        return in_memory_node(self._device)

    def images_in_memory(self, indices: Ints) -> list[Tensor]:
        """Return the frames, complete. Raises VideoError, an OSError, for a video that does not decode."""
        return self.frames(indices)

    def inputs(self, indices: Ints, in_memory: list[Tensor]) -> dict[str, Any]:
        """Return the inputs of `node` for these frames, by name."""
        return {"image": tensor_list_of(in_memory)}

    def frames(self, indices: Ints) -> list[Tensor]:
        """Return the frames, complete. Raises VideoError, an OSError, for a video that does not decode."""
        return self._ahead.get(indices)

    def decoder_inputs(self, indices: Ints) -> dict[str, Any]:
        """Return no inputs: the pipeline has nothing to do."""
        return {}

    def decoded_memory(self, indices: Ints, outputs: list[Any]) -> Tensor:
        """Return the bytes of `frames`, one behind the other."""
        memory = torch.cat([frame.reshape(-1) for frame in outputs]) if outputs else self._nothing
        self.release(outputs)
        return memory

    def release(self, images: list[Tensor]) -> None:
        """Let the memory of frames be used again when the work on the current stream is done."""
        stream = torch.cuda.current_stream(self._device.index)
        for frame in {frame.untyped_storage().data_ptr(): frame for frame in images}.values():
            frame.record_stream(stream)


def make_feed(source: Source, device: torch.device, hw_decoder_load: float, cache: Any) -> ImageFeed:
    """Return the feed for a source: of frames where the GPU decodes its videos."""
    stretches = source.stretches
    if stretches is None or not source.nvdec or device.type == "cpu" or cache is not None:
        return ImageFeed(source, device, hw_decoder_load, cache)
    engines = [0 if isinstance(index, str) else engines_for(index, device) for index in stretches.indexes]
    _warn_of_others(stretches, engines)
    if not any(engines):
        return ImageFeed(source, device, hw_decoder_load, cache)
    return FrameFeed(source, stretches, device, max(engines))


def _warn_of_others(stretches: Stretches, engines: list[int]) -> None:
    others = [
        (path, index)
        for path, index, count in zip(stretches.files, stretches.indexes, engines, strict=True)
        if isinstance(index, VideoIndex) and not count
    ]
    if others:
        path, index = others[0]
        warnings.warn(
            f"the CPU decodes {len(others)} of {len(stretches.files)} videos, since NVDEC of this GPU does not; the "
            f"first is {path} ({index.coding.codec}, {index.coding.pixels}); it does after "
            "ffmpeg -i IN -pix_fmt yuv420p OUT.mp4",
            stacklevel=6,
        )
