"""Get a pipeline's images: from files that it decodes, or from the cache of decoded images."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from nvidia.dali import fn, types
from torch import Tensor

from detaug.boxes.views import Ints, start_offsets
from detaug.loading import decoding
from detaug.loading.image_cache import ImageCache
from detaug.ops.dali_internals import to_torch
from detaug.ops.op import Node
from detaug.sources.source import Source


class ImageFeed(Protocol):
    """Gives a pipeline its images, and a kernel the memory that they are in."""

    decodes: bool
    """Whether a pipeline must decode the images."""

    def node(self, window: Node | None = None) -> Node:
        """Return the DALI node of the (H, W, 3) uint8 RGB images. `window`: see `decoding.decoded`, if it decodes."""
        ...

    def inputs(self, indices: Ints) -> dict[str, Any]:
        """Return the inputs of the nodes for these images, by name."""
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
    """Images that the pipeline decodes."""

    decodes = True

    def __init__(self, source: Source, device: torch.device, hw_decoder_load: float) -> None:
        self._source, self._device, self._hw_decoder_load = source, device, hw_decoder_load

    def node(self, window: Node | None = None) -> Node:
        return decoding.decoded(self._source, self._device.type, self._hw_decoder_load, window)

    def inputs(self, indices: Ints) -> dict[str, Any]:
        return decoding.inputs(self._source, indices)

    def memory(self, indices: Ints, outputs: list[Any]) -> Tensor:
        length = 3 * int(self._source.pixels[indices].sum())
        return to_torch(outputs[0].as_reshaped_tensor([length]), self._device)

    def offsets(self, indices: Ints) -> Ints:
        return start_offsets(3 * self._source.pixels[indices])

    def free(self) -> None:
        """Do nothing: they hold no memory."""


class CacheFeed:
    """Images of the cache, which were checked when they were decoded."""

    decodes = False

    def __init__(self, cache: ImageCache, device: torch.device) -> None:
        self._cache, self._device = cache, device

    def node(self, window: Node | None = None) -> Node:
        """Return the cached images: shared on the CPU, copied on a GPU, where DALI shares contiguous batches only."""
        on_cpu = self._device.type == "cpu"
        device = "cpu" if on_cpu else "gpu"
        return fn.external_source(name="image", device=device, layout="HWC", dtype=types.UINT8, ndim=3, no_copy=on_cpu)

    def inputs(self, indices: Ints) -> dict[str, Any]:
        return {"image": self._cache.tensor_list(indices)}

    def memory(self, indices: Ints, outputs: list[Any]) -> Tensor:
        return self._cache.memory()

    def offsets(self, indices: Ints) -> Ints:
        self._cache.check(indices)
        return np.asarray(self._cache.offsets[indices])

    def free(self) -> None:
        self._cache.free()
