"""Decode pictures of other bands than 8-bit RGB, and scale parts of them."""

from __future__ import annotations

from io import BytesIO
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from detaug.arrays import Ints
from detaug.converters.files.decodable import as_decodable
from detaug.converters.files.image_headers import ImageError, parse_image_header
from detaug.converters.machine import available_cores
from detaug.sources.source import Source


class BandDecoder:
    """Decodes pictures of a source with DALI, one at a time: the values are those of a loader without tiles."""

    def __init__(self, source: Source) -> None:
        self._source, self._pipeline, self._lock = source, None, Lock()

    def decode(self, index: int) -> NDArray[Any]:
        """Return a picture (H, W, bands) as displayed. Raises OSError for one that does not decode, or has others."""
        if self._source.decodes:
            return np.asarray(self._source.contents(np.array([index]))[0])
        content = self._source.read(index)
        try:
            header = parse_image_header(BytesIO(content))
        except ImageError as error:
            raise OSError(str(error)) from None
        size, expected = (header.height, header.width), self._source.pixel_format
        if size != tuple(self._source.sizes[index]):
            raise OSError(self._source.explain_size(index, size))
        if fault := header.pixels.fault(expected.channels, expected.dtype, as_is=True):
            raise OSError(fault)
        return self._decoded(np.frombuffer(content, np.uint8))

    def _decoded(self, content: NDArray[np.uint8]) -> NDArray[Any]:
        encoded = as_decodable(content)
        with self._lock:
            try:
                pipeline = self._pipeline = self._pipeline or _pipeline(self._source.pixel_format.dtype)
                pipeline.feed_input("bytes", [encoded])
                return np.array(pipeline.run()[0].at(0))
            except RuntimeError:
                self._pipeline = None  # a pipeline cannot be used after an error
                raise OSError("does not decode") from None


def _pipeline(dtype: str) -> Any:
    from nvidia.dali import Pipeline, fn, types  # slow to import

    kind = {"uint8": types.UINT8, "uint16": types.UINT16, "float32": types.FLOAT}[dtype]
    pipeline = Pipeline(1, available_cores(), None, prefetch_queue_depth=1)
    with pipeline:
        encoded = fn.external_source(name="bytes", dtype=types.UINT8, ndim=1)
        pipeline.set_outputs(fn.decoders.image(encoded, device="cpu", output_type=types.ANY_DATA, dtype=kind))
    pipeline.build()
    return pipeline


def part_of_bands(picture: NDArray[Any], window: Ints, size: Ints) -> NDArray[Any]:
    """Return a tile of a picture (H, W, bands): `window` x, y, width, height; `size` (height, width).

    Scaled as `Resize` does, bilinear with antialiasing, and rounded to the values of the type.
    """
    x, y, width, height = window.tolist()
    part = picture[y : y + height, x : x + width]
    if part.shape[:2] == tuple(size.tolist()):
        return np.array(part)
    values = torch.from_numpy(part.astype(np.float32)).permute(2, 0, 1)[None]
    scaled = interpolate(values, size.tolist(), mode="bilinear", antialias=True)[0].permute(1, 2, 0).numpy()
    whole = scaled if part.dtype.kind == "f" else scaled.round()
    return np.ascontiguousarray(whole.astype(part.dtype))
