"""Keep decoded images in the memory of the device, for `Loader(cache="device")`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from nvidia.dali import tensors
from torch.utils.dlpack import from_dlpack

from detaug.boxes.views import Ints
from detaug.converters.findings.errors import InputError
from detaug.converters.machine import available_memory
from detaug.loading.bad_files import BadFiles, files_behind, unreadable_files
from detaug.loading.decoding import decoded, inputs
from detaug.loading.pipeline import DALI_ERRORS, PipelineWorker
from detaug.loading.settings import Settings
from detaug.ops.op import Node
from detaug.sources.source import Source

DECODE_BATCH = 64
"""Images that are decoded as one batch."""

ALIGNMENT = 256
"""Bytes: each image starts at a multiple, as an allocation of its own would."""


class ImageCache:
    """Decoded images, (H, W, 3) uint8 RGB, in one piece of memory on the device.

    `skip` is called with the files that cannot be used; they are left out, unless it raises. Raises InputError if the
    images need more memory than is free.

    `offsets` (n,): the byte at which each image of the source starts; -1 for an image that is not cached.
    """

    def __init__(
        self,
        source: Source,
        indices: Ints,
        device: torch.device,
        settings: Settings,
        skip: Callable[[BadFiles], None],
    ) -> None:
        indices = np.unique(indices)
        _check_memory(source, indices, device)
        room = -(-3 * source.pixels[indices] // ALIGNMENT) * ALIGNMENT
        self._memory = torch.empty(int(room.sum()), dtype=torch.uint8, device=device)
        self._pixels = _image_views(self._memory, indices, room, source.sizes[indices])
        self._dali_images: dict[int, Any] = {}
        self.offsets = np.full(len(source), -1)
        while len(indices):
            bad = self._decode(source, indices, device, settings)
            if bad:
                skip(bad)
            indices = indices[(self.offsets[indices] < 0) & ~np.isin(indices, [*bad])]
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def check(self, indices: Ints) -> None:
        """Raise InputError for an image that is not cached."""
        missing = indices[self.offsets[indices] < 0]
        if len(missing):
            why = "it was skipped, or belongs to another shard; cache=None reads it"
            raise InputError(f"image {missing[0]} of the json is not in the cache: {why}")

    def tensor_list(self, indices: Ints) -> Any:
        """Return the images as a DALI tensor list, without a copy. Raises InputError for one that is not cached."""
        self.check(indices)
        on_gpu = self._memory.device.type == "cuda"
        make: Callable[..., Any] = tensors.TensorListGPU if on_gpu else tensors.TensorListCPU
        return make([self._dali_image(index) for index in indices.tolist()], "HWC", contiguous=False)

    def memory(self) -> torch.Tensor:
        """Return the bytes of all images, for use on the current stream."""
        if self._memory.device.type == "cuda":
            self._memory.record_stream(torch.cuda.current_stream(self._memory.device.index))
        return self._memory

    def free(self) -> None:
        """Give the memory back. The cache cannot be used afterwards."""
        self._memory = self._memory.new_empty(0)
        self._pixels.clear()
        self._dali_images.clear()

    def _dali_image(self, index: int) -> Any:
        if index not in self._dali_images:
            pixels = self._pixels[index]
            self._dali_images[index] = (
                tensors.TensorGPU(pixels, "HWC", pixels.device.index)
                if pixels.device.type == "cuda"
                else tensors.TensorCPU(pixels.numpy(), "HWC")
            )
        return self._dali_images[index]

    def _decode(self, source: Source, indices: Ints, device: torch.device, settings: Settings) -> BadFiles:
        """Decode and store images; stop at the first bad batch and return what is wrong with it."""
        workers = decoding_workers(source, DECODE_BATCH, device, settings)
        try:
            return self._decode_with(deque(workers * settings.depth), source, indices)
        finally:
            for worker in workers:
                worker.close()

    def _decode_with(self, workers: deque[PipelineWorker], source: Source, indices: Ints) -> BadFiles:
        waiting = deque(np.split(indices, range(DECODE_BATCH, len(indices), DECODE_BATCH)))
        in_flight: deque[tuple[Ints, PipelineWorker]] = deque()
        while waiting or in_flight:
            if waiting and len(in_flight) < len(workers):
                try:
                    encoded = inputs(source, waiting[0])
                except OSError as error:
                    return unreadable_files(error, source, waiting[0])
                workers[0].start(encoded)
                in_flight.append((waiting.popleft(), workers[0]))
                workers.rotate(-1)
            elif bad := self._store_next(source, in_flight):
                return bad
        return {}

    def _store_next(self, source: Source, in_flight: deque[tuple[Ints, PipelineWorker]]) -> BadFiles:
        """Wait for the batch that was started first, and store its images."""
        indices, worker = in_flight[0]
        try:
            (images,) = worker.finish()
        except DALI_ERRORS as error:
            return files_behind(error, source, np.concatenate([each for each, _ in in_flight]), worker.device)
        in_flight.popleft()
        for at, index in enumerate(indices.tolist()):
            self.offsets[index] = self._pixels[index].copy_(from_dlpack(images[at])).storage_offset()
        return {}


def decoding_workers(source: Source, batch_size: int, device: torch.device, settings: Settings) -> list[PipelineWorker]:
    """Return pipelines that only decode, fed with `inputs`."""

    def graph() -> list[Node]:
        return [decoded(source, device.type, settings.hw_decoder_load)]

    threads, depth = settings.threads, settings.depth
    return [PipelineWorker(graph, batch_size, threads, device, depth) for _ in range(settings.pipelines)]


def _image_views(memory: torch.Tensor, indices: Ints, room: Ints, sizes: Ints) -> dict[int, torch.Tensor]:
    """Return by index the (H, W, 3) image at the start of each of consecutive pieces of `room` (n,) bytes."""
    pieces = zip(indices.tolist(), memory.split_with_sizes(room.tolist()), sizes.tolist(), strict=True)
    return {index: piece[: h * w * 3].view(h, w, 3) for index, piece, (h, w) in pieces}


def _check_memory(source: Source, indices: Ints, device: torch.device) -> None:
    needed, free = 3 * int(source.pixels[indices].sum()), _free_memory(device)
    if needed > free:
        raise InputError(
            f"cache='device' needs {needed / 1e9:.1f} GB for {len(indices)} decoded images, {device} has "
            f"{free / 1e9:.1f} GB left; leave cache out, or make the images smaller"
        )


def _free_memory(device: torch.device) -> int:
    """Return the free bytes, with those that torch holds in reserve, for example from a closed loader."""
    if device.type == "cuda":
        reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reserve
    return available_memory()
