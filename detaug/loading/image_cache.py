"""Images decoded once and kept in the memory of the device, for `Loader(cache="device")`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, tensors, types
from torch.utils.dlpack import from_dlpack

from detaug.loading.bad_files import Faults, faults_behind, wrong_sizes
from detaug.loading.pipeline import DALI_ERRORS, Lane
from detaug.loading.settings import Settings
from detaug.ops.op import Node
from detaug.sources.coco_reader import CocoReader, Rows, decoded

AT_ONCE = 64
"""Images that are decoded together."""

ALIGNED = 256
"""Bytes: an image begins at a multiple, as in memory of its own."""


class DecodedImages:
    """The images at `rows`, (H, W, 3) uint8 RGB, decoded when this is made.

    `skip` is told of images that cannot be used; they are left out, unless it raises. Raises ValueError where the
    images need more memory than there is.

    `at` (n,): where in the memory of all of them each image of the json begins, in bytes, -1 for one that is not kept.
    """

    def __init__(
        self, reader: CocoReader, rows: Rows, device: torch.device, settings: Settings, skip: Callable[[Faults], None]
    ) -> None:
        rows = np.unique(rows)
        _check_room(reader, rows, device)
        room = -(-3 * reader.pixels[rows] // ALIGNED) * ALIGNED
        self._memory = torch.empty(int(room.sum()), dtype=torch.uint8, device=device)
        parts = self._memory.split_with_sizes(room.tolist())
        sizes = reader.sizes[rows].tolist()
        self._pixels = {
            row: part[: height * width * 3].view(height, width, 3)
            for row, part, (height, width) in zip(rows.tolist(), parts, sizes, strict=True)
        }
        self._images: dict[int, Any] = {}
        self.at = np.full(len(reader), -1)
        on_gpu = device.type == "cuda"
        self._together: Callable[..., Any] = tensors.TensorListGPU if on_gpu else tensors.TensorListCPU
        while len(rows):
            faults = self._decode(reader, rows, device, settings)
            if faults:
                skip(faults)
            rows = rows[(self.at[rows] < 0) & ~np.isin(rows, [*faults])]
        if on_gpu:
            torch.cuda.synchronize(device)

    def inputs(self, rows: Rows) -> dict[str, Any]:
        """What `kept` must be fed for the images at `rows`, by input name. Raises ValueError for one not here."""
        check_kept(self.at, rows)
        return {"image": self._together([self._image(row) for row in rows.tolist()], "HWC", contiguous=False)}

    def _image(self, row: int) -> Any:
        """DALI's view of it, made when it is needed: who paints from `memory` needs none."""
        if row not in self._images:
            self._images[row] = _of_dali(self._pixels[row])
        return self._images[row]

    def memory(self) -> torch.Tensor:
        """The bytes of all of them, for the current stream."""
        if self._memory.device.type == "cuda":
            self._memory.record_stream(torch.cuda.current_stream(self._memory.device.index))
        return self._memory

    def _decode(self, reader: CocoReader, rows: Rows, device: torch.device, how: Settings) -> Faults:
        """Decode and keep, up to a batch that has images which cannot be used: what is wrong with them."""
        lanes = deque(decoding_lanes(AT_ONCE, device, how) * how.depth)  # each as often as it takes batches in work
        to_do = deque(np.split(rows, range(AT_ONCE, len(rows), AT_ONCE)))
        running: deque[tuple[Rows, Lane]] = deque()
        while to_do or running:
            if to_do and len(running) < len(lanes):
                lanes[0].start(reader.inputs(to_do[0], device.type))
                running.append((to_do.popleft(), lanes[0]))
                lanes.rotate(-1)
            elif faults := self._keep(reader, running):
                return faults
        return {}

    def _keep(self, reader: CocoReader, running: deque[tuple[Rows, Lane]]) -> Faults:
        """Wait for the batch that was started first, and keep its images."""
        rows, lane = running[0]
        try:
            (images,) = lane.finish()
        except DALI_ERRORS as error:
            return faults_behind(error, reader, np.concatenate([each for each, _ in running]), lane.device)
        running.popleft()
        faults = wrong_sizes(reader, rows, np.array(images.shape()))
        for at, row in enumerate(rows.tolist()):
            if row not in faults:
                self.at[row] = self._pixels[row].copy_(from_dlpack(images[at])).storage_offset()
        return faults


def check_kept(at: Rows, rows: Rows) -> None:
    """Raises ValueError for an image of those at `rows` that is not kept. `at`: `DecodedImages.at`."""
    if not (kept := at[rows] >= 0).all():
        why = "it was skipped, or is another shard's; cache=None reads it"
        raise ValueError(f"image {rows[~kept][0]} of the json is not kept: {why}")


class NoLane:
    """In the place of a `Lane`, where images are painted from where they lie: nothing to start or to wait for."""

    def start(self, inputs: dict[str, Any]) -> None: ...

    def finish(self) -> list[Any]:
        return []


def kept(device: str) -> Node:
    """(H, W, 3) uint8 RGB images on `device`, fed by `DecodedImages.inputs`."""
    on_cpu = device == "cpu"  # on a GPU DALI would share only batches that lie in one piece, and might write into them
    place = "cpu" if on_cpu else "gpu"
    return fn.external_source(name="image", device=place, layout="HWC", dtype=types.UINT8, ndim=3, no_copy=on_cpu)


def decoding_lanes(batch_size: int, device: torch.device, how: Settings) -> list[Lane]:
    """Pipelines that decode and do nothing else, fed by `CocoReader.inputs`."""

    def graph() -> list[Node]:
        return [decoded(device.type, how.hw_decoder_load)]

    return [Lane(graph, batch_size, how.threads, device, how.depth) for _ in range(how.pipelines)]


def _of_dali(pixels: torch.Tensor) -> Any:
    if pixels.device.type == "cpu":
        return tensors.TensorCPU(pixels.numpy(), "HWC")
    return tensors.TensorGPU(pixels, "HWC", pixels.device.index)


def _check_room(reader: CocoReader, rows: Rows, device: torch.device) -> None:
    needed, free = 3 * int(reader.pixels[rows].sum()), _free(device)
    if needed > free:
        raise ValueError(
            f"cache='device' needs {needed / 1e9:.1f} GB for {len(rows)} decoded images, {device} has "
            f"{free / 1e9:.1f} GB left; leave cache out, or make the images smaller"
        )


def _free(device: torch.device) -> int:
    """Bytes; those too that torch keeps from tensors that are gone, such as a closed loader's images."""
    if device.type == "cuda":
        reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reserve
    with open("/proc/meminfo", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
