"""Decode images of a source outside of a loader's pipelines: for sources that give pixels of other sources."""

from __future__ import annotations

from io import BytesIO
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bytes, Ints
from detaug.files.decodable import as_decodable, contiguous_tiff
from detaug.files.image_headers import ImageError, parse_image_header
from detaug.files.large_images import too_few_bytes
from detaug.machine.cores import available_cores
from detaug.machine.threads import Threads
from detaug.pixel_format import PixelFormat
from detaug.sources.source import Source

_AT_ONCE = 8
"""Images that are decoded together, in memory twice."""


class SourceDecoder:
    """Decodes images of a source with DALI: to the values that a loader of the source gets."""

    def __init__(self, source: Source) -> None:
        self._source, self._lock = source, Lock()
        self._pipeline: Any = None

    def __reduce__(self) -> Any:
        return SourceDecoder, (self._source,)

    def decode(self, indices: Ints) -> list[NDArray[Any]]:
        """Return images as displayed, (H, W, bands of the file), of the type of the source.

        Raises OSError for one that does not decode, has another size than the source says, or other bands.
        """
        contents = self._source.contents(indices)
        if self._source.decodes:
            return contents
        with Threads(available_cores()) as threads:
            encoded = threads.map(self._checked, indices.tolist(), contents)
        starts = range(0, len(encoded), _AT_ONCE)
        return [image for start in starts for image in self._decoded(encoded[start : start + _AT_ONCE])]

    def works(self) -> bool:
        """Return whether a good image decodes."""
        pixels = self._source.pixel_format
        try:
            return bool(self._decoded([contiguous_tiff(np.zeros((1, 1, pixels.channels), pixels.dtype))]))
        except OSError:
            return False

    def _checked(self, index: int, content: Bytes) -> Bytes:
        """Return an encoded image that DALI reads."""
        try:
            header = parse_image_header(BytesIO(content.data))
        except ImageError as error:
            raise OSError(str(error)) from None
        size, expected = (header.height, header.width), self._source.pixel_format
        if size != tuple(self._source.sizes[index]):
            raise OSError(self._source.explain_size(index, size))
        fault = header.pixels.fault(expected.channels, expected.dtype, as_is=not expected.is_rgb8)
        if fault := fault or too_few_bytes(header.width, header.height, len(content)):
            raise OSError(fault)
        return as_decodable(content, size, as_rgb=expected.is_rgb8)

    def _decoded(self, encoded: list[Bytes]) -> list[NDArray[Any]]:
        with self._lock:
            try:
                self._pipeline = self._pipeline or _pipeline(self._source.pixel_format)
                self._pipeline.feed_input("bytes", encoded)
                (images,) = self._pipeline.run()
                return [np.array(images.at(index)) for index in range(len(encoded))]
            except RuntimeError:
                self._pipeline = None  # a pipeline cannot be used after an error
                raise OSError("does not decode") from None


def _pipeline(pixels: PixelFormat) -> Any:
    from nvidia.dali import Pipeline, fn, types  # slow to import

    pipeline = Pipeline(_AT_ONCE, available_cores(), None, prefetch_queue_depth=1)
    with pipeline:
        encoded = fn.external_source(name="bytes", dtype=types.UINT8, ndim=1)
        pipeline.set_outputs(fn.decoders.image(encoded, device="cpu", **as_stored(pixels)))
    pipeline.build()
    return pipeline


def as_stored(pixels: PixelFormat) -> dict[str, Any]:
    """Return the arguments with which DALI's decoder returns the values of the files: in their type, or it scales."""
    from nvidia.dali import types

    return {"output_type": types.RGB} if pixels.is_rgb8 else {"output_type": types.ANY_DATA, "dtype": dali_type(pixels)}


def dali_type(pixels: PixelFormat) -> Any:
    """Return DALI's name of the type."""
    from nvidia.dali import types

    return {"uint8": types.UINT8, "uint16": types.UINT16, "float32": types.FLOAT}[pixels.dtype]
