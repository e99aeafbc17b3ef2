"""Get a pipeline's images: from files that it decodes, the cache of decoded images, or videos that the GPU decodes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from nvidia.dali import fn, tensors, types
from torch import Tensor

from detaug.arrays import Ints, start_offsets
from detaug.files.video_file import VideoIndex
from detaug.gpu.streams import Copies, HostCopier
from detaug.loading.image_cache import ImageCache
from detaug.loading.pixel_check import PixelCheck
from detaug.pipelines import decoding
from detaug.pipelines.graph import Node, Nodes, apply_where
from detaug.pipelines.internals import to_torch
from detaug.recipes.fused_kernel import in_copied
from detaug.sources.source import Source
from detaug.storage.storage import Upcoming
from detaug.video.nvdec import NvdecPipelines, engines_for, pipelines_for
from detaug.video.reader import VideoReader
from detaug.video.stretches import Stretches, StretchesAhead


class Found(NamedTuple):
    """Where the images of a group are."""

    missing: Ints
    """Positions in the group of images that must be decoded."""
    on_host: Ints
    """Positions of images that must be copied to the GPU."""
    starts: Ints
    """(N,) where the fused kernel finds each image, see `triton_kernel.tile_type`."""


class ImageFeed:
    """Images that a pipeline decodes, or that are in the cache, if there is one. It keeps those that are decoded."""

    def __init__(self, source: Source, device: torch.device, hw_decoder_load: float, cache: ImageCache | None) -> None:
        self._source, self._device, self._hw_decoder_load = source, device, hw_decoder_load
        self.cache, self._copier = cache, HostCopier(device)
        dtype = getattr(torch, source.pixel_format.image_dtype)
        self._nothing = torch.empty(0, dtype=dtype, device=device)
        self._pixel_check = PixelCheck(source)

    def missing(self, indices: Ints) -> Ints:
        """Return the positions in `indices` of images that must be decoded."""
        return np.arange(len(indices)) if self.cache is None else self.cache.missing(indices)

    def prefetch(self, upcoming: Iterator[Upcoming]) -> None:
        """Let the source know which images it will read: without those that are in the cache when an epoch begins."""
        self._source.prefetch(upcoming if self.cache is None else _without_stored(upcoming, self.cache.addresses))

    def free(self) -> None:
        """Give back the memory of the cache."""
        if self.cache is not None:
            self.cache.free()

    # ------------------------------------------------------------------------------- for the graph of a recipe

    @property
    def decodes_files(self) -> bool:
        """Return whether the pipeline decodes the images in every epoch."""
        return self.cache is None and not self._source.decodes

    def node(self, part: Nodes | None = None) -> Node:
        """Return the DALI node of the (H, W, 3) uint8 RGB images. `part`: see `decoding.decoded`, without a cache."""
        if self.cache is None:
            return self.decoded_node(part)
        encoded = decoding.input_nodes(self._source)
        return apply_where(fn.external_source(name="missing"), in_memory_node(self._device), encoded, self._decode_node)

    def images_in_memory(self, indices: Ints) -> list[Tensor]:
        """Return the images of the cache, and a pixel in the place of each missing one; nothing without a cache.

        DALI copies images of a GPU on streams that know nothing of torch's, so they are complete when this returns.
        """
        if self.cache is None:
            return []
        self.cache.keep_for_current_stream()
        pixel = torch.zeros((1, 1, 3), dtype=torch.uint8, device=self._device)
        stored = zip(indices.tolist(), (self.cache.addresses[indices] != 0).tolist(), strict=True)
        images = [self.cache.image(index) if there else pixel for index, there in stored]
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device.index).synchronize()
        return images

    def release(self, images: list[Tensor]) -> None:
        """Let the memory of `images_in_memory` be used again when the work on the current stream is done."""

    def inputs(self, indices: Ints, in_memory: list[Tensor]) -> dict[str, Any]:
        """Return the inputs of `node` for these images, by name. `in_memory`: their `images_in_memory`.

        Raises BadFilesFound for images of which the decoder would lose bands or bits.
        """
        missing = self.missing(indices)
        encoded = decoding.inputs(self._source, indices, missing)
        self._pixel_check.check(indices, encoded)
        if self.cache is None:
            return encoded
        flags = np.zeros(len(indices), np.int32)
        flags[missing] = 1
        return {**encoded, "missing": flags, "image": tensor_list_of(in_memory)}

    def keep(self, indices: Ints, images: Any) -> None:
        """Store what `node` returned for these images, a DALI tensor list, in the cache."""
        if self.cache is not None:
            positions = self.cache.storable(indices)
            self.cache.store(
                {int(indices[position]): to_torch(images[position], self._device) for position in positions}
            )

    def _decode_node(self, _: Node, encoded: Nodes) -> Node:
        return decoding.decode(encoded, self._device.type, self._hw_decoder_load)

    # ------------------------------------------------------------------------------- for the fused kernel

    def decoded_node(self, part: Nodes | None = None) -> Node:
        """Return the DALI node of images that are decoded."""
        return decoding.decoded(self._source, self._device.type, self._hw_decoder_load, part)

    def decoder_inputs(self, indices: Ints) -> dict[str, Any]:
        """Return the inputs of `decoded_node` for these images, by name; none without an image. Raises as `inputs`."""
        encoded = decoding.inputs(self._source, indices) if len(indices) else {}
        self._pixel_check.check(indices, encoded)
        return encoded

    def find(self, indices: Ints) -> Found:
        """Find images, for a kernel that gets `decoded_memory` and `copies`."""
        missing = self.missing(indices)
        if self.cache is None:
            return Found(missing, missing[:0], self._decoded_offsets(indices))
        starts, on_host = self.cache.addresses[indices], np.flatnonzero(self.cache.on_host[indices])
        starts[missing] = self._decoded_offsets(indices[missing])
        starts[on_host] = in_copied(start_offsets(self.cache.lengths[indices[on_host]]))
        return Found(missing, on_host, starts)

    def frames(self, indices: Ints) -> list[Tensor]:
        """Return the images that are decoded on the GPU, without the pipeline; none, or all of these."""
        return []

    def decoded_memory(self, indices: Ints, outputs: list[Any]) -> Tensor:
        """Return the values of the images that were decoded, one behind the other: of `outputs`, or of `frames`."""
        if not len(indices):
            return self._nothing
        length = self._source.pixel_format.count * int(self._source.pixels[indices].sum())
        return to_torch(outputs[0].as_reshaped_tensor([length]), self._device)

    def copies(self, indices: Ints) -> Copies | None:
        """Begin to copy these images to the GPU."""
        if self.cache is None or not len(indices):
            return None
        lengths = self.cache.lengths[indices]
        return self._copier.copy(self.cache.addresses[indices], lengths, self.cache.guard)

    def copied_memory(self, copies: Copies | None) -> Tensor:
        """Return the bytes of `copies`, and wait until the cache holds what it should, both on the current stream."""
        if self.cache is not None:
            self.cache.keep_for_current_stream()
        if copies is None:
            return self._nothing
        copies.guard.wait(copies.memory)
        return copies.memory

    def keep_decoded(self, indices: Ints, memory: Tensor) -> None:
        """Store images of `decoded_memory` in the cache."""
        if self.cache is None:
            return
        starts, lengths = self._decoded_offsets(indices).tolist(), (3 * self._source.pixels[indices]).tolist()
        self.cache.store(
            {
                int(indices[position]): memory[starts[position] :][: lengths[position]]
                for position in self.cache.storable(indices)
            }
        )

    def _decoded_offsets(self, indices: Ints) -> Ints:
        return start_offsets(self._source.pixel_format.image_bytes * self._source.pixels[indices])


def _without_stored(upcoming: Iterator[Upcoming], addresses: Ints) -> Iterator[Upcoming]:
    """Leave out images with an address. Sources keep this: it must hold neither them nor the memory of the cache."""
    for images in upcoming:
        yield images.part(~images.mine | (addresses[images.indices] == 0))


def in_memory_node(device: torch.device) -> Node:
    """Return the node of `tensor_list_of`: shared on the CPU, copied on a GPU, where DALI shares whole batches only."""
    on_cpu = device.type == "cpu"
    place = "cpu" if on_cpu else "gpu"
    return fn.external_source(name="image", device=place, layout="HWC", dtype=types.UINT8, ndim=3, no_copy=on_cpu)


def tensor_list_of(images: list[Tensor]) -> Any:
    """Return images as a DALI tensor list that shares their memory."""
    on_cpu = images[0].device.type == "cpu"
    make: Callable[..., Any] = tensors.TensorListCPU if on_cpu else tensors.TensorListGPU
    return make([_dali_tensor(image) for image in images], "HWC", contiguous=False)


def _dali_tensor(image: Tensor) -> Any:
    on_cpu = image.device.type == "cpu"
    return tensors.TensorCPU(image.numpy(), "HWC") if on_cpu else tensors.TensorGPU(image, "HWC", image.device.index)


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

    def node(self, part: Nodes | None = None) -> Node:
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
        # frames share memory: once for each piece of it
        for frame in {frame.untyped_storage().data_ptr(): frame for frame in images}.values():
            frame.record_stream(stream)


def make_feed(source: Source, device: torch.device, hw_decoder_load: float, cache: Any) -> ImageFeed:
    """Return the feed for a source: of frames where the GPU decodes its videos."""
    if not isinstance(source, VideoReader) or not source.nvdec or device.type == "cpu" or cache is not None:
        return ImageFeed(source, device, hw_decoder_load, cache)
    stretches = source.stretches
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
