"""Painting on the CPU: torch and Pillow inside DALI's graph, several ops in one go, on the pipeline's threads.

DALI's operators for the CPU leave much to the compiler: 500 x 375 to 300 x 300 takes one core 140 us with torch, 860
with Pillow, 2,300 with `fn.resize`; a linear map of colour 180 with torch, 1,100 with `fn.coord_transform`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from nvidia.dali import Pipeline, fn
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate, pad

Array: TypeAlias = NDArray[Any]
Node: TypeAlias = Any

CpuKernel: TypeAlias = Callable[..., Tensor]
"""From an image, (3, H, W) in 0..255 of any type and strides, and what an op planned for it: the image after.

In whole numbers, if it is to be bytes."""


def painted(
    image: Node, painters: Sequence[tuple[CpuKernel, dict[str, Node]]], layout: str = "HWC", *, as_is: bool = False
) -> Node:
    """The image after all painters, each with its inputs: bytes, or `as_is` the type that they leave."""
    names = [list(inputs) for _, inputs in painters]
    nodes = [node for _, inputs in painters for node in inputs.values()]

    def sample(pixels: Array, *planned: Array) -> Array:
        tensor, values = torch.from_numpy(pixels).permute(2, 0, 1), iter(planned)
        for (painter, _), own in zip(painters, names, strict=True):
            tensor = painter(tensor, **{name: next(values) for name in own})
        made = tensor if as_is else tensor.to(torch.uint8)
        return np.asarray((made.permute(1, 2, 0) if layout == "HWC" else made).contiguous().numpy())

    return fn.python_function(image, *nodes, function=_on_threads(sample), batch_processing=True, output_layouts=layout)


def _on_threads(sample: Callable[..., Array]) -> Callable[..., list[Array]]:
    """A batch on as many threads as the pipeline has: torch lets go of Python while it computes."""
    pipeline = Pipeline.current()
    count = pipeline.num_threads
    pool = _pools[pipeline] = _pools.get(pipeline) or _single_threads(count)

    def batch(*columns: list[Array]) -> list[Array]:
        samples = list(zip(*columns, strict=True))
        parts = list(pool.map(lambda first: [sample(*each) for each in samples[first::count]], range(count)))
        return [parts[at % count][at // count] for at in range(len(samples))]

    return batch


_pools: WeakKeyDictionary[Pipeline, ThreadPoolExecutor] = WeakKeyDictionary()


def end_threads(pipeline: Pipeline) -> None:
    """Those that paint for it: DALI refers to itself around a Python function, which waits for Python's collector."""
    if pool := _pools.pop(pipeline, None):
        pool.shutdown(wait=False)


def _single_threads(count: int) -> ThreadPoolExecutor:
    """Threads in which torch computes alone: it would start others from each, that wait for each other."""
    pool, all_there = ThreadPoolExecutor(count), Barrier(count)

    def alone(_: int) -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # a thread takes the number over at its first question, and keeps it
        all_there.wait()

    with _NUMBER_OF_THREADS:
        usual = torch.get_num_threads()
        list(pool.map(alone, range(count)))
        torch.set_num_threads(usual)
    return pool


_NUMBER_OF_THREADS = Lock()
"""Of those that make pools at once, one changes torch's number, for that of a thread is everybody's too."""


# ------------------------------------------------------------------------------------------- painters


def resized(image: Tensor, region: Array) -> Tensor:
    """A window of the image in another size, antialiased, linear.

    `region`: pairs (y, x): two corners of the window, which is mirrored where the second comes first, and the size.
    """
    low, high = np.sort(region[:2], axis=0)
    whole = not (region[:2] % 1).any()
    image = (_of_whole_pixels if whole else _of_parts)(image, low, high, region[2].astype(int).tolist())
    mirrored = (np.flatnonzero(region[0] > region[1]) + 1).tolist()
    return image.flip(mirrored) if mirrored else image


def _of_whole_pixels(image: Tensor, low: Array, high: Array, size: list[int]) -> Tensor:
    (top, left), (bottom, right) = low.astype(int).tolist(), high.astype(int).tolist()
    return interpolate(image[None, :, top:bottom, left:right], size, mode="bilinear", antialias=True)[0]


def _of_parts(image: Tensor, low: Array, high: Array, size: list[int]) -> Tensor:
    """Pillow takes windows that begin and end inside of pixels; torch does not. Pillow would read beyond them, too."""
    (top, left), (bottom, right) = np.floor(low).astype(int).tolist(), np.ceil(high).astype(int).tolist()
    box = (*(low[::-1] - (left, top)).tolist(), *(high[::-1] - (left, top)).tolist())
    pillow = Image.fromarray(image[:, top:bottom, left:right].permute(1, 2, 0).contiguous().numpy())
    return torch.from_numpy(np.array(pillow.resize(size[::-1], Image.Resampling.BILINEAR, box=box))).permute(2, 0, 1)


def on_canvas(image: Tensor, region: Array, fill: Sequence[float]) -> Tensor:
    """The image `resized`, on a canvas. `region`: two more pairs (y, x), where the canvas begins in it, and its size.

    The image lies on the canvas whole, or begins where that ends: then none of it is there.
    """
    (y, x), (height, width) = (-region[3]).astype(int).tolist(), region[4].astype(int).tolist()
    nothing = y >= height or x >= width
    if not nothing and (region[2] == region[4]).all():
        return resized(image, region)
    row = torch.tensor(fill).round().byte().repeat(width)
    canvas = row.expand(height, -1).contiguous().view(height, width, 3).permute(2, 0, 1)
    if not nothing:
        part = resized(image, region)
        canvas[:, y : y + part.shape[1], x : x + part.shape[2]] = part
    return canvas


def color_mapped(image: Tensor, color: Array) -> Tensor:
    """A linear map of RGB, (3, 4), rounded and clipped.

    Channels first, since a product with three columns is quick where the pixels are its long axis.
    """
    factors, channels = torch.from_numpy(color), image.contiguous().flatten(1).float()
    mapped = torch.addmm(factors[:, 3:], factors[:, :3], channels)
    return _in_whole_numbers(mapped).view(image.shape)


def normalized(image: Tensor, mean: Tensor, std: Tensor, dtype: torch.dtype, canvas: Array | None = None) -> Tensor:
    """(image - mean) / std; `mean` and `std`: (3, 1, 1). `canvas`: (height, width) to pad it to with zeros."""
    made = image.contiguous().float().sub_(mean).div_(std)
    made = (_in_whole_numbers(made) if dtype == torch.uint8 else made).to(dtype)
    if canvas is None:
        return made
    height, width = canvas.astype(int).tolist()
    return pad(made, (0, width - made.shape[2], 0, height - made.shape[1]))


def _in_whole_numbers(image: Tensor) -> Tensor:
    """Rounded and clipped to 0..255, in place: torch would cut off what is behind the point, and wrap around."""
    return image.round_().clamp_(0, 255)
