"""Where a pipeline's images come from: files that it decodes, or the cache of decoded images."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from nvidia.dali import fn, types
from torch import Tensor

from detaug.boxes.views import Ints, start_offsets
from detaug.loading.bad_files import BadFiles, wrong_sizes
from detaug.loading.image_cache import ImageCache
from detaug.ops.dali_internals import to_torch
from detaug.ops.op import Node
from detaug.sources.coco_reader import CocoReader, decoded


class ImageFeed(Protocol):
    """Gives a pipeline its images, and a kernel the memory that they are in."""

    decodes: bool
    """Does it need a pipeline to get the images?"""

    def nodes(self) -> list[Node]:
        """Return DALI nodes: the (H, W, 3) uint8 RGB image first, then whatever `bad_files` looks at."""
        ...

    def inputs(self, indices: Ints) -> dict[str, Any]:
        """Return what the nodes are fed for these images, by input name."""
        ...

    def bad_files(self, indices: Ints, outputs: list[Any]) -> BadFiles:
        """Return the files that cannot be used, from the outputs of a pipeline for these images."""
        ...

    def memory(self, indices: Ints, outputs: list[Any]) -> Tensor:
        """Return the bytes in which the images are, on the device."""
        ...

    def offsets(self, indices: Ints) -> Ints:
        """Return the byte at which each image starts in `memory`."""
        ...

    def free(self) -> None:
        """Give back memory that is held for images."""
        ...


class FileFeed:
    """Images that the pipeline decodes from files.

    `pad`: pad a file that is smaller than the json says to that size, so that DALI on a GPU does not end the process
    where a view lies outside of the image; `bad_files` reports it. The CPU decoder refuses such a file itself, and the
    fused kernel does not read one.
    """

    decodes = True

    def __init__(self, reader: CocoReader, device: torch.device, hw_decoder_load: float, *, pad: bool) -> None:
        self._reader, self._device, self._hw_decoder_load, self._pad = reader, device, hw_decoder_load, pad

    def nodes(self) -> list[Node]:
        image = decoded(self._device.type, self._hw_decoder_load)
        size = fn.external_source(name="min_size") if self._pad else None
        return [image if size is None else fn.pad(image, axes=[0, 1], shape=size), image.shape()]

    def inputs(self, indices: Ints) -> dict[str, Any]:
        min_size = {"min_size": self._reader.sizes[indices].astype(np.int32)} if self._pad else {}
        return {**self._reader.inputs(indices, self._device.type), **min_size}

    def bad_files(self, indices: Ints, outputs: list[Any]) -> BadFiles:
        return wrong_sizes(self._reader, indices, np.asarray(outputs[1].as_tensor()))

    def memory(self, indices: Ints, outputs: list[Any]) -> Tensor:
        length = 3 * int(self._reader.pixels[indices].sum())
        return to_torch(outputs[0].as_reshaped_tensor([length]), self._device)

    def offsets(self, indices: Ints) -> Ints:
        return start_offsets(3 * self._reader.pixels[indices])

    def free(self) -> None:
        """Files hold no memory."""


class CacheFeed:
    """Images of the cache, which were checked when they were decoded."""

    decodes = False

    def __init__(self, cache: ImageCache, device: torch.device) -> None:
        self._cache, self._device = cache, device

    def nodes(self) -> list[Node]:
        """DALI shares the cache's memory on the CPU. On a GPU it shares contiguous batches only, so there it copies."""
        on_cpu = self._device.type == "cpu"
        device = "cpu" if on_cpu else "gpu"
        return [
            fn.external_source(name="image", device=device, layout="HWC", dtype=types.UINT8, ndim=3, no_copy=on_cpu)
        ]

    def inputs(self, indices: Ints) -> dict[str, Any]:
        return {"image": self._cache.tensor_list(indices)}

    def bad_files(self, indices: Ints, outputs: list[Any]) -> BadFiles:
        return {}

    def memory(self, indices: Ints, outputs: list[Any]) -> Tensor:
        return self._cache.memory()

    def offsets(self, indices: Ints) -> Ints:
        self._cache.check(indices)
        return np.asarray(self._cache.offsets[indices])

    def free(self) -> None:
        self._cache.free()
